"""The GPUs from the files of amdgpu, the first choice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.accelerators.driver import AcceleratorDriver, Holders, Occupancy, Usage
from opentelemetry.instrumentation.hardware.accelerators.sysfs import DRM, find_cards
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.sources.amd import sysfs
from opentelemetry.instrumentation.hardware.sources.amd.device import Identification, SysfsGpu
from opentelemetry.instrumentation.hardware.sources.amd.processes import DRIVER, Processes
from opentelemetry.instrumentation.hardware.sources.amd.topology import Topology
from opentelemetry.instrumentation.hardware.system.files import Files
from opentelemetry.instrumentation.hardware.system.tree import ProcessTree


class Amdgpu(AcceleratorDriver):
    """The cards of amdgpu.

    Args:
        files: Reads the files.
        topology: ROCm's names of the GPUs.
        processes: Reads what the observed program uses.
        is_simulated: Whether the files are those of the simulator.

    Raises:
        Unavailable: There is no card.
    """

    def __init__(self, files: Files, topology: Topology, processes: Processes, is_simulated: bool = False) -> None:
        cards = find_cards(files, DRM, (DRIVER,))
        if not cards:
            raise Unavailable("amdgpu has no GPU")
        self._topology = topology
        self._processes = processes
        identity = Identification(sysfs.model_names(files), sysfs.version(files), set())
        self._gpus = [SysfsGpu(files, card, index, identity) for index, card in enumerate(cards)]
        for gpu in self._gpus if is_simulated else ():
            gpu.name = f"{gpu.name} simulated"

    def devices(self) -> Sequence[SysfsGpu]:
        """Return the GPUs, suspended ones included. Without ROCm's names, the GPUs that are awake are identified."""
        for gpu in self._gpus:
            names = self._topology.names(gpu.address)
            gpu.set_aliases(names)
            if not names:
                gpu.identify_if_awake()
        return self._gpus

    @property
    def min_interval(self) -> float:  # type: ignore[override]
        """Seconds: more than the autosuspend delay of each idle GPU, because every reading keeps it awake."""
        return max(0.0 if gpu.is_suspended or gpu.trouble else gpu.idle_interval for gpu in self._gpus)

    def usage(self, program: ProcessTree) -> Iterable[Usage]:
        """Yield the usage of each GPU by the observed program."""
        return self._processes.usage(program, self._gpus)

    def holders(self) -> Iterable[tuple[Device, Holders]]:
        """Yield the processes of ROCm that use each GPU, with their memory."""
        return self._processes.holders(self._gpus)

    def occupancy(self) -> Iterable[tuple[Device, Occupancy]]:
        """Yield the processes of ROCm that use each GPU."""
        return self._processes.occupancy(self._gpus)

    def unsupported(self) -> Iterable[str]:
        """Yield sentences about missing process metrics."""
        return self._processes.unsupported()
