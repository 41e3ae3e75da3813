"""NVIDIA's GPUs by NVML, all together: events, processes, and what is missing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from opentelemetry.instrumentation.hardware.drivers import Refusal
from opentelemetry.instrumentation.hardware.model import Point
from opentelemetry.instrumentation.hardware.sources.nvidia.gpu import Gpu
from opentelemetry.instrumentation.hardware.sources.nvidia.missing import sentences
from opentelemetry.instrumentation.hardware.sources.nvidia.nvml import Nvml

_LOG = logging.getLogger(__name__)

_GARBLED: Final = ((535, 43), (535, 86))
"""Drivers from the first to before the second have another form of process list than they say."""


class Library:
    """All GPUs, with their MIG instances; one that does not answer at first is tried again.

    Args:
        nvml: the library, initialized.
        wanted: which GPUs are read.

    Raises:
        Refusal: where the library does not answer at all.
    """

    def __init__(self, nvml: Nvml, wanted: Callable[[Gpu], bool] = lambda gpu: True) -> None:
        self._nvml = nvml
        self._told: set[tuple[str, int]] = set()
        self.gpus = [Gpu(nvml, str(index)) for index in range(nvml.count())]
        for gpu in self.gpus:
            gpu.start()
        self.gpus = [gpu for gpu in self.gpus if wanted(gpu)]

    def listen(self) -> None:
        """Count critical events from now on."""
        heard: list[str] = []
        reason = "its driver does not tell"
        try:
            heard = self._nvml.listen([gpu.name for gpu in self.gpus])
        except Refusal as refusal:
            reason = refusal.text
        for gpu in self.gpus:
            gpu.xids = 0 if gpu.name in heard else None
            if gpu.xids is None:
                gpu.missing["errors.xid"] = reason

    def read(self) -> Iterator[Point]:
        """What is sampled, of all devices."""
        self._hear()
        for gpu in self.gpus:
            yield from gpu.read()
            for part in gpu.parts.values():
                yield from part.read()

    def read_seldom(self) -> Iterator[Point]:
        """What hardly changes, of all devices; MIG instances come and go."""
        for gpu in self.gpus:
            yield from gpu.read_seldom()
            for part in gpu.divide():
                yield from part.read_seldom()

    def _hear(self) -> None:
        listening = {gpu.name: gpu for gpu in self.gpus if gpu.xids is not None}
        for name, xid in self._nvml.events() if listening else ():
            gpu = listening.get(name)
            if gpu is None or gpu.xids is None:
                continue
            gpu.xids += 1
            if (name, xid) not in self._told:
                self._told.add((name, xid))
                _LOG.warning(
                    "%s (%s): Xid %d, which NVIDIA's list of Xid errors explains", gpu.device.name, gpu.device.id, xid
                )

    def missing(self) -> list[str]:
        """What the devices do not say, a sentence for each reason."""
        found = [f"{gpu.device.id} does not answer: {gpu.trouble}" for gpu in self.gpus if gpu.trouble]
        return [*found, *sentences([(gpu.device.name, gpu.missing) for gpu in self.gpus if not gpu.trouble])]

    def users(self) -> Iterator[tuple[Gpu, Mapping[int, int | None]]]:
        """Each device, or its parts, with the processes that use it: the driver's number, and the bytes in use."""
        version = _version(self._nvml.system("DriverVersion"))
        if _GARBLED[0] <= version < _GARBLED[1]:
            for gpu in self.gpus:
                gpu.missing["process.gpu.memory.usage"] = (
                    "this driver's process list is garbled; 535.86 and later are well"
                )
            return
        for gpu in self.gpus:
            if not gpu.trouble:
                for device in gpu.parts.values() or (gpu,):
                    yield device, device.users()

    def release(self) -> None:
        """Let go of the GPUs."""
        self._nvml.release()


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdecimal())
