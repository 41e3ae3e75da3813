"""The exporters that ``OTEL_METRICS_EXPORTER`` can name: whether each is installed and can be loaded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import Any, Final

from opentelemetry.instrumentation.hardware.cli import otlp
from opentelemetry.instrumentation.hardware.cli.failures import Failure
from opentelemetry.instrumentation.hardware.cli.messages import Mistake
from opentelemetry.instrumentation.hardware.sdk import configurator

_GROUP: Final = "opentelemetry_metrics_exporter"

# The package of each exporter.
_PACKAGES: Final = {
    "otlp_proto_grpc": "opentelemetry-exporter-otlp-proto-grpc",
    "otlp_proto_http": "opentelemetry-exporter-otlp-proto-http",
    "prometheus": "opentelemetry-exporter-prometheus",
    "console": "opentelemetry-sdk",
}

# Beginnings and ends of the variables that a message names with their values. Others may have secrets.
_NAMED: Final = ("OTEL_METRIC", "OTEL_EXPORTER")
_SHOWN: Final = ("EXPORTER", "ENDPOINT", "PROTOCOL", "INTERVAL", "TIMEOUT", "COMPRESSION", "INSECURE", "PREFERENCE")


def entry_point(word: str, where: otlp.Destination | None) -> str:
    """Return the name of the entry point that a word of ``OTEL_METRICS_EXPORTER`` stands for."""
    return otlp.EXPORTERS.get(where.protocol, "") if where is not None and word == where.exporter else word


def load(name: str) -> Any:
    """Return the class of an exporter that is installed.

    Raises:
        Exception: It cannot be loaded.
    """
    return next(iter(entry_points(group=_GROUP, name=name))).load()


def problem(name: str) -> Failure | None:
    """Return what is wrong with an exporter; None if it can be used."""
    if not entry_points(group=_GROUP, name=name):
        return _missing(name)
    try:
        load(name)
    except Exception as error:
        text = f"the exporter {name} is installed, but cannot be loaded: {type(error).__name__}: {error}"
        return Failure(text, f"pip install --force-reinstall {_PACKAGES.get(name, 'its package')}")
    return None


def _missing(name: str) -> Failure:
    if name not in _PACKAGES:
        known = get_close_matches(name, ["otlp", *_PACKAGES], 1)
        fix = f"did you mean {known[0]}?" if known else "set OTEL_METRICS_EXPORTER=otlp"
        return Failure(f"no installed package provides the metrics exporter {name}", fix)
    fix = f"pip install {_PACKAGES[name]}"
    for protocol, other in otlp.EXPORTERS.items():
        if name in otlp.EXPORTERS.values() and other != name and entry_points(group=_GROUP, name=other):
            fix += f", or set OTEL_EXPORTER_OTLP_PROTOCOL={protocol}, which is installed"
    return Failure(f"the exporter {name} is not installed", fix)


def problems(words: Sequence[str], where: otlp.Destination | None) -> dict[str, Failure]:
    """Return what is wrong with the exporters, by the names of their entry points."""
    names = dict.fromkeys(name for word in words if (name := entry_point(word, where)))
    return {name: found for name in names if (found := problem(name)) is not None}


def configure(pid: int, is_simulated: bool = False) -> None:
    """Configure the SDK from the environment, as ``opentelemetry-instrument`` does with a distro.

    Args:
        pid: The process that the resource describes.
        is_simulated: Whether its GPUs are simulated.

    Raises:
        Mistake: An exporter is missing or broken, or the SDK rejects the configuration.
    """
    from opentelemetry.instrumentation.hardware.resource_detector import of_agent

    options = {}
    if not os.environ.get("OTEL_CONFIG_FILE"):  # which describes its own exporters and resource
        for problem in problems(otlp.exporters(os.environ), otlp.destination(os.environ)).values():
            raise Mistake(str(problem))
        options["resource_attributes"] = of_agent(pid, is_simulated)
    try:
        configurator()().configure(**options)
    except Exception as error:
        metrics = {name: value for name, value in os.environ.items() if name.startswith(_NAMED)}
        shown = ", ".join(f"{name}={value}" for name, value in sorted(metrics.items()) if name.endswith(_SHOWN))
        reason = " ".join(str(error).split())
        raise Mistake(f"the SDK rejects this configuration: {reason} ({shown})") from None
