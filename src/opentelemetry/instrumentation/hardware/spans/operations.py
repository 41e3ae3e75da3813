"""EnergyByOperation: the metric ``hw.span.energy``, the joules of spans by name, kind and model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from opentelemetry.metrics import Meter
from opentelemetry.trace import SpanKind, set_span_in_context

from opentelemetry.instrumentation.hardware import catalog as c

_MOST: Final = 100  # operations with series of their own. The others have the name "other".

_BOUNDARIES: Final = (0.1, 1.0, 10.0, 100.0, 1000.0, 10000.0)  # joules

# The name and kind of a span, and its ``gen_ai.request.model``.
Operation: TypeAlias = "tuple[str, SpanKind, object]"


class EnergyByOperation:
    """The histogram of one MeterProvider."""

    def __init__(self, meter: Meter) -> None:
        metric = c.SPAN_ENERGY_BY_OPERATION
        self._histogram = meter.create_histogram(
            metric.name, metric.unit, metric.help, explicit_bucket_boundaries_advisory=_BOUNDARIES
        )
        self._operations: dict[Operation, Mapping[str, str]] = {}

    def record(self, joules: float, span: Any, operation: Operation) -> None:
        """Add the energy of a span, with the span as exemplar."""
        attributes = self._operations.get(operation)
        if attributes is None:
            name, kind, model = operation
            is_full = len(self._operations) >= _MOST
            attributes = {c.SPAN_NAME: "other" if is_full else name, c.SPAN_KIND: kind.name.lower()}
            if model is not None and not is_full:
                attributes[c.REQUEST_MODEL] = str(model)
            if not is_full:
                self._operations[operation] = attributes
        self._histogram.record(joules, attributes, set_span_in_context(span))
