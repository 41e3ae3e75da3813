"""The GPUs from the files of amdgpu, the first choice."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.instrumentation.hardware.accelerators.sleep import longest_rest
from opentelemetry.instrumentation.hardware.accelerators.sysfs import DRM, find_cards
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.sources.amd import sysfs
from opentelemetry.instrumentation.hardware.sources.amd.device import Identification, SysfsGpu
from opentelemetry.instrumentation.hardware.sources.amd.processes import DRIVER, RocmDriver
from opentelemetry.instrumentation.hardware.sources.amd.topology import Topology
from opentelemetry.instrumentation.hardware.system.files import Files


class Amdgpu(RocmDriver):
    """The cards of amdgpu.

    Raises:
        Unavailable: There is no card.
    """

    reads_for_spans = True

    gpus: Sequence[SysfsGpu]

    def __init__(self, files: Files, topology: Topology, is_simulated: bool) -> None:
        super().__init__(files, topology)
        cards = find_cards(files, DRM, (DRIVER,))
        if not cards:
            raise Unavailable("amdgpu has no GPU")
        identity = Identification(sysfs.model_names(files), sysfs.version(files), set())
        self.gpus = [SysfsGpu(files, card, index, identity) for index, card in enumerate(cards)]
        for gpu in self.gpus if is_simulated else ():
            gpu.name = f"{gpu.name} simulated"

    def devices(self) -> Sequence[SysfsGpu]:
        """Return the GPUs, suspended ones included. Without ROCm's names, the GPUs that are awake are identified."""
        for gpu in self.gpus:
            names = self._topology.names(gpu.address)
            gpu.set_aliases(names)
            if not names:
                gpu.identify_if_awake()
        return self.gpus

    @property
    def min_interval(self) -> float:  # type: ignore[override]
        return longest_rest(self.gpus)
