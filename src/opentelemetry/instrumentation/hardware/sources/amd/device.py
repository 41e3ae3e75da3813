"""A GPU, read from the files of amdgpu. Its fan is a separate device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import Device, DeviceFailed
from opentelemetry.instrumentation.hardware.accelerators.fields import Field
from opentelemetry.instrumentation.hardware.accelerators.sleep import autosuspend_delay, is_suspended
from opentelemetry.instrumentation.hardware.accelerators.sysfs import Card, File, describe, read_files
from opentelemetry.instrumentation.hardware.drivers.backoff import Backoff
from opentelemetry.instrumentation.hardware.model import Point
from opentelemetry.instrumentation.hardware.sources.amd import fields as f
from opentelemetry.instrumentation.hardware.sources.amd import sysfs
from opentelemetry.instrumentation.hardware.sources.amd.gpu_metrics import GpuMetrics
from opentelemetry.instrumentation.hardware.sources.amd.topology import chip_number
from opentelemetry.instrumentation.hardware.system.files import Files, read_text


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
        self.set_id(unique)
        self.fan = self.new_fan(0)

    def identify_if_awake(self) -> bool:
        """Whether ``hw.id`` is known; reads it if the GPU is awake."""
        return True

    def points_with_fan(self, values: Mapping[Field, object]) -> Iterator[Point]:
        """Yield the points of the GPU and of its fan.

        An energy counter is left out if the GPU had none when it was opened: its energy is the integral of its power.
        """
        own, fan = dict[Field, object](), dict[Field, object]()
        for field, value in values.items():
            if field.series != f.ENERGY.series or f.ENERGY.series in self.counters:
                (fan if field.series.metric in f.FAN_METRICS else own)[field] = value
        yield from self.points(own)
        yield from self.fan.points(fan)


class Identification(NamedTuple):
    """The data that all GPUs share for identification.

    Attributes:
        models: See :func:`~.sysfs.model_names`.
        version: Version of the driver.
        taken: The ids in use.
    """

    models: Mapping[str, str]
    version: str
    taken: set[str]


class SysfsGpu(Gpu):
    """A GPU, read from the files of amdgpu.

    Attributes:
        folder: Its folder in sysfs.
    """

    def __init__(self, files: Files, card: Card, index: int, shared: Identification) -> None:
        super().__init__(index, card.address)
        self.folder = card.folder
        self._files = files
        self._card = card
        self._shared = shared
        self._is_identified = False
        self._is_open = False
        self._often: list[File] = []
        self._slow: list[File] = []
        self._ras: list[str] = []
        self._errors: dict[str, dict[Field, int]] = {}
        self._quick: list[File] = []
        self._metrics: GpuMetrics | None = None
        self._span_metrics: GpuMetrics | None = None
        self._total: object = None
        self._autosuspend = 0.0
        self._read_at = -inf

    @property
    def selection_id(self) -> str:
        return self.address

    def check_suspended(self) -> bool:
        return is_suspended(self._files, self.folder)

    # -- identity

    def set_aliases(self, names: Sequence[str]) -> None:
        """Set the other names: those of ROCm, and the number of the chip if it is known."""
        own = (f"GPU-{self.id}", self.id) if self.id != self.address else ()
        self.aliases = (*names, *own)
        self.is_unidentified = not (names or self._is_identified)

    def identify_if_awake(self) -> bool:
        if not self._is_identified and not self.check_suspended():
            unique = chip_number(read_text(self._files, f"{self.folder}/unique_id"))
            is_free = unique and unique not in self._shared.taken  # two dies of one board may have the same number
            self.identify(unique if unique and is_free else self.address)
            self._shared.taken.add(self.id)
            self._is_identified = True
            self.set_aliases(self.aliases)
        return self._is_identified

    # -- the files that it has

    def open(self) -> None:
        try:
            self._often, self._slow, self._ras = sysfs.find_files(self._files, self.folder)
        except OSError as error:
            raise DeviceFailed(describe(error)) from None
        has_metrics = self._files.exists(f"{self.folder}/gpu_metrics")
        self._metrics, self._span_metrics = (GpuMetrics(), GpuMetrics()) if has_metrics else (None, None)
        if self._counts_energy():
            self.counters.add(f.ENERGY.series)
        quick = (f.UTILIZATION,) if f.ENERGY.series in self.counters else (f.UTILIZATION, f.POWER)
        self._quick = [file for file in self._often if file.field in quick]
        self._total = None
        self._autosuspend = autosuspend_delay(self._files, self.folder)
        if not self.facts:
            self.facts = {**sysfs.facts(self._files, self._card, self._shared.models), c.GPU_INDEX: self.index}
            if self._shared.version:
                self.facts[c.HW_DRIVER_VERSION] = self._shared.version
        self._is_open = True

    def _counts_energy(self) -> bool:
        """Whether ``gpu_metrics`` has an energy counter; True if it cannot be read at the moment."""
        if self._metrics is None:
            return False
        try:
            return "energy" in self._metrics.decode(self._files.read(f"{self.folder}/gpu_metrics"))
        except OSError:
            return True
        except ValueError:
            return False

    # -- readings

    def read(self) -> Iterator[Point]:
        if not self._is_ready():
            return
        values = read_files(self._files, self._often, self.unsupported)
        if not values:
            errors = [self.unsupported[file.field.series] for file in self._often]
            raise DeviceFailed(errors[-1] if errors else "it has none of the expected files")
        self._note_use(values)
        if self._total is None:  # it is read once
            self._total = File(f"{self.folder}/mem_info_vram_total", f.MEMORY_TOTAL).read_plausible(self._files)
        if self._total is None and f.MEMORY_USED in values:
            del values[f.MEMORY_USED]
            self.unsupported[f.MEMORY_USED.series] = "the size of the memory cannot be read"
        elif f.MEMORY_USED in values:
            values[f.MEMORY_TOTAL] = self._total
        yield from self.points_with_fan({**values, **self._gpu_metrics(self._metrics)})

    def _is_ready(self) -> bool:
        """Open it before its first reading. Returns False if it has been suspended a moment ago."""
        if not self.identify_if_awake():
            return False
        if not self._is_open:
            self.open()
        return True

    def _note_use(self, values: Mapping[Field, object]) -> None:
        is_idle = values.get(f.UTILIZATION, b"0\n") == b"0\n"
        self.idle_interval = self._autosuspend if is_idle else 0.0
        self._read_at = self._files.uptime()

    def _gpu_metrics(self, metrics: GpuMetrics | None) -> Mapping[Field, object]:
        if metrics is None:
            return {}
        try:
            values = metrics.decode(self._files.read(f"{self.folder}/gpu_metrics"))
        except (OSError, ValueError) as error:
            self.unsupported["gpu_metrics"] = describe(error) if isinstance(error, OSError) else str(error)
            return {}
        self.unsupported.pop("gpu_metrics", None)
        return {f.GPU_METRICS[name]: value for name, value in values.items()}

    def read_energy(self) -> Iterator[Point]:
        if self._rests() or not self._is_ready():
            return
        values = read_files(self._files, self._quick, self.unsupported)
        self._note_use(values)
        metrics = self._gpu_metrics(self._span_metrics)
        values.update((field, value) for field, value in metrics.items() if field in f.SPAN_METRICS)
        yield from self.points_with_fan(values)

    def read_memory(self) -> Iterator[Point]:
        if not self._rests() and self._is_open:
            used = [file for file in self._often if file.field is f.MEMORY_USED]
            yield from self.points(read_files(self._files, used, self.unsupported))

    def _rests(self) -> bool:
        """Whether it is idle, and a reading so soon after the last one would keep it awake."""
        return self._files.uptime() - self._read_at < self.idle_interval

    def read_slow(self) -> Iterator[Point]:
        if not self._is_open:
            return
        yield from self.points_with_fan(
            {**read_files(self._files, self._slow, self.unsupported), **self._error_counts()}
        )
        is_degraded = bool(self._ras) and sysfs.has_unretired_pages(self._files, self.folder)
        self.state = "degraded" if is_degraded else "ok"

    def _error_counts(self) -> Mapping[Field, object]:
        """Return the errors by kind, summed over the blocks of the chip. An unreadable block keeps its last counts."""
        for path in self._ras:
            name = f"hw.errors ({path.rpartition('/')[2]})"
            try:
                self._errors[path] = sysfs.error_counts(self._files, path)
                self.unsupported.pop(name, None)
            except OSError as error:
                self.unsupported[name] = describe(error)
        totals: dict[Field, int] = {}
        for counts in self._errors.values():
            for field, count in counts.items():
                totals[field] = totals.get(field, 0) + count
        return totals
