"""Reads a hanging tool in a thread, like a source. The tool writes its pid to the given file.

The second argument is the means by which the tool dies with this program: setpriv, or the keeper used without it.
"""

from __future__ import annotations

import os
import sys
import threading

from opentelemetry.instrumentation.hardware.drivers.streaming import StreamingCommand
from opentelemetry.instrumentation.hardware.drivers.subprocess import Tool

stream = StreamingCommand(Tool("sh"))
if sys.argv[2] == "keeper":
    os.environ["PATH"] = ""


def read() -> None:
    stream.open(["-c", f'echo $$ > "{sys.argv[1]}"; exec /bin/sleep 3600'], 3600.0)
    stream.read(3600.0)


threading.Thread(target=read).start()
