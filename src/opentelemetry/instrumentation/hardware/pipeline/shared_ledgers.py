"""The ledgers of an agent, in memory that it shares with the application.

The application makes a file without a name (memfd_create(2), Linux 3.17) and maps it; the agent inherits it as its
standard input. It disappears with the two processes. The application may write only the first page: until when it
records spans. The agent writes the others. Each ledger has two sets of rows, of which one is used; when the agent has
filled the other one, it increases the number of the ledger.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from opentelemetry.instrumentation.hardware.pipeline.ledger import Demand, Ledger
from opentelemetry.instrumentation.hardware.pipeline.rows import LENGTH, HasRows, Rows
from opentelemetry.instrumentation.hardware.pipeline.shares import Shares
from opentelemetry.instrumentation.hardware.settings import Config

_MAX_LEDGERS: Final = 16
"""Ledgers that the memory has room for. Most sources have nothing for spans, and need none."""

_MAP_FIXED: Final = 0x10
"""Of mmap(2)."""

_PAGE: Final = mmap.ALLOCATIONGRANULARITY

_BEGIN: Final = _PAGE // 8
"""Where the rows begin in the pages of the agent, in numbers."""

_SIZE: Final = _PAGE * (1 + -(-8 * (_BEGIN + 2 * _MAX_LEDGERS * LENGTH) // _PAGE))
"""Bytes of the file. Memory is used only for what was written."""


def create() -> int:
    """Create the file and return its descriptor.

    Raises:
        OSError, AttributeError: The system has no such files.
    """
    descriptor = os.memfd_create("otel-hardware", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, _SIZE)
        with suppress(AttributeError):  # a smaller file would kill those who have mapped it
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _map(descriptor: int, length: int, offset: int, writable: bool) -> memoryview[float]:
    """Map a part of the file, over a map without a file.

    A map of a file keeps a duplicate of its descriptor, before Python 3.13. If the program closed that, the end of the
    map would close the file that has got its number.
    """
    if os.fstat(descriptor).st_size < offset + length:
        raise ValueError("the file is too short")
    memory = mmap.mmap(-1, length)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    replace = ctypes.CDLL(None, use_errno=True).mmap
    replace.restype = ctypes.c_void_p
    replace.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *3 * (ctypes.c_int,), ctypes.c_long)
    if replace(address, length, protection, mmap.MAP_SHARED | _MAP_FIXED, descriptor, offset) != address:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    numbers = memoryview(memory).cast("d")
    return numbers if writable else numbers.toreadonly()


def _rows(memory: memoryview[float], ledger: int, number: int) -> memoryview[float]:
    begin = _BEGIN + (2 * ledger + number % 2) * LENGTH
    return memory[begin : begin + LENGTH]


class SharingDemand(Demand):
    """In the agent: whether the application records spans. Its ledgers are those that the application reads.

    Args:
        descriptor: The file.

    Raises:
        OSError, ValueError: It is no such file.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__(_map(descriptor, _PAGE, 0, writable=False))
        self._memory = _map(descriptor, _SIZE - _PAGE, _PAGE, writable=True)
        self._lock = threading.Lock()
        self._memory[0] = 0.0  # the ledgers of an earlier agent end; their numbers continue, so that ours are noticed

    def ledger(self, clock: Callable[[], float] = time.monotonic) -> Ledger:
        """Return a new ledger. It gets its room when it is used, if there is some left."""
        room: list[int] = []

        def blank() -> Rows:
            with self._lock:
                used = int(self._memory[0])
                if not room and used < _MAX_LEDGERS:
                    room.append(used)
                    self._memory[0] = used + 1.0
            if not room:
                return Rows()
            number = int(self._memory[1 + room[0]]) + 1
            return Rows(_rows(self._memory, room[0], number))

        def publish(rows: Rows) -> None:
            del rows
            if room:
                self._memory[1 + room[0]] += 1.0

        return Ledger(clock, blank=blank, publish=publish)


class AgentLedgers:
    """In the application: what the agent measures, in place of a session.

    Args:
        descriptor: The file.
        config: The settings.

    Attributes:
        config: The settings.
        shares: The shares of spans, if they are wanted.
    """

    def __init__(self, descriptor: int, config: Config) -> None:
        self.config = config
        self._demand = Demand(_map(descriptor, _PAGE, 0, writable=True))
        self._memory = _map(descriptor, _SIZE - _PAGE, _PAGE, writable=False)
        self._ledgers = [_AgentLedger(self._memory, number) for number in range(_MAX_LEDGERS)]
        self.shares = Shares.of(config, partial(_used, self._memory, self._ledgers))

    @property
    def ledgers(self) -> Sequence[HasRows]:
        """Return those that are used."""
        return _used(self._memory, self._ledgers)

    def note_span(self) -> None:
        """Record that a span began. The agent notices it before its next reading."""
        self._demand.note_span(time.monotonic())


def _used(memory: memoryview[float], ledgers: Sequence[HasRows]) -> Sequence[HasRows]:
    return ledgers[: int(memory[0])]


class _AgentLedger:
    """A ledger of the agent. The number is that of the rows in use; 0: there are none."""

    def __init__(self, memory: memoryview[float], ledger: int) -> None:
        self._memory = memory
        self._ledger = ledger
        self._newest: tuple[float, Rows | None] = 0.0, None

    @property
    def rows(self) -> Rows | None:
        number, rows = self._newest
        if number != self._memory[1 + self._ledger]:
            number = self._memory[1 + self._ledger]
            rows = Rows(_rows(self._memory, self._ledger, int(number))) if number else None
            self._newest = number, rows
        return rows
