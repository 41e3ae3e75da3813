"""What a reading does that can be counted, and is the same on a fast and on a slow machine."""

from __future__ import annotations

import sys
from types import FrameType

from tests.benchmarks.growth import sockets
from tests.benchmarks.locks import releases
from tests.benchmarks.ours import ByHand


def reading(open_sockets: int = 0) -> dict[str, int]:
    """Of a reading of every source before a collection: lock releases, system calls that read, calls of functions."""
    whole = ByHand()
    with sockets(open_sockets):
        whole.cost()
        whole.wait()
        released = releases(whole.read)
        called = min(_calls(whole) for _ in range(5))  # now and then one looks as well whether its files are open still
        whole.wait()
        before = _reads()
        whole.read()
        read = _reads() - before
    return {"releases": released, "reads": read, "calls": called}


def _calls(whole: ByHand) -> int:
    """Calls of Python's and of C's functions."""
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
