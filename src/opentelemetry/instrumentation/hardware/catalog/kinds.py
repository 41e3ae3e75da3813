"""Constructors of catalog rows, one per instrument kind."""

from __future__ import annotations

from opentelemetry.instrumentation.hardware.model import Kind, Metric, Scope, Window


def counter(
    name: str,
    unit: str,
    attributes: tuple[str, ...],
    help: str,  # noqa: A002
    *,
    source: str,
    scope: Scope = Scope.HOST,
    opt_in: str = "",
    opt_in_extras: str = "",
    standard: bool = True,
    dips: bool = False,
) -> Metric:
    """A total that only increases; exported as an observable counter."""
    return Metric(
        name,
        Kind.COUNTER,
        unit,
        help,
        attributes,
        Window.LAST,
        scope,
        opt_in,
        opt_in_extras,
        source,
        standard,
        dips=dips,
    )


def updown(
    name: str,
    unit: str,
    attributes: tuple[str, ...],
    help: str,  # noqa: A002
    *,
    source: str,
    scope: Scope = Scope.HOST,
    opt_in: str = "",
    opt_in_extras: str = "",
    standard: bool = True,
) -> Metric:
    """A quantity that may be summed over its attributes; exported as an observable up-down counter."""
    return Metric(
        name, Kind.UPDOWN, unit, help, attributes, Window.LAST, scope, opt_in, opt_in_extras, source, standard
    )


def gauge(
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
) -> Metric:
    """A value of the window; exported as an observable gauge."""
    return Metric(name, Kind.GAUGE, unit, help, attributes, window, scope, opt_in, opt_in_extras, source, standard)
