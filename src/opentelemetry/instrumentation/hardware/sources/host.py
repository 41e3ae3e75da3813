"""The host: processor, memory, paging, disks, network and pressure, from the kernel's files or psutil."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import fsum
from typing import TypeAlias

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Attributes, CounterRatio, Metric, Point, Series, SeriesCache
from opentelemetry.instrumentation.hardware.sources import Source
from opentelemetry.instrumentation.hardware.system.machine import Disk, Interface, Swap, machine

_Row: TypeAlias = "tuple[str, Metric, Attributes]"
"""What is exported as the machine says it: a field of its answer, the row, and which of its series."""

_READ, _WRITE = {c.DISK_DIRECTION: "read"}, {c.DISK_DIRECTION: "write"}

_DISK: tuple[_Row, ...] = (
    ("read", c.SYSTEM_DISK_IO, _READ),
    ("written", c.SYSTEM_DISK_IO, _WRITE),
    ("reads", c.SYSTEM_DISK_OPERATIONS, _READ),
    ("writes", c.SYSTEM_DISK_OPERATIONS, _WRITE),
    ("read_time", c.SYSTEM_DISK_OPERATION_TIME, _READ),
    ("write_time", c.SYSTEM_DISK_OPERATION_TIME, _WRITE),
    ("busy", c.SYSTEM_DISK_IO_TIME, {}),
)

_SENT, _RECEIVED = {c.NETWORK_DIRECTION: "transmit"}, {c.NETWORK_DIRECTION: "receive"}

_INTERFACE: tuple[_Row, ...] = (
    ("sent", c.SYSTEM_NETWORK_IO, _SENT),
    ("received", c.SYSTEM_NETWORK_IO, _RECEIVED),
    ("packets_sent", c.SYSTEM_NETWORK_PACKET_COUNT, _SENT),
    ("packets_received", c.SYSTEM_NETWORK_PACKET_COUNT, _RECEIVED),
    ("dropped_sent", c.SYSTEM_NETWORK_PACKET_DROPPED, _SENT),
    ("dropped_received", c.SYSTEM_NETWORK_PACKET_DROPPED, _RECEIVED),
    ("errors_sent", c.SYSTEM_NETWORK_ERRORS, _SENT),
    ("errors_received", c.SYSTEM_NETWORK_ERRORS, _RECEIVED),
)


class Host(Source):
    """All that every machine has, but its file systems, which can hang (:mod:`.filesystem`)."""

    name = "host"
    rows = ("system.", "hw.cpu.")

    def open(self) -> None:
        """Never raises ``Unavailable``: every machine has a processor."""
        config = self.context.config
        self._machine = machine(self.context.drivers)
        self._per_core = "cpu" in (config.detail or ())
        self._idle = config.names(c.SYSTEM_CPU_UTILIZATION)
        self._memory_usage = _each(c.SYSTEM_MEMORY_USAGE, c.MEMORY_STATE, "used", "free", "cached", "buffers")
        self._memory_shares = _each(c.SYSTEM_MEMORY_UTILIZATION, c.MEMORY_STATE, "used", "free", "cached", "buffers")
        self._swap_usage = _each(c.SYSTEM_PAGING_USAGE, c.PAGING_STATE, "used", "free")
        self._swap_shares = _each(c.SYSTEM_PAGING_UTILIZATION, c.PAGING_STATE, "used", "free")
        for shares in (self._memory_shares, self._swap_shares):
            if not config.names(shares[0].metric):
                del shares[1:]
        self._counts = self._machine.counts()
        self._of = SeriesCache()
        self._modes: dict[tuple[int, str], tuple[Series, Series | None]] = {}
        self._wants = {row: config.wants(row) for row in c.CATALOG}
        faults = [
            *_each(c.SYSTEM_PAGING_FAULTS, c.FAULT_TYPE, "minor", "major"),
            *_each(c.SYSTEM_PAGING_OPERATIONS, c.PAGING_DIRECTION, "in", "out"),
        ]
        loads = [Series(row) for row in (c.SYSTEM_CPU_LOAD_1M, c.SYSTEM_CPU_LOAD_5M, c.SYSTEM_CPU_LOAD_15M)]
        self._faults, self._loads = (
            [(series, at) for at, series in enumerate(every) if self._wants[series.metric]] for every in (faults, loads)
        )
        self._disks = _Columns(c.DEVICE, Disk._fields, [each for each in _DISK if self._wants[each[1]]])
        self._interfaces = _Columns(
            c.INTERFACE, Interface._fields, [each for each in _INTERFACE if self._wants[each[1]]]
        )
        if not self._machine.pressure():
            self.unsupported.append(f"{c.SYSTEM_PRESSURE_TIME.name}: this kernel has no /proc/pressure (CONFIG_PSI)")
        if not self._machine.disks():
            self.unsupported.append(
                f"{c.SYSTEM_DISK_IO.name}: no whole disk in /proc/diskstats with a device in /sys/block"
            )
        for name in set(config.interfaces or ()) - set(self._machine.interfaces(config.interfaces)):
            self.unsupported.append(f"{c.SYSTEM_NETWORK_IO.name}: there is no interface {name}")

    def read(self) -> Iterator[Point]:
        """Some ten files, each read once."""
        yield from self._processor()
        yield from self._memory()
        yield from self._paging()
        yield from self._storage()
        yield from self._network()
        if self._wants[c.SYSTEM_NETWORK_CONNECTION_COUNT]:
            for (transport, state), count in self._machine.connections().items():
                attributes = {c.NETWORK_TRANSPORT: transport, c.CONNECTION_STATE: state}
                yield c.SYSTEM_NETWORK_CONNECTION_COUNT(
                    count, {name: value for name, value in attributes.items() if value}
                )
        if self._wants[c.SYSTEM_PRESSURE_TIME]:
            for (resource, kind), seconds in self._machine.pressure().items():
                yield self._of[c.SYSTEM_PRESSURE_TIME, c.PRESSURE_RESOURCE, resource, c.PRESSURE_KIND, kind](seconds)

    def read_slow(self) -> Iterator[Point]:
        """What hardly changes, and what has to be counted."""
        for row, count in zip((c.SYSTEM_CPU_LOGICAL_COUNT, c.SYSTEM_CPU_PHYSICAL_COUNT), self._counts):
            if count:
                yield self._of[row](count)
        if self._wants[c.SYSTEM_PROCESS_COUNT]:
            for state, count in self._machine.states().items():
                yield c.SYSTEM_PROCESS_COUNT(count, {c.PROCESS_STATE: state})

    def _processor(self) -> Iterator[Point]:
        cpus: Mapping[int, Mapping[str, float]] = self._machine.cpus() if self._per_core else {-1: self._machine.cpu()}
        for number, modes in cpus.items():
            whole = fsum(modes.values())
            for mode, seconds in modes.items():
                time, utilization = self._modes.get((number, mode)) or self._mode(number, mode)
                yield time, seconds
                if utilization is not None:
                    yield utilization, CounterRatio(seconds, whole)
        load = self._machine.load()
        if load is not None:
            for series, at in self._loads:
                yield series, load[at]
        if self._wants[c.SYSTEM_CPU_FREQUENCY]:
            for number, hertz in self._machine.frequencies().items():
                yield self._of[c.SYSTEM_CPU_FREQUENCY, c.CPU_NUMBER, number](hertz)
        yield self._of[c.SYSTEM_UPTIME](self._machine.uptime())

    def _mode(self, number: int, mode: str) -> tuple[Series, Series | None]:
        attributes: dict[str, str | int] = {c.CPU_MODE: mode}
        if number >= 0:
            attributes[c.CPU_NUMBER] = number
        utilization = None if mode == "idle" and not self._idle else Series(c.SYSTEM_CPU_UTILIZATION, attributes)
        self._modes[number, mode] = Series(c.SYSTEM_CPU_TIME, attributes), utilization
        return self._modes[number, mode]

    def _memory(self) -> Iterator[Point]:
        memory, swap = self._machine.memory()
        if memory is not None:
            amounts = (memory.used, memory.free, memory.cached, memory.buffers)
            yield from zip(self._memory_usage, amounts)
            for series, amount in zip(self._memory_shares, amounts):
                yield series, amount / memory.total
            yield self._of[c.SYSTEM_MEMORY_LIMIT](memory.total)
            if memory.available is not None:
                row = c.SYSTEM_MEMORY_LINUX_AVAILABLE if self._machine.linux else c.SYSTEM_MEMORY_AVAILABLE
                yield self._of[row](memory.available)
        if swap is not None:
            yield from self._swap(swap)

    def _swap(self, swap: Swap) -> Iterator[Point]:
        amounts = (swap.total - swap.free, swap.free)
        yield from zip(self._swap_usage, amounts)
        if swap.total:
            for series, amount in zip(self._swap_shares, amounts):
                yield series, amount / swap.total

    def _paging(self) -> Iterator[Point]:
        paging = self._machine.paging()
        for series, at in self._faults:
            count = paging[at]
            if count is not None:
                yield series, count

    def _storage(self) -> Iterator[Point]:
        for name, disk in self._machine.disks().items():
            for series, at in self._disks[name]:
                number = disk[at]
                if number is not None:
                    yield series, number

    def _network(self) -> Iterator[Point]:
        for name, interface in self._machine.interfaces(self.context.config.interfaces).items():
            for series, at in self._interfaces[name]:
                yield series, interface[at]


class _Columns(dict[str, "list[tuple[Series, int]]"]):
    """Of each device its series, and which field of the machine's answer each of them is."""

    def __init__(self, key: str, fields: Sequence[str], rows: Sequence[_Row]) -> None:
        super().__init__()
        self._key = key
        self._rows = [(fields.index(field), row, way) for field, row, way in rows]

    def __missing__(self, name: str) -> list[tuple[Series, int]]:
        found = self[name] = [(Series(row, {self._key: name, **way}), at) for at, row, way in self._rows]
        return found


def _each(row: Metric, key: str, *values: str) -> list[Series]:
    """The series of a row, one for each value of an attribute."""
    return [Series(row, {key: value}) for value in values]
