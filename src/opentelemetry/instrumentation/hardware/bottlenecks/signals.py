"""Signals: what the rules look at, by name, for each GPU. A signal that is not known is absent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Attributes, Metric, Number, Series, Values

Signals: TypeAlias = "dict[str, float]"

# Xids after which the GPU needs a repair. https://docs.nvidia.com/deploy/xid-errors/
CRITICAL_XIDS: Final = ("48", "62", "64", "74", "79", "95", "119", "120")

# Share of bits that may be wrong on a PCIe link. DCGM's health check has the same limit for replays.
_BIT_ERRORS: Final = 1e-12

# Bits per second of a PCIe lane, by generation.
_LANE: Final = {1: 2.5e9, 2: 5e9, 3: 8e9, 4: 16e9, 5: 32e9, 6: 64e9}


class Signal(NamedTuple):
    """How a signal is shown.

    Attributes:
        text: What it is.
        source: The metrics that it is computed from.
        unit: ``%`` for a share, else that of the value.
    """

    text: str
    source: str
    unit: str = "%"


# By name, with what the evidence of a verdict says.
SIGNALS: Final[Mapping[str, Signal]] = {
    "busy": Signal("busy", "hw.gpu.utilization general"),
    "least_busy": Signal("busy in the least busy sample", "hw.gpu.utilization general"),
    "idle_time": Signal("time without use", "hw.gpu.utilization general", "s"),
    "sm": Signal("SMs with work", "hw.gpu.utilization sm"),
    "tensor": Signal("tensor cores", "hw.gpu.utilization tensor"),
    "dram": Signal("memory bandwidth", "hw.gpu.utilization dram"),
    "memory": Signal("memory in use", "hw.gpu.memory.utilization"),
    "power": Signal("power over its limit", "hw.power over hw.power.limit"),
    "power_before": Signal("power over that of earlier", "hw.power"),
    "power_peak": Signal("highest power over mean power", "hw.power.peak over hw.power", ""),
    "clock": Signal("clock over its limit", "hw.gpu.frequency over hw.gpu.frequency.limit"),
    "power_cap": Signal("at its power limit", "hw.gpu.throttle.time power_cap"),
    "thermal_hw": Signal("slowed down by heat, by the hardware", "hw.gpu.throttle.time thermal_hw"),
    "thermal_sw": Signal("slowed down by heat, by the driver", "hw.gpu.throttle.time thermal_sw"),
    "power_brake": Signal("slowed down by the power supply", "hw.gpu.throttle.time power_brake"),
    "slowdown_hw": Signal("slowed down by the hardware", "hw.gpu.throttle.time slowdown_hw"),
    "application_clocks": Signal("at clocks that a user or tool set", "hw.gpu.throttle.time application_clocks"),
    "failed": Signal("failed", "hw.status failed", ""),
    "recovery": Signal("recovery action required by the driver", "hw.gpu.recovery_action", ""),
    "uncorrected": Signal("uncorrected errors", "hw.errors uncorrected, sram_uncorrected", "/s"),
    "xids": Signal("critical Xids", "hw.errors xid", "/s"),
    "width": Signal("PCIe lanes over what is possible", "hw.gpu.pcie.width over its limit"),
    "generation": Signal("PCIe generation over what is possible", "hw.gpu.pcie.generation over its limit"),
    "nvlinks": Signal("NVLinks over those of an equal GPU", "hw.gpu.nvlink.up"),
    "replays": Signal("PCIe replays over what the specification permits", "hw.errors pcie_replay"),
    "pcie": Signal("PCIe over the bandwidth of its link", "hw.gpu.io pcie, hw.gpu.pcie.*"),
    "links": Signal("NVLink, XGMI and InfiniBand", "hw.gpu.io, hw.network.io", "By/s"),
    "quota": Signal("periods in which the CPU limit acted", "container.cpu.throttled.periods"),
    "io_stall": Signal("waiting for disks", "pressure.linux.time io some"),
    "memory_stall": Signal("waiting for memory", "pressure.linux.time memory some"),
    "cpu_stall": Signal("waiting for a CPU", "pressure.linux.time cpu some"),
    "iowait": Signal("CPUs idle while a disk works", "system.cpu.utilization iowait"),
    "steal": Signal("CPU time taken by other virtual machines", "system.cpu.utilization steal"),
    "host_busy": Signal("CPUs of the host", "system.cpu.utilization"),
    "major_faults": Signal("pages read from disk", "process.paging.faults major", "/s"),
    "oom_kills": Signal("processes killed for lack of memory", "system.memory.linux.oom_kills", "/s"),
    "cpus": Signal(
        "CPUs that the program may use", "process.cpu.limit, container.cpu.limit, system.cpu.logical.count", ""
    ),
    "program": Signal("CPUs of the program in use", "process.tree.cpu.utilization, process.cpu.time"),
    "program_cpus": Signal("CPUs that the program uses", "process.tree.cpu.utilization, process.cpu.time", ""),
    "program_share": Signal("the program's part of it", "process.cpu.time, system.cpu.utilization"),
    "processes": Signal("processes of the program", "process.tree.count", ""),
}


def signals(values: Values, rates: Mapping[Series, float], is_limited: bool = True) -> dict[str, Signals]:
    """Return the signals of each GPU by its ``hw.id``.

    Args:
        values: Value and attributes of each series, by metric.
        rates: The increase per second of each counter that increased.
        is_limited: Whether the program may be in a container or under a limit of its control group.
    """
    source = _Source(values, rates)
    host = {name: value for name, value in _of_host(source) if value is not None}
    if not is_limited:
        host.setdefault("quota", 0.0)
    network = source.rate(c.HW_NETWORK_IO, {})
    identities = [attributes for _, attributes in values.get(c.HW_GPU_INFO, ()) if c.HW_PARENT not in attributes]
    most_links: dict[object, float] = {}
    for each in identities:
        up = source.gauge(c.HW_GPU_NVLINK_UP, {c.HW_ID: each[c.HW_ID]})
        model = each.get(c.HW_MODEL)
        most_links[model] = max(most_links.get(model, 0.0), up or 0.0)
    found = {}
    for each in identities:
        device = {c.HW_ID: each[c.HW_ID]}
        own = dict(_of_device(source, device, network))
        own["nvlinks"] = _share(source.gauge(c.HW_GPU_NVLINK_UP, device), most_links[each.get(c.HW_MODEL)])
        found[str(each[c.HW_ID])] = {name: value for name, value in own.items() if value is not None} | host
    return found


class _Source:
    """Sums of values and of rates."""

    def __init__(self, values: Values, rates: Mapping[Series, float]) -> None:
        self._values = values
        self._rates = rates
        self._by_device: dict[Metric, dict[object, list[tuple[Number, Attributes]]]] = {}

    def matching(self, metric: Metric, wanted: Attributes) -> Iterator[tuple[Number, Attributes]]:
        """Yield the series with these attributes. Those of a device are looked up: many devices have many series."""
        points = self._values.get(metric, [])
        if c.HW_ID in wanted:
            if metric not in self._by_device:
                by_device = self._by_device[metric] = {}
                for point in points:
                    by_device.setdefault(point[1].get(c.HW_ID), []).append(point)
            points = self._by_device[metric].get(wanted[c.HW_ID], [])
        yield from (point for point in points if wanted.items() <= point[1].items())

    def gauge(self, metric: Metric, wanted: Attributes) -> float | None:
        """Return the sum of the series with these attributes; None without one."""
        values = [value for value, _ in self.matching(metric, wanted)]
        return sum(values) if values else None

    def mean(self, metric: Metric, wanted: Attributes) -> float | None:
        """Return the mean of the series with these attributes, such as of all CPUs; None without one."""
        values = [value for value, _ in self.matching(metric, wanted)]
        return sum(values) / len(values) if values else None

    def rate(self, metric: Metric, wanted: Attributes) -> float | None:
        """Return the increase per second of the series with these attributes; None without one."""
        return self.sum_of_rates(metric, [attributes for _, attributes in self.matching(metric, wanted)])

    def sum_of_rates(self, metric: Metric, series: Iterable[Attributes]) -> float | None:
        """Return the increase per second of these series; None if there are none."""
        rates = [self._rates.get(Series(metric, attributes), 0.0) for attributes in series]
        return sum(rates) if rates else None


def _of_device(source: _Source, device: Attributes, network: float | None) -> Iterator[tuple[str, float | None]]:
    def gauge(metric: Metric, **more: str) -> float | None:
        return source.gauge(metric, {**device, **{_KEYS[key]: value for key, value in more.items()}})

    def rate(metric: Metric, **more: str) -> float | None:
        return source.rate(metric, {**device, **{_KEYS[key]: value for key, value in more.items()}})

    yield "busy", gauge(c.HW_GPU_UTILIZATION, task="general")
    for task in ("sm", "tensor", "dram"):
        yield task, gauge(c.HW_GPU_UTILIZATION, task=task)
    yield "memory", gauge(c.HW_GPU_MEMORY_UTILIZATION)
    power = gauge(c.HW_POWER)
    yield "watts", power
    yield "power", _share(power, gauge(c.HW_POWER_LIMIT, limit="enforced"))
    yield "power_peak", _share(gauge(c.HW_POWER_PEAK), power)
    for domain in ("graphics", "sm"):
        clock = _share(gauge(c.HW_GPU_FREQUENCY, domain=domain), gauge(c.HW_GPU_FREQUENCY_LIMIT, domain=domain))
        if clock is not None:
            yield "clock", clock
    for reason in ("power_cap", "thermal_hw", "thermal_sw", "power_brake", "slowdown_hw", "application_clocks"):
        yield reason, rate(c.HW_GPU_THROTTLE_TIME, reason=reason)
    yield "failed", gauge(c.HW_STATUS, state="failed")
    yield "recovery", gauge(c.HW_GPU_RECOVERY_ACTION)
    errors = [rate(c.HW_ERRORS, type="uncorrected"), rate(c.HW_ERRORS, type="sram_uncorrected")]
    yield "uncorrected", _sum(errors)
    critical = [each for _, each in source.matching(c.HW_ERRORS, device) if each.get(c.GPU_XID) in CRITICAL_XIDS]
    yield "xids", source.sum_of_rates(c.HW_ERRORS, critical)
    lanes, generation = gauge(c.HW_GPU_PCIE_WIDTH), gauge(c.HW_GPU_PCIE_GENERATION)
    yield "width", _share(lanes, gauge(c.HW_GPU_PCIE_WIDTH_LIMIT))
    yield "generation", _share(generation, gauge(c.HW_GPU_PCIE_GENERATION_LIMIT))
    bits = (lanes or 0) * _LANE.get(int(generation or 0), 0.0)
    yield "replays", _share(rate(c.HW_ERRORS, type="pcie_replay"), bits * _BIT_ERRORS)
    series = [each for _, each in source.matching(c.HW_GPU_IO, {**device, c.GPU_LINK: "pcie"})]
    directions = [source.sum_of_rates(c.HW_GPU_IO, [each]) or 0.0 for each in series]
    yield "pcie", _share(max(directions, default=None), bits / 8)  # each direction has the whole bandwidth
    yield "links", _sum([rate(c.HW_GPU_IO, link="nvlink"), rate(c.HW_GPU_IO, link="xgmi"), network])


_KEYS: Final = {
    "task": c.GPU_TASK,
    "limit": c.HW_LIMIT_TYPE,
    "domain": c.FREQUENCY_DOMAIN,
    "reason": c.THROTTLE_REASON,
    "state": c.HW_STATE,
    "type": c.ERROR_TYPE,
    "link": c.GPU_LINK,
}


def _of_host(source: _Source) -> Iterator[tuple[str, float | None]]:
    limit, count = source.gauge(c.CONTAINER_CPU_LIMIT, {}), source.gauge(c.SYSTEM_CPU_LOGICAL_COUNT, {})
    allowed = source.gauge(c.PROCESS_CPU_LIMIT, {})  # absent without a program
    cpus = next((each for each in (allowed, limit, count) if each is not None), None)
    yield "cpus", cpus
    periods = source.rate(c.CONTAINER_CPU_PERIODS, {})
    if limit is None and source.gauge(c.CONTAINER_MEMORY_USAGE, {}) is not None:
        yield "quota", 0.0  # a control group without a limit of CPUs
    else:
        yield "quota", _share(source.rate(c.CONTAINER_CPU_THROTTLED_PERIODS, {}), periods)
    for resource in ("cpu", "memory", "io"):
        kind = {c.PRESSURE_RESOURCE: resource, c.PRESSURE_KIND: "some"}
        stall = source.rate(c.CONTAINER_PRESSURE_TIME, kind)
        yield f"{resource}_stall", source.rate(c.SYSTEM_PRESSURE_TIME, kind) if stall is None else stall
    for mode in ("iowait", "steal"):
        yield mode, source.mean(c.SYSTEM_CPU_UTILIZATION, {c.CPU_MODE: mode})
    modes = ("user", "nice", "system", "interrupt")
    host_busy = _sum([source.mean(c.SYSTEM_CPU_UTILIZATION, {c.CPU_MODE: mode}) for mode in modes])
    yield "host_busy", host_busy
    yield "major_faults", source.rate(c.PROCESS_PAGING_FAULTS, {c.FAULT_TYPE: "major"})
    yield "oom_kills", source.rate(c.SYSTEM_MEMORY_OOM_KILLS, {})
    processes = source.gauge(c.PROCESS_TREE_COUNT, {})
    yield "processes", processes
    used, tree = source.rate(c.PROCESS_CPU_TIME, {}), source.gauge(c.PROCESS_TREE_CPU_UTILIZATION, {})
    if tree is not None and cpus is not None and (processes or 0) > 1:
        used = tree * cpus
    yield "program_cpus", used
    yield "program", _share(used, cpus)
    if used is not None and host_busy and count:
        yield "program_share", used / (host_busy * count)


def device_names(values: Values) -> dict[str, str]:
    """Return the name of each device by its ``hw.id``."""
    return {
        str(each[c.HW_ID]): str(each[c.HW_NAME])
        for points in values.values()
        for _, each in points
        if c.HW_ID in each and c.HW_NAME in each
    }


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
