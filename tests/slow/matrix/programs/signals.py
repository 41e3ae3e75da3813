"""A program that gets a signal: signals.py NAME default|handler|ignored|raises. Prints that its handler ran."""

import os
import signal
import sys
import time

go = os.environ["MATRIX_GO"]
number, way = getattr(signal, sys.argv[1]), sys.argv[2]
handled: list[int] = []


def handler(number: int, frame: object) -> None:
    handled.append(number)
    if way == "raises":
        raise SystemExit(9)


if way in ("handler", "raises"):
    signal.signal(number, handler)
elif way == "ignored":
    signal.signal(number, signal.SIG_IGN)
else:
    signal.signal(number, signal.SIG_DFL)
open(go + ".started", "w").close()
while not os.path.exists(go) and not handled:
    time.sleep(0.01)
print("handled", handled, flush=True)
