"""Leaves orphans behind, waits until all of them have ended, and prints how many are zombies after a while."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
from tests.waiting import wait_for


def zombies() -> int:
    """How many processes wait for their parent to look."""
    return sum(each.status() == psutil.STATUS_ZOMBIE for each in psutil.process_iter())


reading, writing = os.pipe()
for _ in range(5):
    subprocess.run(["sh", "-c", "sleep 0.1 &"], pass_fds=[writing], check=True)
os.close(writing)
os.read(reading, 1)  # the end: nobody holds it any more
wait_for(lambda: zombies() == 0, 20, "end of the zombies")
print(zombies(), os.getppid())
sys.exit(7)
