"""Load a library in a thread, while the main thread goes on and imports an extension module.

Usage: loading.py SECONDS LIBRARY [FUNCTION]...

Prints the error as JSON, and the number of turns of the main thread. The deadline is in seconds.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
from pathlib import Path

from opentelemetry.instrumentation.hardware.drivers import shared_library as library

seconds, path, *functions = sys.argv[1:]
library.DEADLINE = float(seconds)
report: dict[str, object] = {"error": None, "turns": 0}


def load() -> None:
    try:
        library.load(path, *functions)
    except OSError as error:
        report["error"] = [type(error).__name__, str(error)]


thread = threading.Thread(target=load)
thread.start()
turns = 0
while thread.is_alive():
    time.sleep(0.01)
    turns += 1
    if turns == 3 and "WAITS" not in os.environ:
        importlib.import_module("_zoneinfo")  # needs the loader's lock, which is held while a constructor runs
    if Path(f"{path}.begun").exists():  # the constructor waits for this, in this process
        Path(f"{path}.go").touch()
report["turns"] = turns
print(json.dumps(report))
