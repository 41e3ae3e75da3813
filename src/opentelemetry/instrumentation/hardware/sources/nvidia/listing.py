"""NVIDIA's GPUs by nvidia-smi: one run of the tool says all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.fields import QUANTITIES, REASONS, Device
from opentelemetry.instrumentation.hardware.accelerators.selection import DeviceFilter, FoundDevice
from opentelemetry.instrumentation.hardware.accelerators.unsupported import note, sentences
from opentelemetry.instrumentation.hardware.model import Attributes, Number, Point, Rate
from opentelemetry.instrumentation.hardware.sources.nvidia import smi, visible
from opentelemetry.instrumentation.hardware.sources.nvidia.naps import Naps
from opentelemetry.instrumentation.hardware.sources.nvidia.remedies import silent
from opentelemetry.instrumentation.hardware.sources.nvidia.smi import Smi
from opentelemetry.instrumentation.hardware.sources.nvidia.spellings import NUMBERS

PACE: Final = 10.0
"""Seconds between two runs, at least: each costs tens of milliseconds, and seconds where no driver stays loaded."""

_WANTING: Final = ("retired.pending", "remapped.pending", "remapped.failure", "reset.required", "recovery.needed")
"""What says that a device wants to be looked after."""

_SAID: Final = tuple(quantity for quantity in NUMBERS if quantity in QUANTITIES)
"""What the tool says in one version or another."""

_UNSAID: Final = (
    *(f"utilization.{unit}" for unit in ("sm", "tensor", "dram", "fp64", "fp32", "fp16")),
    "occupancy",
    *(f"io.{link}.{way}" for link in ("pcie", "nvlink") for way in ("transmit", "receive")),
    *(f"errors.{kind}" for kind in ("xid", "nvlink_crc", "nvlink_replay", "nvlink_recovery")),
    "fan.speed",
    "process.gpu.utilization",
)
"""What it says in none, and the library does."""


@dataclass
class Shown:
    """A GPU, or a MIG instance of one, as the newest document shows it."""

    device: Device
    processes: Mapping[int, int | None]

    def users(self) -> Mapping[int, int | None]:
        """The processes that use it, by the driver's numbers, with the bytes that each has in use, where known."""
        return self.processes

    def shares(self) -> Mapping[int, Mapping[str, float]] | None:
        """Not known: the tool does not say what each process uses of a device in this form."""
        return None


class Listing:
    """All GPUs, with their MIG instances, as the tool lists them.

    Args:
        nvidia_smi: runs the tool.
        choice: which of them are reported.
        naps: which of them sleep; the tool would wake them all.

    Raises:
        Unavailable: where there is no driver or no GPU.
        OSError: where the tool hangs.
        ValueError: where it says nothing that can be understood.
    """

    def __init__(self, nvidia_smi: Smi, choice: DeviceFilter | None = None, naps: Naps | None = None) -> None:
        self._smi = nvidia_smi
        self._naps = naps or Naps(None)
        self._choice = choice or DeviceFilter()
        self._made: dict[str, Device] = {}
        self._ill: dict[str, str] = {}
        self._document = nvidia_smi.read()
        self._news = True

    def read(self) -> Iterator[Point]:
        """What one run of the tool says of all devices."""
        if self._naps.all():
            return
        self.refresh()
        self.look()
        for device in self._devices():
            yield from self._gpu(device, self._document.driver_version)

    def read_slow(self) -> Iterator[Point]:
        """Nothing: what hardly changes was said as well."""
        yield from ()

    def refresh(self) -> None:
        """Run the tool, unless nobody has seen yet what it said when we began."""
        if not self._news:
            self._document = self._smi.read()
        self._news = False

    def look(self) -> None:
        """Choose among the devices of the newest document."""
        self._choice.look([self._found(device) for device in self._devices()])

    def _found(self, device: smi.Device) -> FoundDevice:
        whole = self._whole(device).id
        parts = [
            visible.instance(whole, self._part(device, each).id, each.index, each.gpu_instance, each.compute_instance)
            for each in device.instances
        ]
        divided = bool(parts) or device.flags.get("mig", False)
        return visible.gpu(device.index, whole, device.name or "", device.bdf or "", divided, parts)

    def _devices(self) -> Sequence[smi.Device]:
        return self._document.devices

    def _of(self, id: str, name: str, kind: str = "gpu", parent: str = "") -> Device:  # noqa: A002
        if id not in self._made:
            self._made[id] = Device(id, name, kind, parent)
        return self._made[id]

    def _whole(self, device: smi.Device) -> Device:
        return self._of(device.uuid or f"gpu{device.index}", f"GPU {device.index}")

    def _part(self, device: smi.Device, instance: smi.Instance) -> Device:
        parent = self._whole(device)
        known = instance.uuid or f"{parent.id}/{instance.gpu_instance}/{instance.compute_instance}"
        return self._of(known, f"MIG {device.index}/{instance.index}", parent=parent.id)

    def _gpu(self, device: smi.Device, driver: str | None) -> Iterator[Point]:
        whole = self._whole(device)
        if whole.id in self._choice:
            self._note(whole, device.lost)
        facts = {
            c.HW_VENDOR: "NVIDIA",
            c.HW_MODEL: device.name,
            c.HW_SERIAL_NUMBER: device.serial,
            c.HW_DRIVER_VERSION: driver,
            c.HW_FIRMWARE_VERSION: device.vbios,
            c.PCI_BDF: device.bdf,
            c.GPU_INDEX: device.index,
            c.GPU_TYPE: "integrated" if "memory.total" in device.refused else "discrete",
        }
        known = {name: fact for name, fact in facts.items() if fact is not None}
        if whole.id in self._choice:
            yield from self._own(whole, device, known)
        for instance in device.instances:
            part = self._part(device, instance)
            if part.id in self._choice:
                yield part.info({**known, c.GPU_TYPE: "partition"})
                yield from part.status("ok")  # a GPU that is lost has none
                yield from part.points({name: value for name, value in instance.numbers.items() if name in QUANTITIES})

    def _own(self, whole: Device, device: smi.Device, facts: Attributes) -> Iterator[Point]:
        """What is said of a GPU but not of its parts."""
        yield whole.info(facts)
        if device.lost:
            yield from whole.status("failed")
            return
        yield from whole.status("degraded" if any(device.flags.get(sign) for sign in _WANTING) else "ok")
        reading = _reading(device)
        fan = reading.pop("fan.ratio", None)
        yield from whole.points(reading)
        if fan is not None:
            each = self._of(f"{whole.id}/fan0", f"{whole.name} fan 0", "fan", whole.id)
            yield from each.points({"fan.ratio": fan})

    def _note(self, device: Device, lost: str | None) -> None:
        note(device.name, device.id, self._ill.get(device.id, ""), lost or "")
        if lost:
            self._ill.setdefault(device.id, lost)
        else:
            self._ill.pop(device.id, None)

    def unsupported(self) -> list[str]:
        """What the devices do not say, a sentence for each reason."""
        said = [
            (f"GPU {device.index}", _lacking(device))
            for device in self._devices()
            if not device.lost and self._whole(device).id in self._choice
        ]
        found = [silent(self._made[gpu].name, reason) for gpu, reason in self._ill.items()]
        if self._document.problem:
            found.append(self._document.problem)
        return [*found, *sentences(said)]

    def users(self) -> Iterator[tuple[Shown, Mapping[int, int | None]]]:
        """Each device, or its parts, with the processes that use it: the driver's number, and the bytes in use."""
        for device in self._devices():
            whole = self._whole(device)
            instances = {(each.gpu_instance, each.compute_instance): each for each in device.instances}
            for key, instance in instances.items() if instances else (((None, None), None),):
                shown = whole if instance is None else self._part(device, instance)
                processes: dict[int, int | None] = {}
                for process in device.processes:
                    if instance is None or (process.gpu_instance, process.compute_instance) == key:
                        memory = None if process.memory is None else int(process.memory)
                        processes[process.pid] = memory
                if self._choice.by_use or shown.id in self._choice:
                    yield Shown(shown, processes), processes

    def release(self) -> None:
        """Nothing is held between two runs."""


def _lacking(device: smi.Device) -> dict[str, str]:
    """What is not said of a device, with the reason."""
    unsaid = dict.fromkeys((*_SAID, *_UNSAID), "nvidia-smi does not say it")
    reasons = {**unsaid, **{name: reason for name, reason in device.refused.items() if name in QUANTITIES}}
    return {name: reason for name, reason in reasons.items() if name not in _reading(device)}


def _reading(device: smi.Device) -> dict[str, Number | Rate]:
    """What is said of a device in our words: reasons that hold, and newer drivers' seconds that they held."""
    flags = {f"throttle.{reason}": device.flags.get(f"throttled.{reason}") for reason in REASONS}
    held: dict[str, Number | Rate] = {name: Rate(float(flag)) for name, flag in flags.items() if flag is not None}
    return {**held, **{name: value for name, value in device.numbers.items() if name in QUANTITIES}}
