"""A GPU, read from the files of amdgpu.

https://docs.kernel.org/gpu/amdgpu/thermal.html documents them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import inf
from typing import Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import DeviceFailed
from opentelemetry.instrumentation.hardware.accelerators.facts import known
from opentelemetry.instrumentation.hardware.accelerators.fields import Field
from opentelemetry.instrumentation.hardware.accelerators.sysfs import (
    Card,
    File,
    SysfsDevice,
    describe,
    fact,
    present,
    read_files,
)
from opentelemetry.instrumentation.hardware.model import Point
from opentelemetry.instrumentation.hardware.sources.amd import fields as f
from opentelemetry.instrumentation.hardware.sources.amd.gpu_metrics import GpuMetrics
from opentelemetry.instrumentation.hardware.sources.amd.topology import chip_number
from opentelemetry.instrumentation.hardware.system.files import Files, names_or_empty, read_or_empty, read_text

# Files with the names of models, of libdrm and of ROCm's copy of it.
_MODEL_NAMES: Final = ("/usr/share/libdrm/amdgpu.ids", "/opt/amdgpu/share/libdrm/amdgpu.ids")

# Device numbers of chips with CPU and GPU that have the ``gpu_metrics`` of a discrete GPU.
_MI300A: Final = frozenset({"74A0", "74A9"})

_ERROR_KINDS: Final = {b"ce": "corrected", b"ue": "uncorrected", b"de": "deferred"}


class Gpu(SysfsDevice):
    """A GPU.

    Args:
        taken: The ids in use.

    Attributes:
        shares_memory: Whether it is part of a CPU, and uses memory of the host (GTT) like the part reserved for it.
    """

    def __init__(self, files: Files, card: Card, index: int, taken: set[str]) -> None:
        super().__init__(files, card, index)
        self._taken = taken
        self._is_identified = False
        self.shares_memory = False
        self._table = ""
        self._metrics, self._span_metrics = GpuMetrics(), GpuMetrics()
        self._ras: list[str] = []
        self._errors: dict[str, dict[Field, int]] = {}
        self._read_at = -inf

    # -- what it is

    @property
    def selection_id(self) -> str:
        return self.address

    def set_aliases(self, names: Sequence[str]) -> None:
        """Set the other names: those of ROCm, and the number of the chip. Without ROCm's, it is read if it is awake."""
        self.is_unidentified = not (names or self.identify_if_awake())
        own = () if self.id == self.address else (f"GPU-{self.id}", self.id)
        self.aliases = (*names, *own)

    def identify_if_awake(self) -> bool:
        """Whether ``hw.id`` is known; reads it if the GPU is awake."""
        if not self._is_identified and not self.check_suspended():
            unique = chip_number(read_text(self.files, f"{self.card.folder}/unique_id"))
            if unique and unique not in self._taken:  # two dies of one board may have the same number
                self.set_id(unique)
            self._taken.add(self.id)
            self._is_identified = True
        return self._is_identified

    def _describe(self, table: bytes) -> None:
        files, folder = self.files, self.card.folder
        form = table[2] if len(table) > 3 else 0
        self.shares_memory = form in (2, 3)
        is_integrated = self.shares_memory or self.card.device in _MI300A
        version = fact(files, "/sys/module/amdgpu/version", ".{1,100}")
        facts = {
            c.HW_VENDOR: "AMD",
            c.HW_MODEL: fact(files, f"{folder}/product_name", ".{1,100}") or self._model(),
            c.HW_SERIAL_NUMBER: fact(files, f"{folder}/serial_number", "(?!0+$)[0-9A-Za-z-]{1,64}"),
            c.HW_DRIVER_VERSION: version or fact(files, "/proc/sys/kernel/osrelease", ".{1,100}"),
            c.HW_FIRMWARE_VERSION: fact(files, f"{folder}/vbios_version", "[0-9A-Za-z._-]{1,64}"),
            c.PCI_BDF: self.card.address,
            c.GPU_TYPE: "integrated" if is_integrated else "discrete" if form == 1 else None,
            c.GPU_INDEX: self.index,
        }
        self.facts = known(facts)

    def _model(self) -> str:
        """Return the name of the model by device number and revision, or else the number."""
        device = self.card.device
        number = (read_text(self.files, f"{self.card.folder}/revision") or "0x0").upper()[2:].zfill(2)
        row = rf"^{re.escape(device)}\s*,\s*{re.escape(number)}\s*,\s*(\S.*?)\s*$"
        for path in _MODEL_NAMES:
            match = re.search(row, read_text(self.files, path), re.MULTILINE | re.IGNORECASE)
            if match:
                return match[1]
        return f"device 0x{device.lower()}"

    # -- the files that it has

    def find(self) -> None:
        folder = self.card.folder
        table = f"{folder}/gpu_metrics"
        self._table = table if self.files.exists(table) else ""
        self._metrics, self._span_metrics = GpuMetrics(), GpuMetrics()
        if not self.facts:
            content = read_or_empty(self.files, self._table)
            if self._table and not content:  # it is busy, and may have a counter
                self.counters.add(f.ENERGY.series)
            self._describe(content)
        for file in present(self.files, folder, f.SYSFS):
            shared = file.path.replace("mem_info_vram", "mem_info_gtt")
            is_part = self.shares_memory and shared != file.path and self.files.exists(shared)
            self.often.append(file._replace(extract=partial(self._with_shared, path=shared)) if is_part else file)
        for file in present(self.files, folder, f.SYSFS_SLOW):
            self.slow.append(file._replace(extract=highest_clock) if "pp_dpm" in file.path else file)
        sensors = self.sensors()
        if sensors:
            self._find_sensors(sensors)
        if not self.often:
            raise DeviceFailed("it has none of the expected files")
        names = sorted(names_or_empty(self.files, f"{folder}/ras"))
        self._ras = [f"{folder}/ras/{name}" for name in names if name.endswith("_err_count")]

    def _with_shared(self, size: bytes, path: str) -> object:
        """Add what the GPU has of the host's memory to the size of its own."""
        both = size.strip(), self.files.read(path).strip()
        known = all(re.fullmatch(b"[0-9]{1,20}", each) for each in both)
        return sum(map(int, both)) if known else b" + ".join(both)

    def _find_sensors(self, folder: str) -> None:
        files = self.files
        names = sorted(names_or_empty(files, folder))
        labels = {name: read_text(files, f"{folder}/{name}") for name in names if "_label" in name}
        for name in names:
            sensor, _, kind = name.partition("_")
            labelled = f"{labels.get(f'{sensor}_label')}_{kind}"
            for table, found in ((f.HWMON, self.often), (f.HWMON_SLOW, self.slow)):
                field = table.get(labelled) or table.get(name)
                if field is not None:
                    found.append(File(f"{folder}/{name}", field))
        power = [File(f"{folder}/{name}", f.POWER) for name in ("power1_average", "power1_input") if name in names]
        self.often += ([file for file in power if file.read_plausible(files) is not None] or power)[:1]
        instant = [file for file in power[1:] if file.read_plausible(files) is not None]
        self.slow += [File(file.path, f.POWER_INSTANT) for file in instant]
        self.add_fans(folder)
        top = read_text(files, f"{folder}/pwm1_max") if "pwm1_max" in names else "255"
        if "pwm1" in names and top.isdecimal() and 0 < int(top) < 1 << 16:
            fan = next(iter(self.fans), None) or self.new_fan(0)
            ratio = Field(c.HW_FAN_SPEED_RATIO, unit=(1, int(top)), most=1)
            self.fans.setdefault(fan, []).append(File(f"{folder}/pwm1", ratio))

    # -- readings

    def read(self) -> Iterator[Point]:
        if self.identify_if_awake():  # else it has been suspended a moment ago
            yield from super().read()

    def complete(self, values: Mapping[Field, object]) -> Mapping[Field, object]:
        """Add the values of ``gpu_metrics``. The usage of a memory of unknown size may be anything."""
        self._note_use(values)
        found = {**values, **self._gpu_metrics(self._metrics)}
        if f.MEMORY_USED in found and not f.MEMORY_TOTAL.is_plausible(found.get(f.MEMORY_TOTAL)):
            del found[f.MEMORY_USED]
            self.unsupported[f.MEMORY_USED.series] = "the size of the memory cannot be read"
        return found

    def _note_use(self, values: Mapping[Field, object]) -> None:
        self.is_idle = values.get(f.UTILIZATION, b"0\n") == b"0\n"
        self._read_at = self.files.uptime()

    def _gpu_metrics(self, metrics: GpuMetrics) -> Mapping[Field, object]:
        if not self._table:
            return {}
        try:
            values = metrics.decode(self.files.read(self._table))
        except (OSError, ValueError) as error:
            self.unsupported["gpu_metrics"] = describe(error) if isinstance(error, OSError) else str(error)
            return {}
        self.unsupported.pop("gpu_metrics", None)
        return {f.GPU_METRICS[name]: value for name, value in values.items()}

    def read_energy(self) -> Iterator[Point]:
        if self._rests() or not self.identify_if_awake():
            return
        if not self.is_open:
            self.open()
        quick = (f.UTILIZATION,) if f.ENERGY.series in self.counters else (f.UTILIZATION, f.POWER)
        values = read_files(self.files, [file for file in self.often if file.field in quick], self.unsupported)
        self._note_use(values)
        metrics = self._gpu_metrics(self._span_metrics)
        values.update((field, value) for field, value in metrics.items() if field in f.SPAN_METRICS)
        yield from self.points(values)

    def read_memory(self) -> Iterator[Point]:
        if not self._rests() and self.is_open:
            used = [file for file in self.often if file.field is f.MEMORY_USED]
            yield from self.points(read_files(self.files, used, self.unsupported))

    def _rests(self) -> bool:
        """Whether it is idle, and a reading so soon after the last one would keep it awake."""
        return self.files.uptime() - self._read_at < self.idle_interval

    def read_slow_values(self) -> Mapping[Field, object]:
        """Add the errors by kind, summed over the blocks of the chip. An unreadable block keeps its last counts."""
        for path in self._ras:
            block = path.rpartition("/")[2]
            prefix = f.RAS_BLOCKS.get(block.removesuffix("_err_count"), "chip_")
            try:
                counts = re.findall(rb"^(ue|ce|de): ?([0-9]{1,18})$", self.files.read(path), re.MULTILINE)
            except OSError as error:
                self.unsupported[f"hw.errors ({block})"] = describe(error)
                continue
            self.unsupported.pop(f"hw.errors ({block})", None)
            self._errors[path] = {f.RAS[prefix, _ERROR_KINDS[kind]]: int(count) for kind, count in counts}
        totals: dict[Field, int] = {}
        for errors in self._errors.values():
            for field, count in errors.items():
                totals[field] = totals.get(field, 0) + count
        # Pages that are still to be retired (P), or could not be retired (F).
        pages = read_or_empty(self.files, f"{self.card.folder}/ras/gpu_vram_bad_pages") if self._ras else b""
        self.state = "degraded" if re.search(rb": [PF]\s*$", pages, re.MULTILINE) else "ok"
        return {**super().read_slow_values(), **totals}


def highest_clock(text: bytes) -> int:
    """Return the highest frequency in ``pp_dpm_sclk`` in MHz; 0 if there is none. A line is ``1: 800Mhz *``."""
    levels = re.findall(rb"^(?:[0-9]+|S): ([0-9]{1,5})Mhz", text, re.MULTILINE | re.IGNORECASE)
    return max(map(int, levels), default=0)
