"""NVIDIA's GPUs as they stand at one moment, for formulas that are not ours: no means over a window but GPM's own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.fields import QUANTITIES, Reading
from opentelemetry.instrumentation.hardware.model import Number, Point
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources.nvidia import Nvidia
from opentelemetry.instrumentation.hardware.sources.nvidia.calls import Failed, Read
from opentelemetry.instrumentation.hardware.sources.nvidia.gpu import Gpu
from opentelemetry.instrumentation.hardware.sources.nvidia.nvml import Nvml
from opentelemetry.instrumentation.hardware.wandb import probe as raw

GPM: Final = (2, 3, 5, 7, 10, 11, 12, 13, 20, 21, 60, 61)
"""``NVML_GPM_METRIC_*`` that are read: shares in percent, from 20 on MiB a second."""

_DEVICE_MEMORY = 2
"""``NVML_MEMORY_LOCATION_DEVICE_MEMORY``."""

_VOLATILE = 0
"""``NVML_VOLATILE_ECC``: since the driver was loaded."""

_WHOSE = (c.HW_ID, c.HW_NAME, c.HW_TYPE, c.HW_PARENT)
"""The attributes that say which device a series is of."""

_QUANTITY: Final = {
    (rows[0].metric, frozenset(rows[0].attributes.items())): quantity for quantity, rows in QUANTITIES.items()
}
"""The quantity that a series carries, by its row and what it has beside the device."""


class Moment(NamedTuple):
    """What is known of one GPU at one moment.

    Attributes:
        said: by quantity of :data:`~..devices.QUANTITIES`, in base units; and ``volatile.corrected`` and
            ``volatile.uncorrected``, the errors of the device's memory since its driver was loaded.
        gpm: by number of :data:`GPM`, over the time since the moment before.
        used: whether the observed process or one of its children uses it.
    """

    said: Mapping[str, Number]
    gpm: Mapping[int, float]
    used: bool


class _Asked(Gpu):
    """A GPU that is asked for nothing but what belongs to a :class:`Moment`."""

    def __init__(self, nvml: Nvml, name: str) -> None:
        super().__init__(nvml, name)
        self._calls = self._reads()[0]
        self._over: dict[int, float] = {}

    def _reads(self) -> tuple[list[Read], list[Read]]:
        return [
            Read(self._utilization),
            Read(self._memory),
            Read(lambda: {"temperature.gpu": self.get("Temperature", 0)}),
            Read(lambda: {"power": self.get("PowerUsage") / 1000}),
            Read(self._enforced),
            *(self._clock(domain) for domain in ("sm", "memory", "graphics")),
            self._engine("Encoder", "encoder"),
            Read(lambda: {"fan.ratio": self.get("FanSpeed_v2", 0) / 100}),
            *(self._volatile(number, kind) for number, kind in enumerate(("corrected", "uncorrected"))),
            Read(self._gpm),
        ], []

    def _volatile(self, number: int, kind: str) -> Read:
        def ask() -> Reading:
            return {f"volatile.{kind}": self.get("MemoryErrorCounter", number, _VOLATILE, _DEVICE_MEMORY)}

        return Read(ask)

    def _gpm(self) -> Reading:
        said = self.nvml.gpm(self.name, GPM) or ()
        self._over = {number: value for number, (code, value) in zip(GPM, said) if not code and 0 <= value < math.inf}
        return {}

    def now(self, used: bool) -> Moment:
        """Ask it. One that is out of order says nothing, and is looked up anew the next time."""
        self._over = {}
        try:
            said = self._said(self._calls)
        except Failed:
            self.nvml.forget(self.name)
            self._calls = self._reads()[0]
            return Moment({}, {}, used)
        return Moment(_numbers(said), self._over, used)


class Raw(raw.Raw[Nvidia, Moment]):
    """The GPUs that the settings choose.

    Where the source asks the library, each is asked by calls of its own; where it is nvidia-smi, its last output has
    to do.
    """

    def __init__(self, config: Config, pid: int) -> None:
        super().__init__(Nvidia, config, pid)
        self._nvml: Nvml | None = None
        self._asked: dict[int, _Asked] = {}

    def _open(self) -> Nvidia:
        source = super()._open()
        self._nvml = source.binding()
        if self._nvml is not None:
            self._held.callback(self._nvml.release)
        return source

    def _said(self, source: Nvidia, points: Sequence[Point]) -> Mapping[int, Moment]:
        """Each GPU by its index."""
        return self._moments([*points, *source.read_slow()])

    def _moments(self, points: Sequence[Point]) -> dict[int, Moment]:
        indices = _indices(points)
        used = {indices.get(device) for device in _users(points)}
        said = _said(points) if self._nvml is None else {}
        found = {}
        for device in _wholes(points):
            index = indices[device]
            if self._nvml is None:
                found[index] = Moment(said.get(device, {}), {}, index in used)
                continue
            if index not in self._asked:
                self._asked[index] = _Asked(self._nvml, str(index))
            found[index] = self._asked[index].now(index in used)
        return found

    def close(self) -> None:
        """Let go of the GPUs."""
        self._nvml = None
        self._asked = {}
        super().close()


def _facts(points: Iterable[Point]) -> Iterator[Mapping[str, str | int]]:
    """What each device is; without those that never answered."""
    infos = (series.attributes for series, _ in points if series.metric is c.HW_GPU_INFO)
    return (facts for facts in infos if c.GPU_INDEX in facts)


def _indices(points: Iterable[Point]) -> dict[str, int]:
    """The index of each device; that of a part is its GPU's."""
    return {str(each[c.HW_ID]): int(each[c.GPU_INDEX]) for each in _facts(points)}


def _wholes(points: Iterable[Point]) -> list[str]:
    """The devices that are no parts."""
    return [str(each[c.HW_ID]) for each in _facts(points) if each[c.GPU_TYPE] != "partition"]


def _users(points: Iterable[Point]) -> set[str]:
    """The devices that the observed process or one of its children uses."""
    rows = (c.PROCESS_GPU_MEMORY_USAGE, c.PROCESS_GPU_UTILIZATION)
    return {str(series.attributes[c.HW_ID]) for series, _ in points if series.metric in rows}


def _said(points: Iterable[Point]) -> dict[str, dict[str, Number]]:
    """What points say of each device; what they say of its first fan is said of itself."""
    found: dict[str, dict[str, Number]] = {}
    for series, value in points:
        beside = {name: word for name, word in series.attributes.items() if name not in _WHOSE}
        quantity = _QUANTITY.get((series.metric, frozenset(beside.items())))
        if quantity is not None and isinstance(value, (int, float)):
            found.setdefault(str(series.attributes[c.HW_ID]).removesuffix("/fan0"), {})[quantity] = value
    return found


def _numbers(said: Reading) -> dict[str, Number]:
    return {quantity: value for quantity, value in said.items() if isinstance(value, (int, float))}
