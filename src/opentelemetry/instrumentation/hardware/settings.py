"""The settings: one table, read from arguments, declarative configuration and the environment.

Arguments take precedence over ``OTEL_PYTHON_HARDWARE_<NAME>``. An invalid value causes one warning, and the default is
used; of a list, only the invalid words are dropped.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import Any, Final

from opentelemetry.instrumentation.hardware.catalog import CATALOG, DETAILS
from opentelemetry.instrumentation.hardware.endpoints import Endpoints, Words, endpoints
from opentelemetry.instrumentation.hardware.model import Metric
from opentelemetry.instrumentation.hardware.parsing import (
    InvalidValueError,
    Parser,
    absolute_path,
    address,
    choice,
    number,
    one_of,
    path,
    place,
    regular_expressions,
    words,
)

PREFIX: Final = "OTEL_PYTHON_HARDWARE_"

SOURCE_GROUP: Final = "opentelemetry_hardware_source"
"""The entry point group of third-party sources."""

_JOB: Final = PREFIX + "JOB"
"""Set by this package in the environment of child processes; not a setting."""

_LOG = logging.getLogger(__name__)


def _setting(parser: Parser, default: str, help: str) -> Any:  # noqa: A002
    """Define a setting, with its texts for ``doctor``, ``--help`` and the documentation."""
    facts = {"read": parser, "form": parser.form, "secret": parser.secret, "default": default, "help": help}
    return field(default=None, metadata=facts)


@dataclass(frozen=True, init=False)
class Config:
    """The settings. None means the default. :meth:`read` parses the user's values.

    An unknown setting causes a warning, not an exception: declarative configuration calls this class directly.
    """

    __hash__ = None  # type: ignore[assignment]  # lists are not hashable, and generating a hash costs import time

    sources: list[str] | None = _setting(
        words("source names, such as host,process, or -filesystem to leave one out"),
        "auto",
        "Sources to read. auto: all sources available on this machine.",
    )
    sample_interval: float | None = _setting(
        number("a number of seconds from 0 to 3600, such as 2 or 0.5", 0, 3600),
        "2",
        "Time between two reads of the sources. 0: read only when a collection is due.",
    )
    mode: str | None = _setting(
        choice("process", "agent"),
        "process",
        "Where the sources are read. agent: in a child process, which exports as the environment says and also reports "
        "this process, so that a driver that hangs or crashes cannot affect it (Linux).",
    )
    include_metrics: list[str] | None = _setting(
        words("metric names or patterns, such as system.cpu.load_average.*", str.lower),
        "none",
        "Metrics to report although they are not reported by default. Naming a default metric adds its extra series.",
    )
    exclude_metrics: list[str] | None = _setting(
        words("metric names or patterns, such as system.paging.*", str.lower),
        "none",
        "Metrics not to report. Takes precedence over INCLUDE_METRICS and DETAIL.",
    )
    detail: list[str] | None = _setting(
        words(", ".join(DETAILS), one_of(*DETAILS)),
        "none",
        f"Groups of additional metrics. {'; '.join(f'{word}: {meaning}' for word, meaning in DETAILS.items())}.",
    )
    disk_paths: list[str] | None = _setting(
        words("absolute paths, such as /,/data", absolute_path),
        "auto",
        "File systems to report, each named by a path on it. auto: permanent mounts of disks and network file systems.",
    )
    interfaces: list[str] | None = _setting(
        words("interface names, such as eth0,bond0"),
        "auto",
        "Network interfaces to report. auto: those backed by a device, with bonds in place of their members.",
    )
    devices: list[str] | None = _setting(
        words("indices, UUIDs and PCI addresses, such as 0,1 or GPU-8f6a", alone=("all", "visible", "process")),
        "all, or visible where a scheduler restricted them",
        "NVIDIA and AMD GPUs, Neuron devices and IPUs to report. An index counts the devices of each vendor. visible: "
        "those that CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES, NEURON_RT_VISIBLE_CORES or the "
        "container make available to the program. process: those that the program and its children use. Apple chips "
        "and TPUs are always reported.",
    )
    nvml: str | None = _setting(
        path("libnvidia-ml.so.1"), "auto", "NVIDIA's management library. off: use nvidia-smi instead."
    )
    nvidia_smi: str | None = _setting(path("nvidia-smi"), "auto", "The tool used if NVIDIA's library is not available.")
    amdgpu: str | None = _setting(
        choice("auto", "off"),
        "auto",
        "Whether AMD GPUs are read from the files of their driver. off: use AMD's tools instead.",
    )
    amd_smi: str | None = _setting(
        path("amd-smi"), "auto", "The tool used if the files of AMD's driver cannot be read."
    )
    rocm_smi: str | None = _setting(path("rocm-smi"), "auto", "The tool used if amd-smi is not available either.")
    apple_gpu_stats: str | None = _setting(
        path("apple_gpu_stats"),
        "auto",
        "A tool from older W&B wheels, the first choice for Apple chips. auto: on a Mac, from PATH.",
    )
    macmon: str | None = _setting(
        path("macmon"),
        "auto",
        "The second choice for Apple chips; it runs as long as the program. auto: on a Mac, from PATH or Homebrew's "
        "folders.",
    )
    ioreg: str | None = _setting(
        path("ioreg"), "auto", "The last choice for Apple chips. auto: on a Mac, which includes it."
    )
    openmetrics: Endpoints | None = _setting(
        Parser(
            "a comma-separated list of name=http://host:port/metrics pairs, or the path of a JSON or YAML file",
            endpoints,
            secret=True,
        ),
        "none",
        "OpenMetrics and Prometheus endpoints to scrape at every collection.",
    )
    openmetrics_filters: Words | None = _setting(
        regular_expressions(),
        "none",
        "Series of the endpoints to report. none: all.",
    )
    tpu_runtime: list[str] | None = _setting(
        words("host:port addresses, ports and Unix socket paths", address, alone=("auto", "off")),
        "auto",
        "Metric services of the programs that use a TPU. auto: localhost, at the ports in TPU_RUNTIME_METRICS_PORTS "
        "or at 8431.",
    )
    tpu_profiler: str | None = _setting(
        place("a host:port address, port or Unix socket path", address),
        "auto",
        "Profiler of a TPU node. auto: the address in TPU_NAME, unless this host has TPUs.",
    )
    libtpu: str | None = _setting(
        choice("on", "off"),
        "off",
        "Whether a child process reads link health, throttling and TensorCore utilization from libtpu's SDK. Requires "
        "libtpu in this Python environment and a TPU in this host.",
    )
    gcipuinfo: str | None = _setting(
        path("the folder with Graphcore's Python module gcipuinfo"),
        "auto",
        "Graphcore's module, imported by a child process. auto: from Python's search path.",
    )
    neuron_monitor: str | None = _setting(
        path("neuron-monitor"),
        "auto",
        "AWS Neuron's tool; it runs as long as the program. auto: from PATH or /opt/aws/neuron/bin.",
    )
    neuron_monitor_config: str | None = _setting(
        path("a configuration file of neuron-monitor"),
        "auto",
        "Configuration of neuron-monitor. auto: everything this package reports, at every sample interval.",
    )
    counter_origin: str | None = _setting(
        choice("boot", "start"),
        "boot, or start where OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE is delta",
        "Start value of counters: the total since the machine or process started (boot), or zero when "
        "instrumentation starts (start).",
    )

    def __init__(self, **values: Any) -> None:
        names = [setting.name for setting in fields(self)]
        for name in names:
            object.__setattr__(self, name, values.pop(name, None))
        for name in values:
            _LOG.warning("%s is not a setting and is ignored; the settings are %s", name, ", ".join(names))

    @classmethod
    def read(cls, options: Mapping[str, object] | None = None, environ: Mapping[str, str] | None = None) -> Config:
        """Parse the settings. Never raises: an invalid value causes a warning, and the default is used.

        Args:
            options: Settings by name; None for a setting that is not given.
            environ: Environment variables; by default those of this process.
        """
        environ = os.environ if environ is None else environ
        options = dict(options or {})
        values: dict[str, Any] = {}
        for setting in fields(cls):
            variable = PREFIX + setting.name.upper()
            name, value = setting.name, options.pop(setting.name, None)
            if value is None:
                name, value = variable, environ.get(variable, "").strip() or None
            default = setting.metadata["default"]
            if value is None or (value == default and value in ("auto", "none")):
                continue
            try:
                values[setting.name] = setting.metadata["read"](value)
            except InvalidValueError as error:
                if error.valid:
                    values[setting.name] = error.valid
                _LOG.warning("%s: %s; using %s", name, error, ",".join(error.valid) or f"the default ({default})")
        for name in ("include_metrics", "exclude_metrics"):
            _drop_unmatched(name, values)
        _warn_about_unknown_variables(environ)
        if "counter_origin" not in values:
            preference = environ.get("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "").strip().lower()
            values["counter_origin"] = "start" if preference == "delta" else "boot"
        return cls(**values, **options)

    @property
    def interval(self) -> float:
        """Seconds between two readings; 0 to read only when a collection is due."""
        return 2.0 if self.sample_interval is None else self.sample_interval

    def wants(self, metric: Metric) -> bool:
        """Whether the metric is reported."""
        if _matches(metric, self.exclude_metrics):
            return False
        return not metric.opt_in or metric.opt_in in (self.detail or ()) or self.names(metric)

    def names(self, metric: Metric) -> bool:
        """Whether ``INCLUDE_METRICS`` names the metric, which then has its extra series as well."""
        return _matches(metric, self.include_metrics)

    def selects(self, source: str) -> bool:
        """Whether ``SOURCES`` allows the source to be read."""
        listed = [word for word in self.sources or () if word != "auto"]
        if "-" + source in listed:
            return False
        included = [word for word in listed if not word.startswith("-")]
        return not included or source in included


def _matches(metric: Metric, patterns: Sequence[str] | None) -> bool:
    return any(fnmatchcase(metric.name.lower(), pattern) for pattern in patterns or ())


def unmatched(patterns: Sequence[str], endpoints: object) -> list[str]:
    """Return the patterns that cannot match any metric.

    Args:
        patterns: Metric names or patterns.
        endpoints: The endpoints to scrape. Their metrics, and those of third-party sources, are not known in advance:
            if there are any, every pattern may match.
    """
    found = [pattern for pattern in patterns if not any(_matches(row, [pattern]) for row in CATALOG)]
    if not found or endpoints:
        return []
    from importlib.metadata import entry_points  # slow to import

    return [] if entry_points(group=SOURCE_GROUP) else found


def _drop_unmatched(name: str, values: dict[str, Any]) -> None:
    patterns = values.get(name) or ()
    dropped = unmatched(patterns, values.get("openmetrics"))
    if dropped:
        values[name] = [pattern for pattern in patterns if pattern not in dropped] or None
        _LOG.warning(
            "%s%s: no metric matches %s; using %s; 'otel-hardware metrics' lists all metrics",
            PREFIX,
            name.upper(),
            ", ".join(map(repr, dropped)),
            ",".join(values[name] or ()) or "the default (none)",
        )


def _warn_about_unknown_variables(environ: Mapping[str, str]) -> None:
    """Warn about variables with our prefix that are not settings, such as misspelt ones."""
    names = [setting.name.upper() for setting in fields(Config)]
    known = {_JOB, *(PREFIX + name for name in names)}
    for variable in sorted(environ):
        if variable in known or not variable.upper().startswith(PREFIX) or not environ[variable].strip():
            continue
        from difflib import get_close_matches  # rarely needed, and its import takes a millisecond

        similar = get_close_matches(variable.upper().removeprefix(PREFIX), names, 1)
        hint = f"did you mean {PREFIX}{similar[0]}?" if similar else f"the settings are {', '.join(names).lower()}"
        _LOG.warning("%s is not a setting and is ignored; %s", variable, hint)


def export_interval(environ: Mapping[str, str] | None = None) -> float:
    """Seconds between two exports according to ``OTEL_METRIC_EXPORT_INTERVAL``; the SDK's default is 60."""
    text = (os.environ if environ is None else environ).get("OTEL_METRIC_EXPORT_INTERVAL", "")
    try:
        seconds = float(text) / 1000
    except ValueError:
        return 60.0
    return seconds if math.isfinite(seconds) and seconds > 0 else 60.0
