"""Prints what a tool reads from a document in memory; needs no package but psutil."""

import os
import time

from opentelemetry.instrumentation.hardware.drivers.streaming import StreamingCommand
from opentelemetry.instrumentation.hardware.drivers.subprocess import Tool
from opentelemetry.instrumentation.hardware.system.syscalls import pidfd_open

os.close(pidfd_open(os.getpid()))  # with which an agent follows the program
tool = StreamingCommand(Tool("cat"))
tool.open(["{document}"], 60.0, "a line\n")
end = time.monotonic() + 60.0
while not (lines := tool.read(0.1)) and time.monotonic() < end:
    pass
tool.close()
print(hasattr(os, "memfd_create"), lines)
