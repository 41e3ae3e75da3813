"""The newest values of each figure, for graphs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.cli import figures
from opentelemetry.instrumentation.hardware.cli.figures import Device
from opentelemetry.instrumentation.hardware.model import Number
from opentelemetry.instrumentation.hardware.pipeline.view import View

_LENGTH = 400
"""Values of each figure; a graph shows two in each column."""

Key = tuple[str, str]
"""What a figure is of, and its name."""


class History:
    """The newest values of each figure; None where one was unknown."""

    def __init__(self) -> None:
        self._values: dict[Key, deque[float | None]] = {}
        self._count = 0

    def add(self, view: View, devices: Sequence[Device]) -> None:
        """Add the figures of a view and its devices."""
        found = dict(_figures(view, devices))
        self._count = min(self._count + 1, _LENGTH)
        for key in found.keys() - self._values.keys():
            self._values[key] = deque([None] * (self._count - 1), _LENGTH)
        for key, values in [*self._values.items()]:
            values.append(found.get(key))
            if key not in found and not any(value is not None for value in values):
                del self._values[key]

    def of(self, kind: str, name: str = "") -> Sequence[float | None]:
        """Return the values of a figure, oldest first."""
        return [*self._values.get((kind, name), ())]


def _figures(view: View, devices: Sequence[Device]) -> Iterator[tuple[Key, float | None]]:
    for device in devices:
        yield ("device", device.id), device.busy
    yield ("cpu", ""), figures.cpu_busy(view)
    yield ("memory", ""), ratio(figures.used_memory(view), figures.total(view, c.SYSTEM_MEMORY_LIMIT))
    for kind, flows in (("disk", figures.disks(view)), ("network", figures.networks(view))):
        if flows:
            yield (kind, ""), sum(flow.inward + flow.outward for flow in flows)


def ratio(part: Number | None, whole: Number | None) -> float | None:
    """Return the share of a whole; None if it is unknown."""
    return part / whole if part is not None and whole else None
