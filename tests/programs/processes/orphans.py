"""Create orphans, let them exit, and wait until they are reaped."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
from tests.support.waiting import wait_for


def orphans() -> int:
    """Return the number of children of process 1, zombies included."""
    return sum(each.info["ppid"] == 1 for each in psutil.process_iter(["ppid"]) if each.pid != os.getppid())


reading, writing = os.pipe()
for _ in range(5):
    subprocess.run(["sh", "-c", f"cat <&{reading} &"], pass_fds=[reading], check=True)
print(orphans(), flush=True)
os.close(writing)
wait_for(lambda: orphans() == 0, 20, "end of the orphans")
sys.exit(7)
