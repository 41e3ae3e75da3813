"""A Tenstorrent accelerator, read from the files of its driver. The values come from the firmware of the chip."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import DeviceFailed
from opentelemetry.instrumentation.hardware.accelerators.facts import known
from opentelemetry.instrumentation.hardware.accelerators.fields import Field
from opentelemetry.instrumentation.hardware.accelerators.sysfs import Card, SysfsDevice, fact, present
from opentelemetry.instrumentation.hardware.sources.tenstorrent import fields as f
from opentelemetry.instrumentation.hardware.system.files import Files

CLASS: Final = "/sys/class/tenstorrent"

# Seconds without a heartbeat after which the firmware counts as dead.
_SILENCE: Final = 5.0

# Values of the counters of the PCIe tile, which have 32 bits. A device that does not answer reads as all ones.
_RANGE: Final = 1 << 32

# Seconds in which a counter may wrap unseen: 128 GiB over PCIe 5.0 with 16 lanes take little more than two.
_LONGEST: Final = 5.0

_NO_FAN: Final = (1 << 32) - 1

_IO: Final = "hw.npu.io"


class Npu(SysfsDevice):
    """An accelerator.

    Args:
        card: The device. Its folder is that of the PCI device.
        number: Its number in ``/dev/tenstorrent``.
    """

    def __init__(self, files: Files, card: Card, number: int) -> None:
        super().__init__(files, card, number, "npu")
        self._beat: tuple[float, int] | None = None
        self._read_at = 0.0
        self._counts: dict[tuple[str, int], int] = {}
        self._bytes: dict[Field, int] = {}

    @property
    def _attributes(self) -> str:
        return f"{CLASS}/{self.card.name}"

    def find(self) -> None:
        facts = {name: fact(self.files, f"{self._attributes}/{file}", form) for name, (file, form) in f.FACTS.items()}
        facts[c.HW_DRIVER_VERSION] = fact(self.files, "/sys/module/tenstorrent/version", "[0-9A-Za-z.+-]{1,40}")
        self.facts = known({c.HW_VENDOR: "Tenstorrent", c.PCI_BDF: self.card.address, **facts})
        self.often += present(self.files, self._attributes, f.ATTRIBUTES)
        for folder in self.folders("hwmon"):
            self.often += present(self.files, folder, f.SENSORS)
            self.slow += present(self.files, folder, f.SENSORS_SLOW)
            if self.count(f"{folder}/fan1_input") != _NO_FAN:
                self.add_fans(folder)
        if not any("/hwmon/" in file.path for file in self.often):
            self.unsupported["hw.power, hw.temperature"] = "this firmware reports no sensors"

    def complete(self, values: Mapping[Field, object]) -> Mapping[Field, object]:
        """Check the heartbeat, and add the bytes over PCIe.

        Raises:
            DeviceFailed: The firmware is dead, so that the values are of an earlier time.
        """
        now = self.files.uptime()
        beat = self.count(f"{self._attributes}/{f.HEARTBEAT}")
        is_reset = False
        if beat is not None:
            if self._beat is None or beat != self._beat[1]:
                is_reset = self._beat is not None and beat < self._beat[1]
                self._beat = now, beat
            elif now - self._beat[0] > _SILENCE:
                raise DeviceFailed("its firmware has no heartbeat")
            self.state = "ok"
        return {**values, **self._traffic(now, is_reset)}

    def _traffic(self, now: float, is_reset: bool) -> Mapping[Field, object]:
        """Return the bytes in each direction since the first reading, over wraps of the counters.

        What came between a reset and the readings around it is unknown.
        """
        folder = f"{self._attributes}/pcie_perf_counters"
        elapsed, self._read_at = now - self._read_at, now
        counts = {
            (name, network): count
            for name in f.COUNTERS
            for network in (0, 1)
            if (count := self.count(f"{folder}/{name}{network}")) is not None and count < _RANGE - 1
        }
        before, self._counts = self._counts, counts
        if not counts:
            return {}
        if before and elapsed > _LONGEST:
            self.unsupported[_IO] = f"the counters may wrap in {_LONGEST:g} s, and are read every {elapsed:.0f} s"
            return {}
        self.unsupported.pop(_IO, None)
        before = {} if is_reset else before
        for (name, network), count in counts.items():
            grown = (count - before.get((name, network), count)) % _RANGE
            self._bytes[f.COUNTERS[name]] = self._bytes.get(f.COUNTERS[name], 0) + grown * f.WORD
        return {**self._bytes}
