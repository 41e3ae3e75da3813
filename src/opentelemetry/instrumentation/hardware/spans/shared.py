"""The readings of an agent for spans, in memory that it shares with the program.

The program makes a file without a name (memfd_create(2), Linux 3.17) and maps it; the agent inherits it as its standard
input. It disappears with the two processes. The program and its forks may write only the first page: whether spans are
open. The agent writes the others: the rows of each device.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import threading
from collections.abc import MutableSequence, Sequence
from contextlib import suppress
from math import inf
from typing import Final

from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.spans.demand import FRESH, Demand
from opentelemetry.instrumentation.hardware.spans.readings import Readings
from opentelemetry.instrumentation.hardware.spans.rows import ACCELERATOR, LENGTH, Rows
from opentelemetry.instrumentation.hardware.system import syscalls
from opentelemetry.instrumentation.hardware.system.job import start_time
from opentelemetry.instrumentation.hardware.system.tree import runs

_NAME: Final = "otel-hardware"  # which /proc shows

_ROOMS: Final = 64  # devices that the memory has room for. Memory is used only for what was written.

_MAP_FIXED: Final = 0x10  # of mmap(2)

_PAGE: Final = mmap.ALLOCATIONGRANULARITY

_SIZE: Final = _PAGE * (1 + -(-8 * (1 + _ROOMS * LENGTH) // _PAGE))  # bytes of the file

_PLACES: Final = 512  # numbers of the first page

_TRACING, _ASKED, OPEN = range(3)  # what it begins with. From OPEN on, there are places for processes with open spans.

_POLL: Final = 0.1  # seconds between two checks of the agent whether a span is open


def create() -> int:
    """Create the file and return its descriptor.

    Raises:
        OSError: The system has no such files.
    """
    descriptor = syscalls.memfd_create(_NAME, syscalls.MFD_CLOEXEC | syscalls.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, _SIZE)
        seals = syscalls.F_SEAL_SHRINK | syscalls.F_SEAL_GROW | syscalls.F_SEAL_SEAL
        fcntl.fcntl(descriptor, syscalls.F_ADD_SEALS, seals)  # a smaller file would kill those who have mapped it
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


class _SharedDemand(Demand):
    """What the program writes and the agent reads.

    Args:
        memory: Whether there is a TracerProvider, when a recorded span started that wants a reading, and the PIDs of
            the processes that have recorded spans open.
    """

    def __init__(self, memory: MutableSequence[float] | memoryview[float]) -> None:
        self._memory = memory
        super().__init__()

    @property
    def is_tracing(self) -> bool:
        return self._memory[_TRACING] != 0.0

    @is_tracing.setter
    def is_tracing(self, is_tracing: bool) -> None:
        self._memory[_TRACING] = float(is_tracing)

    @property
    def asked(self) -> float:  # type: ignore[override]
        return self._memory[_ASKED]


class ProgramDemand(_SharedDemand):
    """In the program and its forks: whether they have spans. The agent looks every 0.1 s, so it need not be woken."""

    def join(self) -> None:
        super().join()
        self._pid = os.getpid()
        self._place = OPEN + self._pid % (len(self._memory) - OPEN)

    def begin(self, key: object, now: float) -> bool:
        self.open.add(key)
        if self._memory[self._place] not in (0.0, self._pid):  # the PID of another process leads to the same place
            self._place = next((at for at in range(OPEN, len(self._memory)) if not self._memory[at]), self._place)
        self._memory[self._place] = self._pid
        self._memory[_ASKED] = now
        self.ready = now + FRESH
        return False

    def end(self, key: object) -> None:
        self.open.discard(key)
        is_open = True
        while is_open != bool(self.open):  # again, if another thread has begun or ended one meanwhile
            is_open = not is_open
            self._memory[self._place] = self._pid * is_open
            self.ready = -inf


class AgentDemand(_SharedDemand):
    """In the agent: whether the program has spans. Its rows are in the memory that the program reads.

    Args:
        descriptor: The file.

    Raises:
        OSError, ValueError: It is no such file.
    """

    poll = _POLL

    def __init__(self, descriptor: int) -> None:
        super().__init__(_map(descriptor, _PAGE, 0, writable=False)[:_PLACES])
        self._rooms = _map(descriptor, _SIZE - _PAGE, _PAGE, writable=True)
        self._lock = threading.Lock()
        self._rooms[0] = 0.0  # those of an earlier agent end

    @property
    def is_open(self) -> bool:
        """Whether a recorded span of a process that runs is open."""
        return any(runs(int(pid)) for pid in filter(None, self._memory[OPEN:]))

    def room(self) -> Rows:
        """Return empty rows, which the program sees while there is room."""
        with self._lock:
            used = int(self._rooms[0])
            if used >= _ROOMS:
                return Rows()
            rows = Rows(_room(self._rooms, used))
            rows.clear(0)
            self._rooms[0] = used + 1.0
            return rows


class AgentReadings(Readings):
    """In the program: what the agent reads, in place of a session.

    Args:
        descriptor: The file.
        config: The settings.
        program: The process that has the agent; by default this one.
    """

    has_started = True

    def __init__(self, descriptor: int, config: Config, program: int | None = None) -> None:
        super().__init__(config, ProgramDemand(_map(descriptor, _PAGE, 0, writable=True)[:_PLACES]))
        self._memory = _map(descriptor, _SIZE - _PAGE, _PAGE, writable=False)
        self._rows = tuple(Rows(_room(self._memory, room)) for room in range(_ROOMS))
        self._used: Sequence[Rows] = ()
        self._program = program or os.getpid()

    @property
    def serves_children(self) -> bool:  # type: ignore[override]
        """Return whether the agent runs, which also observes them. It ends with the program."""
        return start_time(self._program) is not None

    @property
    def span_rows(self) -> Sequence[Rows]:  # type: ignore[override]
        """Return the rows of all devices and of the process."""
        used = self._memory[0]
        if used != len(self._used):
            self._used = self._rows[: int(used)] if 0.0 <= used <= _ROOMS else ()
        return self._used

    @property
    def has_accelerators(self) -> bool:  # type: ignore[override]
        """Return whether the agent has found accelerators, or has not looked yet."""
        return not self.span_rows or any(rows.kind == ACCELERATOR for rows in self.span_rows)


def of_parent(config: Config) -> AgentReadings:
    """Return the readings that the parent process has of its agent.

    Raises:
        OSError: It has none.
    """
    with os.scandir(f"/proc/{os.getppid()}/fd") as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # it was closed in the meantime
                if os.readlink(entry.path).startswith(f"/memfd:{_NAME} "):
                    descriptor = os.open(entry.path, os.O_RDWR | os.O_CLOEXEC)
                    try:
                        return AgentReadings(descriptor, config, os.getppid())
                    finally:
                        os.close(descriptor)
    raise FileNotFoundError("the program has no agent that measures spans")


def _room(memory: memoryview[float], room: int) -> memoryview[float]:
    return memory[1 + room * LENGTH : 1 + (room + 1) * LENGTH]
