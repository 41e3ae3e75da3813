"""The fields of a GPU that are sampled: counters, and the power of its components."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.accelerators.fields import Field
from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.model import Series
from opentelemetry.instrumentation.hardware.sources.nvidia import fields as f
from opentelemetry.instrumentation.hardware.sources.nvidia.calls import NEVER, NvmlDevice, Values
from opentelemetry.instrumentation.hardware.sources.nvidia.components import component

_MOST_FAILURES: Final = 5  # failures at the start after which a rate is integrated until a counter answers

_SPAN_COUNTERS: Final = (c.HW_ENERGY, c.HW_GPU_TIME, c.HW_GPU_THROTTLE_TIME)

# Seconds before the call from which a time stamp must be that of the update of the counter.
_LEAST_AGE: Final = 0.002

# Seconds. No counter is updated more seldom than once per second, so an older time stamp is wrong.
_LARGEST_AGE: Final = 1.0


class Counters:
    """The sampled fields of a GPU.

    Args:
        gpu: The GPU. Its ``counters`` are the series that it counts itself.

    Attributes:
        powers: Milliwatts of components, and of the GPU at an instant, since this was cleared.
    """

    def __init__(self, gpu: NvmlDevice, sampled: Mapping[tuple[int, int], Field]) -> None:
        self._gpu = gpu
        self._sampled = sampled
        self._counted: set[Field] = set()
        self._failures: dict[Field, int] = {}
        self._late: set[Field] = set()
        self._moving: set[Series] = set()
        self._extra: dict[tuple[int, int], Device] = {}
        self._of_spans = {at: field for at, field in sampled.items() if field.series.metric in _SPAN_COUNTERS}
        self._has_stamps = False
        self.powers: dict[Device, object] = {}

    def identify(self, has_instant: bool) -> None:
        """Create the components, of which it is not known yet whether the GPU has them."""
        self._extra = {at: component(self._gpu, name, name) for at, name in f.SCOPES.items()}
        if has_instant:
            self._extra[f.INSTANT] = self._gpu

    def compared(self, rates: Values | None) -> Values | None:
        """Return the values of GPM. A counter that stays 0 while its rate does not is not used."""
        pairs = (rates or {}).items()
        self._moving = {field.series for field, rate in pairs if isinstance(rate, float) and rate > 0}
        return rates

    def read(self) -> Values:
        """Return the counters. The first answer, "not supported", or several failures decide whether one exists.

        Raises:
            DriverError: The call failed.
        """
        try:
            answers = self._gpu.field_values((*self._sampled, *self._extra))
        except DriverError as error:
            self._decide([(error.code, error.text)] * len(self._sampled))
            raise
        self._decide(answers)
        moving, self._moving = self._moving, set()
        found: dict[Field, object] = {}
        for field, (code, value) in zip(self._sampled.values(), answers):
            if code:
                self._gpu.unsupported[field.series] = value
            elif value == 0 and field.series in moving:
                self._gpu.counters.discard(field.series)  # this counter does not count, so the rate is integrated
            elif field.series in self._gpu.counters:
                found[field] = value
        for at, (code, value) in zip([*self._extra], answers[len(self._sampled) :]):
            if not code:
                self.powers[self._extra[at]] = value
            elif code in NEVER:
                del self._extra[at]
        return found

    def read_for_spans(self) -> Values:
        """Return the counters that spans need, and learn when that of energy was updated.

        Raises:
            DriverError: The call failed.
        """
        asked = time.time()
        found: dict[Field, object] = {}
        for field, (code, value, stamp) in zip(
            self._of_spans.values(), self._gpu.stamped_values(tuple(self._of_spans))
        ):
            if not code and field.series in self._gpu.counters:
                found[field] = value
                if field.series.metric is c.HW_ENERGY:
                    updated = stamp / 1e6
                    # Some drivers give the time of the call instead.
                    self._has_stamps |= asked - _LARGEST_AGE < updated < asked - _LEAST_AGE
                    is_plausible = asked - _LARGEST_AGE < updated < asked + _LEAST_AGE
                    self._gpu.updated = updated if self._has_stamps and is_plausible else None
        return found

    def _decide(self, answers: Sequence[Sequence[Any]]) -> None:
        for field, (code, _) in zip(self._sampled.values(), answers):
            if not code and field in self._late:  # its total continues the integral
                self._late.remove(field)
                self._gpu.counters.add(field.series)
                self._gpu.integrated.discard(field.series)
            if not code and field.series in self._gpu.counters:
                self._counted.add(field)
            elif field not in self._counted:
                self._failures[field] = self._failures.get(field, 0) + 1
                if code in NEVER:
                    self._gpu.counters.discard(field.series)
                elif code and self._failures[field] == _MOST_FAILURES:
                    self._gpu.counters.discard(field.series)
                    self._late.add(field)
