"""Usage of AMD's GPUs by the observed process and its descendants.

KFD lists processes of ROCm by the host's pids, so it counts only outside of a PID namespace. The clients of the Direct
Rendering Manager are in the folders of the processes themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from opentelemetry.instrumentation.hardware.accelerators.driver import AcceleratorDriver, Holders, Occupancy, Usage
from opentelemetry.instrumentation.hardware.accelerators.fdinfo import MEMORY, UTILIZATION, Clients, memory
from opentelemetry.instrumentation.hardware.accelerators.fields import Field
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
    """The GPUs, with the processes of ROCm and of the Direct Rendering Manager.

    Attributes:
        gpus: The GPUs.
    """

    gpus: Sequence[Gpu]

    def __init__(self, files: Files, topology: Topology) -> None:
        self._topology = topology
        self._clients = Clients(files, (DRIVER,))
        self._uses_queues = False

    def devices(self) -> Sequence[Gpu]:
        return self.gpus

    def usage(self, program: ProcessTree) -> Iterator[Usage]:
        """Yield the memory of each GPU, and its utilization since the previous call."""
        gpus = self.gpus
        cards = self._topology.cards([gpu.address for gpu in gpus])
        allocated: dict[str, int] = {}
        for pid in program.among(self._topology.pids()) if program.on_host and cards else ():
            for address, size in self._topology.memory(pid, cards).items():
                allocated[address] = allocated.get(address, 0) + size
        clients = self._clients.read(program.folders)
        utilization = {} if self.only_looks else self._clients.utilization()
        self._uses_queues = bool(allocated or clients) and program.computing()
        for gpu in gpus:
            address = gpu.address
            if not (address in allocated or address in clients) or gpu.trouble or not gpu.identify_if_awake():
                continue
            # Memory that ROCm allocated may be counted for a client too, so they are not added.
            sizes = (allocated.get(address), memory(clients.get(address, {}).values()))
            known = [size for size in sizes if size is not None]
            values: dict[Field, object] = {MEMORY["gpu"]: max(known)} if known else {}
            for task, share in utilization.get(address, {}).items():
                if task != "general" or not self._uses_queues:
                    values[UTILIZATION[task]] = share
            yield gpu, values

    def holders(self) -> Iterator[tuple[Gpu, Holders]]:
        """Yield the processes of ROCm, also those of other users and containers, with their memory of each GPU."""
        gpus = self.gpus
        cards = self._topology.cards([gpu.address for gpu in gpus])
        sizes: dict[str, dict[int, int | None]] = {address: {} for address in cards.values()}
        for pid in self._topology.pids():
            for address, size in self._topology.memory(pid, cards).items():
                sizes[address][pid] = size
        return ((gpu, sizes[gpu.address]) for gpu in gpus if gpu.address in sizes)

    def occupancy(self) -> Iterator[tuple[Gpu, Occupancy]]:
        return ((gpu, Occupancy(sizes.keys())) for gpu, sizes in self.holders())

    def unsupported(self) -> Iterator[str]:
        if self._uses_queues:
            yield _QUEUES
