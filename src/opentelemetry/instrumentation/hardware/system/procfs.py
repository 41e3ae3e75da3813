"""What the files of the Linux kernel mean: each function takes the text of one, and asks nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence

from opentelemetry.instrumentation.hardware.system.machine import Disk, Interface, Memory, Paging, Swap

TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096

# /proc/stat, columns of a cpu line after its name. guest and guest_nice are already in user and nice.
_MODES = (("user", 1), ("nice", 2), ("system", 3), ("idle", 4), ("iowait", 5), ("steal", 8))

_STATES = {
    b"R": "running",
    b"S": "sleeping",
    b"D": "sleeping",
    b"I": "sleeping",
    b"T": "stopped",
    b"t": "stopped",
    b"Z": "defunct",
}
"""The conventions know four states; waiting for a disk and idle kernel threads sleep."""

_KINDS = {b"some ": "some", b"full ": "full"}
"""Whose waiting the lines of ``/proc/pressure`` tell."""


def lines(text: bytes) -> list[bytes]:
    """The lines of a file, complete ones only: a number that was cut is a wrong number."""
    return text[: text.rfind(b"\n") + 1].splitlines()


def entry(text: bytes, label: bytes, end: bytes = b"\n") -> int | None:
    """The number between a label, the end of the line before it included, and the end of its own line."""
    at = text.find(label)
    begin = at + len(label)
    until = text.find(end, begin)
    return None if at < 0 or until < 0 else int(text[begin:until])


def modes(columns: Sequence[bytes]) -> dict[str, float]:
    """A cpu line of ``/proc/stat``: seconds by ``cpu.mode``."""
    found = {mode: int(columns[at]) / TICKS for mode, at in _MODES if at < len(columns)}
    if len(columns) > 7:
        found["interrupt"] = (int(columns[6]) + int(columns[7])) / TICKS
    return found


def meminfo(text: bytes) -> tuple[Memory | None, Swap | None]:
    """``/proc/meminfo``."""
    text = b"\n" + text
    total, free = _kib(text, b"\nMemTotal:"), _kib(text, b"\nMemFree:")
    buffers, cached = _kib(text, b"\nBuffers:"), _kib(text, b"\nCached:")
    memory = swap = None
    if total is not None and free is not None and buffers is not None and cached is not None:
        cached += _kib(text, b"\nSReclaimable:") or 0
        memory = Memory(total, _kib(text, b"\nMemAvailable:"), free, cached, buffers)
    total, free = _kib(text, b"\nSwapTotal:"), _kib(text, b"\nSwapFree:")
    if total is not None and free is not None:
        swap = Swap(total, free)
    return memory, swap


def _kib(text: bytes, label: bytes) -> int | None:
    """A line of ``/proc/meminfo``, in bytes."""
    found = entry(text, label, b" kB\n")
    return None if found is None else found << 10


def vmstat(text: bytes) -> Paging:
    """``/proc/vmstat``, in which swapping has always stood before the faults."""
    text = text[max(0, text.find(b"\npswpin ")) :]
    faults, major = entry(text, b"\npgfault "), entry(text, b"\npgmajfault ")
    minor = None if faults is None or major is None else faults - major
    return Paging(minor, major, entry(text, b"\npswpin "), entry(text, b"\npswpout "))


def diskstats(text: bytes, chosen: Callable[[str], bool]) -> Iterator[tuple[str, Disk]]:
    """``/proc/diskstats``: the chosen disks by name."""
    for line in lines(text):
        columns = line.split(None, 3)
        if len(columns) > 3 and chosen(name := columns[2].decode()):
            counts = [int(column) for column in columns[3].split(None, 10)[:10]]
            if len(counts) < 10:
                continue
            reads, _, sectors_read, read_ms, writes, _, sectors_written, write_ms, _, busy_ms = counts
            yield (
                name,
                Disk(
                    sectors_read * 512,
                    sectors_written * 512,
                    reads,
                    writes,
                    read_ms / 1e3,
                    write_ms / 1e3,
                    busy_ms / 1e3,
                ),
            )


def net_dev(text: bytes, names: Sequence[str] | None) -> Iterator[tuple[str, Interface]]:
    """``/proc/net/dev``: the interfaces by name, all where no names are given."""
    for line in lines(text)[2:]:
        label, _, rest = line.partition(b":")
        name = label.strip().decode(errors="backslashreplace")  # the kernel takes any bytes
        if names is None or name in names:
            c = rest.split()
            yield (
                name,
                Interface(int(c[8]), int(c[0]), int(c[9]), int(c[1]), int(c[11]), int(c[3]), int(c[10]), int(c[2])),
            )


def routed(text: str) -> list[str]:
    """``/proc/net/route``: the interfaces that carry a default route."""
    routes = text.splitlines()[1:]
    return sorted({columns[0] for line in routes if len(columns := line.split()) > 1 and columns[1] == "00000000"})


def sockstat(text: bytes) -> dict[str, dict[str, int]]:
    """``/proc/net/sockstat`` and ``sockstat6``: counts by protocol."""
    found = {}
    for line in lines(text):
        label, _, rest = line.decode().partition(":")
        words = rest.split()
        found[label] = {name: int(count) for name, count in zip(words[::2], words[1::2])}
    return found


def established(text: bytes) -> int | None:
    """``/proc/net/snmp``: established connections of TCP."""
    tcp = [line.split() for line in lines(text) if line.startswith(b"Tcp:")]
    if len(tcp) != 2 or b"CurrEstab" not in tcp[0]:
        return None
    return int(tcp[1][tcp[0].index(b"CurrEstab")])


def pressure(text: bytes) -> Mapping[str, float]:
    """A file of ``/proc/pressure``: seconds that some tasks waited, and all."""
    found = {}
    for line in lines(text):
        kind = _KINDS.get(line[:5])
        if kind is not None:
            found[kind] = int(line[line.rindex(b"=") + 1 :]) / 1e6
    return found


def stat(text: bytes) -> list[bytes]:
    """``/proc/<pid>/stat``: the fields after the name, which may hold anything, up to the one behind the memory; the
    state is field 0.
    """
    return text[text.rindex(b")") + 2 :].split(None, 22)


def state(text: bytes) -> str | None:
    """``/proc/<pid>/stat``: the state, as the conventions call it."""
    at = text.rindex(b")") + 2
    return _STATES.get(text[at : at + 1])
