"""Usage of AMD's GPUs by the observed process and its descendants.

KFD lists processes of ROCm by the host's pids, so it counts only outside of a PID namespace. The fdinfo files of the
Direct Rendering Manager are in the folders of the processes themselves. https://docs.kernel.org/gpu/drm-usage-stats.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from opentelemetry.instrumentation.hardware.accelerators.driver import Holders, Occupancy, Usage
from opentelemetry.instrumentation.hardware.accelerators.fields import Field
from opentelemetry.instrumentation.hardware.sources.amd.device import Gpu
from opentelemetry.instrumentation.hardware.sources.amd.fields import PROCESS_MEMORY, PROCESS_UTILIZATION
from opentelemetry.instrumentation.hardware.sources.amd.topology import KFD, Topology
from opentelemetry.instrumentation.hardware.system.files import Files, names_or_empty
from opentelemetry.instrumentation.hardware.system.process_tree import ProcessTree

COMPUTE: Final = "/dev/kfd"
"""The device file that every ROCm program opens."""

_UNITS: Final = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

_TASKS: Final = {
    "gfx": "general",
    "compute": "general",
    "enc": "encoder",
    "enc_1": "encoder",
    "dec": "decoder",
    "jpeg": "jpeg",
}
"""The engines in fdinfo, and the tasks of ``process.gpu.utilization``."""

_QUEUES = (
    "process.gpu.utilization (general): amdgpu counts the time of graphics for each process, but not that of ROCm's "
    "queues"
)

_MAX_FILES = 20_000
"""Open files of a process that are examined."""


class _Use:
    """Usage of one GPU by the program.

    Attributes:
        kfd: Bytes of its memory that ROCm allocated.
        clients: By DRM client, bytes of its memory.
        busy: By task, engine and client, nanoseconds of engine time.
    """

    def __init__(self) -> None:
        self.kfd: int | None = None
        self.clients: dict[int, int] = {}
        self.busy: dict[tuple[str, str, int], int] = {}

    @property
    def memory(self) -> int | None:
        """Bytes in use. Memory that ROCm allocated may be counted for a DRM client too, so they are not added."""
        known = [] if self.kfd is None else [self.kfd]
        return max([*known, sum(self.clients.values())]) if self.clients or known else None


class Processes:
    """Reads what the observed program uses of the GPUs.

    Args:
        files: Reads the files.
        topology: ROCm's numbers of the GPUs.
    """

    def __init__(self, files: Files, topology: Topology) -> None:
        self._files = files
        self._topology = topology
        self._cards: Mapping[str, str] = {}
        self._previous: Mapping[str, _Use] = {}
        self._read_at = 0.0
        self._uses_queues = False

    def usage(self, program: ProcessTree, gpus: Sequence[Gpu]) -> Iterator[Usage]:
        """Yield the memory of each GPU, and its utilization since the previous call."""
        self._cards = self._topology.cards([gpu.address for gpu in gpus])
        computes = False
        uses: dict[str, _Use] = {}
        if program.on_host and self._cards:
            self._read_kfd(program, uses)
        for folder in program.folders:
            computes |= self._read_open_files(folder, uses)
        self._uses_queues = computes and bool(uses)
        utilization = self._utilization(uses)
        for gpu in gpus:
            use = uses.get(gpu.address)
            if use is None or gpu.trouble or not gpu.identify_if_awake():
                continue
            values: dict[Field, object] = {} if use.memory is None else {PROCESS_MEMORY: use.memory}
            for task, share in utilization.get(gpu.address, {}).items():
                if task != "general" or not computes:
                    values[PROCESS_UTILIZATION[task]] = share
            yield gpu, values

    def holders(self, gpus: Sequence[Gpu]) -> Iterator[tuple[Gpu, Holders]]:
        """Yield the processes of ROCm, also those of other users and containers, with their memory of each GPU."""
        cards = self._topology.cards([gpu.address for gpu in gpus])
        memory: dict[str, dict[int, int | None]] = {gpu.address: {} for gpu in gpus}
        for pid in self._kfd_pids():
            for address, size in self._kfd_memory(pid, cards).items():
                memory[address][pid] = size
        for gpu in gpus:
            if gpu.address in cards.values():
                yield gpu, memory[gpu.address]

    def occupancy(self, gpus: Sequence[Gpu]) -> Iterator[tuple[Gpu, Occupancy]]:
        """Yield the processes of ROCm, also those of other users and containers, that have memory of each GPU."""
        for gpu, sizes in self.holders(gpus):
            yield gpu, Occupancy(sizes.keys())

    def unsupported(self) -> Iterator[str]:
        """Yield sentences about missing metrics."""
        if self._uses_queues:
            yield _QUEUES

    def _utilization(self, uses: Mapping[str, _Use]) -> Mapping[str, Mapping[str, float]]:
        """By PCI address and task, utilization since the previous call."""
        previous, self._previous = self._previous, uses
        now = self._files.uptime()
        elapsed, self._read_at = now - self._read_at, now
        found: dict[str, dict[str, float]] = {}
        for address, use in uses.items():
            before = previous[address].busy if address in previous else {}
            engines: dict[tuple[str, str], float] = {}
            for (task, engine, client), spent in use.busy.items():
                if (task, engine, client) in before and spent >= before[task, engine, client] and elapsed > 0:
                    share = (spent - before[task, engine, client]) / 1e9 / elapsed
                    engines[task, engine] = engines.get((task, engine), 0.0) + share
            for (task, _), share in engines.items():  # engines of one task run in parallel
                tasks = found.setdefault(address, {})
                tasks[task] = min(1.0, max(share, tasks.get(task, 0.0)))
        return found

    def _read_kfd(self, program: ProcessTree, uses: dict[str, _Use]) -> None:
        for pid in program.among(self._kfd_pids()):
            for address, size in self._kfd_memory(pid, self._cards).items():
                gpu = uses.setdefault(address, _Use())
                gpu.kfd = (gpu.kfd or 0) + size

    def _kfd_pids(self) -> list[int]:
        """The processes of ROCm, by the host's PIDs."""
        return [int(name) for name in names_or_empty(self._files, f"{KFD}/proc") if name.isdecimal()]

    def _kfd_memory(self, pid: int, cards: Mapping[str, str]) -> Mapping[str, int]:
        """By address of a card, the bytes of its memory that a process has. A process has a file for every GPU."""
        found: dict[str, int] = {}
        with suppress(OSError):
            for name in self._files.names(f"{KFD}/proc/{pid}"):
                address = cards.get(name.removeprefix("vram_"))
                text = self._files.read(f"{KFD}/proc/{pid}/{name}").strip() if address else b""
                if address and text.isdigit() and int(text):
                    found[address] = found.get(address, 0) + int(text)
        return found

    def _read_open_files(self, folder: str, uses: dict[str, _Use]) -> bool:
        """Add the DRM clients of a process. Returns whether it uses ROCm."""
        computes = False
        for name in names_or_empty(self._files, f"{folder}/fd")[:_MAX_FILES]:
            with suppress(OSError):
                path = self._files.link(f"{folder}/fd/{name}")
                if path == COMPUTE:
                    computes = True
                elif path.startswith("/dev/dri/"):
                    _add_client(self._files.read(f"{folder}/fdinfo/{name}").decode(errors="replace"), uses)
        return computes


def _add_client(fdinfo: str, uses: dict[str, _Use]) -> None:
    """Add the usage of one open file. A client may have several open files."""
    fields = dict(re.findall(r"^(drm-[a-z0-9_-]+):[ \t]*(.*?)[ \t]*$", fdinfo, re.MULTILINE))
    client = fields.get("drm-client-id", "")
    if fields.get("drm-driver") != "amdgpu" or not re.fullmatch("[0-9]{1,18}", client) or "drm-pdev" not in fields:
        return
    gpu = uses.setdefault(fields["drm-pdev"].lower(), _Use())
    for name in ("drm-memory-vram", "drm-resident-vram"):  # the newer name has precedence
        memory = _bytes(fields.get(name, ""))
        if memory is not None:
            gpu.clients[int(client)] = memory
    for name, value in fields.items():
        engine = name.removeprefix("drm-engine-")
        spent = re.fullmatch("([0-9]{1,18}) ns", value)
        if engine in _TASKS and spent:
            gpu.busy[_TASKS[engine], engine, int(client)] = int(spent[1])


def _bytes(text: str) -> int | None:
    match = re.fullmatch(r"([0-9]{1,15}) ?(|KiB|MiB|GiB)", text)
    return int(match[1]) * _UNITS[match[2]] if match else None
