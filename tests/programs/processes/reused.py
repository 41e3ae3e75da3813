"""In a PID namespace: a child computes and ends, and the next child has its PID. Prints what is read of the tree.

The report has the two PIDs, and the CPU seconds of the tree before the end of the first child, with the second one, and
after that has computed as well.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.sources.reading import all_of, opened, series_of

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import CounterRatio
from opentelemetry.instrumentation.hardware.sources import Source

WORK = "import sys, time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\nprint(); input()"
IDLE = f"print(); input()\n{WORK}"


def child(program: str) -> subprocess.Popen[str]:
    line = [sys.executable, "-S", "-E", "-u", "-c", program]
    made = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert made.stdout is not None
    made.stdout.readline()
    return made


def seconds(source: Source) -> float:
    (share,) = series_of(all_of(source), c.PROCESS_TREE_CPU_UTILIZATION).values()
    assert isinstance(share, CounterRatio)
    return share.part


with opened("process") as source:
    all_of(source)
    first = child(WORK)
    found = [seconds(source)]
    first.kill()
    first.communicate()
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(first.pid - 1))
    second = child(IDLE)
    found.append(seconds(source))
    assert second.stdin is not None
    assert second.stdout is not None
    print("go", file=second.stdin, flush=True)
    second.stdout.readline()
    found.append(seconds(source))
    second.kill()
    second.communicate()
print(json.dumps({"pids": [first.pid, second.pid], "seconds": found}))
