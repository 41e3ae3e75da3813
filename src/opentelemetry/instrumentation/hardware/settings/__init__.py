"""The settings: one table, read from arguments, declarative configuration and the environment.

Arguments take precedence over ``OTEL_PYTHON_HARDWARE_<NAME>``. An invalid value causes one warning, and the default is
used; of a list, only the invalid words are dropped.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final

from opentelemetry.instrumentation.hardware.catalog import CATALOG
from opentelemetry.instrumentation.hardware.catalog.presets import patterns_of, series_filter
from opentelemetry.instrumentation.hardware.model import Attributes, Metric
from opentelemetry.instrumentation.hardware.settings.log import logger
from opentelemetry.instrumentation.hardware.settings.parsing import InvalidValueError
from opentelemetry.instrumentation.hardware.settings.redaction import did_you_mean, redacted
from opentelemetry.instrumentation.hardware.settings.table import Settings

PREFIX: Final = "OTEL_PYTHON_HARDWARE_"

# ``<user>/<key>`` of the job that a process belongs to, inherited by its descendants. Set by us, not by users.
JOB: Final = PREFIX + "JOB"

SOURCE_GROUP: Final = "opentelemetry_hardware_source"  # the entry point group of third-party sources

_LOG = logger(__name__)


@dataclass(frozen=True, init=False, repr=False)
class Config(Settings):
    """The settings. None means the default. :meth:`read` parses the user's values.

    An unknown setting causes a warning, not an exception: declarative configuration calls this class directly.
    ``invalid`` has the names of those that were given an invalid value, so that their default is used.
    """

    invalid: ClassVar[frozenset[str]] = frozenset()  # no field; instances have their own
    _given: ClassVar[Mapping[str, str]] = {}
    _filters: ClassVar[dict[tuple[str, ...], Callable[[Attributes], bool] | None]] = {}

    __hash__ = None  # type: ignore[assignment]  # lists are not hashable, and generating a hash costs import time

    def __init__(self, **values: Any) -> None:
        object.__setattr__(self, "_filters", {})
        names = [row.name for row in fields(self)]
        for name in names:
            object.__setattr__(self, name, values.pop(name, None))
        for name in values:
            hint = did_you_mean(name, names, f"the settings are {', '.join(names)}")
            _LOG.warning("%s is not a setting and is ignored; %s", redacted(name), hint)

    def __repr__(self) -> str:
        given = {row.name: getattr(self, row.name) for row in fields(self)}
        return redacted(
            f"Config({', '.join(f'{name}={value!r}' for name, value in given.items() if value is not None)})"
        )

    @classmethod
    def read(
        cls, options: Mapping[str, object] | None = None, environ: Mapping[str, str] | None = None, flags: bool = False
    ) -> Config:
        """Parse the settings. Never raises: an invalid value causes a warning, and the default is used.

        Args:
            options: Settings by name; None for a setting that is not given.
            environ: Environment variables; by default those of this process.
            flags: Whether the options are flags of a command, and messages call them so.
        """
        environ = os.environ if environ is None else environ
        others = dict(options or {})
        values: dict[str, Any] = {}
        names: dict[str, str] = {}
        invalid: set[str] = set()
        for row in fields(cls):
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
        if "counter_origin" not in values:
            preference = environ.get("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "").strip().lower()
            values["counter_origin"] = "start" if preference == "delta" else "boot"
        _warn_about_unknown_variables([*names], environ)
        config = cls(**values, **others)
        object.__setattr__(config, "_given", names)
        object.__setattr__(config, "invalid", frozenset(invalid))
        return config

    def name_of(self, setting: str) -> str:
        """Return the name by which a setting was given, for messages: a flag, an argument or a variable."""
        return self._given.get(setting, PREFIX + setting.upper())

    def changed(self, **values: Any) -> Config:
        """Return the settings with other values for some."""
        config = Config(**{row.name: getattr(self, row.name) for row in fields(self)} | values)
        object.__setattr__(config, "_given", self._given)
        object.__setattr__(config, "invalid", self.invalid)
        return config

    def simulates(self, source: str) -> bool:
        """Whether the GPUs of a source are simulated."""
        return self.simulate is not None and self.simulate.vendor == source

    @property
    def interval(self) -> float:
        """Seconds between two readings; 0 to read only when a collection is due."""
        return 2.0 if self.sample_interval is None else self.sample_interval

    @property
    def exit_seconds(self) -> float:
        """Most seconds for which the end of a program without other metrics waits for the last export."""
        return 1.0 if self.exit_timeout is None else self.exit_timeout

    def wants(self, metric: Metric) -> bool:
        """Whether the metric is reported."""
        if any(not pattern.attribute for pattern in patterns_of(metric, self.exclude_metrics)):
            return False
        return not metric.opt_in or metric.opt_in in (self.detail or ()) or self.names(metric)

    def names(self, metric: Metric) -> bool:
        """Whether ``INCLUDE_METRICS`` names the metric, which then has its extra series as well."""
        return bool(patterns_of(metric, self.include_metrics))

    def exported(self, metric: Metric) -> Callable[[Attributes], bool] | None:
        """Return whether a series of a wanted metric is exported; None if all are."""
        if metric.key not in self._filters:
            is_optional = metric.opt_in or metric.endpoint or metric not in CATALOG
            preset = "all" if is_optional else self.preset or "standard"
            self._filters[metric.key] = series_filter(metric, preset, self.include_metrics, self.exclude_metrics)
        return self._filters[metric.key]

    def selects(self, source: str) -> bool:
        """Whether ``SOURCES`` allows the source to be read."""
        listed = [word for word in self.sources or () if word != "auto"]
        if "-" + source in listed:
            return False
        included = [word for word in listed if not word.startswith("-")]
        return not included or source in included


def unmatched(patterns: Sequence[str], endpoints: object) -> list[str]:
    """Return the names and patterns that cannot match any metric.

    The metrics of endpoints and of third-party sources are not known in advance: if there are any, every one may match.
    """
    found = [pattern for pattern in patterns if not any(patterns_of(row, [pattern]) for row in CATALOG)]
    if not found or endpoints:
        return []
    from importlib.metadata import entry_points  # slow to import

    return [] if entry_points(group=SOURCE_GROUP) else found


def _text(words: Iterable[str]) -> str:
    """Return a list for a message. Bytes that are no UTF-8 are escaped: some handlers cannot write them."""
    return redacted(",".join(words)).encode(errors="backslashreplace").decode()


def _warn_about_unknown_variables(settings: Sequence[str], environ: Mapping[str, str]) -> None:
    """Warn about variables with our prefix that are not settings, such as misspelt ones."""
    known = {JOB, *(PREFIX + name.upper() for name in settings)}
    for variable in sorted(environ):
        if variable in known or not variable.upper().startswith(PREFIX) or not environ[variable].strip():
            continue
        otherwise = "'otel-hardware run --help-settings' lists all settings"
        hint = did_you_mean(variable.upper().removeprefix(PREFIX), map(str.upper, settings), otherwise, PREFIX)
        _LOG.warning("%s is not a setting and is ignored; %s", redacted(variable), hint)
