"""Config: every setting, from arguments, declarative configuration and the environment, in the same words.

A value that makes no sense costs one warning that names the setting and the accepted form; the default is used.
Arguments win over ``OTEL_PYTHON_HARDWARE_<NAME>``.
"""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import Any, Final

from opentelemetry.instrumentation.hardware.catalog import CATALOG
from opentelemetry.instrumentation.hardware.endpoints import (
    EndpointConfigError,
    Endpoints,
    Words,
    endpoints,
    filters,
)
from opentelemetry.instrumentation.hardware.model import Metric

PREFIX: Final = "OTEL_PYTHON_HARDWARE_"
_OURS: Final = PREFIX + "JOB"
"""Set by us, for our children; it is no setting."""

DETAILS: Final = ("cpu", "connections", "processes")
ORIGINS: Final = ("boot", "start")
CHOICES: Final = ("all", "visible", "process")

_PLACE: Final = r"[^\s:/]+:[0-9]{1,5}|\[[0-9a-fA-F:.]+\]:[0-9]{1,5}|(unix:)?/\S+"

_LOG = logging.getLogger(__name__)


def _words(value: object) -> list[str]:
    """A list, or text with commas; what is neither raises."""
    if isinstance(value, str):
        return [word for part in value.split(",") if (word := part.strip())]
    if isinstance(value, (list, tuple, set, frozenset)) and all(isinstance(item, str) for item in value):
        return [item.strip() for item in value if item.strip()]
    raise ValueError


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError
    seconds = float(value)
    if not math.isfinite(seconds) or seconds < 0 or seconds > 3600:
        raise ValueError
    return seconds


def _details(value: object) -> list[str]:
    words = _words(value)
    if any(word not in DETAILS for word in words):
        raise ValueError
    return words


def _origin(value: object) -> str:
    if not isinstance(value, str) or value.strip().lower() not in ORIGINS:
        raise ValueError
    return value.strip().lower()


def _switch(value: object) -> str:
    if not isinstance(value, str) or value.strip().lower() not in ("auto", "off"):
        raise ValueError
    return value.strip().lower()


def _paths(value: object) -> list[str]:
    words = _words(value)
    if not all(os.path.isabs(word) for word in words):
        raise ValueError
    return words


def _globs(value: object) -> list[str]:
    words = _words(value)
    idle = [word for word in words if not any(fnmatchcase(row.name, word.lower()) for row in CATALOG)]
    if idle:
        raise ValueError(f"{', '.join(idle)} matches no metric")
    return [word.lower() for word in words]


def _devices(value: object) -> list[str]:
    words = _words(value)
    if not words or (len(words) > 1 and {word.lower() for word in words} & {*CHOICES}):
        raise ValueError
    return [word.lower() if word.lower() in CHOICES else word for word in words]


def _tool(value: object) -> str:
    if not isinstance(value, str) or not (value.strip().lower() in ("auto", "off") or os.path.isabs(value.strip())):
        raise ValueError
    word = value.strip()
    return word.lower() if word.lower() in ("auto", "off") else word


def _places(value: object) -> list[str]:
    """Where services are: ``host:port``, a port of this host, or the path of a Unix socket; or auto or off alone."""
    words = _words(value)
    if len(words) == 1 and words[0].lower() in ("auto", "off"):
        return [words[0].lower()]
    places = [f"localhost:{word}" if word.isdigit() else word for word in words]
    if not places or not all(re.fullmatch(_PLACE, place) for place in places):
        raise ValueError
    return places


def _place(value: object) -> str:
    places = _places(value)
    if len(places) > 1:
        raise ValueError
    return places[0]


def _flag(value: object) -> str:
    word = "on" if value is True else "off" if value is False else value
    if not isinstance(word, str) or word.strip().lower() not in ("on", "off"):
        raise ValueError
    return word.strip().lower()


def _setting(
    read: Callable[[object], Any],
    default: str,
    form: str,
    help: str,  # noqa: A002
    secret: bool = False,
) -> Any:
    """A setting: how its value is read, what ``doctor``, warnings and the documentation say of it; secrets never."""
    facts = {"read": read, "default": default, "form": form, "help": help, "secret": secret}
    return field(default=None, metadata=facts)


@dataclass(frozen=True, init=False)
class Config:
    """The settings; ``None`` means the default. Construct it from the user's words with :meth:`read`.

    A setting that does not exist costs a warning, not an exception: declarative configuration constructs this class.
    """

    __hash__ = None  # type: ignore[assignment]  # its lists have none, and making one is costly

    sources: list[str] | None = _setting(
        _words,
        "auto",
        "names with commas, such as host,process, or -filesystem for all but that one",
        "Which sources to read. auto: all that this machine has.",
    )
    sample_interval: float | None = _setting(
        _seconds,
        "2",
        "seconds, 0 to 3600, such as 2 or 0.5",
        "How often the sources are read between collections. 0: only when a collection is due.",
    )
    include_metrics: list[str] | None = _setting(
        _globs,
        "none",
        "metric names or globs with commas, such as system.cpu.load_average.*",
        "Rows on request; a row of the default set named here comes in full.",
    )
    exclude_metrics: list[str] | None = _setting(
        _globs,
        "none",
        "metric names or globs with commas, such as system.paging.*",
        "Rows that are not wanted.",
    )
    detail: list[str] | None = _setting(
        _details,
        "none",
        "some of cpu, connections, processes, with commas",
        "Per-core, per-connection and process-count rows.",
    )
    disk_paths: list[str] | None = _setting(
        _paths,
        "auto",
        "absolute paths with commas, such as /,/data",
        "File systems to report, each by a path on it. auto: the stable mounts of real file systems.",
    )
    interfaces: list[str] | None = _setting(
        _words,
        "auto",
        "interface names with commas, such as eth0,bond0",
        "Network interfaces to report. auto: those with a device behind them, and bonds instead of their members.",
    )
    devices: list[str] | None = _setting(
        _devices,
        "all, or visible where a scheduler restricted them",
        "all, visible, process, or indices, UUIDs and PCI addresses with commas, such as 0,1 or GPU-8f6a",
        "Which of the accelerators to report: NVIDIA's and AMD's GPUs, Neuron devices, IPUs. visible: those that "
        "CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES, NEURON_RT_VISIBLE_CORES or a container "
        "leave to the program; process: those that the program and its children use. An index counts the devices of "
        "each vendor. Apple chips and TPUs are reported in any case.",
    )
    nvml: str | None = _setting(
        _tool,
        "auto",
        "the path of libnvidia-ml.so.1, auto or off",
        "Where NVIDIA's management library is. off: nvidia-smi is asked instead.",
    )
    nvidia_smi: str | None = _setting(
        _tool,
        "auto",
        "the path of nvidia-smi, auto or off",
        "Where the tool is that is asked if the library cannot be used.",
    )
    amdgpu: str | None = _setting(
        _switch,
        "auto",
        "auto or off",
        "Whether AMD's GPUs are read from the files of their driver. off: AMD's tools are asked instead.",
    )
    amd_smi: str | None = _setting(
        _tool,
        "auto",
        "the path of amd-smi, auto or off",
        "Where the tool is that is asked if the files of AMD's driver cannot be read.",
    )
    rocm_smi: str | None = _setting(
        _tool,
        "auto",
        "the path of rocm-smi, auto or off",
        "Where the tool is that is asked if there is no amd-smi either.",
    )
    apple_gpu_stats: str | None = _setting(
        _tool,
        "auto",
        "the path of apple_gpu_stats, auto or off",
        "Where the tool of wandb's older wheels is, the first that an Apple chip is asked by. auto: on a Mac, on PATH.",
    )
    macmon: str | None = _setting(
        _tool,
        "auto",
        "the path of macmon, auto or off",
        "Where macmon is, the second one; it runs for as long as the program. auto: on a Mac, on PATH or where "
        "Homebrew puts it.",
    )
    ioreg: str | None = _setting(
        _tool,
        "auto",
        "the path of ioreg, auto or off",
        "Where ioreg is, the last one. auto: on a Mac, which has it.",
    )
    openmetrics: Endpoints | None = _setting(
        endpoints,
        "none",
        "name=http://host:port/metrics pairs with commas, or the path of a JSON or YAML file",
        "OpenMetrics and Prometheus endpoints to scrape with every collection.",
        secret=True,
    )
    openmetrics_filters: Words | None = _setting(
        filters,
        "none",
        "regular expressions with commas, or as JSON a list of them or a mapping of each to {label: expression}",
        "Which series of the endpoints are wanted. none: all.",
    )
    tpu_runtime: list[str] | None = _setting(
        _places,
        "auto",
        "host:port or Unix socket paths with commas, auto or off",
        "Where programs that use a TPU serve its metrics. auto: localhost, at the ports of TPU_RUNTIME_METRICS_PORTS "
        "or at 8431.",
    )
    tpu_profiler: str | None = _setting(
        _place,
        "auto",
        "host:port, auto or off",
        "Where the profiler of a TPU node is. auto: where TPU_NAME says, unless this host has TPUs itself.",
    )
    libtpu: str | None = _setting(
        _flag,
        "off",
        "on or off",
        "Whether a child process of ours asks libtpu's SDK for what the metrics do not say: link health, throttling, "
        "TensorCore utilization. Needs libtpu in this Python, and a TPU in this host.",
    )
    gcipuinfo: str | None = _setting(
        _tool,
        "auto",
        "the path of the folder that has the Python module gcipuinfo, auto or off",
        "Where Graphcore's module is, which a process of its own imports. auto: where Python finds it.",
    )
    neuron_monitor: str | None = _setting(
        _tool,
        "auto",
        "the path of neuron-monitor, auto or off",
        "Where AWS Neuron's tool is; it runs for as long as the program. auto: on PATH or in /opt/aws/neuron/bin.",
    )
    neuron_monitor_config: str | None = _setting(
        _tool,
        "auto",
        "the path of a configuration of neuron-monitor, or auto",
        "What neuron-monitor is told to say. auto: all that this package reports, at every sampling interval.",
    )
    counter_origin: str | None = _setting(
        _origin,
        "boot, or start where OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE asks for deltas",
        "boot or start",
        "What counters count from: the machine's or process's own start, or the moment of instrumenting.",
    )

    def __init__(self, **values: Any) -> None:
        names = [setting.name for setting in fields(self)]
        for name in names:
            object.__setattr__(self, name, values.pop(name, None))
        for name in values:
            _LOG.warning("There is no setting %s; the settings are %s", name, ", ".join(names))

    @classmethod
    def read(cls, options: Mapping[str, object] | None = None, environ: Mapping[str, str] | None = None) -> Config:
        """Make a Config of the user's words.

        Never raises: whatever is wrong is said once, in a warning that names the setting and the accepted form, and the
        default stands.
        """
        environ = os.environ if environ is None else environ
        options = dict(options or {})
        values: dict[str, Any] = {}
        for setting in fields(cls):
            variable = PREFIX + setting.name.upper()
            name, value = setting.name, options.pop(setting.name, None)
            if value is None:
                name, value = variable, environ.get(variable, "").strip() or None
            if value is None or (value == setting.metadata["default"] and value in ("auto", "none")):
                continue
            try:
                values[setting.name] = setting.metadata["read"](value)
            except (ValueError, TypeError, OverflowError) as error:
                why = (
                    f"{error}; " if isinstance(error, EndpointConfigError) or "matches no metric" in str(error) else ""
                )
                _LOG.warning(
                    "%s%s is not understood: %sit takes %s; using the default (%s)",
                    name,
                    "" if setting.metadata["secret"] else f"={value}",
                    why,
                    setting.metadata["form"],
                    setting.metadata["default"],
                )
        _doubt(environ)
        if "counter_origin" not in values:
            preference = environ.get("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "").strip().lower()
            values["counter_origin"] = "start" if preference == "delta" else "boot"
        return cls(**values, **options)

    @property
    def interval(self) -> float:
        """Seconds between two samples; 0: only when a collection is due."""
        return 2.0 if self.sample_interval is None else self.sample_interval

    def wants(self, metric: Metric) -> bool:
        """Whether the row is reported at all."""
        if any(fnmatchcase(metric.name, glob) for glob in self.exclude_metrics or ()):
            return False
        return not metric.opt_in or metric.opt_in in (self.detail or ()) or self.names(metric)

    def names(self, metric: Metric) -> bool:
        """Whether ``INCLUDE_METRICS`` asks for the row, which then comes in full."""
        return any(fnmatchcase(metric.name, glob) for glob in self.include_metrics or ())

    def selects(self, source: str) -> bool:
        """Whether ``SOURCES`` lets the source be read."""
        words = [word for word in self.sources or () if word != "auto"]
        if "-" + source in words:
            return False
        named = [word for word in words if not word.startswith("-")]
        return not named or source in named


def _doubt(environ: Mapping[str, str]) -> None:
    """Say which variables look like settings and are none: they would be lost in silence."""
    known = [setting.name.upper() for setting in fields(Config)]
    for variable in sorted(environ):
        name = variable.upper().removeprefix(PREFIX)
        idle = not environ[variable].strip() or variable in (_OURS, *(PREFIX + word for word in known))
        if idle or not variable.upper().startswith(PREFIX):
            continue
        from difflib import get_close_matches  # a doubt is rare, and this would be a millisecond of importing us

        alike = get_close_matches(name, known, 1)
        said = f"did you mean {PREFIX}{alike[0]}?" if alike else f"the settings are {', '.join(known).lower()}"
        _LOG.warning("%s is no setting and changes nothing; %s", variable, said)


def export_interval(environ: Mapping[str, str] | None = None) -> float:
    """Seconds between two exports, as far as the environment tells: the SDK's own default is 60."""
    text = (os.environ if environ is None else environ).get("OTEL_METRIC_EXPORT_INTERVAL", "")
    try:
        seconds = float(text) / 1000
    except ValueError:
        return 60.0
    return seconds if math.isfinite(seconds) and seconds > 0 else 60.0
