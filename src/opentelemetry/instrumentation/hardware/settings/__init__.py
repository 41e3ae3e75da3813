"""The settings: one table, read from arguments, declarative configuration and the environment.

Arguments take precedence over ``OTEL_PYTHON_HARDWARE_<NAME>``. An invalid value causes one warning, and the default is
used; of a list, only the invalid words are dropped.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from opentelemetry.instrumentation.hardware.catalog import CATALOG
from opentelemetry.instrumentation.hardware.catalog.presets import patterns_of, series_filter
from opentelemetry.instrumentation.hardware.model import Attributes, Metric
from opentelemetry.instrumentation.hardware.settings.reading import PREFIX, SOURCE_GROUP, meant, read
from opentelemetry.instrumentation.hardware.settings.redaction import redacted
from opentelemetry.instrumentation.hardware.settings.table import Settings

__all__ = ("PREFIX", "SOURCE_GROUP", "Config")

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, init=False, repr=False)
class Config(Settings):
    """The settings. None means the default. :meth:`read` parses the user's values.

    An unknown setting causes a warning, not an exception: declarative configuration calls this class directly.
    ``invalid`` has the names of those that were given an invalid value, so that their default is used.
    """

    invalid: ClassVar[frozenset[str]] = frozenset()  # no field; instances have their own
    _given: ClassVar[Mapping[str, str]] = {}

    __hash__ = None  # type: ignore[assignment]  # lists are not hashable, and generating a hash costs import time

    def __init__(self, **values: Any) -> None:
        names = [row.name for row in fields(self)]
        for name in names:
            object.__setattr__(self, name, values.pop(name, None))
        for name in values:
            likely = meant(name, names)
            hint = f"did you mean {likely}?" if likely else f"the settings are {', '.join(names)}"
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
        given = read(fields(cls), options or {}, environ, flags)
        values = given.values
        if "counter_origin" not in values:
            preference = environ.get("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "").strip().lower()
            values["counter_origin"] = "start" if preference == "delta" else "boot"
        config = cls(**values)
        object.__setattr__(config, "_given", given.names)
        object.__setattr__(config, "invalid", given.invalid)
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
        is_optional = metric.opt_in or metric.endpoint or metric not in CATALOG
        preset = "all" if is_optional else self.preset or "standard"
        return series_filter(metric, preset, self.include_metrics, self.exclude_metrics)

    def selects(self, source: str) -> bool:
        """Whether ``SOURCES`` allows the source to be read."""
        listed = [word for word in self.sources or () if word != "auto"]
        if "-" + source in listed:
            return False
        included = [word for word in listed if not word.startswith("-")]
        return not included or source in included
