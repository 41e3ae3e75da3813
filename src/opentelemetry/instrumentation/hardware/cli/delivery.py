"""Checks of export: the requirements of ``opentelemetry-instrument``, and the connection to the OTLP endpoint."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, MutableMapping
from importlib.metadata import entry_points

from opentelemetry.instrumentation.hardware.cli import otlp
from opentelemetry.instrumentation.hardware.cli.findings import Finding
from opentelemetry.instrumentation.hardware.pipeline.reporter import Reporter
from opentelemetry.instrumentation.hardware.settings import PREFIX, export_interval

_TIMEOUT = 2
"""The exporter's timeout in seconds."""


_EXPORTERS = "opentelemetry_metrics_exporter"
"""The entry point group of exporters."""

_PACKAGES = {
    "otlp_proto_grpc": "opentelemetry-exporter-otlp-proto-grpc",
    "otlp_proto_http": "opentelemetry-exporter-otlp-proto-http",
    "prometheus": "opentelemetry-exporter-prometheus",
}
"""The package of each exporter."""


def zero_code(environ: MutableMapping[str, str]) -> Iterator[Finding]:
    """Check whether ``opentelemetry-instrument`` would load this package and configure the SDK."""
    part = "zero code"
    if entry_points(group="opentelemetry_configurator"):
        distros = ", ".join(
            sorted({entry.dist.name for entry in entry_points(group="opentelemetry_distro") if entry.dist})
        )
        yield Finding(part, "ok", "distro", f"{distros or 'an SDK configurator'} is installed")
    else:
        lost = "opentelemetry-distro is not installed, so opentelemetry-instrument configures no provider"
        yield Finding(
            part, "note", "distro", lost, "pip install opentelemetry-distro (not needed for otel-hardware run)"
        )
    off = {word.strip() for word in environ.get("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "").split(",")}
    if not entry_points(group="opentelemetry_instrumentor", name="hardware"):
        again = "pip install --force-reinstall opentelemetry-instrumentation-hardware in this Python environment"
        yield Finding(part, "wrong", "entry point", "opentelemetry-instrument does not find this package", again)
    elif off & {"hardware", "*"}:
        variable = "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"
        text = f"{variable}={environ[variable]} turns this package off"
        yield Finding(part, "wrong", "entry point", text, f"remove {min(off & {'hardware', '*'})} from it")
    else:
        yield Finding(part, "ok", "entry point", "opentelemetry-instrument finds this package as 'hardware'")
    if entry_points(group="opentelemetry_instrumentor", name="system_metrics") and not off & {"system_metrics", "*"}:
        twice = "opentelemetry-instrumentation-system-metrics is installed too and reports some of the same metrics"
        yield Finding(part, "note", "duplicates", twice, "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=system_metrics")
    reporter = Reporter(environ).holder()
    if reporter is not None:
        text = f"process {reporter or 'of another user'} reports the host for its job, to which this shell belongs"
        yield Finding(part, "note", "job", text, f"{PREFIX}REPORTER=always reports it here as well")
    detectors = {word.strip() for word in environ.get("OTEL_EXPERIMENTAL_RESOURCE_DETECTORS", "").split(",")}
    if "host.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "") or detectors & {otlp.DETECTOR, "host", "*"}:
        yield Finding(part, "ok", "host.name", "is set on the resource")
    else:
        alike = "host.name is missing, so a backend cannot tell two hosts apart (otel-hardware run adds it)"
        yield Finding(part, "note", "host.name", alike, f"OTEL_EXPERIMENTAL_RESOURCE_DETECTORS={otlp.DETECTOR}")


def export(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Check which exporter would be used, and whether its endpoint accepts an empty request."""
    part = "export"
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        yield Finding(part, "wrong", "SDK", "OTEL_SDK_DISABLED=true turns the SDK off", "unset it")
    if environ.get("OTEL_CONFIG_FILE"):
        file = environ["OTEL_CONFIG_FILE"]
        if os.path.isfile(file):
            yield Finding(
                part, "note", "configuration", f"{file} configures the SDK; the variables for exporters are not used"
            )
        else:
            yield Finding(
                part, "wrong", "configuration", f"OTEL_CONFIG_FILE={file} does not exist", "correct or unset it"
            )
        return
    words = otlp.exporters(environ)
    if not words:
        yield Finding(
            part,
            "wrong",
            "exporter",
            "metrics export is disabled by OTEL_METRICS_EXPORTER=none",
            "unset it, or set it to otlp",
        )
        return
    origin = (
        "OTEL_METRICS_EXPORTER" if environ.get("OTEL_METRICS_EXPORTER") else "default of distro and otel-hardware run"
    )
    where = otlp.destination(environ)
    ours = otlp.EXPORTERS.get(where.protocol, "") if where is not None else ""
    names = [ours if where is not None and word == where.exporter else word for word in words]
    missing = [name for name in names if name and not entry_points(group=_EXPORTERS, name=name)]
    for name in missing:
        fix = f"pip install {_PACKAGES[name]}" if name in _PACKAGES else "set OTEL_METRICS_EXPORTER=otlp"
        yield Finding(part, "wrong", "exporter", f"no installed package provides the metrics exporter {name}", fix)
    if not missing:
        yield Finding(part, "ok", "exporter", f"{', '.join(words)} ({origin}), {_pace(environ)}")
    if where is not None and ours not in missing:
        yield from _connection(where)


def _pace(environ: Mapping[str, str]) -> str:
    text = environ.get("OTEL_METRIC_EXPORT_INTERVAL", "")
    if text:
        return f"every {export_interval(environ):g} s (OTEL_METRIC_EXPORT_INTERVAL={text})"
    return "every 60 s (otel-hardware run: 15)"


def _connection(where: otlp.Destination) -> Iterator[Finding]:
    part = "export"
    if where.protocol not in otlp.EXPORTERS:
        fix = "set OTEL_EXPORTER_OTLP_PROTOCOL to grpc or http/protobuf"
        yield Finding(part, "wrong", "protocol", f"{where.protocol} is not supported by the Python SDK", fix)
        return
    yield Finding(part, "ok", "endpoint", f"{where.url}, {where.protocol} ({where.variable or 'default'})")
    if where.mismatch:
        text, _, fix = where.mismatch.partition("; ")
        yield Finding(part, "wrong", "protocol", text, fix)
    reason = otlp.connection_error(where)
    if reason:
        start = "start a Collector there, or set OTEL_EXPORTER_OTLP_ENDPOINT"
        yield Finding(part, "wrong", "connection", f"cannot connect to {where.url}: {reason}", start)
        return
    yield Finding(part, "ok", "connection", "connected")
    error = _request_error(where)
    if error is None:
        yield Finding(part, "ok", "request", "test export accepted")
    else:
        yield Finding(part, "wrong", "request", f"test export failed: {error}", _advice(error, where))


def _request_error(where: otlp.Destination) -> str | None:
    """Send an empty request through the configured exporter. Returns its error, or None."""
    from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData

    from opentelemetry.instrumentation.hardware.cli.messages import collected_logs

    with collected_logs() as messages:
        try:
            (entry,) = entry_points(group=_EXPORTERS, name=otlp.EXPORTERS[where.protocol])
            exporter = entry.load()(timeout=_TIMEOUT)
            try:
                if exporter.export(MetricsData(resource_metrics=[])) is MetricExportResult.SUCCESS:
                    return None
            finally:
                exporter.shutdown()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return messages[-1] if messages else "the exporter logged no reason"


def _advice(error: str, where: otlp.Destination) -> str:
    if " 404" in error or "UNIMPLEMENTED" in error:
        return "check that this is an OTLP receiver; OTEL_EXPORTER_OTLP_METRICS_ENDPOINT has to end in /v1/metrics"
    if any(word in error for word in (" 401", " 403", "UNAUTHENTICATED", "PERMISSION_DENIED")):
        return "set the backend's key in OTEL_EXPORTER_OTLP_HEADERS"
    if where.protocol == "grpc":
        return "check that the port accepts OTLP over gRPC, and the scheme (http:// plain, https:// TLS)"
    return "check that the port accepts OTLP over HTTP, and the scheme (http:// plain, https:// TLS)"
