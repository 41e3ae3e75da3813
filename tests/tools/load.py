"""The load of a simulated NVIDIA GPU: its power at any time, and so the exact energy between two instants.

These are the functions of the section "load" in `fakenvml.c`: what the simulated driver rounds, averages and delivers
late is exact here. All times are seconds since the epoch.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from math import floor
from pathlib import Path
from typing import Any

from tests.tools.nvml import Gpu, Value

_ORIGIN = 1_700_000_000
_WINDOW = 0.167
_HALF = 32
_BITS = (1 << 64) - 1

# The calls that a load answers.
DRIVEN = frozenset(
    {
        *("PowerUsage", "TotalEnergyConsumption", "UtilizationRates"),
        *("FieldValues.83", "FieldValues.185", "FieldValues.186"),
    }
)


def loaded(gpu: Mapping[str, Value], load: Load) -> Gpu:
    """Return the GPU with this load instead of its lines about power, energy and utilization."""
    return {line: value for line, value in gpu.items() if line not in DRIVEN} | load.lines()


def _step(at: float, period: float) -> float:
    """Return the last multiple of a period."""
    return floor(at / period) * period if period > 0 else at


@dataclass(frozen=True, kw_only=True)
class Load(ABC):
    """What a GPU does over time.

    Attributes:
        base: Watts of an idle GPU.
        peak: Watts of a busy GPU.
        period: Seconds between two updates of the energy counter; 0 for a counter that is always exact.
        stamp_call: Whether the driver gives the time of the call, not that of the update, with the energy.
        memory: Bytes that a busy GPU uses in addition to its line `MemoryInfo`.
    """

    base: float = 100
    peak: float = 700
    period: float = 0.02
    stamp_call: bool = False
    memory: int = 0

    def lines(self) -> Gpu:
        """Return the lines of the state of a GPU."""
        lines: Gpu = {"Load": (repr(self.base), repr(self.peak), repr(self.period), *self._words())}
        if self.stamp_call:
            lines["LoadStamp"] = "call"
        if self.memory:
            lines["LoadMemory"] = self.memory
        return lines

    def level(self, at: float, gpu: int = 0) -> float:
        """Return how busy the GPU is at a time, 0 to 1."""
        return self._level(at - _ORIGIN, gpu)

    def watts(self, at: float, gpu: int = 0) -> float:
        """Return the power at a time."""
        return self._joules(1, self.level(at, gpu))

    def joules(self, begin: float, end: float, gpu: int = 0) -> float:
        """Return the exact energy between two instants."""
        return self._joules(end - begin, self._busy(end - _ORIGIN, gpu) - self._busy(begin - _ORIGIN, gpu))

    # What the driver makes of it.

    def updated(self, at: float) -> float:
        """Return the time of the last update of the energy counter."""
        return _ORIGIN + _step(at - _ORIGIN, self.period)

    def counter(self, at: float, gpu: int = 0) -> int:
        """Return what the energy counter shows at a time, in millijoules."""
        now = _step(at - _ORIGIN, self.period)
        return int(1e3 * self._joules(now, self._busy(now, gpu)))

    def mean_watts(self, at: float, gpu: int = 0) -> float:
        """Return the mean power of the second before."""
        return self._joules(1, self._of_last(1, at - _ORIGIN, gpu))

    def utilization(self, at: float, gpu: int = 0) -> float:
        """Return how busy the GPU was in the last full window of the driver, 0 to 1."""
        return self._of_last(_WINDOW, _step(at - _ORIGIN, _WINDOW), gpu)

    def _joules(self, seconds: float, busy: float) -> float:
        return self.base * seconds + (self.peak - self.base) * busy

    def _of_last(self, seconds: float, until: float, gpu: int) -> float:
        return (self._busy(until, gpu) - self._busy(until - seconds, gpu)) / seconds

    # What kinds of load differ in; times are seconds since `_ORIGIN`.

    @abstractmethod
    def _words(self) -> tuple[str, ...]: ...

    @abstractmethod
    def _level(self, at: float, gpu: int) -> float: ...

    @abstractmethod
    def _busy(self, until: float, gpu: int) -> float:
        """Return the seconds that the GPU was busy until a time; only differences count."""


@dataclass(frozen=True, kw_only=True)
class Constant(Load):
    """A GPU that is always equally busy."""

    always: float = 1.0

    def _words(self) -> tuple[str, ...]:
        return "constant", repr(self.always)

    def _level(self, at: float, gpu: int) -> float:
        return self.always

    def _busy(self, until: float, gpu: int) -> float:
        return self.always * until


@dataclass(frozen=True, kw_only=True)
class Random(Load):
    """A GPU that is busy at another random level in each slot of time.

    Attributes:
        seed: What makes another sequence of levels. Each GPU has its own.
        slot: The seconds of a level.
    """

    seed: int = 1
    slot: float = 0.3

    def _words(self) -> tuple[str, ...]:
        return "random", str(self.seed), repr(self.slot)

    def _level(self, at: float, gpu: int) -> float:
        return self._of_slot(floor(at / self.slot), gpu)

    def _busy(self, until: float, gpu: int) -> float:
        slot = floor(until / self.slot)
        first = slot - slot % (2 * _HALF)
        levels = first / 2
        for each in range(first, slot):
            levels += self._of_slot(each, gpu)
        return levels * self.slot + self._of_slot(slot, gpu) * (until - slot * self.slot)

    def _of_slot(self, slot: int, gpu: int) -> float:
        """Return the level of a slot. Of each 64, the second half mirrors the first: their sum is known."""
        mirrored = slot % (2 * _HALF) >= _HALF
        z = (slot - _HALF if mirrored else slot) * 0x9E3779B97F4A7C15
        z = (z + self.seed * 0xD1342543DE82EF95 + (gpu + 1) * 0xA0761D6478BD642F) & _BITS
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _BITS
        z = (z ^ z >> 27) * 0x94D049BB133111EB & _BITS
        level = ((z ^ z >> 31) >> 11) / 9007199254740992.0
        return 1 - level if mirrored else level


# The load of the GPUs whose energy spans are compared with: 100 to 700 W, another level every 0.3 s.
WAVERING = Random(seed=7)


def check_energy(values: Mapping[str, Any], begin: float, end: float, gpus: int = 1, load: Load = WAVERING) -> None:
    """Check ``hw.energy`` of a span against the exact energy of its time."""
    exact = sum(load.joules(begin, end, gpu) for gpu in range(gpus))
    found, bound = values["hw.energy"], values["hw.uncertainty.energy"]
    assert 0.0 < bound <= found
    assert is_near(found, bound, exact), f"{found} J with a bound of {bound} J instead of {exact} J"


def is_near(found: float, bound: float, exact: float) -> bool:
    """Return whether an energy differs by no more than twice its bound and 2 %. The power may do what it never did."""
    return abs(found - exact) < 2 * bound + 0.02 * exact


@dataclass(frozen=True, kw_only=True)
class Follow(Load):
    """A GPU that is as busy as programs say with `set`. All GPUs with the same file are equally busy.

    Attributes:
        file: Where the changes are kept; it is made empty if there is none.
    """

    file: Path

    CHANGE = struct.Struct("ddd")

    def __post_init__(self) -> None:
        self.file.touch()

    def set(self, level: float) -> float:
        """Make the GPU this busy from now on, and return the time. Any thread or process may call it."""
        file = os.open(self.file, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        try:
            # The driver looks at the clock with the lock held too, so that no change comes after a reading of it.
            fcntl.flock(file, fcntl.LOCK_EX)
            size, now, busy = os.fstat(file).st_size, time.time(), 0.0
            if size:
                before, was, busy = self.CHANGE.unpack(os.pread(file, self.CHANGE.size, size - self.CHANGE.size))
                now = max(now, before)  # the clock may be set back
                busy += was * (now - before)
            os.write(file, self.CHANGE.pack(now, level, busy))
        finally:
            os.close(file)
        return now

    def _words(self) -> tuple[str, ...]:
        return "follow", str(self.file)

    def _level(self, at: float, gpu: int) -> float:
        return self._last(at)[1]

    def _busy(self, until: float, gpu: int) -> float:
        before, level, busy = self._last(until)
        return busy + level * (until - before)

    def _last(self, at: float) -> tuple[float, float, float]:
        """Return the change of level that holds at a time: its time, the level, and the seconds busy until then."""
        changes = array("d", self.file.read_bytes())
        found = 3 * bisect_right(changes[::3], at + _ORIGIN) - 3
        return (changes[found] - _ORIGIN, changes[found + 1], changes[found + 2]) if found >= 0 else (at, 0.0, 0.0)
