"""Costs of a reading that can be counted, and so do not depend on the speed of the machine."""

from __future__ import annotations

import sys
from types import FrameType

from tests.slow.benchmarks.growth import sockets
from tests.slow.benchmarks.ours import ByHand


def reading(open_sockets: int = 0) -> dict[str, int]:
    """Read system calls and function calls of a reading of every source before a collection."""
    with sockets(open_sockets):
        whole = ByHand()
        whole.cost()
        whole.wait()
        called = _calls(whole)
        whole.wait()
        before = _reads()
        whole.read()
        read = _reads() - before
    return {"reads": read, "calls": called}


def _calls(whole: ByHand) -> int:
    """How many Python and C functions a reading calls."""
    whole.wait()
    events: list[str] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        events.append(event)

    sys.setprofile(note)
    try:
        whole.read()
    finally:
        sys.setprofile(None)
    return sum(event in ("call", "c_call") for event in events)


def _reads() -> int:
    with open("/proc/self/io", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("syscr"))
