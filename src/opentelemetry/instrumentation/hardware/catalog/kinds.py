"""Constructors of metrics, one per instrument kind."""

from __future__ import annotations

from functools import partial
from typing import Final

from opentelemetry.instrumentation.hardware.model import Kind, Metric, Scope, Window


def _metric(
    kind: Kind,
    name: str,
    unit: str,
    attributes: tuple[str, ...],
    help: str,  # noqa: A002
    *,
    source: str,
    window: Window = Window.LAST,
    scope: Scope = Scope.HOST,
    opt_in: str = "",
    opt_in_extras: str = "",
    standard: bool = True,
    dips: bool = False,
) -> Metric:
    """Create a metric, with the arguments in the order of a row of the catalog; see :class:`.model.Metric`."""
    return Metric(name, kind, unit, help, attributes, window, scope, opt_in, opt_in_extras, source, standard, dips=dips)


counter: Final = partial(_metric, Kind.COUNTER)  # a total that only increases; an observable counter

# A quantity that can be summed over its attributes; an observable up-down counter.
updown: Final = partial(_metric, Kind.UPDOWN)

gauge: Final = partial(_metric, Kind.GAUGE)  # any other value; an observable gauge

# A value of each of many events; a histogram that is recorded when they happen, and not read from a source.
histogram: Final = partial(_metric, Kind.HISTOGRAM)
