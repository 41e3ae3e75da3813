"""W&B's system metrics: a table of W&B's keys, each a function of the points of a snapshot.

The keys are spelled as on W&B's pages; an export of W&B's own history writes ``system.`` before each. Nothing is read
for them that is not also a metric. Where W&B's formula has no other use, the key names the value that is close to
it. https://docs.wandb.ai/models/ref/python/experiments/system-metrics
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import NONE, Attributes, Kind, Metric, Number, Series, Snapshot
from opentelemetry.instrumentation.hardware.pipeline.view import View
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.system.mounts import contains
from opentelemetry.instrumentation.hardware.system.psutil_backend import is_partition

# The attributes that name a device.
_IDENTITY = (c.HW_ID, c.HW_NAME, c.HW_TYPE, c.HW_PARENT)

# W&B's constant for the power limit of every Apple chip.
_APPLE_WATTS = 16.5

_MIB, _GIB = 1 << 20, 1 << 30

_Index: TypeAlias = "dict[tuple[Metric, str, frozenset[tuple[str, str | int]]], Number]"


class Points:
    """The points of the newest snapshot of a session. Totals begin at the first sample, of which it has Unix seconds.

    Attributes:
        paths: Paths on the file systems to report.
        rank: The core that the process uses by ``LOCAL_RANK``; None without one.
        numbers: The numbers of the series of scraped metrics, by endpoint and name.
        used: ``hw.id`` of the devices that the process uses, and of those that contain them.
    """

    def __init__(self, first: Snapshot, time: float, config: Config, pid: int) -> None:
        self.paths = [path for path in config.disk_paths or ["/"] if os.path.exists(path)]
        rank = _environ(pid).get("LOCAL_RANK", "")
        self.rank = int(rank) if re.fullmatch("[0-9]{1,4}", rank) else None
        self.numbers: dict[tuple[str, str], dict[Series, int]] = {}
        self.used: set[str] = set()
        self._time = time
        self._first = self._values = first.values
        self._index: _Index = {}
        self._rates: _Index = {}

    def row(self, view: View) -> dict[str, float]:
        """Return the row of a snapshot: Unix seconds, seconds since the first sample, and the keys in four digits."""
        self._values, self._index, self._rates = view.snapshot.values, {}, {}
        counters = {Series(metric, attributes) for metric, points in self._first.items() for _, attributes in points}
        for metric, points in self._values.items():
            for value, attributes in points:
                device = str(attributes.get(c.HW_ID, "")).removesuffix("/fan0")  # W&B has the first fan as the GPU's
                own = frozenset((name, word) for name, word in attributes.items() if name not in _IDENTITY)
                key = metric, device, own
                self._index[key] = value
                series = Series(metric, attributes)
                if metric.kind is Kind.COUNTER and (series in view.rates or series in counters):
                    self._rates[key] = view.rates.get(series, 0.0)
        infos = [facts for _, facts in self.all(c.HW_GPU_INFO) if facts[c.HW_ID] in view.used]
        self.used = {*view.used, *(str(facts.get(c.HW_PARENT, "")) for facts in infos)}
        pairs = (pair for table in KEYS.values() for each in table for pair in each.values(self))
        keys = {name: value if isinstance(value, int) else round(value, 4) for name, value in pairs}
        return {"_timestamp": view.time, "_runtime": view.time - self._time, **keys}

    def get(self, metric: Metric, attributes: Attributes = NONE, device: str = "") -> Number | None:
        """The value of a series; None if there is none."""
        return self._index.get((metric, device, frozenset(attributes.items())))

    def rate(self, metric: Metric, attributes: Attributes, device: str) -> Number | None:
        return self._rates.get((metric, device, frozenset(attributes.items())))

    def all(self, metric: Metric) -> Iterable[tuple[Number, Attributes]]:
        return self._values.get(metric, ())

    def increase(self, metric: Metric, attribute: str = "", attributes: Attributes = NONE) -> dict[str, Number]:
        """The increase of a counter since the first sample, by the value of an attribute; "" if it has none."""
        before = {Series(metric, labels): value for value, labels in self._first.get(metric, ())}
        return {
            str(labels.get(attribute, "")): value - before[Series(metric, labels)]
            for value, labels in self.all(metric)
            if attributes.items() <= labels.items() and Series(metric, labels) in before
        }

    def scraped(self) -> Iterator[tuple[Number, Metric, Attributes]]:
        """The series of scraped counters and gauges."""
        for metric, points in self._values.items():
            if metric.endpoint and metric.source in ("counter", "gauge"):
                yield from ((value, metric, attributes) for value, attributes in points)

    def gpus(self, vendor: str) -> dict[int, str]:
        """``hw.id`` of a vendor's GPUs by index, without partitions. NVIDIA's win where two have the same."""
        infos = sorted(self.all(c.HW_GPU_INFO), key=lambda info: info[1].get(c.HW_VENDOR) == "NVIDIA")
        found = {
            int(facts[c.GPU_INDEX]): facts
            for _, facts in infos
            if c.GPU_INDEX in facts and facts.get(c.GPU_TYPE) != "partition"
        }
        return {index: str(facts[c.HW_ID]) for index, facts in found.items() if facts.get(c.HW_VENDOR) == vendor}

    def numbered(self, prefix: str) -> dict[int, str]:
        """``hw.id`` of the devices with this prefix and a number as their ID."""
        found = {device: re.fullmatch(f"(?:{prefix})([0-9]+)", device) for _, device, _ in self._index}
        return {int(match[1]): device for device, match in found.items() if match}


Values: TypeAlias = "Number | Mapping[int, Number | None] | Mapping[str, Number | None] | None"

# The value of a device, by its ``hw.id``.
OfDevice: TypeAlias = "Callable[[Points, str], Number | None]"


class Key(NamedTuple):
    """One key of W&B.

    Attributes:
        name: As W&B's pages spell it; ``{i}``, ``{path}`` and the like stand for a number or a word.
        unit: W&B's unit.
        formula: The formula, in words.
        value: Returns the value, or the values by what stands for ``{i}``; None if it is unknown.
        metrics: The metrics that it is computed from.
        close: What W&B computes instead; "" if it is the same.
    """

    name: str
    unit: str
    formula: str
    value: Callable[[Points], Values]
    metrics: tuple[Metric, ...] = ()
    close: str = ""

    def values(self, points: Points) -> Iterator[tuple[str, Number]]:
        """The key with its value, once for each device."""
        value = self.value(points)
        parts = re.split(r"\.\{.*\}", self.name)
        for place, number in value.items() if isinstance(value, Mapping) else [("", value)]:
            if number is not None:
                yield ("" if place == "" else f".{place}").join(parts), number


def needs(config: Config) -> Config:
    """Return settings with everything that the keys are computed from."""
    requested = [metric.name for metric in metrics() if metric.opt_in == "request"]
    return config.changed(
        detail=sorted({*(config.detail or ()), "cpu", "gpu", "devices"}),
        include_metrics=[*(config.include_metrics or ()), *requested],
        disk_paths=config.disk_paths or ["/"],
        interfaces=None,
        counter_origin="boot",
    )


def metrics() -> dict[Metric, list[str]]:
    """Return W&B's keys by each metric that they are computed from."""
    found: dict[Metric, list[str]] = {}
    for table in KEYS.values():
        for key in table:
            for metric in key.metrics:
                if key.name not in found.setdefault(metric, []):
                    found[metric].append(key.name)
    return found


def _environ(pid: int) -> Mapping[str, str]:
    """Return the environment variables of a process; of another one those of its start, and ours if it hides them."""
    if pid != os.getpid():
        import psutil

        with suppress(psutil.Error, OSError):
            return psutil.Process(pid).environ()
    return os.environ


# -- formulas


def _percent(part: Number | None, whole: Number | None) -> float | None:
    return None if part is None or not whole else part / whole * 100


def _times(value: Number | None, factor: float) -> Number | None:
    return None if value is None else value * factor


def _series(metric: Metric, attributes: Attributes = NONE, factor: float = 1) -> OfDevice:
    return lambda points, device: _times(points.get(metric, attributes, device), factor)


def _rate(metric: Metric, attributes: Attributes) -> OfDevice:
    return lambda points, device: points.rate(metric, attributes, device)


def _cpu(points: Points) -> float | None:
    used = [value for value, _ in points.all(c.PROCESS_CPU_UTILIZATION)]
    allowed, logical = points.get(c.PROCESS_CPU_LIMIT), points.get(c.SYSTEM_CPU_LOGICAL_COUNT)
    if not used or allowed is None:
        return None
    cores = points.get(c.SYSTEM_CPU_PHYSICAL_COUNT) or allowed
    unrestricted = points.get(c.CONTAINER_CPU_LIMIT) or cores  # W&B takes a limit above the number of CPUs as it is
    capacity = unrestricted if logical and allowed >= logical else allowed
    return sum(used) * allowed / capacity * 100


def _cpus(points: Points) -> dict[int, Number | None]:
    busy: dict[int, Number | None] = {}
    for share, attributes in points.all(c.SYSTEM_CPU_UTILIZATION):
        if attributes.get(c.CPU_MODE) not in ("idle", "iowait"):
            cpu = int(attributes.get(c.CPU_NUMBER, 0))
            busy[cpu] = (busy.get(cpu) or 0) + share * 100
    return busy


_USED, _AVAILABLE = {c.MEMORY_STATE: "used"}, {c.MEMORY_STATE: "available"}


def _memory(points: Points) -> Number | None:
    return _percent(points.get(c.SYSTEM_MEMORY_USAGE, _USED), points.get(c.SYSTEM_MEMORY_LIMIT))


def _limit(points: Points) -> Number | None:
    limit = points.get(c.CONTAINER_MEMORY_LIMIT)
    return points.get(c.SYSTEM_MEMORY_LIMIT) if limit is None else limit


def _memory_percent(points: Points) -> Number | None:
    limit = points.get(c.CONTAINER_MEMORY_LIMIT)
    return _memory(points) if limit is None else _percent(points.get(c.CONTAINER_MEMORY_USAGE), limit)


def _available(points: Points) -> Number | None:
    limit, usage = points.get(c.CONTAINER_MEMORY_LIMIT), points.get(c.CONTAINER_MEMORY_USAGE)
    if limit is None:
        return _times(points.get(c.SYSTEM_MEMORY_USAGE, _AVAILABLE), 1 / _MIB)
    return None if usage is None else max(0, limit - usage) / _MIB


def _spaces(points: Points) -> dict[str, dict[str, Number]]:
    """The space of each path by state."""
    mounts: dict[str, dict[str, Number]] = {}
    for size, attributes in points.all(c.SYSTEM_FILESYSTEM_USAGE):
        mounts.setdefault(str(attributes[c.FILESYSTEM_MOUNTPOINT]), {})[str(attributes[c.FILESYSTEM_STATE])] = size
    spaces = {}
    for path in points.paths:
        around = [mount for mount in mounts if contains(mount, path)]
        if around:
            spaces[path] = mounts[max(around, key=len)]
    return spaces


def _disks(points: Points, direction: str) -> dict[str, Number | None]:
    """The increase of the block devices of the paths; of all disks in a container: its root is no block device."""
    found = points.increase(c.SYSTEM_DISK_IO, c.DEVICE, {c.DISK_DIRECTION: direction})
    devices = {str(attributes[c.DEVICE]) for _, attributes in points.all(c.SYSTEM_FILESYSTEM_USAGE)}
    chosen = {os.path.basename(os.path.realpath(device)) for device in devices} & found.keys()
    chosen = chosen or {name for name in found if not name.startswith(("loop", "ram", "zram"))}
    return {name: found[name] / _MIB for name in sorted(chosen)}


def _disk_total(points: Points, direction: str) -> float | None:
    found = points.increase(c.SYSTEM_DISK_IO, c.DEVICE, {c.DISK_DIRECTION: direction})
    disks = [size for name, size in found.items() if not is_partition(name, found)]
    return sum(disks) / _MIB if disks else None


def _network(points: Points, direction: str) -> Number | None:
    found = points.increase(c.SYSTEM_NETWORK_IO, c.INTERFACE, {c.NETWORK_DIRECTION: direction})
    sizes = [
        size
        for name, size in found.items()
        if not (re.match("lo[0-9]*$|Loopback", name) or os.path.exists(f"/sys/class/net/{name}/master"))
    ]
    return sum(sizes) if sizes else None


def _throttled(points: Points) -> Number | None:
    throttled, periods = (
        points.rate(metric, NONE, "") for metric in (c.CONTAINER_CPU_THROTTLED_PERIODS, c.CONTAINER_CPU_PERIODS)
    )
    return _percent(throttled, periods)


def _share(part: Metric, whole: Metric, attributes: Attributes = NONE) -> OfDevice:
    return lambda points, device: _percent(points.get(part, NONE, device), points.get(whole, attributes, device))


def _first(*formulas: OfDevice) -> OfDevice:
    """The first value that is known."""

    def value(points: Points, device: str) -> Number | None:
        found = (formula(points, device) for formula in formulas)
        return next((each for each in found if each is not None), None)

    return value


def _apple_power(points: Points, gpu: str) -> Number | None:
    is_macmon = points.get(c.HW_GPU_UTILIZATION, {c.GPU_TASK: "scaled"}, gpu) is not None
    machine = None if is_macmon else points.get(c.HW_HOST_POWER, NONE, "host")
    return points.get(c.HW_POWER, NONE, gpu) if machine is None else machine


def _scraped(points: Points) -> dict[str, Number | None]:
    found: dict[str, Number | None] = {}
    for value, metric, attributes in points.scraped():
        numbers = points.numbers.setdefault((metric.endpoint, metric.name), {})
        number = numbers.setdefault(Series(metric, attributes), len(numbers))
        found[f"{metric.endpoint}.{metric.name}.{number}"] = value
    return found


def _duty_cycle(points: Points) -> dict[int, Number | None]:
    """Once for each core, also where the two cores of a chip share one."""
    parents = {labels[c.HW_ID]: str(labels.get(c.HW_PARENT, "")) for _, labels in points.all(c.HW_NPU_MEMORY_LIMIT)}
    has_chips = any(parents.values())
    return {
        number: _times(points.get(c.HW_NPU_UTILIZATION, {c.NPU_TASK: "general"}, parents.get(device) or device), 100)
        for number, device in (_tpus(points) if has_chips else points.numbered("tpu")).items()
    }


def _word(label: object) -> str:
    """Return a label as W&B spells it in a key."""
    return re.sub("[^a-z0-9]", "_", str(label).lower().replace("+", "plus").replace("%", "pct"))


def _core(attributes: Attributes) -> str:
    """Return the name of a core in libtpu's SDK, ``0-tensorcore``, spelled like W&B."""
    number = re.sub("[^0-9]", "", str(attributes.get(c.HW_ID, "")))
    return _word(f"{number}-{attributes.get(c.TPU_CORE_TYPE, 'unknown')}")


def _labelled(
    metric: Metric, label: Callable[[Attributes], str], wanted: Attributes = NONE, factor: float = 1
) -> Callable[[Points], dict[str, Number | None]]:
    return lambda points: {
        label(attributes): value * factor
        for value, attributes in points.all(metric)
        if wanted.items() <= attributes.items()
    }


def _distribution(
    name: str,
    words: str,
    metric: Metric,
    label: Callable[[Attributes], str] = lambda attributes: "",
    wanted: Attributes = NONE,
    unit: str = "us",
) -> Iterator[Key]:
    """A key for each statistic of a distribution."""
    factor, suffix = (8e-6, "Mbps") if unit == "Mbit/s" else (1e6, "Us")
    for which, share in {"mean": "", "p50": "50", "p90": "90", "p95": "95", "p999": "99.9"}.items():
        text = f"{share}th percentile" if share else which
        value = _labelled(metric, label, {**wanted, c.TPU_STATISTIC: which}, factor)
        yield Key(f"{name}.{which}{suffix}", unit, f"{text} of {words}", value, (metric,))


def _neuron_cores(points: Points) -> dict[int, str]:
    """The cores that the program uses, of which torchrun gives one to each rank."""
    found = points.numbered("neuroncore")
    used = {number: device for number, device in found.items() if device in points.used}
    if not used or points.rank in used:
        return {number: device for number, device in found.items() if number == points.rank}
    return used


def _of_runtimes(metric: Metric, attribute: str, which: str) -> Callable[[Points], Number | None]:
    def value(points: Points) -> Number | None:
        sizes = [size for size, attributes in points.all(metric) if attributes[attribute] == which]
        return sum(sizes) if sizes else None

    return value


# -- the table

# A key that each device has once: name, unit, formula, value, metrics, and what W&B computes instead.
Row: TypeAlias = "tuple[str, str, str, OfDevice, tuple[Metric, ...], str]"


def _each(devices: Callable[[Points], Mapping[int, str]], *rows: Row) -> tuple[Key, ...]:
    """Keys that each device has once; ``{i}`` stands for its index."""

    def of_all(value: OfDevice) -> Callable[[Points], Values]:
        return lambda points: {index: value(points, device) for index, device in devices(points).items()}

    return tuple(
        Key(name, unit, formula, of_all(value), metrics, close) for name, unit, formula, value, metrics, close in rows
    )


def _row(
    name: str,
    unit: str,
    formula: str,
    metric: Metric,
    attributes: Attributes = NONE,
    factor: float = 1,
    close: str = "",
) -> Row:
    """A key that is one series of a device, times a factor."""
    return name, unit, formula, _series(metric, attributes, factor), (metric,), close


def _tpus(points: Points) -> dict[int, str]:
    return points.numbered("tpucore") or points.numbered("tpu")


_FIRST_SAMPLE = "since the first sample"
_OF_DISKS = f"all disks, loop and RAM disks included, {_FIRST_SAMPLE} (W&B up to 0.17)"
_OF_DISK = f"the block device of a configured path {_FIRST_SAMPLE} (W&B 0.21 and later)"
_OF_INTERFACES = (
    f"all interfaces but loopback and the members of bonds and bridges, {_FIRST_SAMPLE} (W&B up to 0.30: all)"
)
_NEW = "(W&B 0.31 and later)"
_PREFIX = "W&B also takes a device if the text of the path begins with its mount point"

HOST: Final = (
    Key(
        "cpu", "%", "CPU time of the process / elapsed time, divided by the CPU limit of its cgroup or its CPU "
        "affinity; without both by the number of physical cores", _cpu,
        (c.PROCESS_CPU_UTILIZATION, c.PROCESS_CPU_LIMIT, c.SYSTEM_CPU_PHYSICAL_COUNT),
        "W&B 0.16 to 0.30 takes the mean over the life of the process",
    ),
    Key(
        "cpu.{i}.cpu_percent", "%", "time of a logical CPU that was neither idle nor iowait / all its time", _cpus,
        (c.SYSTEM_CPU_UTILIZATION,),
    ),
    Key(
        "memory", "%", "(total - available) / total memory of the host", _memory,
        (c.SYSTEM_MEMORY_USAGE, c.SYSTEM_MEMORY_LIMIT),
    ),
    Key(
        "memory_percent", "%", "memory in use by the cgroup / its limit; without a limit the same as `memory`",
        _memory_percent, (c.CONTAINER_MEMORY_USAGE, c.CONTAINER_MEMORY_LIMIT, c.SYSTEM_MEMORY_USAGE),
    ),
    Key(
        "proc.memory.availableMB", "MiB", "memory limit of the cgroup - memory that it has in use; without a limit the "
        "available memory of the host", _available, (c.CONTAINER_MEMORY_LIMIT, c.SYSTEM_MEMORY_USAGE),
    ),
    Key(
        "proc.memory.rssMB", "MiB", "resident memory of the process",
        lambda points: _times(points.get(c.PROCESS_MEMORY_USAGE), 1 / _MIB), (c.PROCESS_MEMORY_USAGE,),
    ),
    Key(
        "proc.memory.percent", "%", "resident memory of the process / memory limit of its cgroup; without a limit / "
        "memory of the host", lambda points: _percent(points.get(c.PROCESS_MEMORY_USAGE), _limit(points)),
        (c.PROCESS_MEMORY_USAGE, c.CONTAINER_MEMORY_LIMIT, c.SYSTEM_MEMORY_LIMIT),
    ),
    Key(
        "proc.cpu.threads", "threads", "threads of the process", lambda points: points.get(c.PROCESS_THREAD_COUNT),
        (c.PROCESS_THREAD_COUNT,),
    ),
    Key(
        "disk.{path}.usagePercent", "%", "used / (used + available to users without privilege)",
        lambda points: {
            path: _percent(space["used"], space["used"] + space["free"]) for path, space in _spaces(points).items()
        },
        (c.SYSTEM_FILESYSTEM_USAGE,),
    ),
    Key(
        "disk.{path}.usageGB", "GiB", "used space of the file system at the path",
        lambda points: {path: space["used"] / _GIB for path, space in _spaces(points).items()},
        (c.SYSTEM_FILESYSTEM_USAGE,),
    ),
    Key("disk.in", "MiB", f"bytes read from {_OF_DISKS}", lambda points: _disk_total(points, "read"),
        (c.SYSTEM_DISK_IO,)),
    Key("disk.out", "MiB", f"bytes written to {_OF_DISKS}", lambda points: _disk_total(points, "write"),
        (c.SYSTEM_DISK_IO,)),
    Key("disk.{device}.in", "MiB", f"bytes read from {_OF_DISK}", lambda points: _disks(points, "read"),
        (c.SYSTEM_DISK_IO, c.SYSTEM_FILESYSTEM_USAGE), _PREFIX),
    Key("disk.{device}.out", "MiB", f"bytes written to {_OF_DISK}", lambda points: _disks(points, "write"),
        (c.SYSTEM_DISK_IO, c.SYSTEM_FILESYSTEM_USAGE), _PREFIX),
    Key("network.sent", "bytes", f"bytes sent by {_OF_INTERFACES}", lambda points: _network(points, "transmit"),
        (c.SYSTEM_NETWORK_IO,)),
    Key("network.recv", "bytes", f"bytes received by {_OF_INTERFACES}", lambda points: _network(points, "receive"),
        (c.SYSTEM_NETWORK_IO,)),
    Key(
        "network.tcpRetransmits", "segments", f"TCP segments that were sent again, {_FIRST_SAMPLE} {_NEW}",
        lambda points: points.increase(c.SYSTEM_NETWORK_TCP_RETRANSMITS).get(""), (c.SYSTEM_NETWORK_TCP_RETRANSMITS,),
    ),
    Key(
        "proc.cpu.throttledPercent", "%", "periods of the CPU limit of the cgroup in which it was throttled / all "
        f"periods, since the previous row {_NEW}", _throttled,
        (c.CONTAINER_CPU_THROTTLED_PERIODS, c.CONTAINER_CPU_PERIODS),
    ),
    Key(
        "proc.memory.oomKills", "processes", f"processes of the cgroup that were killed for lack of memory, "
        f"{_FIRST_SAMPLE} {_NEW}", lambda points: points.increase(c.CONTAINER_MEMORY_OOM_KILLS).get(""),
        (c.CONTAINER_MEMORY_OOM_KILLS,),
    ),
)  # fmt: skip

_GENERAL, _BY_MEMORY = {c.GPU_TASK: "general"}, {c.GPU_TASK: "memory"}
_MEMORY_SHARE = _first(
    _share(c.HW_GPU_MEMORY_USAGE, c.HW_GPU_MEMORY_LIMIT), _series(c.HW_GPU_MEMORY_UTILIZATION, factor=100)
)
_MEMORY_METRICS = (c.HW_GPU_MEMORY_USAGE, c.HW_GPU_MEMORY_LIMIT, c.HW_GPU_MEMORY_UTILIZATION)
_POWER_SHARE = _share(c.HW_POWER, c.HW_POWER_LIMIT, {c.HW_LIMIT_TYPE: "enforced"})
_POWER_METRICS = (c.HW_POWER, c.HW_POWER_LIMIT)

# The keys that W&B repeats as ``gpu.process.{i}`` for a GPU that the process uses.
_OF_PROCESSES = (
    _row("gpu.{i}.gpu", "%", "share of time in which a kernel ran", c.HW_GPU_UTILIZATION, _GENERAL, 100),
    _row("gpu.{i}.memory", "%", "share of time in which memory was accessed", c.HW_GPU_UTILIZATION, _BY_MEMORY, 100),
    ("gpu.{i}.memoryAllocated", "%", "memory in use / memory", _MEMORY_SHARE, _MEMORY_METRICS, ""),
    _row(
        "gpu.{i}.memoryAllocatedBytes", "bytes", "memory in use, without what the driver reserves",
        c.HW_GPU_MEMORY_USAGE,
    ),
    _row("gpu.{i}.temp", "°C", "temperature of the GPU", c.HW_TEMPERATURE, {c.HW_SENSOR_LOCATION: "gpu"}),
    _row("gpu.{i}.powerWatts", "W", "power draw", c.HW_POWER),
    _row(
        "gpu.{i}.enforcedPowerLimitWatts", "W", "enforced power limit", c.HW_POWER_LIMIT, {c.HW_LIMIT_TYPE: "enforced"}
    ),
    ("gpu.{i}.powerPercent", "%", "power draw / enforced power limit", _POWER_SHARE, _POWER_METRICS, ""),
)  # fmt: skip

_CORRECTED = "corrected errors of the device memory since the driver was loaded"
_NVLINK = "W&B takes GPM's rate; this is the increase of the driver's counter"
_PCIE = "W&B also has the driver's reading of 20 ms for GPUs without GPM"
_PER_SECOND = "since the previous row (W&B up to 0.30: in MiB/s)"
_ENERGY = f"energy since the driver was loaded; without a counter of the driver {_FIRST_SAMPLE} {_NEW}"


def _errors(name: str, kind: str, formula: str) -> Row:
    return _row(f"gpu.{{i}}.{name}", "errors", formula, c.HW_GPU_MEMORY_ERRORS, {c.ERROR_TYPE: kind})


def _link(name: str, kind: str, direction: str, formula: str, close: str = "") -> Row:
    attributes = {c.GPU_LINK: kind, c.NETWORK_DIRECTION: direction}
    return f"gpu.{{i}}.{name}", "bytes/s", formula, _rate(c.HW_GPU_IO, attributes), (c.HW_GPU_IO,), close


NVIDIA: Final = (
    *_each(
        lambda points: points.gpus("NVIDIA"),
        *_OF_PROCESSES,
        *(
            _row(f"gpu.{{i}}.{name}", "MHz", words, c.HW_GPU_FREQUENCY, {c.FREQUENCY_DOMAIN: domain}, 1e-6)
            for name, domain, words in (
                ("smClock", "sm", "clock of the streaming multiprocessors"),
                ("memoryClock", "memory", "clock of the memory"),
                ("graphicsClock", "graphics", "graphics clock"),
            )
        ),
        _row("gpu.{i}.energyJoules", "J", _ENERGY, c.HW_ENERGY),
        _errors("correctedMemoryErrors", "corrected", _CORRECTED),
        _errors("unCorrectedMemoryErrors", "uncorrected", f"un{_CORRECTED}"),
        _errors(
            "uncorrectedMemoryErrors", "uncorrected",
            "the same; W&B's pages spell it as above, its program like this",
        ),
        _row("gpu.{i}.fanSpeed", "%", "speed of the first fan", c.HW_FAN_SPEED_RATIO, factor=100),
        *(
            _row(f"gpu.{{i}}.{name}", "%", words, c.HW_GPU_UTILIZATION, {c.GPU_TASK: task}, 100)
            for name, task, words in (
                ("encoderUtilization", "encoder", "share of time in which the encoder was busy"),
                ("smActive", "sm", "SM utilization (GPM: Hopper and newer; since the previous row)"),
                ("pipeTensorActive", "tensor", "tensor core utilization, any kind (GPM)"),
                ("pipeTensorHmmaActive", "tensor_hmma", "tensor core utilization, HMMA only (GPM)"),
                ("dramActive", "dram", "memory bandwidth utilization (GPM)"),
                ("pipeFp64Active", "fp64", "utilization of the FP64 pipe (GPM)"),
                ("pipeFp32Active", "fp32", "utilization of the FP32 pipe (GPM)"),
                ("pipeFp16Active", "fp16", "utilization of the FP16 pipe (GPM)"),
            )
        ),
        _row("gpu.{i}.smOccupancy", "%", "SM occupancy (GPM)", c.HW_GPU_SM_OCCUPANCY, factor=100),
        _link("pcieTxBytes", "pcie", "transmit", f"sent over PCIe (GPM) {_PER_SECOND}", _PCIE),
        _link("pcieRxBytes", "pcie", "receive", f"received over PCIe (GPM) {_PER_SECOND}", _PCIE),
        _link("nvlinkTxBytes", "nvlink", "transmit", f"sent over all NVLinks {_PER_SECOND}", _NVLINK),
        _link("nvlinkRxBytes", "nvlink", "receive", f"received over all NVLinks {_PER_SECOND}", _NVLINK),
    ),
    *_each(
        lambda points: {index: gpu for index, gpu in points.gpus("NVIDIA").items() if gpu in points.used},
        *(
            (
                name.replace("gpu.", "gpu.process.", 1), unit,
                f"`{name}` of each GPU that the process or a child of it uses: the value of the whole GPU",
                value, metrics, close,
            )
            for name, unit, _, value, metrics, close in _OF_PROCESSES
        ),
    ),
)  # fmt: skip

# W&B reports 0 for missing values; here the key is absent.
AMD: Final = _each(
    lambda points: points.gpus("AMD"),
    _row("gpu.{i}.gpu", "%", "utilization of the graphics engine", c.HW_GPU_UTILIZATION, _GENERAL, 100),
    (
        "gpu.{i}.memoryAllocated", "%", "memory in use / total memory; from rocm-smi of ROCm 5, which may not print "
        "them, the share of time in which memory was read or written",
        _first(_MEMORY_SHARE, _series(c.HW_GPU_UTILIZATION, _BY_MEMORY, 100)),
        (*_MEMORY_METRICS, c.HW_GPU_UTILIZATION),
        "W&B takes the reserved memory only of a GPU that is part of a CPU; up to 0.30, the whole percent of rocm-smi, "
        "of ROCm 5 `GPU memory use (%)`, which is the activity",
    ),
    _row(
        "gpu.{i}.memoryReadWriteActivity", "%", "share of the time in which memory was read or written",
        c.HW_GPU_UTILIZATION, _BY_MEMORY, 100,
    ),
    _row("gpu.{i}.memoryOverDrive", "%", "overdrive of the memory clock", c.HW_GPU_MEMORY_OVERDRIVE_RATIO, factor=100),
    _row("gpu.{i}.temp", "°C", "temperature of the memory", c.HW_TEMPERATURE, {c.HW_SENSOR_LOCATION: "memory"}),
    _row("gpu.{i}.energyJoules", "J", _ENERGY, c.HW_ENERGY),
    _row("gpu.{i}.powerWatts", "W", "power", c.HW_POWER),
    ("gpu.{i}.powerPercent", "%", "power / power limit", _POWER_SHARE, _POWER_METRICS, ""),
)  # fmt: skip

APPLE: Final = _each(
    lambda points: points.gpus("Apple"),
    (
        "gpu.{i}.gpu", "%", "utilization (macmon: scaled by the frequency)",
        _first(
            _series(c.HW_GPU_UTILIZATION, {c.GPU_TASK: "scaled"}, 100), _series(c.HW_GPU_UTILIZATION, _GENERAL, 100)
        ),
        (c.HW_GPU_UTILIZATION,), "",
    ),
    (
        "gpu.{i}.memoryAllocated", "%", "`mem_used` of apple_gpu_stats; else memory in use / allocated memory",
        _first(
            _share(c.HW_GPU_MEMORY_USAGE, c.HW_GPU_MEMORY_ALLOCATED), _series(c.HW_GPU_MEMORY_UTILIZATION, factor=100)
        ),
        (c.HW_GPU_MEMORY_USAGE, c.HW_GPU_MEMORY_ALLOCATED, c.HW_GPU_MEMORY_UTILIZATION), "",
    ),
    _row("gpu.{i}.temp", "°C", "temperature of the GPU", c.HW_TEMPERATURE, {c.HW_SENSOR_LOCATION: "gpu"}),
    (
        "gpu.{i}.powerWatts", "W", "power of the GPU; of the machine if apple_gpu_stats reports it", _apple_power,
        (c.HW_POWER, c.HW_HOST_POWER), "",
    ),
    (
        "gpu.{i}.powerPercent", "%", f"the same / {_APPLE_WATTS} W, for every chip",
        lambda points, gpu: _percent(_apple_power(points, gpu), _APPLE_WATTS), (c.HW_POWER, c.HW_HOST_POWER), "",
    ),
)  # fmt: skip

_IPU = "of gcipuinfo, of each IPU that the process or a child of it uses"

# The keys that W&B reported for an IPU until its Go backend became the default (0.18).
GRAPHCORE: Final = _each(
    lambda points: {number: device for number, device in points.numbered("ipu").items() if device in points.used},
    *(
        _row(f"ipu.{{i}}.{name} ({unit})", unit, f"`{name}` {_IPU}", metric, attributes, factor)
        for name, unit, metric, attributes, factor in (
            ("average board temp", "C", c.HW_TEMPERATURE, {c.HW_SENSOR_LOCATION: "board"}, 1),
            ("average die temp", "C", c.HW_TEMPERATURE, {c.HW_SENSOR_LOCATION: "die"}, 1),
            ("clock", "MHz", c.HW_NPU_FREQUENCY, NONE, 1e-6),
            ("ipu power", "W", c.HW_POWER, NONE, 1),
            ("ipu utilisation", "%", c.HW_NPU_UTILIZATION, {c.NPU_TASK: "general"}, 100),
            ("ipu utilisation (session)", "%", c.PROCESS_NPU_UTILIZATION, NONE, 100),
            ("speed", "GT/s", c.HW_NPU_LINK_SPEED, NONE, 1e-9),
        )
    ),
)  # fmt: skip

OPENMETRICS: Final = (
    Key(
        "openmetrics.{endpoint}.{metric}.{n}", "as scraped",
        "a counter or gauge of a scraped endpoint; its series are numbered in the order in which they are first seen",
        _scraped,
    ),
)  # fmt: skip

_HBM_SHARE = _share(c.HW_NPU_MEMORY_USAGE, c.HW_NPU_MEMORY_LIMIT)
_HBM_METRICS = (c.HW_NPU_MEMORY_USAGE, c.HW_NPU_MEMORY_LIMIT)


TPU: Final = (
    Key(
        "tpu", "%", "the profiler's utilization of matrix units",
        lambda points: _times(points.get(c.HW_NPU_UTILIZATION, {c.NPU_TASK: "matrix"}, "tpu"), 100),
        (c.HW_NPU_UTILIZATION,),
    ),
    *_each(
        _tpus,
        ("tpu.{i}.memoryUsage", "%", "HBM in use / HBM of the device", _HBM_SHARE, _HBM_METRICS, ""),
        _row("tpu.{i}.memoryUsageBytes", "bytes", "HBM in use", c.HW_NPU_MEMORY_USAGE),
        _row("tpu.{i}.hbmCapacityTotal", "bytes", "HBM of the device", c.HW_NPU_MEMORY_LIMIT),
        _row("tpu.{i}.hbmCapacityUsage", "bytes", "HBM in use", c.HW_NPU_MEMORY_USAGE),
        ("tpu.{i}.hbmMemoryUsage", "%", "HBM in use / HBM of the device", _HBM_SHARE, _HBM_METRICS, ""),
        _row(
            "tpu.{i}.runtimeHbmUtilization", "%", "utilization of the HBM's bandwidth",
            c.HW_NPU_UTILIZATION, {c.NPU_TASK: "hbm"}, 100,
        ),
        _row(
            "tpu.{i}.tensorcoreIdleDuration", "s", "time since a program last ran on the device",
            c.GOOGLE_TPU_IDLE_DURATION,
        ),
        _row(
            "tpu.{i}.tensorcoreUtilization", "%", "libtpu's SDK (`LIBTPU=on`)",
            c.HW_NPU_UTILIZATION, {c.NPU_TASK: "tensorcore"}, 100, "W&B numbers the cores by their place in its list",
        ),
        _row(
            "tpu.{i}.throttleScore", "score", "libtpu's SDK (`LIBTPU=on`)", c.GOOGLE_TPU_THROTTLE_SCORE,
            close="W&B numbers the devices as libtpu does",
        ),
    ),
    Key(
        "tpu.{i}.dutyCycle", "%", "duty cycle of the device's chip: on v2 and v3 twice, for each core",
        _duty_cycle, (c.HW_NPU_UTILIZATION,),
    ),
    Key(
        "tpu.{i}.iciLinkHealth", "score", "libtpu's SDK (`LIBTPU=on`), by the link's place in its list",
        lambda points: dict(enumerate(value for value, _ in points.all(c.GOOGLE_TPU_LINK_HEALTH))),
        (c.GOOGLE_TPU_LINK_HEALTH,),
    ),
    Key(
        "tpu.hloQueueSize.{core}", "programs", "programs that wait for a core",
        _labelled(c.GOOGLE_TPU_HLO_QUEUE_SIZE, _core), (c.GOOGLE_TPU_HLO_QUEUE_SIZE,),
    ),
    *_distribution(
        "tpu.hloExecTiming.{core}", "the times of executions", c.GOOGLE_TPU_HLO_EXECUTION_LATENCY, _core
    ),
    *(
        key
        for name, kind in (
            ("bufferTransferLatency", "dcn"),
            ("inboundBufferTransferLatency", "dcn_inbound"),
            ("hostToDeviceTransferLatency", "host_to_device"),
            ("deviceToHostTransferLatency", "device_to_host"),
            ("collectiveE2ELatency", "collective"),
            ("hostComputeLatency", "compute"),
        )
        for key in _distribution(
            f"tpu.{name}.{{size}}", f"the latencies of transfers ({kind})", c.GOOGLE_TPU_TRANSFER_LATENCY,
            lambda attributes: _word(attributes.get(c.TPU_BUFFER_SIZE, "")), {c.TPU_TRANSFER_KIND: kind},
        )
    ),
    *_distribution("tpu.grpcTcpMinRtt", "the shortest round trips of connections", c.GOOGLE_TPU_TCP_ROUND_TRIP),
    *_distribution(
        "tpu.grpcTcpDeliveryRate", "the throughput of connections", c.GOOGLE_TPU_TCP_DELIVERY_RATE, unit="Mbit/s"
    ),
)  # fmt: skip

_OF_RUNTIME = "of the runtimes of the process and its children"
_ALL_RUNTIMES = "W&B takes the first runtime"

TRAINIUM: Final = (
    *_each(
        _neuron_cores,
        _row(
            "trn.{i}.neuroncore_utilization", "%", "utilization of a core that the process uses; under torchrun the "
            "core numbered like LOCAL_RANK", c.HW_NPU_UTILIZATION, {c.NPU_TASK: "general"}, 100,
            close="W&B also has the cores that the tool lists and the process does not use",
        ),
    ),
    *(
        Key(
            name, "bytes", f"{where} memory {_OF_RUNTIME}",
            _of_runtimes(c.AWS_NEURON_RUNTIME_MEMORY_USAGE, c.NEURON_MEMORY_TYPE, where),
            (c.AWS_NEURON_RUNTIME_MEMORY_USAGE,), _ALL_RUNTIMES,
        )
        for name, where in (
            ("trn.host_total_memory_usage", "host"), ("trn.neuron_device_total_memory_usage", "device"),
        )
    ),
    *(
        Key(
            f"{prefix}.{category}", "bytes", f"host memory {_OF_RUNTIME} for {category}{remark}",
            _of_runtimes(c.AWS_NEURON_RUNTIME_HOST_MEMORY_USAGE, c.NEURON_MEMORY_CATEGORY, category),
            (c.AWS_NEURON_RUNTIME_HOST_MEMORY_USAGE,), _ALL_RUNTIMES,
        )
        for prefix, remark in (
            ("trn.host_memory_usage", ""), ("trn.host_total_memory_usage", " (as W&B's pages spell it)"),
        )
        for category in ("application_memory", "constants", "dma_buffers", "tensors")
    ),
    *_each(
        _neuron_cores,
        *(
            _row(
                f"trn.{{i}}.neuroncore_memory_usage.{category}", "bytes", f"device memory on a core for {category}",
                c.AWS_NEURON_NEURONCORE_MEMORY_USAGE, {c.NEURON_MEMORY_CATEGORY: category},
                close="W&B leaves out the memory of other runtimes on the core",
            )
            for category in ("constants", "model_code", "model_shared_scratchpad", "runtime_memory", "tensors")
        ),
    ),
)  # fmt: skip

# All keys by the source that their points come from; those of the host, of several.
KEYS: Final[Mapping[str, tuple[Key, ...]]] = {
    "host": HOST,
    "nvidia": NVIDIA,
    "amd": AMD,
    "apple": APPLE,
    "graphcore": GRAPHCORE,
    "openmetrics": OPENMETRICS,
    "tpu": TPU,
    "trainium": TRAINIUM,
}
