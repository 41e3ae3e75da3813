"""Runs a hanging tool in a thread, like a source. The tool writes its pid to the given file."""

from __future__ import annotations

import sys
import threading

from opentelemetry.instrumentation.hardware.drivers.subprocess import Command, Tool

hangs = f'echo $$ > "{sys.argv[1]}"; exec sleep 3600'
threading.Thread(target=lambda: Command(Tool("sh")).run(["-c", hangs], 3600.0)).start()
