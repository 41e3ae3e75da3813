"""Host: processor, memory, paging, disks, network and pressure stall, from the kernel's files or psutil."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import fsum
from typing import TypeAlias

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Attributes, CounterRatio, Metric, Point, Series, SeriesCache
from opentelemetry.instrumentation.hardware.sources import SLOW, Reading, Source
from opentelemetry.instrumentation.hardware.system.machine import Disk, Interface

# A field of a value type or file, and the metric and attributes that it is exported as.
_Column: TypeAlias = "tuple[str, Metric, Attributes]"

_READ, _WRITE = {c.DISK_DIRECTION: "read"}, {c.DISK_DIRECTION: "write"}

_DISK: tuple[_Column, ...] = (
    ("read", c.SYSTEM_DISK_IO, _READ),
    ("written", c.SYSTEM_DISK_IO, _WRITE),
    ("reads", c.SYSTEM_DISK_OPERATIONS, _READ),
    ("writes", c.SYSTEM_DISK_OPERATIONS, _WRITE),
    ("read_time", c.SYSTEM_DISK_OPERATION_TIME, _READ),
    ("write_time", c.SYSTEM_DISK_OPERATION_TIME, _WRITE),
    ("busy", c.SYSTEM_DISK_IO_TIME, {}),
)

_VMSTAT: tuple[_Column, ...] = (
    ("pgminfault", c.SYSTEM_PAGING_FAULTS, {c.FAULT_TYPE: "minor"}),
    ("pgmajfault", c.SYSTEM_PAGING_FAULTS, {c.FAULT_TYPE: "major"}),
    ("pswpin", c.SYSTEM_PAGING_OPERATIONS, {c.PAGING_DIRECTION: "in"}),
    ("pswpout", c.SYSTEM_PAGING_OPERATIONS, {c.PAGING_DIRECTION: "out"}),
    ("oom_kill", c.SYSTEM_MEMORY_OOM_KILLS, {}),
    ("pgscan_direct", c.SYSTEM_MEMORY_DIRECT_RECLAIM, {}),
)

_SENT, _RECEIVED = {c.NETWORK_DIRECTION: "transmit"}, {c.NETWORK_DIRECTION: "receive"}

_INTERFACE: tuple[_Column, ...] = (
    ("sent", c.SYSTEM_NETWORK_IO, _SENT),
    ("received", c.SYSTEM_NETWORK_IO, _RECEIVED),
    ("packets_sent", c.SYSTEM_NETWORK_PACKET_COUNT, _SENT),
    ("packets_received", c.SYSTEM_NETWORK_PACKET_COUNT, _RECEIVED),
    ("dropped_sent", c.SYSTEM_NETWORK_PACKET_DROPPED, _SENT),
    ("dropped_received", c.SYSTEM_NETWORK_PACKET_DROPPED, _RECEIVED),
    ("errors_sent", c.SYSTEM_NETWORK_ERRORS, _SENT),
    ("errors_received", c.SYSTEM_NETWORK_ERRORS, _RECEIVED),
)


_ALL_CPUS = -1


class Host(Source):
    """The machine without its file systems, which are a separate source (:mod:`.filesystem`)."""

    name = "host"
    rows = ("system.", "hw.cpu.")

    def open(self) -> None:
        config = self.context.config
        self._machine = self.context.drivers.machine()
        self._is_per_cpu = "cpu" in (config.detail or ())
        self._all_devices = "devices" in (config.detail or ())
        self._exports_idle = config.names(c.SYSTEM_CPU_UTILIZATION)
        self._memory_usage = _each(c.SYSTEM_MEMORY_USAGE, c.MEMORY_STATE, *c.MEMORY_STATES)
        self._memory_shares = _each(c.SYSTEM_MEMORY_UTILIZATION, c.MEMORY_STATE, *c.MEMORY_STATES)
        self._swap_usage = _each(c.SYSTEM_PAGING_USAGE, c.PAGING_STATE, "used", "free")
        self._swap_shares = _each(c.SYSTEM_PAGING_UTILIZATION, c.PAGING_STATE, "used", "free")
        for shares in (self._memory_shares, self._swap_shares):
            if not config.names(shares[0].metric):
                del shares[1:]  # by default the share in use only
        self._series = SeriesCache()
        self._cpu_series: dict[tuple[int, str], tuple[Series, Series | None]] = {}
        self._wants = {metric: config.wants(metric) for metric in c.CATALOG}
        self._vmstat = [(name, Series(metric, labels)) for name, metric, labels in _VMSTAT if self._wants[metric]]
        loads = (c.SYSTEM_CPU_LOAD_1M, c.SYSTEM_CPU_LOAD_5M, c.SYSTEM_CPU_LOAD_15M)
        self._load_series = [(Series(metric), at) for at, metric in enumerate(loads) if self._wants[metric]]
        self._disks = _Columns(c.DEVICE, Disk._fields, [each for each in _DISK if self._wants[each[1]]])
        self._interfaces = _Columns(
            c.INTERFACE, Interface._fields, [each for each in _INTERFACE if self._wants[each[1]]]
        )
        is_linux = self._machine.linux
        if is_linux and not self._machine.pressure():
            reason = "this kernel counts none in /proc/pressure (CONFIG_PSI); RHEL and others need psi=1 at boot"
            self.unsupported.append(f"{c.SYSTEM_PRESSURE_TIME.name}: {reason}")
        if not self._machine.disks():
            reason = "no disk in /proc/diskstats has a device in /sys/block" if is_linux else "psutil reports no disk"
            self.unsupported.append(f"{c.SYSTEM_DISK_IO.name}: {reason}")
        if not is_linux and self._machine.memory()[1] is None:
            reason = "psutil cannot read it without Windows' performance counters"
            self.unsupported.append(f"{c.SYSTEM_PAGING_USAGE.name}: {reason}")
        for name in set(config.interfaces or ()) - set(self._machine.interfaces(config.interfaces)):
            self.unsupported.append(f"{c.SYSTEM_NETWORK_IO.name}: no interface is named {name}")

    def readings(self) -> Sequence[Reading]:
        sampled, slow = super().readings()
        return sampled, Reading(self._counters, SLOW, before_collection=True), slow

    def read(self) -> Iterator[Point]:
        """Read memory, and CPU frequencies and sockets if they are wanted."""
        yield from self._memory()
        if self._wants[c.SYSTEM_CPU_FREQUENCY]:
            for cpu, hertz in self._machine.cpu_frequencies().items():
                yield self._series[c.SYSTEM_CPU_FREQUENCY, c.CPU_NUMBER, cpu](hertz)
        if self._wants[c.SYSTEM_NETWORK_CONNECTION_COUNT]:
            for (transport, state), count in self._machine.connections().items():
                attributes = {c.NETWORK_TRANSPORT: transport, c.CONNECTION_STATE: state}
                yield c.SYSTEM_NETWORK_CONNECTION_COUNT(
                    count, {name: value for name, value in attributes.items() if value}
                )

    def _counters(self) -> Iterator[Point]:
        """Read counters, utilization by CPU time, and load averages."""
        yield from self._processor()
        counts = self._machine.vmstat()
        yield from ((series, counts[name]) for name, series in self._vmstat if name in counts)
        for name, disk in self._machine.disks(self._all_devices).items():
            yield from self._disks.points(name, disk)
        wanted = self.context.config.interfaces
        for name, interface in self._machine.interfaces(wanted, self._all_devices and wanted is None).items():
            yield from self._interfaces.points(name, interface)
        if self._wants[c.SYSTEM_NETWORK_TCP_RETRANSMITS]:
            retransmits = self._machine.tcp_retransmits()
            if retransmits is not None:
                yield self._series[c.SYSTEM_NETWORK_TCP_RETRANSMITS](retransmits)
        if self._wants[c.SYSTEM_PRESSURE_TIME]:
            for (resource, kind), seconds in self._machine.pressure().items():
                which = (c.PRESSURE_RESOURCE, resource, c.PRESSURE_KIND, kind)
                yield self._series[(c.SYSTEM_PRESSURE_TIME, *which)](seconds)

    def read_slow(self) -> Iterator[Point]:
        """Read the number of CPUs, which seldom changes, and of processes, which requires reading a file of each."""
        counts = self._machine.cpu_counts()
        for metric, count in zip((c.SYSTEM_CPU_LOGICAL_COUNT, c.SYSTEM_CPU_PHYSICAL_COUNT), counts):
            if count:
                yield self._series[metric](count)
        if self._wants[c.SYSTEM_PROCESS_COUNT]:
            for state, count in self._machine.process_states().items():
                yield c.SYSTEM_PROCESS_COUNT(count, {c.PROCESS_STATE: state})

    def _processor(self) -> Iterator[Point]:
        times: Mapping[int, Mapping[str, float]]
        times = self._machine.cpu_times_by_cpu() if self._is_per_cpu else {_ALL_CPUS: self._machine.cpu_times()}
        for cpu, modes in times.items():
            total = fsum(modes.values())
            for mode, seconds in modes.items():
                time, utilization = self._cpu_series.get((cpu, mode)) or self._make_cpu_series(cpu, mode)
                yield time, seconds
                if utilization is not None:
                    yield utilization, CounterRatio(seconds, total)
        loads = self._machine.load_averages()
        if loads is not None:
            for series, at in self._load_series:
                yield series, loads[at]
        yield self._series[c.SYSTEM_UPTIME](self._machine.uptime())

    def _make_cpu_series(self, cpu: int, mode: str) -> tuple[Series, Series | None]:
        attributes: dict[str, str | int] = {c.CPU_MODE: mode}
        if cpu != _ALL_CPUS:
            attributes[c.CPU_NUMBER] = cpu
        is_exported = mode != "idle" or self._exports_idle
        utilization = Series(c.SYSTEM_CPU_UTILIZATION, attributes) if is_exported else None
        self._cpu_series[cpu, mode] = Series(c.SYSTEM_CPU_TIME, attributes), utilization
        return self._cpu_series[cpu, mode]

    def _memory(self) -> Iterator[Point]:
        memory, swap = self._machine.memory()
        if memory is not None:
            amounts = memory.total - memory.available, memory.available
            yield from zip(self._memory_usage, amounts)
            for series, amount in zip(self._memory_shares, amounts):
                yield series, amount / memory.total
            yield self._series[c.SYSTEM_MEMORY_LIMIT](memory.total)
            if self._machine.linux:
                yield self._series[c.SYSTEM_MEMORY_LINUX_AVAILABLE](memory.available)
        if swap is not None:
            amounts = swap.total - swap.free, swap.free
            yield from zip(self._swap_usage, amounts)
            if swap.total:
                for series, amount in zip(self._swap_shares, amounts):
                    yield series, amount / swap.total


class _Columns(dict[str, "list[tuple[Series, int]]"]):
    """The series of a device by its name, each with the index of its field. They are created at the first use.

    Args:
        attribute: The attribute that has the device's name.
        fields: The fields of the value type.
        columns: The fields to export.
    """

    def __init__(self, attribute: str, fields: Sequence[str], columns: Sequence[_Column]) -> None:
        super().__init__()
        self._attribute = attribute
        self._columns = [(fields.index(field), metric, attributes) for field, metric, attributes in columns]

    def points(self, name: str, numbers: Sequence[float | None]) -> Iterator[Point]:
        """Yield the known numbers of a device."""
        for series, at in self[name]:
            number = numbers[at]
            if number is not None:
                yield series, number

    def __missing__(self, name: str) -> list[tuple[Series, int]]:
        self[name] = [
            (Series(metric, {self._attribute: name, **attributes}), at) for at, metric, attributes in self._columns
        ]
        return self[name]


def _each(metric: Metric, attribute: str, *values: str) -> list[Series]:
    """Return the series of a metric by the values of an attribute."""
    return [Series(metric, {attribute: value}) for value in values]
