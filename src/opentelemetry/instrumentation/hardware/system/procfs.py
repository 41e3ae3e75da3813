"""Parsers of files in ``/proc``: each takes the content of one file. See proc(5) and the kernel's admin guide.

A content in another format raises ValueError, IndexError or OverflowError, and the reading of the source fails.

https://docs.kernel.org/filesystems/proc.html, https://docs.kernel.org/admin-guide/iostats.html
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence

from opentelemetry.instrumentation.hardware.system.machine import Disk, Interface, Memory, Swap

# Clock ticks per second, the unit of CPU time in ``/proc``.
TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100

PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096  # bytes of a page

_SECTOR = 512  # bytes of a sector in ``/proc/diskstats``, independent of the device's sector size

# ``cpu.mode`` and its column in ``/proc/stat``. guest and guest_nice are included in user and nice.
_MODES = (("user", 1), ("nice", 2), ("system", 3), ("idle", 4), ("iowait", 5), ("steal", 8))

# Process states of the semantic conventions, which have no names for disk sleep and idle kernel threads.
_STATES = {
    b"R": "running",
    b"S": "sleeping",
    b"D": "sleeping",
    b"I": "sleeping",
    b"T": "stopped",
    b"t": "stopped",
    b"Z": "defunct",
}


def lines(text: bytes) -> list[bytes]:
    """The complete lines of a file. An incomplete last line could end with an incomplete number."""
    return text[: text.rfind(b"\n") + 1].splitlines()


def entry(text: bytes, label: bytes, end: bytes = b"\n") -> int | None:
    """The number between a label and the end of its line. The label begins with the line feed before it."""
    at = text.find(label)
    begin = at + len(label)
    until = text.find(end, begin)
    return None if at < 0 or until < 0 else int(text[begin:until])


def cpu_times(columns: Sequence[bytes]) -> dict[str, float]:
    """A cpu line of ``/proc/stat``: seconds by ``cpu.mode``; empty if the kernel counts none, as gVisor."""
    times = {mode: int(columns[at]) / TICKS for mode, at in _MODES if at < len(columns)}
    if len(columns) > 7:
        times["interrupt"] = (int(columns[6]) + int(columns[7])) / TICKS
    return times if any(times.values()) else {}


def meminfo(text: bytes) -> tuple[Memory | None, Swap | None]:
    """``/proc/meminfo``. That of lxcfs can have more memory available, or more swap free, than there is."""
    text = b"\n" + text
    total, available = _bytes(text, b"\nMemTotal:"), _bytes(text, b"\nMemAvailable:")
    if available is None or (total is not None and available > total):  # before Linux 3.14, or lxcfs
        parts = [_bytes(text, label) for label in (b"\nMemFree:", b"\nBuffers:", b"\nCached:")]
        available = None if None in parts else sum(part or 0 for part in parts)
    memory = None
    if total and available is not None and available <= total:
        memory = Memory(total, available)
    swap = None
    total, free = _bytes(text, b"\nSwapTotal:"), _bytes(text, b"\nSwapFree:")
    if total is not None and free is not None and free <= total:
        swap = Swap(total, free)
    return memory, swap


def _bytes(text: bytes, label: bytes) -> int | None:
    """A line of ``/proc/meminfo``, which is in KiB, in bytes."""
    kib = entry(text, label, b" kB\n")
    return None if kib is None or kib < 0 else kib << 10


def vmstat(text: bytes) -> dict[str, int]:
    """``/proc/vmstat``, with pgminfault added: the kernel counts major faults in pgfault as well.

    It counts a major fault when it begins, and in pgfault when it ends. So pgminfault can fall by those in progress.
    """
    counts = {words[0].decode(): int(words[1]) for line in lines(text) if len(words := line.split()) == 2}
    if "pgfault" in counts and "pgmajfault" in counts:
        counts["pgminfault"] = counts["pgfault"] - counts["pgmajfault"]
    return counts


def diskstats(text: bytes, is_wanted: Callable[[str], bool]) -> Iterator[tuple[str, Disk]]:
    """``/proc/diskstats``: the wanted disks by name."""
    for line in lines(text):
        columns = line.split(None, 3)
        if len(columns) > 3 and is_wanted(name := columns[2].decode()):
            counts = [int(column) for column in columns[3].split(None, 10)[:10]]
            if len(counts) < 10:
                continue
            reads, _, sectors_read, read_ms, writes, _, sectors_written, write_ms, _, busy_ms = counts
            seconds = read_ms / 1e3, write_ms / 1e3, busy_ms / 1e3
            yield name, Disk(sectors_read * _SECTOR, sectors_written * _SECTOR, reads, writes, *seconds)


def net_dev(text: bytes, names: Sequence[str] | None) -> Iterator[tuple[str, Interface]]:
    """``/proc/net/dev``: the named interfaces; all without names."""
    for line in lines(text)[2:]:
        label, _, rest = line.partition(b":")
        name = label.strip().decode(errors="backslashreplace")  # the kernel accepts any bytes
        if names is None or name in names:
            received, packets_received, errors_received, dropped_received, *_ = map(int, rest.split())
            sent, packets_sent, errors_sent, dropped_sent, *_ = map(int, rest.split()[8:])
            yield (
                name,
                Interface(
                    sent=sent,
                    received=received,
                    packets_sent=packets_sent,
                    packets_received=packets_received,
                    dropped_sent=dropped_sent,
                    dropped_received=dropped_received,
                    errors_sent=errors_sent,
                    errors_received=errors_received,
                ),
            )


def default_interfaces(*tables: bytes) -> list[str]:
    """``/proc/net/route`` and ``/proc/net/ipv6_route``: the interfaces of the default routes."""
    routes, routes6 = (table.decode(errors="replace").splitlines() for table in tables)
    found = {columns[0] for line in routes if len(columns := line.split()) > 1 and columns[1] == "00000000"}
    default = f"{0:032x} 00 "  # the kernel adds one that refuses, of the loopback interface
    found |= {line.split()[-1] for line in routes6 if line.startswith(default)} - {"lo"}
    return sorted(found)


def sockstat(text: bytes) -> dict[str, dict[str, int]]:
    """``/proc/net/sockstat`` and ``sockstat6``: counts by protocol."""
    counts = {}
    for line in lines(text):
        label, _, rest = line.decode().partition(":")
        words = rest.split()
        counts[label] = {name: int(count) for name, count in zip(words[::2], words[1::2])}
    return counts


def tcp(text: bytes) -> Mapping[str, int]:
    """``/proc/net/snmp``: the numbers of TCP by name."""
    rows = [line.decode().split()[1:] for line in lines(text) if line.startswith(b"Tcp:")]
    return dict(zip(rows[0], map(int, rows[1]))) if len(rows) == 2 else {}


def pressure(text: bytes) -> Mapping[str, float]:
    """A file of ``/proc/pressure``: seconds that some or all tasks were stalled.

    See https://docs.kernel.org/accounting/psi.html.
    """
    stalled = {}
    for line in lines(text):
        kind, _, rest = line.decode().partition(" ")
        if kind in ("some", "full"):
            stalled[kind] = int(rest.rpartition("total=")[2]) / 1e6
    return stalled


def stat(text: bytes) -> list[bytes]:
    """``/proc/<pid>/stat``: fields 3 (state) to 24 (rss) of proc_pid_stat(5), which follow the name in parentheses."""
    return text[text.rindex(b")") + 2 :].split(None, 22)


def statm(text: bytes) -> tuple[int, int] | None:
    """``/proc/<pid>/statm``: bytes of virtual and resident memory. None for a process that has ended."""
    virtual, resident = map(int, text.split(None, 2)[:2])
    return (virtual * PAGE, resident * PAGE) if virtual > 0 and resident >= 0 else None


def state(text: bytes) -> str | None:
    """``/proc/<pid>/stat``: the state, as the semantic conventions name it."""
    return _STATES.get(stat(text)[0])
