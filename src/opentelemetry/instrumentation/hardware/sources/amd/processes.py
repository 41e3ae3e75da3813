"""Whose processes use AMD's GPUs, as the kernel says it.

The driver of ROCm (KFD) names processes by the numbers of the host, whoever looks; it is believed only where ours are
the host's. What every driver of the Direct Rendering Manager says of an open file (fdinfo) stands in the folder of our
own process, so it is certainly ours. https://docs.kernel.org/gpu/drm-usage-stats.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from opentelemetry.instrumentation.hardware.sources.amd.topology import KFD
from opentelemetry.instrumentation.hardware.system.files import Files
from opentelemetry.instrumentation.hardware.system.machine import Machine
from opentelemetry.instrumentation.hardware.system.process_tree import ProcessTree

COMPUTE: Final = "/dev/kfd"
"""What a program opens to compute; nobody else does."""

_UNITS: Final = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_TASKS: Final = {
    "gfx": "general",
    "compute": "general",
    "enc": "encoder",
    "enc_1": "encoder",
    "dec": "decoder",
    "jpeg": "jpeg",
}
"""The engines whose time is counted, and the tasks that they stand for."""

_FILES = 20_000
"""Open files of a process that are looked at."""


class Use:
    """What the observed program uses of one GPU.

    Attributes:
        kfd: bytes of its memory that were allocated by ROCm.
        clients: by number of a client of the Direct Rendering Manager, the bytes that it has in the memory.
        busy: by task and client, nanoseconds that its engines worked.
    """

    def __init__(self) -> None:
        self.kfd: int | None = None
        self.clients: dict[int, int] = {}
        self.busy: dict[tuple[str, str, int], int] = {}

    @property
    def memory(self) -> int | None:
        """Bytes in use; what ROCm allocated lies in the memory of one of the clients too, where these count it."""
        known = [] if self.kfd is None else [self.kfd]
        return max([*known, sum(self.clients.values())]) if self.clients or known else None


class Processes:
    """The observed process and its children, beside the GPUs.

    Args:
        kernel: reads the files.
        machine: knows the children.
        pid: the process.
        cards: by ROCm's number of a GPU, the PCI address of its card.

    Attributes:
        computing: whether something of ours computes by ROCm: the time of its queues is counted by nobody.
        blind: whether it does, and it cannot be seen on which GPU.
    """

    def __init__(self, kernel: Files, machine: Machine, pid: int, cards: Mapping[str, str]) -> None:
        self._kernel = kernel
        self._owners = ProcessTree(machine, kernel, pid, COMPUTE)
        self._cards = cards
        self._before: dict[str, Use] = {}
        self._at = 0.0
        self.computing = False
        self.blind = False

    def look(self) -> Mapping[str, Use]:
        """By PCI address of a GPU, what the program uses of it now."""
        found: dict[str, Use] = {}
        self._owners.look()
        self.computing = False
        if self._owners.on_host and self._cards:
            self._rocm(found)
        for folder in self._owners.folders:
            self._rendering(folder, found)
        self.blind = self.computing and not found
        return found

    def shares(self, now: Mapping[str, Use], clock: float) -> Mapping[str, Mapping[str, float]]:
        """By PCI address and task, what share of the time since the look before its engines worked for the program.

        Args:
            now: what the newest look found.
            clock: when it was made, in seconds.
        """
        before, self._before = self._before, dict(now)
        elapsed, self._at = clock - self._at, clock
        found: dict[str, dict[str, float]] = {}
        for bdf, use in now.items():
            last = before[bdf].busy if bdf in before else {}
            worked: dict[tuple[str, str], float] = {}
            for (task, engine, client), spent in use.busy.items():
                if (task, engine, client) in last and spent >= last[task, engine, client] and elapsed > 0:
                    grown = spent - last[task, engine, client]
                    worked[task, engine] = worked.get((task, engine), 0.0) + grown / 1e9 / elapsed
            for (task, _), share in worked.items():  # engines of a task work side by side
                tasks = found.setdefault(bdf, {})
                tasks[task] = min(1.0, max(share, tasks.get(task, 0.0)))
        return found

    def _rocm(self, found: dict[str, Use]) -> None:
        try:
            pids = [int(name) for name in self._kernel.names(f"{KFD}/proc") if name.isdecimal()]
        except OSError:
            return
        for pid in self._owners.among(pids):
            with suppress(OSError):
                for name in self._kernel.names(f"{KFD}/proc/{pid}"):
                    bdf = self._cards.get(name.removeprefix("vram_"))
                    said = self._kernel.read(f"{KFD}/proc/{pid}/{name}").strip() if bdf else b""
                    if bdf and said.isdigit() and int(said):  # every process of ROCm has a file for every GPU
                        use = found.setdefault(bdf, Use())
                        use.kfd = (use.kfd or 0) + int(said)

    def _rendering(self, folder: str, found: dict[str, Use]) -> None:
        """Look through the open files of a process: one walk tells what it draws on, and whether it computes."""
        kernel = self._kernel
        try:
            names = kernel.names(f"{folder}/fd")[:_FILES]
        except OSError:
            return
        for name in names:
            with suppress(OSError):
                opened = kernel.link(f"{folder}/fd/{name}")
                if opened == COMPUTE:
                    self.computing = True
                elif opened.startswith("/dev/dri/"):
                    _take(kernel.read(f"{folder}/fdinfo/{name}").decode(errors="replace"), found)


def _take(text: str, found: dict[str, Use]) -> None:
    """Add what is said of one open file; the same client may have several."""
    said = dict(re.findall(r"^(drm-[a-z0-9_-]+):[ \t]*(.*?)[ \t]*$", text, re.MULTILINE))
    client = said.get("drm-client-id", "")
    if said.get("drm-driver") != "amdgpu" or not re.fullmatch("[0-9]{1,18}", client) or "drm-pdev" not in said:
        return
    use = found.setdefault(said["drm-pdev"].lower(), Use())
    for name in ("drm-memory-vram", "drm-resident-vram"):  # the newer name wins
        memory = _bytes(said.get(name, ""))
        if memory is not None:
            use.clients[int(client)] = memory
    for name, value in said.items():
        engine = name.removeprefix("drm-engine-")
        spent = re.fullmatch("([0-9]{1,18}) ns", value)
        if engine in _TASKS and spent:
            use.busy[_TASKS[engine], engine, int(client)] = int(spent[1])


def _bytes(text: str) -> int | None:
    found = re.fullmatch(r"([0-9]{1,15}) ?(|KiB|MiB|GiB)", text)
    return int(found[1]) * _UNITS[found[2]] if found else None
