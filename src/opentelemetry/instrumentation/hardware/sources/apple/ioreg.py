"""Apple's GPU by ``ioreg``, which every Mac has: what the driver notes in the I/O Registry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from opentelemetry.instrumentation.hardware.drivers.json import number
from opentelemetry.instrumentation.hardware.drivers.subprocess import Command, Tool
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.sources.apple.reading import GPU, Said, count, percent, said, size
from opentelemetry.instrumentation.hardware.sources.apple.running import Running

TOOL: Final = Tool("ioreg", folders=("/usr/sbin",), fix="it is part of macOS")

ARGUMENTS: Final = ["-a", "-r", "-d", "1", "-w", "0", "-c", "IOAccelerator"]

_CLASS = "AGXAccelerator"
"""How the classes of Apple's own GPUs begin; those of Intel's and AMD's say other things under the same names."""


def by(command: Command) -> Running:
    """The tool, by its command."""
    return Running(TOOL.name, command, [ARGUMENTS], parse)


def parse(text: bytes) -> Said:
    """What the tool printed: a property list.

    Raises:
        Unavailable: there is no GPU, or it is not Apple's.
        ValueError: that is nothing that can be understood.
    """
    if not text.strip():
        raise Unavailable("ioreg finds no GPU")
    entries = [*_entries(text)]
    names = [str(entry.get("IOObjectClass") or entry.get("IOClass") or "")[:40] for entry in entries]
    ours = [entry for entry, name in zip(entries, names) if name.startswith(_CLASS)]
    if not ours:
        raise Unavailable(f"ioreg finds no GPU of Apple's, but {', '.join(map(repr, names)) or 'nothing'}")
    words = ours[0].get("PerformanceStatistics")
    if not isinstance(words, dict):
        raise ValueError("ioreg says no PerformanceStatistics of the GPU")
    utilization = percent(words.get("Device Utilization %"))
    used, allocated = size(words.get("In use system memory")), size(words.get("Alloc system memory"))
    gpu = {
        "utilization.general": utilization,
        "memory.used": used,
        "errors.recovery": count(words.get("recoveryCount")),
    }
    raw = {
        "utilization": None if utilization is None else utilization * 100,
        "allocated": number(used / allocated * 100, 0, 100) if used and allocated else None,
    }
    return said({GPU: gpu}, ours[0].get("model"), raw)


def _entries(text: bytes) -> Iterator[Mapping[str, Any]]:
    import plistlib  # few programs need it

    try:
        found = plistlib.loads(text, fmt=plistlib.FMT_XML)
    except Exception as error:  # whatever a broken one makes its reader raise
        raise ValueError(f"ioreg says no property list: {error}") from None
    for entry in found if isinstance(found, list) else [found]:
        if isinstance(entry, dict):
            yield entry
