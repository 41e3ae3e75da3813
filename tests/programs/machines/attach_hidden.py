"""A program that attaches to a process of another user, which ``/proc`` hides (``hidepid=2``). Prints the message as
JSON. Exit status 77 if namespaces or other users are not allowed.
"""

from __future__ import annotations

import json
import os
import sys

from tests.support.namespace import check, enter, libc

from opentelemetry.instrumentation.hardware.cli.messages import Mistake
from opentelemetry.instrumentation.hardware.cli.program import Attached

NOBODY = 65534

if os.geteuid():
    print("only root can start a program of another user")
    sys.exit(77)
enter()
check(libc.mount(b"proc", b"/proc", b"proc", 0, b"hidepid=2"), "/proc that hides processes")
reading, writing = os.pipe()
hidden = os.fork()
if not hidden:
    os.close(writing)
    os.read(reading, 1)  # until the other program ends
    os._exit(0)
os.setresgid(NOBODY, NOBODY, NOBODY)
os.setresuid(NOBODY, NOBODY, NOBODY)
try:
    Attached(hidden)
except Mistake as mistake:
    print(json.dumps(str(mistake).replace(str(hidden), "PID")))
