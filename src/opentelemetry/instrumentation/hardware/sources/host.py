"""Host: processor, memory, paging, disks, network and pressure stall, from the kernel's files or psutil."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import fsum
from typing import TypeAlias

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import CounterRatio, Metric, Point, SeriesCache
from opentelemetry.instrumentation.hardware.sources import SLOW, Reading, Source

# A field of a value type or file, and the metric and attribute that it is exported as.
_Column: TypeAlias = "tuple[str, Metric, tuple[str, ...]]"

_READ, _WRITE = (c.DISK_DIRECTION, "read"), (c.DISK_DIRECTION, "write")

_DISK: Sequence[_Column] = (
    ("read", c.SYSTEM_DISK_IO, _READ),
    ("written", c.SYSTEM_DISK_IO, _WRITE),
    ("reads", c.SYSTEM_DISK_OPERATIONS, _READ),
    ("writes", c.SYSTEM_DISK_OPERATIONS, _WRITE),
    ("read_time", c.SYSTEM_DISK_OPERATION_TIME, _READ),
    ("write_time", c.SYSTEM_DISK_OPERATION_TIME, _WRITE),
    ("busy", c.SYSTEM_DISK_IO_TIME, ()),
)

_VMSTAT: Sequence[_Column] = (
    ("pgminfault", c.SYSTEM_PAGING_FAULTS, (c.FAULT_TYPE, "minor")),
    ("pgmajfault", c.SYSTEM_PAGING_FAULTS, (c.FAULT_TYPE, "major")),
    ("pswpin", c.SYSTEM_PAGING_OPERATIONS, (c.PAGING_DIRECTION, "in")),
    ("pswpout", c.SYSTEM_PAGING_OPERATIONS, (c.PAGING_DIRECTION, "out")),
    ("oom_kill", c.SYSTEM_MEMORY_OOM_KILLS, ()),
    ("pgscan_direct", c.SYSTEM_MEMORY_DIRECT_RECLAIM, ()),
)

_SENT, _RECEIVED = (c.NETWORK_DIRECTION, "transmit"), (c.NETWORK_DIRECTION, "receive")

_INTERFACE: Sequence[_Column] = (
    ("sent", c.SYSTEM_NETWORK_IO, _SENT),
    ("received", c.SYSTEM_NETWORK_IO, _RECEIVED),
    ("packets_sent", c.SYSTEM_NETWORK_PACKET_COUNT, _SENT),
    ("packets_received", c.SYSTEM_NETWORK_PACKET_COUNT, _RECEIVED),
    ("dropped_sent", c.SYSTEM_NETWORK_PACKET_DROPPED, _SENT),
    ("dropped_received", c.SYSTEM_NETWORK_PACKET_DROPPED, _RECEIVED),
    ("errors_sent", c.SYSTEM_NETWORK_ERRORS, _SENT),
    ("errors_received", c.SYSTEM_NETWORK_ERRORS, _RECEIVED),
)

_LOADS = (c.SYSTEM_CPU_LOAD_1M, c.SYSTEM_CPU_LOAD_5M, c.SYSTEM_CPU_LOAD_15M)

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
        shares = (c.SYSTEM_CPU_UTILIZATION, c.SYSTEM_MEMORY_UTILIZATION, c.SYSTEM_PAGING_UTILIZATION)
        self._in_all_states = {metric for metric in shares if config.names(metric)}  # by default only what is in use
        self._series = SeriesCache()
        self._wants = {metric: config.wants(metric) for metric in c.CATALOG}
        self._vmstat, self._disk, self._interface = (
            [column for column in table if self._wants[column[1]]] for table in (_VMSTAT, _DISK, _INTERFACE)
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
        yield from self._points(self._vmstat, self._machine.vmstat())
        for name, disk in self._machine.disks(self._all_devices).items():
            yield from self._points(self._disk, disk._asdict(), c.DEVICE, name)
        wanted = self.context.config.interfaces
        for name, interface in self._machine.interfaces(wanted, self._all_devices and wanted is None).items():
            yield from self._points(self._interface, interface._asdict(), c.INTERFACE, name)
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
            which = () if cpu == _ALL_CPUS else (c.CPU_NUMBER, cpu)
            for mode, seconds in modes.items():
                yield self._series[(c.SYSTEM_CPU_TIME, c.CPU_MODE, mode, *which)](seconds)
                if mode != "idle" or c.SYSTEM_CPU_UTILIZATION in self._in_all_states:
                    series = self._series[(c.SYSTEM_CPU_UTILIZATION, c.CPU_MODE, mode, *which)]
                    yield series(CounterRatio(seconds, total))
        for metric, load in zip(_LOADS, self._machine.load_averages() or ()):
            if self._wants[metric]:
                yield self._series[metric](load)
        yield self._series[c.SYSTEM_UPTIME](self._machine.uptime())

    def _points(self, columns: Sequence[_Column], numbers: Mapping[str, float | None], *device: str) -> Iterator[Point]:
        """Yield the known numbers of the host, or of a device."""
        for name, metric, which in columns:
            number = numbers.get(name)
            if number is not None:
                yield self._series[(metric, *device, *which)](number)

    def _memory(self) -> Iterator[Point]:
        memory, swap = self._machine.memory()
        if memory is not None:
            states = {"used": memory.total - memory.available, "available": memory.available}
            yield from self._states(c.SYSTEM_MEMORY_USAGE, c.SYSTEM_MEMORY_UTILIZATION, c.MEMORY_STATE, states)
            yield self._series[c.SYSTEM_MEMORY_LIMIT](memory.total)
            if self._machine.linux:
                yield self._series[c.SYSTEM_MEMORY_LINUX_AVAILABLE](memory.available)
        if swap is not None:
            states = {"used": swap.total - swap.free, "free": swap.free}
            yield from self._states(c.SYSTEM_PAGING_USAGE, c.SYSTEM_PAGING_UTILIZATION, c.PAGING_STATE, states)

    def _states(self, usage: Metric, utilization: Metric, attribute: str, states: Mapping[str, int]) -> Iterator[Point]:
        total = sum(states.values())
        for state, size in states.items():
            yield self._series[usage, attribute, state](size)
            if total and (state == "used" or utilization in self._in_all_states):
                yield self._series[utilization, attribute, state](size / total)
