"""Listens to a tool that hangs, in a thread, as a source does; the tool writes its pid into the file that is given.

The second argument is how the tool comes to die with this program: by setpriv, or by a keeper as where there is none.
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


def listen() -> None:
    stream.open(["-c", f'echo $$ > "{sys.argv[1]}"; exec /bin/sleep 3600'], 3600.0)
    stream.read(3600.0)


threading.Thread(target=listen).start()
