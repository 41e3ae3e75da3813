"""NVIDIA's GPUs by NVML, all together: events, processes, and what is missing."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.selection import DeviceFilter, FoundDevice
from opentelemetry.instrumentation.hardware.accelerators.unsupported import sentences
from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.model import Point
from opentelemetry.instrumentation.hardware.sources.nvidia import visible
from opentelemetry.instrumentation.hardware.sources.nvidia.calls import END
from opentelemetry.instrumentation.hardware.sources.nvidia.gpu import Gpu, Part
from opentelemetry.instrumentation.hardware.sources.nvidia.naps import Naps
from opentelemetry.instrumentation.hardware.sources.nvidia.nvml import Nvml, driver
from opentelemetry.instrumentation.hardware.sources.nvidia.remedies import silent

_LOG = logging.getLogger(__name__)

_GARBLED: Final = ((535, 43), (535, 86))
"""Drivers from the first to before the second have another form of process list than they say."""


class Library:
    """All GPUs, with their MIG instances; one that does not answer at first is tried again.

    Args:
        nvml: the library, initialized.
        choice: which of them are read.
        naps: which of them sleep; those are not asked.
        shared: whether CUDA's multi-process service runs, whose clients have a list of their own.

    Raises:
        DriverError: where the library does not answer at all.
    """

    def __init__(
        self, nvml: Nvml, choice: DeviceFilter | None = None, naps: Naps | None = None, shared: bool = False
    ) -> None:
        self._nvml = nvml
        self._naps = naps or Naps(None)
        self._lists = ("Compute", "Graphics", *(("MPSCompute",) if shared else ()))
        self._choice = choice or DeviceFilter()
        self._told: set[tuple[str, int]] = set()
        self._listens = False
        self._garbled = _GARBLED[0] <= _version(driver(nvml)) < _GARBLED[1]
        self.gpus = [Gpu(nvml, str(index)) for index in range(nvml.count())]
        for gpu in self.gpus:
            gpu.start()
        self.look()

    def refresh(self) -> None:
        """Nothing: every call says what is so now."""

    def look(self) -> None:
        """MIG instances come and go; choose anew."""
        for gpu in self.gpus:
            gpu.divide()
            if gpu.trouble and gpu.device.id not in self._choice:
                for _ in gpu.read():  # it may be one of those that are wanted, once it answers
                    pass
        self._choice.look([self._found(gpu) for gpu in self.gpus])
        if self._listens:
            self.listen()

    def _found(self, gpu: Gpu) -> FoundDevice:
        parts = [
            visible.instance(gpu.device.id, part.device.id, slot, *self._instance(part))
            for slot, part in gpu.parts.items()
        ]
        model, address = str(gpu.facts.get(c.HW_MODEL, "")), str(gpu.facts.get(c.PCI_BDF, ""))
        return visible.gpu(int(gpu.name), gpu.device.id, model, address, gpu.divided, parts)

    def _instance(self, part: Part) -> tuple[int | None, int | None]:
        with suppress(DriverError):
            return part.get("GpuInstanceId"), part.get("ComputeInstanceId")
        return None, None

    def _chosen(self) -> Iterator[Gpu]:
        """The devices that are wanted, GPUs and parts of them."""
        for gpu in self.gpus:
            for device in (gpu, *gpu.parts.values()):
                if device.device.id in self._choice and not self._sleeps(device):
                    yield device

    def _sleeps(self, gpu: Gpu) -> bool:
        return gpu.facts.get(c.PCI_BDF) in self._naps

    def listen(self) -> None:
        """Count critical events from now on; of a device that does not answer yet, from when it does."""
        self._listens = True
        well = [gpu for gpu in self.gpus if not gpu.trouble]
        new = [gpu for gpu in well if gpu.xids is None and "errors.xid" not in gpu.unsupported]
        if any(gpu.is_back for gpu in well):  # whether it is still listened to is not known, and never twice to any
            self._hear()
            self._nvml.deafen()
            new += [gpu for gpu in self.gpus if gpu.xids is not None]
        if not new:
            return
        heard: list[str] = []
        reason = "the driver tells of no events"
        try:
            heard = self._nvml.listen([gpu.name for gpu in new])
        except DriverError as refusal:
            reason = refusal.text
        for gpu in new:
            gpu.is_back = False
            if gpu.name in heard:
                gpu.xids = gpu.xids or 0
            elif not gpu.trouble:
                gpu.xids, gpu.unsupported["errors.xid"] = None, reason

    def read(self) -> Iterator[Point]:
        """What is sampled, of all devices."""
        self._hear()
        for device in self._chosen():
            yield from device.read()

    def read_slow(self) -> Iterator[Point]:
        """What hardly changes, of all devices."""
        for device in self._chosen():
            yield from device.read_slow()

    def _hear(self) -> None:
        listening = {gpu.name: gpu for gpu in self.gpus if gpu.xids is not None}
        for name, xid in self._events() if listening else ():
            gpu = listening.get(name)
            if gpu is None or gpu.xids is None:
                continue
            gpu.xids += 1
            if (name, xid) not in self._told and gpu.device.id in self._choice:
                self._told.add((name, xid))
                _LOG.warning(
                    "%s (%s): Xid %d, which https://docs.nvidia.com/deploy/xid-errors/ explains",
                    gpu.device.name,
                    gpu.device.id,
                    xid,
                )

    def _events(self) -> Sequence[Sequence[Any]]:
        """What happened; nothing where that cannot be asked, as while a device is lost."""
        try:
            return self._nvml.events()
        except DriverError as refusal:
            if refusal.code in END:
                raise
            return ()

    def unsupported(self) -> list[str]:
        """What the devices do not say, a sentence for each reason."""
        wanted = [gpu for gpu in self.gpus if gpu.device.id in self._choice]
        found = [silent(gpu.device.name, gpu.trouble) for gpu in wanted if gpu.trouble]
        found += [f"{gpu.device.name} sleeps, and is not woken to be asked" for gpu in wanted if self._sleeps(gpu)]
        return [
            *found,
            *sentences([(each.device.name, each.unsupported) for each in self._chosen() if not each.trouble]),
        ]

    def users(self) -> Iterator[tuple[Gpu, Mapping[int, int | None]]]:
        """Each device, or its parts, with the processes that use it: the driver's number, and the bytes in use."""
        if self._garbled:
            for gpu in self.gpus:
                gpu.unsupported["process.gpu.memory.usage"] = (
                    "this driver's process list is garbled; 535.86 and later are well"
                )
            return
        for gpu in self.gpus:
            if not gpu.trouble and not self._sleeps(gpu):
                for device in gpu.parts.values() or (gpu,):
                    if self._choice.by_use or device.device.id in self._choice:
                        yield device, device.users(self._lists)

    def release(self) -> None:
        """Let go of the GPUs."""
        self._nvml.release()


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdecimal())
