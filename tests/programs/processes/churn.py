"""A program with workers that come and go.

Usage: churn.py; reads a command per line from standard input, and answers each with the CPU seconds of itself and of
the children it has waited for: ``work``: three workers, one after the other; ``nested``: a worker that is a grandchild;
``begin`` and ``end``: a worker that computes until it is killed.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

WORK = "import time\nend = time.process_time() + 0.1\nwhile time.process_time() < end: pass"
ENDLESS = "while True: pass"


def python(program: str) -> list[str]:
    return [sys.executable, "-S", "-E", "-c", program]


worker: subprocess.Popen[bytes] | None = None
for line in sys.stdin:
    command = line.strip()
    if command == "work":
        for _ in range(3):
            subprocess.run(python(WORK), check=True)
    elif command == "nested":
        subprocess.run(python(f"import subprocess, sys; subprocess.run({python(WORK)!r}, check=True)"), check=True)
    elif command == "begin":
        worker = subprocess.Popen(python(ENDLESS))
        while int(Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()[11]) < 20:
            time.sleep(0.01)
    elif command == "end" and worker is not None:
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(json.dumps(sum(each.ru_utime + each.ru_stime for each in used)), flush=True)
