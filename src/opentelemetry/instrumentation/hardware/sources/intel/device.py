"""A GPU of Intel, read from the files of i915 or xe.

A GPU has one or more GTs, parts with a clock and a power state of their own. Since Meteor Lake, the media engines are a
GT. A GT that is idle for a moment enters the state RC6 (C6), and the drivers count the time that it spends there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.fields import Field
from opentelemetry.instrumentation.hardware.accelerators.sysfs import DRM, Card, SysfsDevice, fact, pcie_link, present
from opentelemetry.instrumentation.hardware.sources.intel import fields as f
from opentelemetry.instrumentation.hardware.system.files import Files, link_or_empty, names_or_empty, read_text

# Share of the time out of RC6 below which a GPU counts as idle: a reading itself may wake a GT.
_IDLE: Final = 0.02

_ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")

_NO_RESIDENCY: Final = "does not report how long the GPU was idle"


class Gt(NamedTuple):
    """A part of a GPU.

    Attributes:
        is_media: Whether it has the media engines only.
        residency: The file with its idle time in milliseconds; "" if there is none.
        frequency: The file with its frequency in MHz.
        frequency_limit: The file with the highest one.
        status: The file that has 0 while it is not throttled.
        reasons: The files with the reasons why it is.
    """

    is_media: bool
    residency: str
    frequency: str
    frequency_limit: str
    status: str = ""
    reasons: tuple[tuple[str, str], ...] = ()


class Gpu(SysfsDevice):
    """A GPU.

    Attributes:
        is_integrated: Whether it is part of a CPU.
    """

    def __init__(self, files: Files, card: Card, index: int) -> None:
        super().__init__(files, card, index)
        self.is_integrated = card.address.endswith(":00:02.0")  # where all of them are, and no slot is
        self._gts: list[Gt] = []
        self._vram: list[str] = []
        self._energy = ""

    # -- the files that it has

    def find(self) -> None:
        number = self.card.device
        self.facts = {
            c.HW_VENDOR: "Intel",
            c.HW_MODEL: f.MODELS.get(number, f"device 0x{number.lower()}"),
            c.HW_DRIVER_VERSION: fact(self.files, "/proc/sys/kernel/osrelease", ".{1,100}") or self.card.driver,
            c.PCI_BDF: self.card.address,
            c.GPU_INDEX: self.index,
            c.GPU_TYPE: "integrated" if self.is_integrated else "discrete",
        }
        self.unsupported.clear()
        self._gts = [*(self._gts_of_xe() if self.card.driver == "xe" else self._gts_of_i915())]
        if not any(gt.residency for gt in self._gts):
            self.unsupported["hw.gpu.utilization"] = f"this kernel's {self.card.driver} {_NO_RESIDENCY}"
        vrams = (vram for tile in self._folders(self.card.folder, "tile") for vram in self._folders(tile, "vram"))
        self._vram = [vram for vram in vrams if self.files.exists(f"{vram}/used_bytes")]
        if not (self._vram or self.is_integrated):
            why = f"this kernel's {self.card.driver} does not report the memory in use; processes report theirs"
            self.unsupported["hw.gpu.memory.*"] = why
        self._find_sensors()
        if not self.is_integrated:
            self.slow += pcie_link(self._link_folder())

    def _gts_of_xe(self) -> Iterator[Gt]:
        for tile in self._folders(self.card.folder, "tile"):
            for folder in self._folders(tile, "gt"):
                clock = f"{folder}/freq0"
                is_media = read_text(self.files, f"{folder}/gtidle/name").endswith("-mc")
                yield Gt(
                    is_media,
                    self._if_exists(f"{folder}/gtidle/idle_residency_ms"),
                    f"{clock}/act_freq",
                    f"{clock}/rp0_freq",
                    f"{clock}/throttle/status",
                    self._throttle_files(f"{clock}/throttle", "reason_"),
                )

    def _gts_of_i915(self) -> Iterator[Gt]:
        card = f"{DRM}/{self.card.name}"
        for number, folder in enumerate(self._folders(f"{card}/gt", "gt")):
            yield Gt(
                number > 0 and self.is_integrated,
                self._if_exists(f"{folder}/rc6_residency_ms"),
                f"{folder}/rps_act_freq_mhz",
                f"{folder}/rps_RP0_freq_mhz",
                f"{folder}/throttle_reason_status",
                self._throttle_files(folder, "throttle_reason_"),
            )
        if not self.files.exists(f"{card}/gt"):  # before Linux 5.18
            residency = self._if_exists(f"{card}/power/rc6_residency_ms")
            yield Gt(False, residency, f"{card}/gt_act_freq_mhz", f"{card}/gt_RP0_freq_mhz")

    def _folders(self, folder: str, kind: str) -> list[str]:
        names = names_or_empty(self.files, folder)
        return [f"{folder}/{name}" for name in sorted(names) if re.fullmatch(f"{kind}[0-9]+", name)]

    def _if_exists(self, path: str) -> str:
        return path if self.files.exists(path) else ""

    def _throttle_files(self, folder: str, beginning: str) -> tuple[tuple[str, str], ...]:
        names = names_or_empty(self.files, folder)
        known = ((name, f.THROTTLE_FILES.get(name.removeprefix(beginning), "")) for name in names)
        return tuple((f"{folder}/{name}", reason) for name, reason in known if reason)

    def _find_sensors(self) -> None:
        folder = self.sensors()
        if not folder:
            why = "the GPU is part of the CPU, and so are its sensors" if self.is_integrated else self._no_sensors()
            self.unsupported["hw.energy, hw.power, hw.temperature"] = why
            return
        self.often += present(self.files, folder, f.SENSORS)
        self.slow += present(self.files, folder, f.SENSORS_SLOW)
        self.add_fans(folder)
        # The card is the first channel, if the sensors of this model measure it; the second one is its GPU.
        energies = (f"{folder}/energy{channel}_input" for channel in (1, 2))
        self._energy = next((path for path in energies if self.files.exists(path)), "")
        if self._energy:
            channel = self._energy.rpartition("/energy")[2][0]
            limits = {f"power{channel}_{name}": field for name, field in f.POWER_LIMITS.items()}
            known = [file for file in present(self.files, folder, limits) if file.read_plausible(self.files)]
            self.slow += {file.field: file for file in reversed(known)}.values()
        if not any("/temp" in file.path for file in self.often):
            self.unsupported["hw.temperature"] = self._no_sensors()

    def _no_sensors(self) -> str:
        since = {"i915": "6.2, temperatures since 6.14", "xe": "6.5, temperatures since 6.15"}[self.card.driver]
        return f"{self.card.driver} reports sensors of some models, since Linux {since}"

    def _link_folder(self) -> str:
        """Return the folder of the link to the slot. An Arc card has a switch between its slot and its GPU."""
        bridges = _ADDRESS.findall(link_or_empty(self.files, f"{DRM}/{self.card.name}"))[:-1]
        above = f"/sys/bus/pci/devices/{bridges[-2]}" if len(bridges) > 2 else ""
        return above if above and read_text(self.files, f"{above}/vendor") == "0x8086" else self.card.folder

    # -- values

    def complete(self, values: Mapping[Field, object]) -> Mapping[Field, object]:
        found = {**values, **self._utilization(), **self._frequencies(), **self._throttling(), **self._memory()}
        microjoules = self.count(self._energy) if self._energy else None
        if microjoules is not None:
            found[f.ENERGY] = microjoules
            watts = self.increases.per_second("energy", microjoules)
            if watts is not None:
                found[f.POWER] = watts / 1e6
        return found

    def _utilization(self) -> Mapping[Field, object]:
        """Return the share of the time out of RC6, of several GTs the highest."""
        shares: dict[Field, float] = {}
        for gt in self._gts:
            idle = self.count(gt.residency) if gt.residency else None
            grown = None if idle is None else self.increases.per_second(gt.residency, idle)
            if grown is not None:
                field = f.MEDIA_UTILIZATION if gt.is_media else f.UTILIZATION
                shares[field] = min(1.0, max(1.0 - grown / 1000, shares.get(field, 0.0)))
        self.is_idle = bool(shares) and max(shares.values()) < _IDLE  # all GTs were in RC6
        return shares

    def _frequencies(self) -> Mapping[Field, object]:
        """Return the frequency and its limit, of several GTs the highest."""
        found: dict[Field, int] = {}
        for gt in self._gts:
            field, limit = f.MEDIA_FREQUENCIES if gt.is_media else f.FREQUENCIES
            for each, path in ((field, gt.frequency), (limit, gt.frequency_limit)):
                count = self.count(path)
                if count is not None:
                    found[each] = max(count, found.get(each, 0))
        return found

    def _throttling(self) -> dict[Field, object]:
        """Return for each reason whether it holds for one of the GTs."""
        held: dict[str, int] = {}
        for gt in self._gts:
            is_throttled = bool(gt.reasons) and self.count(gt.status) != 0
            for path, reason in gt.reasons:
                count = self.count(path) if is_throttled else 0
                if count is not None:
                    held[reason] = max(held.get(reason, 0), min(count, 1))
        return {f.THROTTLED[reason]: count for reason, count in held.items()}

    def _memory(self) -> dict[Field, object]:
        sums = {f.MEMORY_USED: 0, f.MEMORY_TOTAL: 0}
        for vram in self._vram:
            for field, name in ((f.MEMORY_USED, "used_bytes"), (f.MEMORY_TOTAL, "total_bytes")):
                size = self.count(f"{vram}/{name}")
                if size is None:
                    return {}
                sums[field] += size
        return {**sums} if self._vram else {}
