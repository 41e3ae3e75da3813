"""Reads the settings from arguments, declarative configuration and the environment."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field
from typing import Any, Final, NamedTuple

from opentelemetry.instrumentation.hardware.catalog import CATALOG
from opentelemetry.instrumentation.hardware.catalog.presets import patterns_of
from opentelemetry.instrumentation.hardware.settings.parsing import InvalidValueError
from opentelemetry.instrumentation.hardware.settings.redaction import redacted

PREFIX: Final = "OTEL_PYTHON_HARDWARE_"

SOURCE_GROUP: Final = "opentelemetry_hardware_source"  # the entry point group of third-party sources

_JOB: Final = PREFIX + "JOB"  # set by this package in the environment of child processes; not a setting

_LOG = logging.getLogger(__name__)


class Given(NamedTuple):
    """What the user has set.

    Attributes:
        values: The valid values by setting, and the options that are no settings.
        names: The name by which each setting was given, for messages: a flag, an argument or a variable.
        invalid: The settings that were given an invalid value, so that their default is used.
    """

    values: dict[str, Any]
    names: dict[str, str]
    invalid: frozenset[str]


def read(
    rows: Sequence[Field[Any]], options: Mapping[str, object], environ: Mapping[str, str], flags: bool = False
) -> Given:
    """Parse the settings. Never raises: an invalid value causes a warning.

    Args:
        rows: The settings.
        options: Settings by name; None for a setting that is not given.
        environ: Environment variables.
        flags: Whether the options are flags of a command, and messages call them so.
    """
    others = dict(options)
    values: dict[str, Any] = {}
    names: dict[str, str] = {}
    invalid: set[str] = set()
    for row in rows:
        variable = PREFIX + row.name.upper()
        name, value = row.name, others.pop(row.name, None)
        if value is None:
            name, value = variable, environ.get(variable, "").strip() or None
        elif flags:
            name = "--" + row.name.replace("_", "-")
        names[row.name] = name
        default = row.metadata["default"]
        if value is None or (value == default and value in ("auto", "none")):
            continue
        try:
            values[row.name] = row.metadata["read"](value)
        except InvalidValueError as error:
            if error.valid:
                values[row.name] = error.valid
            else:
                invalid.add(row.name)
            used = _text(error.valid) or f"the default ({default})"
            _LOG.warning("%s: %s; using %s", name, error, used)
    for setting in ("include_metrics", "exclude_metrics"):
        patterns = values.get(setting) or ()
        dropped = unmatched(patterns, values.get("openmetrics"))
        if dropped:
            values[setting] = [pattern for pattern in patterns if pattern not in dropped] or None
            _LOG.warning(
                "%s: no metric matches %s; using %s; 'otel-hardware metrics' lists all metrics",
                names[setting],
                redacted(", ".join(map(repr, dropped))),
                _text(values[setting] or ()) or "the default (none)",
            )
        if setting in values and not values[setting]:
            invalid.add(setting)
    _warn_about_unknown_variables([row.name for row in rows], environ)
    return Given({**values, **others}, names, frozenset(invalid))


def unmatched(patterns: Sequence[str], endpoints: object) -> list[str]:
    """Return the patterns that cannot match any metric.

    Args:
        patterns: Metric names or patterns.
        endpoints: The endpoints to scrape. Their metrics, and those of third-party sources, are not known in advance:
            if there are any, every pattern may match.
    """
    found = [pattern for pattern in patterns if not any(patterns_of(row, [pattern]) for row in CATALOG)]
    if not found or endpoints:
        return []
    from importlib.metadata import entry_points  # slow to import

    return [] if entry_points(group=SOURCE_GROUP) else found


def meant(name: str, settings: Iterable[str]) -> str:
    """Return the setting that a misspelt name may mean; "" if none is similar."""
    from difflib import get_close_matches  # rarely needed, and its import takes a millisecond

    return next(iter(get_close_matches(name.lower(), [*settings], 1)), "")


def _text(words: Iterable[str]) -> str:
    """Return a list for a message. Bytes that are no UTF-8 are escaped: some handlers cannot write them."""
    return redacted(",".join(words)).encode(errors="backslashreplace").decode()


def _warn_about_unknown_variables(settings: Sequence[str], environ: Mapping[str, str]) -> None:
    """Warn about variables with our prefix that are not settings, such as misspelt ones."""
    known = {_JOB, *(PREFIX + name.upper() for name in settings)}
    for variable in sorted(environ):
        if variable in known or not variable.upper().startswith(PREFIX) or not environ[variable].strip():
            continue
        likely = meant(variable.upper().removeprefix(PREFIX), settings)
        hint = (
            f"did you mean {PREFIX}{likely.upper()}?"
            if likely
            else "'otel-hardware run --help-settings' lists all settings"
        )
        _LOG.warning("%s is not a setting and is ignored; %s", redacted(variable), hint)
