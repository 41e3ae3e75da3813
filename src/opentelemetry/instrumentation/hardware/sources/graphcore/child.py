"""The program that asks Graphcore's library, in a process of its own: it may hang, print, or bring the process down.

It says a line of JSON for each look: a list of devices, each a mapping of texts; or, once, an object with the error
that keeps it from looking. It needs nothing but Python's own library::

    python -I -S child.py FOLDER all|active SECONDS
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from typing import Any


def look(information: Any) -> list[dict[str, str]]:
    """The devices, with all that is said of each."""
    return [{str(key): str(value) for key, value in dict(device).items()} for device in information.getDevices()]


def opened(library: Any, discovery: str) -> Any:
    """The library's view of the devices, which is made anew at every look."""
    modes = {"all": "DiscoverAllPartitionIPUs"}
    arguments = [getattr(library, modes[discovery])] if discovery in modes else []
    information = library.gcipuinfo(*arguments)
    information.setUpdateMode(True)
    return information


def main(folder: str, discovery: str, seconds: float) -> None:
    """Look for as long as somebody listens."""
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the library prints is none of our lines
    sys.path.append(folder)  # it may have modules that are called like Python's own
    try:
        information = opened(importlib.import_module("gcipuinfo"), discovery)
        while True:
            print(json.dumps(look(information)), file=output, flush=True)
            time.sleep(seconds)
    except Exception as error:  # whatever the library raises
        print(json.dumps({"error": f"gcipuinfo: {type(error).__name__}: {error}"}), file=output, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
