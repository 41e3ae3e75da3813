"""The keys of W&B's system metrics, each with W&B's own formula, denominators and sums.

A key is a formula over raw readings of the machine, not one of our metrics in another unit: W&B counts loopback,
divides by all logical CPUs and calls MiB "MB", and whoever compares a new dashboard with an old one wants the same
numbers. The keys are spelled as W&B's pages document them (an export of W&B's own history writes ``system.`` before
each).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from opentelemetry.instrumentation.hardware.catalog import CATALOG
from opentelemetry.instrumentation.hardware.model import Metric
from opentelemetry.instrumentation.hardware.sources.trainium.report import Runtime
from opentelemetry.instrumentation.hardware.system.files import FilesystemSpace
from opentelemetry.instrumentation.hardware.system.machine import Disk, Interface, Machine, Memory, Process
from opentelemetry.instrumentation.hardware.wandb.amd import Words
from opentelemetry.instrumentation.hardware.wandb.graphcore import KEYS as IPU_KEYS
from opentelemetry.instrumentation.hardware.wandb.graphcore import IpuKey
from opentelemetry.instrumentation.hardware.wandb.nvidia import Moment
from opentelemetry.instrumentation.hardware.wandb.tpu import KEYS as TPU_KEYS
from opentelemetry.instrumentation.hardware.wandb.tpu import Moment as TpuMoment
from opentelemetry.instrumentation.hardware.wandb.tpu import TpuKey
from opentelemetry.instrumentation.hardware.wandb.trainium import KEYS as TRN_KEYS
from opentelemetry.instrumentation.hardware.wandb.trainium import TrnKey

_MIB = 1 << 20
_GIB = 1 << 30
_NONE: Final[Mapping[int, Moment]] = MappingProxyType({})
_NO_RADEONS: Final[Mapping[int, Words]] = MappingProxyType({})
_NO_APPLE: Final[Mapping[int, Mapping[str, float]]] = MappingProxyType({})
_NO_TPUS: Final[Mapping[int, TpuMoment]] = MappingProxyType({})
_NO_PAGES: Final[Mapping[str, float]] = MappingProxyType({})
_NO_IPUS: Final[Mapping[int, Mapping[str, str]]] = MappingProxyType({})
_NO_RUNTIMES: Final[Mapping[int, Runtime]] = MappingProxyType({})


class Reading(NamedTuple):
    """What the formulas need of a machine and one of its processes, at one moment."""

    time: float
    clock: float
    logical: int | None
    cpus: Mapping[int, Mapping[str, float]]
    memory: Memory | None
    disks: Mapping[str, Disk]
    interfaces: Mapping[str, Interface]
    process: Process
    spaces: Mapping[str, FilesystemSpace]
    gpus: Mapping[int, Moment]
    radeons: Mapping[int, Words]
    apple: Mapping[int, Mapping[str, float]]
    tpus: Mapping[int, TpuMoment]
    scraped: Mapping[str, float] = _NO_PAGES
    ipus: Mapping[int, Mapping[str, str]] = _NO_IPUS
    runtimes: Mapping[int, Runtime] = _NO_RUNTIMES


def take(
    machine: Machine,
    pid: int,
    paths: Sequence[str] = ("/",),
    gpus: Mapping[int, Moment] = _NONE,
    radeons: Mapping[int, Words] = _NO_RADEONS,
    apple: Mapping[int, Mapping[str, float]] = _NO_APPLE,
    tpus: Mapping[int, TpuMoment] = _NO_TPUS,
    ipus: Mapping[int, Mapping[str, str]] = _NO_IPUS,
    runtimes: Mapping[int, Runtime] = _NO_RUNTIMES,
) -> Reading:
    """Read the machine once.

    Args:
        machine: the machine.
        pid: the process that the ``cpu`` and ``proc.`` keys are about.
        paths: where file systems are looked at, W&B's ``x_stats_disk_paths``; one that cannot be read is left out.
        gpus: what NVIDIA's GPUs say at this moment, by their indices.
        radeons: what rocm-smi says of AMD's, by their numbers.
        apple: what a tool says of an Apple chip's, in its own numbers.
        tpus: what is said of this host's TPUs, all together under 0.
        ipus: what gcipuinfo says of those that the process uses, by their numbers.
        runtimes: what neuron-monitor says of the process's runtime, under 0.

    Raises:
        OSError: where the process is gone.
    """
    disks, interfaces = machine.everything()
    spaces = {}
    for path in paths:
        try:
            spaces[path] = machine.space(path)
        except OSError:
            continue
    return Reading(
        time.time(),
        time.monotonic(),
        machine.counts()[0],
        machine.cpus(),
        machine.memory()[0],
        disks,
        interfaces,
        machine.process(pid),
        spaces,
        gpus,
        radeons,
        apple,
        tpus,
        ipus=ipus,
        runtimes=runtimes,
    )


class Span(NamedTuple):
    """The readings that a row of values is made of: the first of all, the one before, the newest."""

    first: Reading
    before: Reading
    now: Reading


class Key(NamedTuple):
    """One key as W&B's pages document it.

    Attributes:
        key: ``{i}`` and ``{path}`` stand for a number (of a GPU, NVML's index) and a path.
        unit: W&B's own.
        formula: W&B's, in words.
        values: the key filled in, with its value; nothing where the machine does not say it.
        like: another key that has the same rows.
    """

    key: str
    unit: str
    formula: str
    values: Callable[[Span], Iterator[tuple[str, float]]]
    like: str = ""

    @property
    def rows(self) -> tuple[Metric, ...]:
        """Our own rows that say the same thing."""
        documented = self.like or self.key
        return tuple(row for row in CATALOG if documented in (key.strip() for key in row.wandb.split(",")))


def _cpu(span: Span) -> Iterator[tuple[str, float]]:
    elapsed = span.now.clock - span.before.clock
    if elapsed > 0 and span.now.logical:
        before, now = (each.process.user + each.process.system for each in (span.before, span.now))
        yield "cpu", max(0.0, now - before) / elapsed * 100 / span.now.logical


def _cpus(span: Span) -> Iterator[tuple[str, float]]:
    for number, modes in span.now.cpus.items():
        before = span.before.cpus.get(number)
        if before is not None:
            grown = {mode: max(0.0, seconds - before.get(mode, seconds)) for mode, seconds in modes.items()}
            whole = sum(grown.values())
            if whole > 0:
                busy = whole - grown.get("idle", 0.0) - grown.get("iowait", 0.0)
                yield f"cpu.{number}.cpu_percent", busy / whole * 100


def _used(span: Span) -> Iterator[float]:
    memory = span.now.memory
    if memory is not None and memory.total and memory.available is not None:
        yield (memory.total - memory.available) / memory.total * 100


def _memory(span: Span) -> Iterator[tuple[str, float]]:
    return (("memory", percent) for percent in _used(span))


def _memory_percent(span: Span) -> Iterator[tuple[str, float]]:
    return (("memory_percent", percent) for percent in _used(span))


def _available(span: Span) -> Iterator[tuple[str, float]]:
    if span.now.memory is not None and span.now.memory.available is not None:
        yield "proc.memory.availableMB", span.now.memory.available / _MIB


def _rss(span: Span) -> Iterator[tuple[str, float]]:
    if span.now.process.resident is not None:
        yield "proc.memory.rssMB", span.now.process.resident / _MIB


def _percent(span: Span) -> Iterator[tuple[str, float]]:
    if span.now.memory is not None and span.now.memory.total and span.now.process.resident is not None:
        yield "proc.memory.percent", span.now.process.resident / span.now.memory.total * 100


def _threads(span: Span) -> Iterator[tuple[str, float]]:
    if span.now.process.threads is not None:
        yield "proc.cpu.threads", span.now.process.threads


def _usage_percent(span: Span) -> Iterator[tuple[str, float]]:
    for path, space in span.now.spaces.items():
        used = space.total - space.free
        if used + space.available:
            yield f"disk.{path}.usagePercent", used / (used + space.available) * 100


def _usage(span: Span) -> Iterator[tuple[str, float]]:
    for path, space in span.now.spaces.items():
        yield f"disk.{path}.usageGB", (space.total - space.free) / _GIB


def _read(span: Span) -> Iterator[tuple[str, float]]:
    if span.now.disks:
        first, now = (sum(disk.read for disk in each.disks.values()) for each in (span.first, span.now))
        yield "disk.in", (now - first) / _MIB


def _written(span: Span) -> Iterator[tuple[str, float]]:
    if span.now.disks:
        first, now = (sum(disk.written for disk in each.disks.values()) for each in (span.first, span.now))
        yield "disk.out", (now - first) / _MIB


def _sent(span: Span) -> Iterator[tuple[str, float]]:
    first, now = (sum(card.sent for card in each.interfaces.values()) for each in (span.first, span.now))
    yield "network.sent", now - first


def _received(span: Span) -> Iterator[tuple[str, float]]:
    first, now = (sum(card.received for card in each.interfaces.values()) for each in (span.first, span.now))
    yield "network.recv", now - first


_Formula: TypeAlias = "Callable[[Moment], float | None]"


def _plain(quantity: str) -> _Formula:
    return lambda gpu: gpu.said.get(quantity)


def _times(quantity: str, factor: float) -> _Formula:
    return lambda gpu: gpu.said[quantity] * factor if quantity in gpu.said else None


def _ratio(part: str, whole: str) -> _Formula:
    def percent(gpu: Moment) -> float | None:
        most = gpu.said.get(whole)
        return gpu.said[part] / most * 100 if most and part in gpu.said else None

    return percent


def _gpm(number: int) -> _Formula:
    return lambda gpu: gpu.gpm.get(number)


def _of_gpus(key: str, formula: _Formula, used: bool = False) -> Callable[[Span], Iterator[tuple[str, float]]]:
    """A key of each GPU, or of each that the observed process or one of its children uses."""

    def values(span: Span) -> Iterator[tuple[str, float]]:
        for index, gpu in span.now.gpus.items():
            value = formula(gpu)
            if value is not None and (gpu.used or not used):
                yield key.format(i=index), value

    return values


def _told(words: Words, *names: str) -> float | None:
    """The first text of a name that is a number."""
    texts = (words[name] for name in names if name in words)
    return next((float(text) for text in texts if re.fullmatch("[0-9]{1,15}([.][0-9]{1,20})?", text)), None)


def _share_of_limit(words: Words) -> float | None:
    power, limit = _told(words, *_POWER), _told(words, "Max Graphics Package Power (W)")
    return power / limit * 100 if limit and power is not None else None


_POWER: Final = ("Average Graphics Package Power (W)", "Current Socket Graphics Package Power (W)")

_RADEON: Final[Mapping[str, tuple[str, Callable[[Words], float | None]]]] = {
    "gpu": ("`GPU use (%)`", lambda words: _told(words, "GPU use (%)")),
    "memoryAllocated": (
        "`GPU memory use (%)`, which is activity (ROCm 5); else `GPU Memory Allocated (VRAM%)`",
        lambda words: _told(words, "GPU memory use (%)", "GPU Memory Allocated (VRAM%)"),
    ),
    "memoryReadWriteActivity": (
        "`GPU Memory Read/Write Activity (%)`",
        lambda words: _told(words, "GPU Memory Read/Write Activity (%)"),
    ),
    "memoryOverDrive": (
        "`GPU Memory OverDrive value (%)`",
        lambda words: _told(words, "GPU Memory OverDrive value (%)"),
    ),
    "temp": ("the memory's sensor", lambda words: _told(words, "Temperature (Sensor memory) (C)")),
    "powerWatts": ("average power, else that of the socket", lambda words: _told(words, *_POWER)),
    "powerPercent": ("the same / `Max Graphics Package Power (W)`", _share_of_limit),
}
"""What W&B makes of rocm-smi's words of an AMD GPU; where it says 0 of what is not there, nothing is said here."""


_APPLE_WATTS = 16.5
"""What W&B takes for the most that any Apple chip draws, in its percent and nowhere else."""

_APPLE: Final[Mapping[str, tuple[str, Callable[[Mapping[str, float]], float | None]]]] = {
    "gpu": ("`utilization` (macmon: scaled by its frequency)", lambda said: said.get("utilization")),
    "memoryAllocated": ("`mem_used`; else memory in use / allocated", lambda said: said.get("allocated")),
    "temp": ("`temperature`; else the mean of the GPU's sensors", lambda said: said.get("temperature")),
    "powerWatts": ("`power`; else `systemPower` (macmon: the GPU's)", lambda said: said.get("watts")),
    "powerPercent": (
        f"the same / {_APPLE_WATTS} W, whatever the chip",
        lambda said: said["watts"] / _APPLE_WATTS * 100 if "watts" in said else None,
    ),
}
"""What W&B makes of apple_gpu_stats's numbers, by whichever tool they are said here."""


def _of_radeons(name: str) -> Iterator[Callable[[Span], Iterator[tuple[str, float]]]]:
    """A key of each AMD GPU whose number is not that of an NVIDIA GPU."""

    def values(span: Span) -> Iterator[tuple[str, float]]:
        for number, words in span.now.radeons.items():
            value = _RADEON[name][1](words)
            if value is not None and number not in span.now.gpus:
                yield f"gpu.{number}.{name}", value

    if name in _RADEON:
        yield values


def _of_apple(name: str) -> Iterator[Callable[[Span], Iterator[tuple[str, float]]]]:
    """A key of an Apple chip's GPU, where there is no other one of its number."""

    def values(span: Span) -> Iterator[tuple[str, float]]:
        for number, said in span.now.apple.items():
            value = _APPLE[name][1](said)
            if value is not None and number not in {*span.now.gpus, *span.now.radeons}:
                yield f"gpu.{number}.{name}", value

    if name in _APPLE:
        yield values


def _chained(
    *parts: Callable[[Span], Iterator[tuple[str, float]]],
) -> Callable[[Span], Iterator[tuple[str, float]]]:
    return lambda span: (pair for part in parts for pair in part(span))


class _Gpu(NamedTuple):
    """What W&B says of a GPU; ``twin``: again for the process, of a GPU that it uses; ``like`` as in :class:`Key`."""

    name: str
    unit: str
    formula: str
    value: _Formula
    twin: bool = False
    like: str = ""

    def own(self) -> Iterator[Key]:
        key = f"gpu.{{i}}.{self.name}"
        others = (("AMD", _RADEON), ("Apple", _APPLE))
        words = "; ".join([self.formula, *(f"{who}: {of[self.name][0]}" for who, of in others if self.name in of)])
        values = _chained(_of_gpus(key, self.value), *_of_radeons(self.name), *_of_apple(self.name))
        yield Key(key, self.unit, words, values, self.like and f"gpu.{{i}}.{self.like}")

    def twins(self) -> Iterator[Key]:
        if self.twin:
            key, like = f"gpu.process.{{i}}.{self.name}", f"gpu.{{i}}.{self.name}"
            words = f"`{like}` of each GPU that the process or a child of it uses: of the whole GPU"
            yield Key(key, self.unit, words, _of_gpus(key, self.value, used=True), like)


_GPUS: Final = (
    _Gpu("gpu", "%", "share of time in which a kernel ran", _times("utilization.general", 100), twin=True),
    _Gpu("memory", "%", "share of time in which memory was accessed", _times("utilization.memory", 100), twin=True),
    _Gpu("memoryAllocated", "%", "memory in use / memory", _ratio("memory.used", "memory.total"), twin=True),
    _Gpu("memoryAllocatedBytes", "bytes", "memory in use, without the driver's own", _plain("memory.used"), twin=True),
    _Gpu("temp", "°C", "temperature of the GPU", _plain("temperature.gpu"), twin=True),
    _Gpu("powerWatts", "W", "power draw", _plain("power"), twin=True),
    _Gpu("enforcedPowerLimitWatts", "W", "power limit in force", _plain("power.limit.enforced"), twin=True),
    _Gpu("powerPercent", "%", "power draw / power limit in force", _ratio("power", "power.limit.enforced"), twin=True),
    _Gpu("smClock", "MHz", "clock of the streaming multiprocessors", _times("frequency.sm", 1e-6)),
    _Gpu("memoryClock", "MHz", "clock of the memory", _times("frequency.memory", 1e-6)),
    _Gpu("graphicsClock", "MHz", "clock of graphics", _times("frequency.graphics", 1e-6)),
    _Gpu(
        "correctedMemoryErrors",
        "errors",
        "corrected errors of the device's memory since the driver was loaded",
        _plain("volatile.corrected"),
    ),
    _Gpu(
        "unCorrectedMemoryErrors",
        "errors",
        "uncorrected errors of the device's memory since the driver was loaded",
        _plain("volatile.uncorrected"),
    ),
    _Gpu(
        "uncorrectedMemoryErrors",
        "errors",
        "the same; W&B's pages spell it as above, its program so",
        _plain("volatile.uncorrected"),
        like="unCorrectedMemoryErrors",
    ),
    _Gpu("fanSpeed", "%", "speed of the first fan", _times("fan.ratio", 100)),
    _Gpu("encoderUtilization", "%", "share of time in which the encoder worked", _times("utilization.encoder", 100)),
    _Gpu("smActive", "%", "SM utilization (GPM: Hopper and newer, between two samples)", _gpm(2)),
    _Gpu("smOccupancy", "%", "SM occupancy (GPM)", _gpm(3)),
    _Gpu("pipeTensorActive", "%", "utilization of the tensor cores, any kind (GPM)", _gpm(5)),
    _Gpu("pipeTensorHmmaActive", "%", "utilization of the tensor cores, HMMA alone (GPM)", _gpm(7)),
    _Gpu("dramActive", "%", "utilization of the memory's bandwidth (GPM)", _gpm(10)),
    _Gpu("pipeFp64Active", "%", "utilization of the FP64 pipe (GPM)", _gpm(11)),
    _Gpu("pipeFp32Active", "%", "utilization of the FP32 pipe (GPM)", _gpm(12)),
    _Gpu("pipeFp16Active", "%", "utilization of the FP16 pipe (GPM)", _gpm(13)),
    _Gpu("pcieTxBytes", "MiB/s", "sent over PCIe (GPM): MiB a second, whatever the name says", _gpm(20)),
    _Gpu("pcieRxBytes", "MiB/s", "received over PCIe (GPM): MiB a second, whatever the name says", _gpm(21)),
    _Gpu("nvlinkTxBytes", "MiB/s", "sent over all NVLinks (GPM): MiB a second, whatever the name says", _gpm(61)),
    _Gpu("nvlinkRxBytes", "MiB/s", "received over all NVLinks (GPM): MiB a second, whatever the name says", _gpm(60)),
)
"""What W&B says of an NVIDIA GPU, now or once, by default. Of MIG instances it says nothing."""


def _of_tpus(key: TpuKey) -> Key:
    def values(span: Span) -> Iterator[tuple[str, float]]:
        return (pair for moment in span.now.tpus.values() for pair in key.values(moment))

    return Key(key.key, key.unit, key.formula, values)


def _of_ipus(key: IpuKey) -> Key:
    return Key(key.key, key.unit, key.formula, lambda span: key.values(span.now.ipus))


def _of_runtimes(key: TrnKey) -> Key:
    def values(span: Span) -> Iterator[tuple[str, float]]:
        return (pair for runtime in span.now.runtimes.values() for pair in key.values(runtime))

    return Key(key.key, key.unit, key.formula, values, key.like)


def _scraped(span: Span) -> Iterator[tuple[str, float]]:
    return iter(span.now.scraped.items())


KEYS: Final[tuple[Key, ...]] = (
    Key("cpu", "%", "CPU time of the process over elapsed time, divided by the number of logical CPUs", _cpu),
    Key("cpu.{i}.cpu_percent", "%", "time of a logical CPU that was neither idle nor iowait, over all of it", _cpus),
    Key("memory", "%", "(total - available) / total", _memory),
    Key("memory_percent", "%", "the same; newer versions of W&B call it so", _memory_percent),
    Key("proc.memory.availableMB", "MiB", "available memory of the whole system", _available),
    Key("proc.memory.rssMB", "MiB", "resident memory of the process", _rss),
    Key("proc.memory.percent", "%", "resident memory of the process / total memory of the system", _percent),
    Key("proc.cpu.threads", "threads", "threads of the process", _threads),
    Key("disk.{path}.usagePercent", "%", "used / (used + available to users without privilege)", _usage_percent),
    Key("disk.{path}.usageGB", "GiB", "used space of the file system at the path", _usage),
    Key("disk.in", "MiB", "bytes read from all disks, loop and ram devices included, since the first sample", _read),
    Key(
        "disk.out", "MiB", "bytes written to all disks, loop and ram devices included, since the first sample", _written
    ),
    Key("network.sent", "bytes", "bytes sent by all interfaces, loopback included, since the first sample", _sent),
    Key(
        "network.recv",
        "bytes",
        "bytes received by all interfaces, loopback included, since the first sample",
        _received,
    ),
    *(key for gpu in _GPUS for key in gpu.own()),
    *(
        Key(f"gpu.{{i}}.{name}", "%", f"AMD: {_RADEON[name][0]}", _chained(*_of_radeons(name)), like)
        for name, like in (("memoryReadWriteActivity", "gpu.{i}.memory"), ("memoryOverDrive", ""))
    ),
    *(key for gpu in _GPUS for key in gpu.twins()),
    *(_of_tpus(key) for key in TPU_KEYS),
    *(_of_ipus(key) for key in IPU_KEYS),
    *(_of_runtimes(key) for key in TRN_KEYS),
    Key(
        "openmetrics.{endpoint}.{metric}.{n}",
        "as scraped",
        "a counter or gauge of a scraped endpoint; its series are numbered in the order in which they are first seen",
        _scraped,
    ),
)
"""Every key about the host, its disks and network, its memory, the process, NVIDIA's GPUs, AMD's and Apple's, TPUs."""


def row(span: Span) -> dict[str, float]:
    """One row as W&B logs it: ``_timestamp`` (Unix seconds), ``_runtime`` (seconds since the first), the keys."""
    values: dict[str, float] = {"_timestamp": span.now.time, "_runtime": span.now.clock - span.first.clock}
    for key in KEYS:
        values.update((name, value if isinstance(value, int) else round(value, 4)) for name, value in key.values(span))
    return values


def reference() -> list[tuple[str, str, str, str]]:
    """Each key with its formula, its unit and the metrics that say the same: for people who come from W&B."""
    return [(f"`{key.key}`", key.formula, key.unit, ", ".join(f"`{row.name}`" for row in key.rows)) for key in KEYS]
