"""Usage of AMD's GPUs by the observed process and its descendants.

KFD lists processes of ROCm by the host's pids, so it counts only outside of a PID namespace. The clients of the Direct
Rendering Manager are in the folders of the processes themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.accelerators.driver import AcceleratorDriver, Holders, Occupancy, Usage
from opentelemetry.instrumentation.hardware.accelerators.fdinfo import MEMORY, UTILIZATION, Clients
from opentelemetry.instrumentation.hardware.sources.amd.device import Gpu
from opentelemetry.instrumentation.hardware.sources.amd.topology import Topology
from opentelemetry.instrumentation.hardware.system.files import Files
from opentelemetry.instrumentation.hardware.system.tree import ProcessTree

DRIVER: Final = "amdgpu"

_QUEUES = (
    "process.gpu.utilization (general): amdgpu counts the time of graphics for each process, but not that of ROCm's "
    "queues"
)


class RocmDriver(AcceleratorDriver):
    """The GPUs, with the processes of ROCm and of the Direct Rendering Manager."""

    def __init__(self, files: Files, topology: Topology) -> None:
        self._topology = topology
        self._clients = Clients(files, (DRIVER,))
        self._uses_queues = False

    def usage(self, program: ProcessTree) -> Iterator[Usage]:
        """Yield the memory of each GPU, and its utilization since the previous call."""
        gpus = self.devices()
        cards = self._topology.cards([gpu.address for gpu in gpus])
        allocated = Counter[str]()
        for pid in program.among(self._topology.pids()) if program.on_host and cards else ():
            allocated.update(self._topology.memory(pid, cards))
        clients = dict(self._clients.usage(program, gpus, self.only_looks))
        self._uses_queues = bool(allocated or clients) and program.computing()
        for gpu in gpus:
            if gpu.trouble or not (gpu in clients or gpu.address in allocated):
                continue
            values = {**clients.get(gpu, {})}
            if MEMORY["gpu"] in values and isinstance(gpu, Gpu) and gpu.shares_memory:
                regions = [held.client.regions for held in self._clients.found[gpu.address].values()]
                values[MEMORY["gpu"]] = sum(each.get("vram", 0) + each.get("gtt", 0) for each in regions)
            if gpu.address in allocated:  # it may be counted for a client too, so they are not added
                size = values.get(MEMORY["gpu"], 0)
                assert isinstance(size, int)
                values[MEMORY["gpu"]] = max(size, allocated[gpu.address])
            if self._uses_queues:
                values.pop(UTILIZATION["general"], None)
            yield gpu, values

    def holders(self) -> Iterator[tuple[Device, Holders]]:
        """Yield the processes of ROCm, also those of other users and containers, with their memory of each GPU."""
        gpus = self.devices()
        cards = self._topology.cards([gpu.address for gpu in gpus])
        sizes: dict[str, dict[int, int | None]] = {address: {} for address in cards.values()}
        for pid in self._topology.pids():
            for address, size in self._topology.memory(pid, cards).items():
                sizes[address][pid] = size
        return ((gpu, sizes[gpu.address]) for gpu in gpus if gpu.address in sizes)

    def occupancy(self) -> Iterator[tuple[Device, Occupancy]]:
        return ((gpu, Occupancy(sizes.keys())) for gpu, sizes in self.holders())

    def unsupported(self) -> Iterator[str]:
        if self._uses_queues:
            yield _QUEUES
