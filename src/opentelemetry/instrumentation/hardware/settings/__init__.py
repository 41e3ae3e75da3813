"""The settings: one table, read from arguments, declarative configuration and the environment.

Arguments take precedence over ``OTEL_PYTHON_HARDWARE_<NAME>``. An invalid value causes one warning, and the default is
used; of a list, only the invalid words are dropped.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, TypeVar

from opentelemetry.instrumentation.hardware.catalog import CATALOG, DETAILS
from opentelemetry.instrumentation.hardware.catalog.presets import PRESETS, patterns_of, series_filter
from opentelemetry.instrumentation.hardware.model import Attributes, Metric
from opentelemetry.instrumentation.hardware.settings.endpoints import Endpoints, Words, endpoints
from opentelemetry.instrumentation.hardware.settings.parsing import (
    Parser,
    absolute_path,
    choice,
    number,
    one_of,
    regular_expressions,
    setting,
    simulation,
    span_rule,
    words,
)
from opentelemetry.instrumentation.hardware.settings.reading import PREFIX, SOURCE_GROUP, meant, read
from opentelemetry.instrumentation.hardware.settings.redaction import redacted

__all__ = ("PREFIX", "SOURCE_GROUP", "Config")

_LOG = logging.getLogger(__name__)

T = TypeVar("T")


def _with_vendors(config: type[T]) -> type[T]:
    """Add the settings of the vendors: ``SETTINGS`` in ``sources/VENDOR/settings.py``.

    The vendors' packages are not imported: the settings are also needed where no source is read.
    """
    folder = os.path.join(os.path.dirname(os.path.dirname(__file__)), "sources")
    for vendor in iter_modules([folder]):
        spec = PathFinder.find_spec("settings", [os.path.join(folder, vendor.name)])
        if spec is not None and spec.loader is not None:
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            for name, row in module.SETTINGS.items():
                setattr(config, name, row)
                config.__annotations__[name] = "Any"
    return config


@dataclass(frozen=True, init=False, repr=False)
@_with_vendors
class Config:
    """The settings. None means the default. :meth:`read` parses the user's values.

    The settings of a vendor are in its folder, ``sources/VENDOR/settings.py``.
    An unknown setting causes a warning, not an exception: declarative configuration calls this class directly.
    ``invalid`` has the names of those that were given an invalid value, so that their default is used.
    """

    __hash__ = None  # type: ignore[assignment]  # lists are not hashable, and generating a hash costs import time

    sources: list[str] | None = setting(
        words("source names, such as host,process, or -filesystem to leave one out"),
        "auto",
        "Sources to read. auto: all sources available on this machine.",
    )
    sample_interval: float | None = setting(
        number("a number of seconds from 0 to 3600, such as 2 or 0.5", 0, 3600),
        "2",
        "Time between two reads of the sources. 0: read only when a collection is due.",
    )
    mode: str | None = setting(
        choice("process", "agent"),
        "process",
        "Where the sources are read. agent: in a child process, so that a driver that hangs or crashes cannot affect "
        "this one (Linux). It uses the same OTEL_* export settings, and also reports this process.",
    )
    exit_timeout: float | None = setting(
        number("a number of seconds from 0 to 60, such as 1 or 0.5", 0, 60),
        "1",
        "Maximum time that the exit of a program waits for the last export, if the program has no metrics of its own. "
        "Otherwise, the SDK's timeouts apply.",
    )
    reporter: str | None = setting(
        choice("auto", "always", "never"),
        "auto",
        "Whether this process reports the host and its devices. auto: one process of each job does; ranks that see "
        "different devices each report theirs. always, never: regardless of the other processes of the job.",
    )
    preset: str | None = setting(
        choice(*PRESETS),
        "standard",
        f"Series to export. {'; '.join(f'{word}: {meaning}' for word, meaning in PRESETS.items())}. "
        "'otel-hardware metrics --preset' lists and counts them.",
    )
    include_metrics: list[str] | None = setting(
        words("metric names or patterns, such as system.cpu.load_average.*", str.lower),
        "none",
        "Metrics to report although the preset or the defaults leave them out; of a default metric, also its extra "
        "series. A condition selects series: hw.gpu.utilization{hw.gpu.task=fp16}.",
    )
    exclude_metrics: list[str] | None = setting(
        words("metric names or patterns, such as system.paging.*", str.lower),
        "none",
        "Metrics not to report, or series of a metric that are not exported: hw.gpu.utilization{hw.gpu.task=jpeg}. "
        "Takes precedence over INCLUDE_METRICS, DETAIL and PRESET.",
    )
    detail: list[str] | None = setting(
        words(", ".join(DETAILS), one_of(*DETAILS)),
        "none",
        f"Groups of additional metrics. {'; '.join(f'{word}: {meaning}' for word, meaning in DETAILS.items())}.",
    )
    disk_paths: list[str] | None = setting(
        words("absolute paths, such as /,/data", absolute_path),
        "auto",
        "File systems to report, each named by a path on it. auto: permanent mounts of disks and network file systems.",
    )
    interfaces: list[str] | None = setting(
        words("interface names, such as eth0,bond0"),
        "auto",
        "Network interfaces to report. auto: those backed by a device, with bonds in place of their members.",
    )
    devices: list[str] | None = setting(
        words("indices, UUIDs and PCI addresses, such as 0,1 or GPU-8f6a", alone=("all", "visible", "process")),
        "all, or visible where a scheduler restricted them",
        "NVIDIA and AMD GPUs, Neuron devices and IPUs to report. An index counts the devices of each vendor. visible: "
        "those that CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES, NEURON_RT_VISIBLE_CORES or the "
        "container make available to the program. process: those that the program and its children use. Apple chips "
        "and TPUs are always reported.",
    )
    openmetrics: Endpoints | None = setting(
        Parser(
            "a comma-separated list of name=http://host:port/metrics pairs, or the path of a JSON or YAML file",
            endpoints,
            secret=True,
        ),
        "none",
        "OpenMetrics and Prometheus endpoints to scrape at every collection.",
    )
    openmetrics_filters: Words | None = setting(
        regular_expressions(),
        "none",
        "Series of the endpoints to report. none: all.",
    )
    spans: str | None = setting(
        choice("on", "off"),
        "on",
        "Whether spans get energy, GPU time, peak memory and CPU time as attributes. Nothing is read for them before "
        "there is a TracerProvider.",
    )
    spans_min_duration: float | None = setting(
        number("a number of seconds from 0 to 3600, such as 1 or 0.05", 0, 3600),
        "0.1, and 0 for roots",
        "Spans shorter than this get no attributes.",
    )
    spans_filter: list[str] | None = setting(
        words("name:PATTERN, kind:PATTERN or scope:PATTERN, such as kind:server,-name:GET /health", span_rule),
        "none",
        "Spans that get attributes, by name, kind and instrumentation scope; - excludes them. none: all.",
    )
    spans_shares: str | None = setting(
        choice("off", "equal", "tokens"),
        "equal",
        "Whether spans get their own part of the energy, which can be added up. equal: spans that run at the same time "
        "have equal parts. tokens: in proportion to their gen_ai.usage tokens per second.",
    )
    simulate: Any = setting(
        simulation(),
        "none",
        "GPUs to simulate in place of those of this machine, as in 8xH100:inference@7: a number of GPUs, a card (T4, "
        "A100, H100, H200, B200, RTX4090, MI300X, MI210), a scenario, and the seed of the noise. The scenarios are "
        "training, inference, idle, held, hot, brake, stuck, small-kernels, transfer, xid, lost, straggler, "
        "memory-leak, ecc and link, and with a simulated host one-core, quota, storage, neighbours and full-disk.",
    )
    simulate_speed: float | None = setting(
        number("a number from 0.1 to 600, such as 60", 0.1, 600),
        "1",
        "Simulated seconds per second.",
    )
    counter_origin: str | None = setting(
        choice("boot", "start"),
        "boot, or start where OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE is delta",
        "Start value of counters: the total since the machine or process started (boot), or zero when "
        "instrumentation starts (start).",
    )

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """A setting of a vendor."""

    def __init__(self, **values: Any) -> None:
        object.__setattr__(self, "_given", {})
        object.__setattr__(self, "invalid", frozenset())
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
        given: dict[str, str] = self._given
        return given.get(setting, PREFIX + setting.upper())

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
