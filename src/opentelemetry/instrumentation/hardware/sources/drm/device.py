"""A GPU or an NPU, read from the files of its kernel driver."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.facts import known
from opentelemetry.instrumentation.hardware.accelerators.fdinfo import TASKS
from opentelemetry.instrumentation.hardware.accelerators.fields import Field
from opentelemetry.instrumentation.hardware.accelerators.sysfs import Card, SysfsDevice, fact, present
from opentelemetry.instrumentation.hardware.model import Point
from opentelemetry.instrumentation.hardware.sources.drm import fields as f
from opentelemetry.instrumentation.hardware.system.files import Files, read_text


class DrmDevice(SysfsDevice):
    """A device, with what its bus says about it.

    Attributes:
        shared: By task, the utilization by all processes; empty if it is unknown.
    """

    def __init__(self, files: Files, card: Card, index: int, type: str = "gpu") -> None:  # noqa: A002
        super().__init__(files, card, index, type)
        self.shared: Mapping[str, float] = {}

    def identify(self) -> None:
        """Store what describes the device: on a PCI bus its number, elsewhere its name in the device tree."""
        compatible = re.search(
            "^OF_COMPATIBLE_0=(?:[^,\n]*,)?(.{1,60})$",
            read_text(self.files, f"{self.card.folder}/uevent"),
            re.MULTILINE,
        )
        model = f"device 0x{self.card.device.lower()}" if self.card.device else compatible and compatible[1]
        kernel = fact(self.files, "/proc/sys/kernel/osrelease", ".{1,100}")
        facts = {
            c.HW_VENDOR: f.VENDORS[self.card.driver],
            c.HW_MODEL: model,
            c.HW_DRIVER_VERSION: kernel,
            c.PCI_BDF: self.card.address,
        }
        self.facts = known(facts)


class Gpu(DrmDevice):
    """A GPU. Few have sensors; those on a chip with the CPU have a clock that follows their load."""

    _stats = ""

    def find(self) -> None:
        path = f"{self.card.folder}/{f.GPU_STATS}"
        self._stats = path if self.files.exists(path) else ""
        self.identify()
        self.facts |= {c.GPU_INDEX: self.index, c.GPU_TYPE: "discrete" if self.card.address else "integrated"}
        for folder in self.folders("hwmon"):
            self.often += present(self.files, folder, f.GPU_SENSORS)
            self.slow += present(self.files, folder, f.GPU_SENSORS_SLOW)
            self.add_fans(folder)
        for folder in self.folders("devfreq"):
            self.often += present(self.files, folder, {"cur_freq": f.FREQUENCY})
            self.slow += present(self.files, folder, {"max_freq": f.FREQUENCY_LIMIT})

    def complete(self, values: Mapping[Field, object]) -> Mapping[Field, object]:
        """Add the utilization, from the time that the queues were busy. Those of a task run in parallel."""
        table = read_text(self.files, self._stats) if self._stats else ""
        shares: dict[Field, float] = {}
        for queue, nanoseconds in re.findall(r"^([a-z_]+)\s+[0-9]+\s+[0-9]+\s+([0-9]{1,19})$", table, re.MULTILINE):
            field = f.GPU_UTILIZATION.get(TASKS.get(queue, ""))
            grown = None if field is None else self.increases.per_second(queue, int(nanoseconds))
            if field is not None and grown is not None:
                shares[field] = min(1.0, max(grown / 1e9, shares.get(field, 0.0)))
        return {**values, **shares}

    def read_slow(self) -> Iterator[Point]:
        """Yield the utilization by all processes, if the driver does not count it."""
        yield from super().read_slow()
        if not self._stats:
            yield from self.points({f.GPU_UTILIZATION[task]: share for task, share in self.shared.items()})


class Npu(DrmDevice):
    """An NPU. Its memory is that of the host."""

    def __init__(self, files: Files, card: Card, index: int) -> None:
        super().__init__(files, card, index, "npu")
        self._busy: float | None = None

    def find(self) -> None:
        self.identify()
        firmware = fact(self.files, f"{self.card.folder}/fw_version", "[0-9A-Za-z._-]{1,64}")
        if firmware:
            self.facts[c.HW_FIRMWARE_VERSION] = firmware
        self.often += present(self.files, self.card.folder, f.NPU)
        for folder in self.folders("hwmon"):
            self.often += present(self.files, folder, f.NPU_SENSORS)
        for folder in self.folders("devfreq"):
            self.often += present(self.files, folder, {"cur_freq": f.NPU_FREQUENCY})

    def complete(self, values: Mapping[Field, object]) -> Mapping[Field, object]:
        """Add the utilization, from the time that the NPU was busy."""
        microseconds = self.count(f"{self.card.folder}/{f.NPU_BUSY}")
        grown = None if microseconds is None else self.increases.per_second(f.NPU_BUSY, microseconds)
        self._busy = None if grown is None else min(1.0, grown / 1e6)
        self.is_idle = self._busy == 0.0
        return values if self._busy is None else {**values, f.NPU_UTILIZATION: self._busy}

    def read_slow(self) -> Iterator[Point]:
        """Yield the utilization by all processes, if the driver does not count it."""
        yield from super().read_slow()
        if self._busy is None and "general" in self.shared:
            yield from self.points({f.NPU_UTILIZATION: self.shared["general"]})
