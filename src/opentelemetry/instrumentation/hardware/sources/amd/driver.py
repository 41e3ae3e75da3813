"""The GPUs from the files of amdgpu, the first choice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opentelemetry.instrumentation.hardware.accelerators.driver import Usage
from opentelemetry.instrumentation.hardware.accelerators.sysfs import DRM, Card, find_cards, followed
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.sources.amd.device import Gpu
from opentelemetry.instrumentation.hardware.sources.amd.processes import DRIVER, RocmDriver
from opentelemetry.instrumentation.hardware.sources.amd.topology import Topology
from opentelemetry.instrumentation.hardware.system.files import Files
from opentelemetry.instrumentation.hardware.system.tree import ProcessTree


class Amdgpu(RocmDriver):
    """The cards of amdgpu.

    Raises:
        Unavailable: There is no card.
    """

    reads_for_spans = True

    def __init__(self, files: Files, topology: Topology, is_simulated: bool) -> None:
        super().__init__(files, topology)
        self._files = files
        self._suffix = " simulated" if is_simulated else ""
        self._gpus: dict[str, Gpu] = {}
        self._taken: set[str] = set()
        if not self.devices():
            raise Unavailable("amdgpu has no GPU")

    def devices(self) -> Sequence[Gpu]:
        """Return all GPUs, also suspended and removed ones."""
        gpus = followed(find_cards(self._files, DRM, (DRIVER,)), self._gpus, self._gpu)
        for gpu in gpus:
            gpu.set_aliases(self._topology.names(gpu.address))
        return gpus

    def _gpu(self, card: Card) -> Gpu:
        gpu = Gpu(self._files, card, len(self._gpus), self._taken)
        gpu.name += self._suffix
        return gpu

    @property
    def min_interval(self) -> float:  # type: ignore[override]
        return max(gpu.idle_interval for gpu in self._gpus.values())

    def usage(self, program: ProcessTree) -> Iterator[Usage]:
        for gpu, values in super().usage(program):
            assert isinstance(gpu, Gpu)
            if gpu.identify_if_awake():
                yield gpu, values
