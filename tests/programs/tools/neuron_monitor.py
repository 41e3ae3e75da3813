"""A substitute for neuron-monitor, with its documented interface: ``neuron_monitor.py FOLDER -c CONFIGURATION``.

It prints a report at once and then one per period: the lines of the folder's file ``reports``, the last one repeatedly.
The file ``how`` has its faults, as a JSON object: ``silent_after``, ``exit_after`` (a number of reports), ``faster``
(divides the period).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from itertools import count
from pathlib import Path


def put(text: str) -> None:
    data = text.encode()
    while data:
        data = data[os.write(1, data) :]


def main() -> None:
    folder = Path(sys.argv[1])
    assert sys.argv[2] == "-c"
    configuration = json.loads(Path(sys.argv[3]).read_text())
    how = json.loads((folder / "how").read_text())
    with open(folder / "runs", "a") as runs:
        runs.write(json.dumps({"pid": os.getpid(), "configuration": configuration, "named": sorted(os.environ)}) + "\n")
    period = float(configuration["period"].removesuffix("s")) / how.get("faster", 1)
    for number in count(1):
        reports = (folder / "reports").read_text().splitlines()
        report = reports[min(number, len(reports)) - 1] + "\n"
        if number > how.get("exit_after", 1e9):
            print("nrt_init failed", file=sys.stderr)
            sys.exit(1)
        if number > how.get("silent_after", 1e9):
            signal.pause()
        half = len(report) // 2
        put(report[:half])
        put(report[half:])
        time.sleep(period)


main()
