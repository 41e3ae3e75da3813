"""The host: processor, memory, paging, disks, network and pressure, from the kernel's files or psutil."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import fsum
from typing import TypeVar

from opentelemetry.instrumentation.hardware import vocabulary as v
from opentelemetry.instrumentation.hardware.machine import Disk, Interface, Swap, machine
from opentelemetry.instrumentation.hardware.model import Kept, Metric, Point, Series, Share
from opentelemetry.instrumentation.hardware.sources import Source

T = TypeVar("T")


class Host(Source):
    """All that every machine has, but its file systems, which can hang (:mod:`.filesystem`)."""

    name = "host"
    prompt = True
    rows = ("system.", "hw.cpu.")

    def open(self) -> None:
        """Never raises ``Unavailable``: every machine has a processor."""
        config = self.site.config
        self._machine = machine(self.site.drivers)
        self._per_core = "cpu" in (config.detail or ())
        self._idle = config.names(v.SYSTEM_CPU_UTILIZATION)
        self._states = ("used", "free", "cached", "buffers") if config.names(v.SYSTEM_MEMORY_UTILIZATION) else ("used",)
        self._paging_states = ("used", "free") if config.names(v.SYSTEM_PAGING_UTILIZATION) else ("used",)
        self._counts = self._machine.counts()
        self._of = Kept()
        self._modes: dict[tuple[int, str], tuple[Series, Series | None]] = {}
        self._disks: dict[str, list[tuple[Series, Callable[[Disk], int | float | None]]]] = {}
        self._interfaces: dict[str, list[tuple[Series, Callable[[Interface], int]]]] = {}
        self._wants = {row: config.wants(row) for row in v.CATALOG}
        self.missing = []
        if not self._machine.pressure():
            self.missing.append(f"{v.SYSTEM_PRESSURE_TIME.name}: this kernel has no /proc/pressure (CONFIG_PSI)")
        if not self._machine.disks():
            self.missing.append(
                f"{v.SYSTEM_DISK_IO.name}: no whole disk in /proc/diskstats with a device in /sys/block"
            )
        for name in set(config.interfaces or ()) - set(self._machine.interfaces(config.interfaces)):
            self.missing.append(f"{v.SYSTEM_NETWORK_IO.name}: there is no interface {name}")

    def read(self) -> Iterator[Point]:
        """Some ten files, each read once."""
        yield from self._processor()
        yield from self._memory()
        yield from self._paging()
        yield from self._storage()
        yield from self._network()
        if self._wants[v.SYSTEM_NETWORK_CONNECTION_COUNT]:
            for (transport, state), count in self._machine.connections().items():
                attributes = {v.NETWORK_TRANSPORT: transport, v.CONNECTION_STATE: state}
                yield v.SYSTEM_NETWORK_CONNECTION_COUNT(
                    count, {name: value for name, value in attributes.items() if value}
                )
        if self._wants[v.SYSTEM_PRESSURE_TIME]:
            for (resource, kind), seconds in self._machine.pressure().items():
                yield self._of[v.SYSTEM_PRESSURE_TIME, v.PRESSURE_RESOURCE, resource, v.PRESSURE_KIND, kind](seconds)

    def read_seldom(self) -> Iterator[Point]:
        """What hardly changes, and what has to be counted."""
        for row, count in zip((v.SYSTEM_CPU_LOGICAL_COUNT, v.SYSTEM_CPU_PHYSICAL_COUNT), self._counts):
            if count:
                yield self._of[row](count)
        if self._wants[v.SYSTEM_PROCESS_COUNT]:
            for state, count in self._machine.states().items():
                yield v.SYSTEM_PROCESS_COUNT(count, {v.PROCESS_STATE: state})

    def _processor(self) -> Iterator[Point]:
        cpus: Mapping[int, Mapping[str, float]] = self._machine.cpus() if self._per_core else {-1: self._machine.cpu()}
        for number, modes in cpus.items():
            whole = fsum(modes.values())
            for mode, seconds in modes.items():
                time, utilization = self._modes.get((number, mode)) or self._mode(number, mode)
                yield time(seconds)
                if utilization is not None:
                    yield utilization(Share(seconds, whole))
        load = self._machine.load()
        if load is not None:
            for row, value in zip((v.SYSTEM_CPU_LOAD_1M, v.SYSTEM_CPU_LOAD_5M, v.SYSTEM_CPU_LOAD_15M), load):
                yield self._of[row](value)
        if self._wants[v.SYSTEM_CPU_FREQUENCY]:
            for number, hertz in self._machine.frequencies().items():
                yield self._of[v.SYSTEM_CPU_FREQUENCY, v.CPU_NUMBER, number](hertz)
        yield self._of[v.SYSTEM_UPTIME](self._machine.uptime())

    def _mode(self, number: int, mode: str) -> tuple[Series, Series | None]:
        attributes: dict[str, str | int] = {v.CPU_MODE: mode}
        if number >= 0:
            attributes[v.CPU_NUMBER] = number
        utilization = None if mode == "idle" and not self._idle else Series(v.SYSTEM_CPU_UTILIZATION, attributes)
        self._modes[number, mode] = Series(v.SYSTEM_CPU_TIME, attributes), utilization
        return self._modes[number, mode]

    def _memory(self) -> Iterator[Point]:
        memory, swap = self._machine.memory()
        if memory is not None:
            for state in ("used", "free", "cached", "buffers"):
                yield self._of[v.SYSTEM_MEMORY_USAGE, v.MEMORY_STATE, state](getattr(memory, state))
            for state in self._states:
                share = getattr(memory, state) / memory.total
                yield self._of[v.SYSTEM_MEMORY_UTILIZATION, v.MEMORY_STATE, state](share)
            yield self._of[v.SYSTEM_MEMORY_LIMIT](memory.total)
            if memory.available is not None:
                row = v.SYSTEM_MEMORY_LINUX_AVAILABLE if self._machine.linux else v.SYSTEM_MEMORY_AVAILABLE
                yield self._of[row](memory.available)
        if swap is not None:
            yield from self._swap(swap)

    def _swap(self, swap: Swap) -> Iterator[Point]:
        used = {"used": swap.total - swap.free, "free": swap.free}
        for state, amount in used.items():
            yield self._of[v.SYSTEM_PAGING_USAGE, v.PAGING_STATE, state](amount)
        if swap.total:
            for state in self._paging_states:
                yield self._of[v.SYSTEM_PAGING_UTILIZATION, v.PAGING_STATE, state](used[state] / swap.total)

    def _paging(self) -> Iterator[Point]:
        paging = self._machine.paging()
        for kind, count in (("minor", paging.minor), ("major", paging.major)):
            if count is not None:
                yield self._of[v.SYSTEM_PAGING_FAULTS, v.FAULT_TYPE, kind](count)
        for direction, count in (("in", paging.swapped_in), ("out", paging.swapped_out)):
            if count is not None:
                yield self._of[v.SYSTEM_PAGING_OPERATIONS, v.PAGING_DIRECTION, direction](count)

    def _storage(self) -> Iterator[Point]:
        for name, disk in self._machine.disks().items():
            for series, value in self._disks.get(name) or self._disk(name):
                number = value(disk)
                if number is not None:
                    yield series(number)

    def _disk(self, name: str) -> list[tuple[Series, Callable[[Disk], int | float | None]]]:
        columns: tuple[tuple[Metric, str, Callable[[Disk], int | float | None]], ...] = (
            (v.SYSTEM_DISK_IO, "read", lambda disk: disk.read),
            (v.SYSTEM_DISK_IO, "write", lambda disk: disk.written),
            (v.SYSTEM_DISK_OPERATIONS, "read", lambda disk: disk.reads),
            (v.SYSTEM_DISK_OPERATIONS, "write", lambda disk: disk.writes),
            (v.SYSTEM_DISK_OPERATION_TIME, "read", lambda disk: disk.read_time),
            (v.SYSTEM_DISK_OPERATION_TIME, "write", lambda disk: disk.write_time),
        )
        rows = [
            (Series(row, {v.DEVICE: name, v.DISK_DIRECTION: way}), value)
            for row, way, value in columns
            if self._wants[row]
        ]
        rows.append((Series(v.SYSTEM_DISK_IO_TIME, {v.DEVICE: name}), lambda disk: disk.busy))
        self._disks[name] = rows
        return rows

    def _network(self) -> Iterator[Point]:
        for name, interface in self._machine.interfaces(self.site.config.interfaces).items():
            for series, value in self._interfaces.get(name) or self._interface(name):
                yield series(value(interface))

    def _interface(self, name: str) -> list[tuple[Series, Callable[[Interface], int]]]:
        columns: tuple[tuple[Metric, str, Callable[[Interface], int]], ...] = (
            (v.SYSTEM_NETWORK_IO, "transmit", lambda each: each.sent),
            (v.SYSTEM_NETWORK_IO, "receive", lambda each: each.received),
            (v.SYSTEM_NETWORK_PACKET_COUNT, "transmit", lambda each: each.packets_sent),
            (v.SYSTEM_NETWORK_PACKET_COUNT, "receive", lambda each: each.packets_received),
            (v.SYSTEM_NETWORK_PACKET_DROPPED, "transmit", lambda each: each.dropped_sent),
            (v.SYSTEM_NETWORK_PACKET_DROPPED, "receive", lambda each: each.dropped_received),
            (v.SYSTEM_NETWORK_ERRORS, "transmit", lambda each: each.errors_sent),
            (v.SYSTEM_NETWORK_ERRORS, "receive", lambda each: each.errors_received),
        )
        self._interfaces[name] = [
            (Series(row, {v.INTERFACE: name, v.NETWORK_DIRECTION: way}), value)
            for row, way, value in columns
            if self._wants[row]
        ]
        return self._interfaces[name]
