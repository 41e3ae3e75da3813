"""Checks of export: the requirements of ``opentelemetry-instrument``, and the connection to the OTLP endpoint."""

from __future__ import annotations

import errno
import math
import os
import re
import socket
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from importlib.metadata import PackageNotFoundError, entry_points, requires, version

from opentelemetry.instrumentation.hardware.cli import exporters
from opentelemetry.instrumentation.hardware.cli.exports import listened
from opentelemetry.instrumentation.hardware.cli.failures import Failure
from opentelemetry.instrumentation.hardware.cli.findings import Finding
from opentelemetry.instrumentation.hardware.cli.messages import collected_logs
from opentelemetry.instrumentation.hardware.pipeline.reporter import Reporter
from opentelemetry.instrumentation.hardware.settings import PREFIX
from opentelemetry.instrumentation.hardware.settings.sdk_variables import export_interval, is_disabled

_TIMEOUT = 2  # the exporter's timeout in seconds

_INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"


def zero_code(environ: MutableMapping[str, str]) -> Iterator[Finding]:
    """Check whether ``opentelemetry-instrument`` would load this package and configure the SDK."""
    part = "zero code"
    if entry_points(group="opentelemetry_configurator"):
        distros = sorted({entry.dist.name for entry in entry_points(group="opentelemetry_distro") if entry.dist})
        yield Finding(part, "ok", "distro", f"{', '.join(distros) or 'an SDK configurator'} is installed")
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
    if "host.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "") or detectors & {exporters.DETECTOR, "host", "*"}:
        yield Finding(part, "ok", "host.name", "is set on the resource")
    else:
        alike = "host.name is missing, so a backend cannot tell two hosts apart (otel-hardware run adds it)"
        yield Finding(part, "note", "host.name", alike, f"OTEL_EXPERIMENTAL_RESOURCE_DETECTORS={exporters.DETECTOR}")


def export(environ: MutableMapping[str, str]) -> Iterator[Finding]:
    """Check which exporter would be used, and whether its endpoint accepts an empty request.

    Empty variables of OTLP are removed, as ``otel-hardware run`` does.
    """
    part = "export"
    exporters.silence_grpc(environ)
    for name in exporters.drop_empty(environ):
        text = f"{name} is empty, which the SDK does not always take for unset (otel-hardware run does)"
        yield Finding(part, "note", "variable", text, "unset it")
    if is_disabled(environ):
        yield Finding(part, "wrong", "SDK", "OTEL_SDK_DISABLED=true turns the SDK off", "unset it")
    yield from _configuration(environ)
    if environ.get("OTEL_CONFIG_FILE"):
        return
    words = exporters.selected(environ)
    if not words:
        text, fix = "metrics export is disabled by OTEL_METRICS_EXPORTER=none", "unset it, or set it to otlp"
        yield Finding(part, "wrong", "exporter", text, fix)
        return
    for text in exporters.header_problems(environ):
        yield Finding(part, "wrong", "headers", text, "correct it; values are URL-encoded")
    where = exporters.destination(environ)
    problems = exporters.problems(words, where)
    for problem in problems.values():
        yield Finding(part, "wrong", "exporter", problem.reason, problem.fix)
    pace = _pace(words, environ)
    if not pace:
        text = f"{_INTERVAL}={environ[_INTERVAL]} is not a positive number of milliseconds"
        yield Finding(part, "wrong", "interval", text, "set it to a number such as 15000, or unset it")
    elif not problems:
        origin = "OTEL_METRICS_EXPORTER" if environ.get("OTEL_METRICS_EXPORTER") else "default"
        yield Finding(part, "ok", "exporter", f"{', '.join(words)} ({origin}), {pace}")
    if "prometheus" in words and "prometheus" not in problems:
        yield _prometheus(environ)
    if where is not None and exporters.entry_point(where.exporter, where) not in problems:
        yield from _connection(where)


def drop_unread(environ: MutableMapping[str, str]) -> Failure | None:
    """Remove ``OTEL_CONFIG_FILE`` if the SDK ignores it. Returns why it, or its former name, is not read.

    SDKs before 1.43 ignore it and use the variables for exporters; newer ones need the packages of an extra.
    """
    if not environ.get("OTEL_CONFIG_FILE"):
        former = "OTEL_EXPERIMENTAL_CONFIG_FILE"
        return Failure(f"{former} is not read in Python", "set OTEL_CONFIG_FILE") if environ.get(former) else None
    from opentelemetry.sdk import environment_variables

    fix = "pip install 'opentelemetry-sdk[file-configuration] >= 1.43'"
    if not hasattr(environment_variables, "OTEL_CONFIG_FILE"):
        del environ["OTEL_CONFIG_FILE"]
        return Failure(f"opentelemetry-sdk {version('opentelemetry-sdk')} ignores OTEL_CONFIG_FILE", fix)
    needed = [each for each in requires("opentelemetry-sdk") or () if "file-configuration" in each]
    for name in re.findall(r"^[\w.-]+", "\n".join(needed), re.MULTILINE):
        try:
            version(name)
        except PackageNotFoundError:
            return Failure(f"OTEL_CONFIG_FILE requires {name}, which is not installed", fix)
    return None


def _configuration(environ: MutableMapping[str, str]) -> Iterator[Finding]:
    part, subject = "export", "configuration"
    if (unread := drop_unread(environ)) is not None:
        yield Finding(part, "wrong", subject, unread.reason, unread.fix)
    if not (file := environ.get("OTEL_CONFIG_FILE")):
        return
    if os.path.isfile(file):
        yield Finding(part, "note", subject, f"{file} configures the SDK; the variables for exporters are not used")
    else:
        yield Finding(part, "wrong", subject, f"OTEL_CONFIG_FILE={file} is not a file", "correct or unset it")


def _pace(words: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return when metrics are exported; "" if the interval is not valid."""
    text = environ.get(_INTERVAL, "")
    try:
        if text and not 0 < float(text) < math.inf:
            return ""
    except ValueError:
        return ""
    if words == ["prometheus"]:
        return "at each scrape"
    if text:
        return f"every {export_interval(environ):g} s ({_INTERVAL}={text})"
    return "every 60 s (otel-hardware run: 15)"


def _prometheus(environ: Mapping[str, str]) -> Finding:
    """Check whether the Prometheus exporter can listen on its address."""
    host = environ.get("OTEL_EXPORTER_PROMETHEUS_HOST", "localhost")
    port = environ.get("OTEL_EXPORTER_PROMETHEUS_PORT", "9464")
    address = f"{host}:{port}"
    try:
        if int(port) not in range(65536):
            raise ValueError(f"{port} is not a port")
        socket.create_server((host, int(port)), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except (OSError, ValueError) as error:
        text, fix = f"cannot listen on {address}: {error}", "correct OTEL_EXPORTER_PROMETHEUS_HOST and _PORT"
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            text = f"{address} is in use"
            fix = "set OTEL_EXPORTER_PROMETHEUS_PORT, unless the program to be reported already runs and listens there"
        return Finding("export", "wrong", "prometheus", text, fix)
    return Finding("export", "ok", "prometheus", f"{address} is free")


def _connection(where: exporters.Destination) -> Iterator[Finding]:
    part = "export"
    if (unknown := exporters.unknown_protocol(where)) is not None:
        yield Finding(part, "wrong", "protocol", unknown.reason, unknown.fix)
        return
    yield Finding(part, "ok", "endpoint", f"{where.url}, {where.protocol} ({where.variable or 'default'})")
    if where.mismatch:
        text, _, fix = where.mismatch.partition("; ")
        yield Finding(part, "wrong", "protocol", text, fix)
    down = exporters.connection_failure(where)
    if down is not None:
        start = "start a Collector there, or set OTEL_EXPORTER_OTLP_ENDPOINT"
        yield Finding(part, "wrong", "connection", f"cannot connect to {where.url}: {down.reason}", start)
        return
    name = exporters.proxy(where)
    text = f"not tested, because the exporter uses the proxy in {name}" if name else "connected"
    yield Finding(part, "ok", "connection", text)
    failure = _request_failure(where)
    if failure is None:
        yield Finding(part, "ok", "request", "test export accepted")
    else:
        yield Finding(part, "wrong", "request", f"test export failed: {failure.reason}", failure.fix)


def _request_failure(where: exporters.Destination) -> Failure | None:
    """Send an empty request through the configured exporter. Returns why it failed, or None."""
    from opentelemetry.sdk.metrics.export import MetricsData

    with collected_logs():
        try:
            make = exporters.load(exporters.OTLP[where.protocol])
            make().shutdown()  # it reads the timeout of the environment, too
            exporter = make(timeout=_TIMEOUT)
        except Exception as error:
            return Failure(exporters.rejection(error))
        with listened([exporter], where.url, lambda sentence: None) as (exports,):
            try:
                exporter.export(MetricsData(resource_metrics=[]))
            finally:
                exporter.shutdown()
    return exports.failure
