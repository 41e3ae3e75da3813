"""Sentences about what devices do not support."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.model import Series

ALL_SUSPENDED: Final = (
    "hw.*: all devices are suspended, and are not woken; they are reported as soon as a program uses them"
)

HOST_PIDS: Final = (
    "the driver reports processes by the host's PIDs, which cannot be matched from inside this container; "
    "share the host's PID namespace (--pid=host, hostPID: true)"
)


def missing(devices: Iterable[Device]) -> Iterator[str]:
    """Yield which devices are not read, and which metrics the others do not support."""
    awake = []
    for device in devices:
        if device.trouble:
            remedy = device.remedy()
            yield f"{device.name} does not respond: {device.trouble}{remedy and '; '}{remedy}"
        elif device.is_suspended:
            yield f"{device.name} is suspended, and is not woken to be read"
        else:
            awake.append((device.name, device.unsupported))
    yield from sentences(awake)


def sentences(devices: Sequence[tuple[str, Mapping[Series | str, str]]]) -> Iterator[str]:
    """Yield a sentence for each reason why metrics are missing, with the names of the devices that it applies to."""
    names: dict[tuple[Series | str, str], list[str]] = {}
    for device, reasons in devices:
        for series, reason in reasons.items():
            names.setdefault((series, reason), []).append(device)
    alike: dict[tuple[str, tuple[str, ...]], list[Series | str]] = {}
    for (series, reason), affected in names.items():
        alike.setdefault((reason, tuple(affected)), []).append(series)
    for (reason, affected_), missing in alike.items():
        where = "" if len(affected_) == len(devices) else f" of {', '.join(affected_)}"
        yield f"{_metrics(missing)}{where}: {reason}"


def _metrics(missing: Sequence[Series | str]) -> str:
    """Format metrics with the attributes that are missing: ``hw.temperature (gpu, memory)``."""
    words: dict[str, list[str]] = {}
    for series in missing:
        if isinstance(series, str):
            words.setdefault(series, [])
        else:
            words.setdefault(series.metric.name, []).append(" ".join(map(str, series.attributes.values())))
    return ", ".join(f"{name} ({', '.join(found)})" if any(found) else name for name, found in words.items())
