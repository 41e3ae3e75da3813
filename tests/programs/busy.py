"""Four threads that compute without a pause, and readings beside them.

Usage: busy.py PERIOD READINGS; it ends when each source has been read so many times meanwhile. Prints, as JSON, for
each collection and source how old (s) the reading was and the sum of one of its metrics, or null where there was none.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from tests.programs.traces import until

from opentelemetry.instrumentation.hardware.config import Config
from opentelemetry.instrumentation.hardware.session import Session
from opentelemetry.instrumentation.hardware.vocabulary import PROCESS_CPU_TIME, SYSTEM_CPU_TIME

PERIOD, READINGS = float(sys.argv[1]), int(sys.argv[2])
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
said: list[dict[str, list[float] | None]] = []
seen: dict[str, set[float]] = {name: set() for name in NUMBERS}


def enough() -> bool:
    snapshot = session.board.collect({})
    session.rhythm.note(threading.get_ident(), time.monotonic())
    now = time.monotonic()
    said.append({})
    for name, row in NUMBERS.items():
        values = [value for value, _ in snapshot.values.get(row, ())]
        said[-1][name] = [now - snapshot.read[name], sum(values)] if values else None
        seen[name] |= {snapshot.read[name]} if values else set()
    threading.Event().wait(PERIOD / 3)
    return all(len(times) >= READINGS for times in seen.values())


try:
    until(enough, f"{READINGS} readings of each source beside busy threads")
finally:
    ended = True
for thread in threads:
    thread.join()
session.close()
print(json.dumps(said))
