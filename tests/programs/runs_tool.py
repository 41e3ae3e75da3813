"""Runs a tool that hangs, in a thread, as a source does; the tool writes its pid into the file that is given."""

from __future__ import annotations

import sys
import threading

from opentelemetry.instrumentation.hardware.drivers.subprocess import Command, Tool

hangs = f'echo $$ > "{sys.argv[1]}"; exec sleep 3600'
threading.Thread(target=lambda: Command(Tool("sh")).run(["-c", hangs], 3600.0)).start()
