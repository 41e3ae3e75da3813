"""A program that becomes another one when MATRIX_GO.next exists: becomes.py exec|exec-shell|setuid|setuid-uninstrument.

Removes that file before. The next program is app.py, except for exec-shell.
"""

import os
import runpy
import sys
import time
from pathlib import Path

go, kind, app = os.environ["MATRIX_GO"], sys.argv[1], str(Path(__file__).with_name("app.py"))
open(go + ".started", "w").close()
while not os.path.exists(go + ".next"):
    time.sleep(0.02)
os.remove(go + ".next")
if kind == "exec":
    os.execv(sys.executable, [sys.executable, app, "exit"])
elif kind == "exec-shell":
    code = 'while [ ! -e "$MATRIX_GO" ]; do sleep 0.1; done; exit 6'
    os.execv("/bin/sh", ["sh", "-c", code])
os.setgroups([])
os.setgid(54321)
os.setuid(54321)
if kind == "setuid-uninstrument" and "hardware" not in os.environ["OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"].split(","):
    from opentelemetry.instrumentation.hardware import HardwareInstrumentor

    HardwareInstrumentor().uninstrument()
sys.argv = [app, "exit"]
runpy.run_path(app, run_name="__main__")
