"""Whether numbers would arrive: what opentelemetry-instrument needs, and the way to the OTLP endpoint."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, MutableMapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from opentelemetry.instrumentation.hardware.cli.findings import Finding
from opentelemetry.instrumentation.hardware.pipeline.reporter import JOB, is_member
from opentelemetry.instrumentation.hardware.settings import export_interval

if TYPE_CHECKING:
    from opentelemetry.instrumentation.hardware.cli.otlp import Destination

_DEADLINE = 2
"""Seconds that the exporter gets."""


def zero_code(environ: MutableMapping[str, str]) -> Iterator[Finding]:
    """What ``opentelemetry-instrument`` makes of this environment."""
    part = "zero code"
    if entry_points(group="opentelemetry_configurator"):
        distros = ", ".join(
            sorted({entry.dist.name for entry in entry_points(group="opentelemetry_distro") if entry.dist})
        )
        yield Finding(part, "ok", "distro", f"{distros or 'a configurator'} is installed")
    else:
        lost = "opentelemetry-distro is not installed, so opentelemetry-instrument sets up no provider"
        yield Finding(
            part, "note", "distro", lost, "pip install opentelemetry-distro (not needed for otel-hardware run)"
        )
    off = {word.strip() for word in environ.get("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "").split(",")}
    if not entry_points(group="opentelemetry_instrumentor", name="hardware"):
        again = "pip install --force-reinstall opentelemetry-instrumentation-hardware, into this Python"
        yield Finding(part, "wrong", "entry point", "opentelemetry-instrument does not find this package", again)
    elif off & {"hardware", "*"}:
        text = (
            f"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS={environ['OTEL_PYTHON_DISABLED_INSTRUMENTATIONS']} switches us off"
        )
        yield Finding(part, "wrong", "entry point", text, f"take {min(off & {'hardware', '*'})} out of it")
    else:
        yield Finding(part, "ok", "entry point", "opentelemetry-instrument finds this package as 'hardware'")
    if entry_points(group="opentelemetry_instrumentor", name="system_metrics") and not off & {"system_metrics", "*"}:
        twice = "opentelemetry-instrumentation-system-metrics is installed beside us and reports some metrics twice"
        yield Finding(part, "note", "duplicates", twice, "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=system_metrics")
    if is_member(environ, os.getpid()):
        text = (
            f"process {environ[JOB].partition('.')[0]}, which started this shell, reports the host for all its children"
        )
        yield Finding(part, "note", "job", text, f"unset {JOB} to report it once more")
    detectors = {word.strip() for word in environ.get("OTEL_EXPERIMENTAL_RESOURCE_DETECTORS", "").split(",")}
    if "host.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "") or detectors & {"host", "*"}:
        yield Finding(part, "ok", "host.name", "is on the resource")
    else:
        alike = "host.name will be missing, so that two machines look alike (otel-hardware run adds it by itself)"
        yield Finding(part, "note", "host.name", alike, "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS=host,process")


def export(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Which exporter there would be, and whether its endpoint takes an empty request."""
    from opentelemetry.instrumentation.hardware.cli import otlp

    part = "otlp"
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        yield Finding(part, "wrong", "SDK", "OTEL_SDK_DISABLED=true switches the SDK off", "unset it")
    if environ.get("OTEL_CONFIG_FILE"):
        file = environ["OTEL_CONFIG_FILE"]
        if os.path.isfile(file):
            yield Finding(part, "note", "configuration", f"{file} decides; the variables for exporters are not read")
        else:
            yield Finding(part, "wrong", "configuration", f"OTEL_CONFIG_FILE={file} is no file", "correct or unset it")
        return
    words = otlp.exporters(environ)
    if not words:
        yield Finding(
            part,
            "wrong",
            "exporter",
            "OTEL_METRICS_EXPORTER=none: no metrics are exported",
            "unset it, or set it to otlp",
        )
        return
    origin = (
        "OTEL_METRICS_EXPORTER" if environ.get("OTEL_METRICS_EXPORTER") else "default of distro and otel-hardware run"
    )
    yield Finding(part, "ok", "exporter", f"{', '.join(words)} ({origin}), {_pace(environ)}")
    where = otlp.destination(environ)
    if where is None:
        for word in words:
            if not entry_points(group="opentelemetry_metrics_exporter", name=word):
                yield Finding(
                    part,
                    "wrong",
                    "exporter",
                    f"no installed package brings an exporter {word}",
                    "set OTEL_METRICS_EXPORTER=otlp",
                )
        return
    yield from _way(where)


def _pace(environ: Mapping[str, str]) -> str:
    text = environ.get("OTEL_METRIC_EXPORT_INTERVAL", "")
    if text:
        return f"every {export_interval(environ):g} s (OTEL_METRIC_EXPORT_INTERVAL={text})"
    return "every 60 s (otel-hardware run: 15)"


def _way(where: Destination) -> Iterator[Finding]:
    from opentelemetry.instrumentation.hardware.cli import otlp

    part = "otlp"
    if where.protocol not in ("grpc", "http/protobuf"):
        take = "set OTEL_EXPORTER_OTLP_PROTOCOL to grpc or http/protobuf"
        yield Finding(part, "wrong", "protocol", f"{where.protocol} is not one that the Python SDK speaks", take)
        return
    yield Finding(part, "ok", "endpoint", f"{where.url} in {where.protocol} ({where.variable or 'default'})")
    if where.mismatch:
        text, _, fix = where.mismatch.partition("; ")
        yield Finding(part, "wrong", "protocol", text, fix)
    reason = otlp.silence(where)
    if reason:
        start = "start a Collector there, or set OTEL_EXPORTER_OTLP_ENDPOINT to where one listens"
        yield Finding(part, "wrong", "connection", f"nobody answers at {where.url}: {reason}", start)
        return
    yield Finding(part, "ok", "connection", "somebody answers")
    said = _offer(where)
    if said is None:
        yield Finding(part, "ok", "request", "an empty request was accepted")
    else:
        yield Finding(part, "wrong", "request", f"an empty request failed: {said}", _advice(said, where))


def _offer(where: Destination) -> str | None:
    """Send an empty request by the exporter that would be used, with all its settings; what it said where it failed."""
    from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData

    from opentelemetry.instrumentation.hardware.cli.messages import overhear

    name = "otlp_proto_grpc" if where.protocol == "grpc" else "otlp_proto_http"
    with overhear() as said:
        try:
            (entry,) = entry_points(group="opentelemetry_metrics_exporter", name=name)
            exporter = entry.load()(timeout=_DEADLINE)
            try:
                if exporter.export(MetricsData(resource_metrics=[])) is MetricExportResult.SUCCESS:
                    return None
            finally:
                exporter.shutdown()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return said[-1] if said else "the exporter does not say why"


def _advice(said: str, where: Destination) -> str:
    if " 404" in said or "UNIMPLEMENTED" in said:
        return "is that an OTLP receiver? A full URL in OTEL_EXPORTER_OTLP_METRICS_ENDPOINT has to end in /v1/metrics"
    if any(word in said for word in (" 401", " 403", "UNAUTHENTICATED", "PERMISSION_DENIED")):
        return "OTEL_EXPORTER_OTLP_HEADERS holds the backend's key"
    if where.protocol == "grpc":
        return "does gRPC live there, and is the scheme right (http:// plain, https:// encrypted)?"
    return "does OTLP over HTTP live there, and is the scheme right (http:// plain, https:// encrypted)?"
