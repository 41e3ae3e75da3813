"""An application: it makes steps until the file MATRIX_GO exists, and ends in one way or another.

Usage: app.py return|exit|exception|term|abort|_exit|kill. MATRIX_OWN: it has a metric of its own. MATRIX_CODE: it
starts OpenTelemetry itself, after the code in MATRIX_FIRST. Prints its longest pause.
"""

import contextlib
import os
import signal
import sys
import time

go = os.environ["MATRIX_GO"]
way = sys.argv[1] if len(sys.argv) > 1 else "return"
exec(os.environ.get("MATRIX_FIRST", ""))
if "MATRIX_CODE" in os.environ:
    sys.path += os.environ["MATRIX_CODE"].split(os.pathsep)
    if "MATRIX_MAC" in os.environ:
        import platform

        platform.system = lambda: "Darwin"
    from opentelemetry.instrumentation.auto_instrumentation import initialize

    initialize()
if "MATRIX_OWN" in os.environ:
    from opentelemetry import metrics

    metrics.get_meter("application").create_counter("application.steps").add(7)
with contextlib.suppress(OSError):
    open(go + ".started", "w").close()
clock = time.process_time if "MATRIX_CLOCK" in os.environ else time.monotonic  # the case changes the other
longest, last = 0.0, clock()
while not os.path.exists(go):
    time.sleep(0.01)
    now = clock()
    longest, last = max(longest, now - last), now
with contextlib.suppress(OSError, ValueError, AttributeError):
    print(f"pause {longest:.3f}", flush=True)
    print("ends", flush=True)
if way == "exit":
    sys.exit(4)
elif way == "exception":
    raise ValueError("the application failed")
elif way == "_exit":
    os._exit(5)
elif way == "abort":
    os.abort()
elif way in ("term", "kill"):
    os.kill(os.getpid(), signal.SIGTERM if way == "term" else signal.SIGKILL)
    time.sleep(60)
