"""Four threads that compute without a pause, and readings beside them.

Usage: busy.py PERIOD SECONDS; prints, as JSON, for each collection how old (s) the reading of each source was, and the
sum of one of its metrics.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from traces import until

from opentelemetry.instrumentation.hardware.config import Config
from opentelemetry.instrumentation.hardware.session import Session
from opentelemetry.instrumentation.hardware.vocabulary import PROCESS_CPU_TIME, SYSTEM_CPU_TIME

PERIOD, SECONDS = float(sys.argv[1]), float(sys.argv[2])
NUMBERS = {"host": SYSTEM_CPU_TIME, "process": PROCESS_CPU_TIME}
ended = False


def compute() -> None:
    total = 0
    while not ended:
        total += 1


session = Session(Config(sources=list(NUMBERS), sample_interval=PERIOD), interval=PERIOD)
session.start()
until(lambda: all(session.board.collect({}).values.get(row) for row in NUMBERS.values()), "first reading")
threads = [threading.Thread(target=compute) for _ in range(4)]
for thread in threads:
    thread.start()
said = []
deadline = time.monotonic() + SECONDS
while time.monotonic() < deadline:
    threading.Event().wait(PERIOD / 3)
    snapshot = session.board.collect({})
    session.rhythm.note(threading.get_ident(), time.monotonic())
    now = time.monotonic()
    said.append(
        {
            name: [now - snapshot.read[name], sum(value for value, _ in snapshot.values.get(row, ()))]
            for name, row in NUMBERS.items()
        }
    )
ended = True
for thread in threads:
    thread.join()
session.close()
print(json.dumps(said))
