"""A program with two workers of multiprocessing: workers.py fork|spawn|forkserver [instrument]."""

from __future__ import annotations

import multiprocessing
import sys
from typing import Any

from tests.slow.launchers.apps.role import instrument_after_fork, present, wait


def work(instrument: bool) -> None:
    """Work until the end of the case."""
    present("worker")
    if instrument:
        instrument_after_fork()
    wait()


if __name__ == "__main__":
    context: Any = multiprocessing.get_context(sys.argv[1])
    lock = context.Lock()  # named semaphores need the resource tracker
    workers = [context.Process(target=work, args=("instrument" in sys.argv,)) for _ in range(2)]
    for each in workers:
        each.start()
    present("parent")
    for each in workers:
        each.join()
