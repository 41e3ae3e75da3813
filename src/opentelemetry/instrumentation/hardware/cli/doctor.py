"""``otel-hardware doctor``: what this machine can say, and whether it would arrive."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, entry_points, version
from typing import TYPE_CHECKING, NamedTuple

from opentelemetry.instrumentation.hardware.cli import settings
from opentelemetry.instrumentation.hardware.config import PREFIX, Config, export_interval
from opentelemetry.instrumentation.hardware.identity import JOB, is_member

if TYPE_CHECKING:
    from opentelemetry.instrumentation.hardware.cli.otlp import Destination
    from opentelemetry.instrumentation.hardware.poller import Poller

_DESCRIPTION = """\
Looks at everything between this machine's numbers and your backend: each source (found, or where it was
looked for and why it was not found), the settings as they were understood, what opentelemetry-instrument
needs, and the way to the OTLP endpoint, which gets an empty request. Run it with the same environment and the
same Python as the program that is to be reported.

examples:
  otel-hardware doctor
  OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4317 otel-hardware doctor
  otel-hardware doctor --json | jq '.findings[] | select(.state == "wrong")'

exit status: 0; 1 where something is wrong that loses numbers; 2 for a mistake in the arguments.
"""

_PATIENCE = 3.0
_DEADLINE = 2
_SUBJECT = 24
"""Letters of a subject, which is a column of the report."""

_NOUNS = {
    "system.device": "disk",
    "network.interface.name": "interface",
    "system.filesystem.mountpoint": "mount",
    "hw.name": "device",
}


class Finding(NamedTuple):
    """One thing that was looked at.

    Attributes:
        part: sources, settings, zero code or otlp.
        state: ok; note for what is good to know; wrong for what loses numbers.
        subject: what was looked at.
        text: what was found.
        fix: what to do.
    """

    part: str
    state: str
    subject: str
    text: str
    fix: str = ""


class Doctor:
    """The examination."""

    name = "doctor"
    help = "say what works, what does not, why, and what to do"
    description = _DESCRIPTION

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """The flags."""
        parser.usage = "otel-hardware doctor [flags]"
        parser.add_argument("--json", action="store_true", help="for programs")
        settings.add(parser)

    def run(self, arguments: argparse.Namespace) -> int:
        """Look, and say."""
        from opentelemetry.instrumentation.hardware.cli.messages import overhear

        with overhear() as said:
            config = settings.config(arguments)
            findings = [*_sources(config)]
        findings += _settings(arguments, config, said)
        findings += _zero_code(os.environ)
        findings += _otlp(os.environ)
        wrong = sum(finding.state == "wrong" for finding in findings)
        if arguments.json:
            about = {"host": socket.gethostname(), "wrong": wrong, "versions": _versions()}
            _print(json.dumps(about | {"findings": [finding._asdict() for finding in findings]}, indent=2))
        else:
            width = shutil.get_terminal_size((100, 24)).columns
            for line in _report(findings, width, sys.stdout.isatty() and "NO_COLOR" not in os.environ):
                _print(line)
        return 1 if wrong else 0


def _versions() -> dict[str, str]:
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in ("opentelemetry-instrumentation-hardware", "opentelemetry-sdk", "psutil"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


# -- sources


def _sources(config: Config) -> Iterator[Finding]:
    from opentelemetry.instrumentation.hardware.session import Session
    from opentelemetry.instrumentation.hardware.sources import discover

    session = Session(config, environ={})
    session.start()
    try:
        session.fresh(_PATIENCE)
        pollers = {poller.name: poller for poller in session.board.pollers}
        for name in discover():
            parts = [each for label, each in pollers.items() if label.partition(":")[0] == name]
            if parts:
                for poller in parts:
                    yield from _source(poller)
            elif config.selects(name):
                yield Finding("sources", "wrong", name, "cannot be loaded", "see the warnings below")
            else:
                yield Finding("sources", "note", name, "switched off by SOURCES")
    finally:
        session.close()


def _source(poller: Poller) -> Iterator[Finding]:
    from opentelemetry.instrumentation.hardware.cli.view import told
    from opentelemetry.instrumentation.hardware.poller import State

    now = time.monotonic()
    problem, source = poller.health(now), poller.source
    if poller.state is State.ABSENT and problem is not None:
        yield Finding("sources", "note", poller.name, f"not here: {problem.reason}", problem.fix)
    elif problem is not None:
        yield Finding("sources", "wrong", poller.name, problem.reason, problem.fix)
    elif poller.state is not State.UP:
        waited = f"has not answered for {_PATIENCE:g} s"
        yield Finding(
            "sources", "wrong", poller.name, waited, "its driver or file system hangs; -NAME in SOURCES leaves it out"
        )
    else:
        yield Finding("sources", "ok", poller.name, _found(poller, now))
    for sentence in source.missing if source is not None else ():
        subject, why = told(sentence, _SUBJECT)
        yield Finding("sources", "note", subject or poller.name, why)


def _found(poller: Poller, now: float) -> str:
    """What a source is about, from its own points: how many, of which things, under which limits."""
    from opentelemetry.instrumentation.hardware.cli.table import WHO, quantity
    from opentelemetry.instrumentation.hardware.vocabulary import (
        HW_GPU_INFO,
        HW_ID,
        SYSTEM_CPU_LOGICAL_COUNT,
        SYSTEM_MEMORY_LIMIT,
    )

    points, _ = poller.window(None, now)
    gpus = [series.attributes for series, _ in points if series.metric is HW_GPU_INFO]
    things: dict[str, dict[str, None]] = {}
    facts = []
    for series, value in points:
        metric = series.metric
        who = next((key for key in WHO if key in metric.attributes), "")
        if who in _NOUNS and not (gpus and HW_ID in series.attributes):
            things.setdefault(_NOUNS[who], {})[str(series.attributes[who])] = None
        if metric is SYSTEM_CPU_LOGICAL_COUNT:
            facts.append(f"{value} logical CPUs")
        elif metric is SYSTEM_MEMORY_LIMIT:
            facts.append(f"{quantity(value, metric.unit)} of memory")
        elif not metric.attributes and metric.name.endswith(".limit"):
            facts.append(f"{metric.name.split('.')[1]} limit {quantity(value, metric.unit)}")
    parts = [f"{len(points)} series", *facts, *_gpus(gpus)]
    parts += [f"{noun}{'s' if len(names) > 1 else ''} {', '.join(names)}" for noun, names in things.items()]
    return "; ".join(parts)


def _gpus(found: Sequence[Mapping[str, str | int]]) -> Iterator[str]:
    """GPUs by their model, MIG instances, and their drivers."""
    from opentelemetry.instrumentation.hardware.vocabulary import HW_DRIVER_VERSION, HW_MODEL, HW_PARENT

    models = Counter(str(facts.get(HW_MODEL, "a GPU")) for facts in found if HW_PARENT not in facts)
    parts = sum(HW_PARENT in facts for facts in found)
    drivers = {str(facts[HW_DRIVER_VERSION]): None for facts in found if HW_DRIVER_VERSION in facts}
    yield from (f"{count} x {model}" if count > 1 else model for model, count in models.items())
    if parts:
        yield f"{parts} MIG instance{'s' if parts > 1 else ''}"
    if drivers:
        yield f"driver {', '.join(drivers)}"


# -- settings


def _settings(arguments: argparse.Namespace, config: Config, said: Sequence[str]) -> Iterator[Finding]:
    for setting in fields(Config):
        variable = PREFIX + setting.name.upper()
        value = getattr(config, setting.name)
        shown = ",".join(value) if isinstance(value, list) else f"{value}"
        if getattr(arguments, setting.name) is not None:
            yield Finding("settings", "ok", setting.name, f"{shown} (from the command line)")
        elif os.environ.get(variable, "").strip() and not any(f"{variable}=" in sentence for sentence in said):
            yield Finding("settings", "ok", setting.name, f"{shown} (from {variable})")
        else:
            default = setting.metadata["default"] if value is None or setting.name != "counter_origin" else shown
            yield Finding("settings", "ok", setting.name, f"{default} (default)")
    for sentence in said:
        named = sentence.replace(":", "=").partition("=")[0].removeprefix(PREFIX).lower()
        subject = named if named in {setting.name for setting in fields(Config)} else "warning"
        yield Finding("settings", "note", subject, sentence)


# -- zero code


def _zero_code(environ: MutableMapping[str, str]) -> Iterator[Finding]:
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


# -- OTLP


def _otlp(environ: Mapping[str, str]) -> Iterator[Finding]:
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


# -- the report


def _report(findings: Sequence[Finding], width: int, bold: bool) -> Iterator[str]:
    strong, plain = ("\x1b[1m", "\x1b[0m") if bold else ("", "")
    versions = _versions()
    yield (
        f"otel-hardware {versions.pop('opentelemetry-instrumentation-hardware', '')} on {socket.gethostname()}: "
        + ", ".join(f"{name} {number}" for name, number in versions.items())
    )
    part = ""
    for finding in findings:
        if finding.part != part:
            part = finding.part
            yield f"\n{strong}{part}{plain}"
        state = "" if part == "settings" and finding.state == "ok" else finding.state
        yield from _lines(finding, state.upper() if state == "wrong" else state, width)
    wrong = [finding for finding in findings if finding.state == "wrong"]
    yield ""
    if not wrong:
        yield "All is well."
    else:
        yield f"{strong}{len(wrong)} wrong:{plain} {'; '.join(dict.fromkeys(finding.subject for finding in wrong))}"


def _lines(finding: Finding, state: str, width: int) -> Iterator[str]:
    start = f"  {state:<5}  {finding.subject:<15}  "
    text = finding.text + (f" → {finding.fix}" if finding.fix else "")
    yield textwrap.fill(
        text,
        max(width, 60),
        initial_indent=start,
        subsequent_indent=" " * 26,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _print(text: str) -> None:
    print(text)  # noqa: T201
