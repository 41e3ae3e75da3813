"""The newest values of each figure, for graphs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.cli import figures, host_figures
from opentelemetry.instrumentation.hardware.cli.figures import Device
from opentelemetry.instrumentation.hardware.model import Number
from opentelemetry.instrumentation.hardware.pipeline.view import View

_LENGTH = 400  # values of each figure; a graph shows two in each column

Key = tuple[str, str]  # what a figure is of, and its name


class History:
    """The newest values of each figure; None where one was unknown."""

    def __init__(self) -> None:
        self._values: dict[Key, deque[float | None]] = {}
        self._times: deque[float] = deque(maxlen=_LENGTH)

    def add(self, view: View, devices: Sequence[Device], more: Mapping[Key, float | None]) -> None:
        """Add the figures of a view and its devices, and more."""
        found = {**dict(_figures(view, devices)), **more}
        self._times.append(view.time)
        for key in found.keys() - self._values.keys():
            self._values[key] = deque([None] * (len(self._times) - 1), _LENGTH)
        for key, values in [*self._values.items()]:
            values.append(found.get(key))
            if key not in found and not any(value is not None for value in values):
                del self._values[key]

    def of(self, kind: str, name: str = "") -> Sequence[float | None]:
        """Return the values of a figure, oldest first."""
        return [*self._values.get((kind, name), ())]

    def seconds(self, width: int) -> float:
        """Return the seconds that a graph of so many columns covers; 0 if that is unknown yet."""
        recent = [*self._times][-2 * width :]
        return 2 * width * (recent[-1] - recent[0]) / (len(recent) - 1) if len(recent) > 1 else 0.0


def _figures(view: View, devices: Sequence[Device]) -> Iterator[tuple[Key, float | None]]:
    for device in devices:
        yield ("device", device.id), device.busy
        yield ("device memory", device.id), ratio(device.used, device.total)
        yield ("power", device.id), device.power
        yield ("temperature", device.id), device.temperature
        yield ("clock", device.id), device.clock
    if devices:
        for value, attributes in view.points(c.HW_GPU_UTILIZATION):
            if attributes[c.GPU_TASK] in ("sm", "tensor", "dram"):
                yield (str(attributes[c.GPU_TASK]), str(attributes[c.HW_ID])), value
        for (device_id, link), rates in figures.links(view).items():
            yield (link, device_id), sum(rates.values())
    yield ("cpu", ""), host_figures.cpu_busy(view)
    yield ("memory", ""), ratio(host_figures.used_memory(view), figures.total(view, c.SYSTEM_MEMORY_LIMIT))
    for kind, flows in (("disk", host_figures.disks(view)), ("network", host_figures.networks(view))):
        if flows:
            yield (kind, ""), sum(flow.inward + flow.outward for flow in flows)


def ratio(part: Number | None, whole: Number | None) -> float | None:
    """Return the share of a whole; None if it is unknown."""
    return part / whole if part is not None and whole else None
