"""Runs a hanging tool in a thread, like a source. Ends as given once the tool and its child have written their pids.

Arguments: "command" or "stream"; the file for the pids; how to end, as Python code.
"""

from __future__ import annotations

import os
import signal  # noqa: F401 - for the code
import sys
import threading
import time
from pathlib import Path

from opentelemetry.instrumentation.hardware.drivers.streaming import StreamingCommand
from opentelemetry.instrumentation.hardware.drivers.subprocess import Command, Tool

way, pids, end = sys.argv[1:]
hangs = f'echo $$ >> "{pids}"; sh -c \'echo $$ >> "{pids}"; exec sleep 3600\'; exit 1'


def read() -> None:
    if way == "command":
        Command(Tool("sh")).run(["-c", hangs], 3600.0)
    else:
        stream = StreamingCommand(Tool("sh"))
        stream.open(["-c", hangs], 3600.0)
        stream.read(3600.0)


threading.Thread(target=read, daemon=True).start()
while not os.path.exists(pids) or Path(pids).read_text().count("\n") < 2:
    time.sleep(0.002)
exec(end)
