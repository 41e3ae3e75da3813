"""Four threads that compute without a pause, and readings beside them.

Usage: busy.py PERIOD READINGS; it ends when each source has been read so many times meanwhile. Prints, as JSON, for
each collection and source the time of the reading and the sum of one of its metrics. No reading is too old for that.
"""

from __future__ import annotations

import json
import sys
import threading

from tests.support.traces import until

from opentelemetry.instrumentation.hardware.catalog import PROCESS_CPU_TIME, SYSTEM_CPU_TIME
from opentelemetry.instrumentation.hardware.pipeline import pace
from opentelemetry.instrumentation.hardware.pipeline.collector import Reader
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.settings import Config

reader = Reader()
PERIOD, READINGS = float(sys.argv[1]), int(sys.argv[2])
NUMBERS = {"host": SYSTEM_CPU_TIME, "process": PROCESS_CPU_TIME}
ended = False


def compute() -> None:
    total = 0
    while not ended:
        total += 1


vars(pace)["PERIODS"] = 1000
session = Session(Config(sources=list(NUMBERS), sample_interval=PERIOD), interval=PERIOD)
session.start()
until(lambda: all(session.collector.collect({}).values.get(row) for row in NUMBERS.values()), "first reading")
threads = [threading.Thread(target=compute) for _ in range(4)]
for thread in threads:
    thread.start()
report: list[dict[str, tuple[float, float]]] = []


def enough() -> bool:
    snapshot = session.collect(reader)
    report.append(
        {name: (snapshot.read[name], sum(value for value, _ in snapshot.values[row])) for name, row in NUMBERS.items()}
    )
    threading.Event().wait(PERIOD / 3)
    return all(len({collection[name][0] for collection in report}) > READINGS for name in NUMBERS)


try:
    until(enough, f"{READINGS} readings of each source beside busy threads")
finally:
    ended = True
for thread in threads:
    thread.join()
session.close()
print(json.dumps(report))
