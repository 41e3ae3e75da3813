"""A Windows program that reports the host and ends, while its child goes on: windows/takeover.py FILE

The child prints whether it reports the host, writes FILE, and prints it again when that has changed.
"""

import os
import subprocess
import sys
import time

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

reader = InMemoryMetricReader()
HardwareInstrumentor().instrument(meter_provider=MeterProvider([reader]))


def reports_the_host() -> bool:
    """Return whether this process exports the metrics of the host, once it exports its own."""
    names = ""
    while "process.cpu.time" not in names:
        time.sleep(0.2)
        data = reader.get_metrics_data()
        names = data.to_json() if data is not None else ""
    return "system.cpu.time" in names


def wait_until_it_reports_the_host() -> None:
    """Wait until this process does."""
    while not reports_the_host():
        pass


file = sys.argv[1]
if sys.argv[2:]:
    print(reports_the_host(), flush=True)
    with open(file, "w"):
        pass
    wait_until_it_reports_the_host()
    print(True, flush=True)
else:
    wait_until_it_reports_the_host()
    subprocess.Popen([sys.executable, __file__, file, "child"])
    while not os.path.exists(file):
        time.sleep(0.1)
    os._exit(0)
