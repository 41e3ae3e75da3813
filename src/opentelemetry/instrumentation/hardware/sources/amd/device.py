"""A GPU by the files of amdgpu. Its fan is a device of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import Device, DeviceFailed
from opentelemetry.instrumentation.hardware.accelerators.fields import Field
from opentelemetry.instrumentation.hardware.drivers.backoff import Backoff
from opentelemetry.instrumentation.hardware.model import Point
from opentelemetry.instrumentation.hardware.sources.amd import sysfs
from opentelemetry.instrumentation.hardware.sources.amd.fields import (
    ENERGY,
    FAN_METRICS,
    GPU_METRICS,
    HWMON,
    HWMON_SLOW,
    MEMORY_TOTAL,
    MEMORY_USED,
    POWER,
    RAS,
    SYSFS,
    SYSFS_SLOW,
    UTILIZATION,
)
from opentelemetry.instrumentation.hardware.sources.amd.gpu_metrics import GpuMetrics, revision
from opentelemetry.instrumentation.hardware.system.files import Files

_MI300A: Final = frozenset({"74A0", "74A9"})
"""Device numbers of chips with CPU and GPU that have the ``gpu_metrics`` of a discrete GPU."""


class _File(NamedTuple):
    """A file with a value."""

    path: str
    field: Field
    extract: Callable[[bytes], object] | None = None


class Gpu(Device):
    """A GPU.

    Attributes:
        fan: Its fan.
    """

    fan: Device

    def __init__(self, index: int, address: str) -> None:
        super().__init__(address, f"GPU {index}", index=index, address=address)
        self.backoff = Backoff(1, 32)  # reading a GPU that is gone costs nothing: retry at the next reading

    def identify(self, unique: str) -> None:
        """Set ``hw.id``."""
        self.id = unique
        self.fan = Device(f"{unique}/fan0", f"{self.name} fan 0", "fan", unique)
        self.fan.unsupported = self.unsupported

    def identify_if_awake(self) -> bool:
        """Whether ``hw.id`` is known; reads it if the GPU is awake."""
        return True

    def points_with_fan(self, values: Mapping[Field, object]) -> Iterator[Point]:
        """The points of the GPU and of its fan.

        An energy counter is left out if the GPU had none when it was opened: its energy is the integral of its power.
        """
        own, fan = dict[Field, object](), dict[Field, object]()
        for field, value in values.items():
            if field.series != ENERGY.series or ENERGY.series in self.counters:
                (fan if field.series.metric in FAN_METRICS else own)[field] = value
        yield from self.points(own)
        yield from self.fan.points(fan)


class Identification(NamedTuple):
    """What the GPUs share to identify themselves.

    Attributes:
        models: See :func:`~.sysfs.model_names`.
        version: Version of the driver.
        taken: The ids in use.
    """

    models: Mapping[str, str]
    version: str
    taken: set[str]


class SysfsGpu(Gpu):
    """A GPU by the files of amdgpu.

    Args:
        files: Reads the files.
        card: The card.
        index: Its place in the order of the addresses.
        shared: What the GPUs share.

    Attributes:
        folder: Its folder in sysfs.
        idle_interval: Seconds between two readings that let an idle GPU suspend; 0 if it is busy or never suspends.
    """

    def __init__(self, files: Files, card: sysfs.Card, index: int, shared: Identification) -> None:
        super().__init__(index, card.address)
        self.folder = card.folder
        self.idle_interval = 0.0
        self._files = files
        self._device = card.device
        self._shared = shared
        self._is_identified = False
        self._is_open = False
        self._often: list[_File] = []
        self._slow: list[_File] = []
        self._ras: list[str] = []
        self._metrics: GpuMetrics | None = None
        self._total: bytes | None = None
        self._autosuspend = 0.0

    @property
    def selection_id(self) -> str:
        """The address."""
        return self.address

    def check_suspended(self) -> bool:
        """Whether the GPU is suspended. Reading ``runtime_status`` does not wake it."""
        try:
            return self._files.read(f"{self.folder}/power/runtime_status").startswith(b"suspend")
        except OSError:  # a kernel without power management
            return False

    # -- identity

    def set_aliases(self, names: Sequence[str]) -> None:
        """Set the other names: those of ROCm, and the number of the chip if it is known."""
        own = (f"GPU-{self.id.zfill(16)}", self.id) if self.id != self.address else ()
        self.aliases = (*names, *own)
        self.is_unidentified = not (names or self._is_identified)

    def identify_if_awake(self) -> bool:
        """Whether ``hw.id`` is known; reads it if the GPU is awake."""
        if not self._is_identified and not self.check_suspended():
            unique = self._fact("unique_id", "(?!0+$)[0-9a-f]{8,32}")
            is_free = unique and unique not in self._shared.taken  # two dies of one board may have the same number
            self.identify(unique if unique and is_free else self.address)
            self._shared.taken.add(self.id)
            self._is_identified = True
            self.set_aliases(self.aliases)
        return self._is_identified

    def _read_facts(self) -> None:
        device = self._device
        pci_revision = (sysfs.read_text(self._files, f"{self.folder}/revision") or "0x0").upper()[2:].zfill(2)
        name = self._shared.models.get(f"{device}/{pci_revision}") or f"device 0x{device.lower()}"
        facts = {
            c.HW_VENDOR: "AMD",
            c.HW_MODEL: self._fact("product_name", ".{1,100}") or name,
            c.HW_SERIAL_NUMBER: self._fact("serial_number", "(?!0+$|N/A$|unknown$)[0-9A-Za-z-]{1,64}"),
            c.HW_DRIVER_VERSION: self._shared.version or None,
            c.HW_FIRMWARE_VERSION: self._fact("vbios_version", "[0-9A-Za-z._-]{1,64}"),
            c.PCI_BDF: self.address,
            c.GPU_INDEX: self.index,
            c.GPU_TYPE: self._type(),
        }
        self.facts = {name: fact for name, fact in facts.items() if fact is not None}

    def _fact(self, file: str, form: str) -> str | None:
        text = sysfs.read_text(self._files, f"{self.folder}/{file}")
        return text if text.isprintable() and re.fullmatch(form, text) else None

    def _type(self) -> str | None:
        try:
            form, _ = revision(self._files.read(f"{self.folder}/gpu_metrics"))
        except (OSError, ValueError):
            return None
        return "integrated" if form > 1 or self._device in _MI300A else "discrete"

    # -- the files that it has

    def open(self) -> None:
        """Find its files.

        Raises:
            DeviceFailed: The GPU is gone.
        """
        try:
            present = frozenset(self._files.names(self.folder))
        except OSError as error:
            raise DeviceFailed(sysfs.describe(error)) from None
        self._often = [_File(f"{self.folder}/{name}", field) for name, field in SYSFS.items() if name in present]
        self._slow = [
            _File(f"{self.folder}/{name}", field, sysfs.highest_clock if name.startswith("pp_dpm") else None)
            for name, field in SYSFS_SLOW.items()
            if name in present
        ]
        hwmon = sysfs.hwmon_folder(self._files, self.folder)
        if hwmon is not None:
            self._open_sensors(hwmon)
        ras = sysfs.list_names(self._files, f"{self.folder}/ras") if "ras" in present else ()
        self._ras = sorted(name for name in ras if name.endswith("_err_count"))
        self._metrics = GpuMetrics() if "gpu_metrics" in present else None
        if self._counts_energy():
            self.counters.add(ENERGY.series)
        self._total = None
        self._autosuspend = self._autosuspend_delay()
        if not self.facts:
            self._read_facts()
        self._is_open = True

    def _open_sensors(self, folder: str) -> None:
        """Find the files of its sensors, by their labels."""
        present = sorted(sysfs.list_names(self._files, folder))
        labels = {name: sysfs.read_text(self._files, f"{folder}/{name}") for name in present if "_label" in name}
        for name in present:
            sensor, _, kind = name.partition("_")
            labelled = f"{labels.get(f'{sensor}_label')}_{kind}"
            for table, files in ((HWMON, self._often), (HWMON_SLOW, self._slow)):
                field = table.get(labelled) or table.get(name)
                if field is not None:
                    files.append(_File(f"{folder}/{name}", field))
        power = [_File(f"{folder}/{name}", POWER) for name in ("power1_average", "power1_input") if name in present]
        self._often += ([file for file in power if self._is_plausible(file)] or power)[:1]
        top = sysfs.read_text(self._files, f"{folder}/pwm1_max") if "pwm1_max" in present else "255"
        if "pwm1" in present and top.isdecimal() and 0 < int(top) < 1 << 16:
            self._slow.append(_File(f"{folder}/pwm1", Field(c.HW_FAN_SPEED_RATIO, unit=(1, int(top)), most=1)))

    def _is_plausible(self, file: _File) -> bool:
        try:
            file.field.value(self._files.read(file.path))
        except (OSError, ValueError):
            return False
        return True

    def _counts_energy(self) -> bool:
        """Whether ``gpu_metrics`` has an energy counter. One that cannot be read at the moment may have."""
        if self._metrics is None:
            return False
        try:
            return "energy" in self._metrics.decode(self._files.read(f"{self.folder}/gpu_metrics"))
        except OSError:
            return True
        except ValueError:
            return False

    def _autosuspend_delay(self) -> float:
        """After how many seconds without a reading the system suspends the GPU, and a little more; 0: never."""
        power = f"{self.folder}/power"
        milliseconds = sysfs.read_text(self._files, f"{power}/autosuspend_delay_ms")
        if sysfs.read_text(self._files, f"{power}/control") != "auto" or not re.fullmatch("[0-9]{1,5}", milliseconds):
            return 0.0
        return int(milliseconds) / 1000 + 1

    # -- readings

    def read(self) -> Iterator[Point]:
        """Read about ten files.

        Raises:
            DeviceFailed: No file can be read.
        """
        if not self.identify_if_awake():  # it has been suspended a moment ago
            return
        if not self._is_open:
            self.open()
        values = self._read(self._often)
        if not values:
            errors = [self.unsupported[file.field.series] for file in self._often]
            raise DeviceFailed(errors[-1] if errors else "it has none of the expected files")
        is_idle = values.get(UTILIZATION, b"0\n") == b"0\n"
        self.idle_interval = self._autosuspend if is_idle else 0.0
        total = self._memory_total()
        if total is None and MEMORY_USED in values:
            del values[MEMORY_USED]
            self.unsupported[MEMORY_USED.series] = "the size of the memory cannot be read"
        elif MEMORY_USED in values:
            values[MEMORY_TOTAL] = total
        yield from self.points_with_fan({**values, **self._gpu_metrics()})

    def _memory_total(self) -> bytes | None:
        """The size of the memory, which is read once; None if it cannot be read now."""
        file = _File(f"{self.folder}/mem_info_vram_total", MEMORY_TOTAL)
        if self._total is None and self._is_plausible(file):
            self._total = self._files.read(file.path)
        return self._total

    def _gpu_metrics(self) -> Mapping[Field, object]:
        if self._metrics is None:
            return {}
        try:
            values = self._metrics.decode(self._files.read(f"{self.folder}/gpu_metrics"))
        except (OSError, ValueError) as error:
            self.unsupported["gpu_metrics"] = sysfs.describe(error) if isinstance(error, OSError) else str(error)
            return {}
        self.unsupported.pop("gpu_metrics", None)
        return {GPU_METRICS[name]: value for name, value in values.items()}

    def read_slow(self) -> Iterator[Point]:
        """Read limits, voltages, errors and the fan."""
        if not self._is_open:
            return
        yield from self.points_with_fan({**self._read(self._slow), **self._error_counts()})
        self.state = "degraded" if self._has_unretired_pages() else "ok"

    def _error_counts(self) -> Mapping[Field, object]:
        counts: dict[Field, int] = {}
        for name in self._ras:
            is_memory = name == "umc_err_count"
            try:
                text = self._files.read(f"{self.folder}/ras/{name}")
            except OSError as error:
                self.unsupported[RAS[is_memory, "corrected"].series] = sysfs.describe(error)
                continue
            for kind, count in sysfs.error_counts(text):
                field = RAS[is_memory, kind]
                counts[field] = counts.get(field, 0) + count
        return counts

    def _has_unretired_pages(self) -> bool:
        if not self._ras:
            return False
        try:
            return sysfs.has_unretired_pages(self._files.read(f"{self.folder}/ras/gpu_vram_bad_pages"))
        except OSError:
            return False

    def _read(self, files: Sequence[_File]) -> dict[Field, object]:
        """The contents of files. The reasons for those that cannot be read are in :attr:`unsupported`."""
        values: dict[Field, object] = {}
        for path, field, extract in files:
            try:
                content = self._files.read(path)
            except OSError as error:
                self.unsupported[field.series] = sysfs.describe(error)
            else:
                values[field] = content if extract is None else extract(content)
        return values
