"""``otel-hardware doctor``: check the sources of this machine, the settings and the export."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import fields
from typing import TypeAlias

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.cli import replay, settings
from opentelemetry.instrumentation.hardware.cli.delivery import export, zero_code
from opentelemetry.instrumentation.hardware.cli.findings import Finding, report, versions
from opentelemetry.instrumentation.hardware.cli.messages import Mistake, cause, collected_logs
from opentelemetry.instrumentation.hardware.cli.table import IDENTITY
from opentelemetry.instrumentation.hardware.cli.text import counted, listed, quantity
from opentelemetry.instrumentation.hardware.model import Number, Series
from opentelemetry.instrumentation.hardware.pipeline.runner import SourceRunner, State
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.settings import PREFIX, Config
from opentelemetry.instrumentation.hardware.settings.redaction import redacted
from opentelemetry.instrumentation.hardware.sources import discover
from opentelemetry.instrumentation.hardware.system.identity import host_name
from opentelemetry.instrumentation.hardware.system.limits import shortage

HELP = "check sources, settings and export, and show what to do"

DESCRIPTION = """\
Checks the sources, the settings, what opentelemetry-instrument needs, and the connection to the OTLP endpoint, to which
it sends an empty request. Run it with the environment and the Python of the program to be reported.

examples:
  otel-hardware doctor
  otel-hardware doctor --format json > before.json
  otel-hardware doctor --compare before.json         metrics reported then but missing now

In JSON, the state of a finding is ok, note, wrong, absent (not on this machine), off (turned off by a setting) or
default (a setting that is not set).

exit status: 0; 1 if something is wrong; 2 for wrong arguments.
"""

_TIMEOUT = 3.0  # seconds after which a source counts as hung

_WINDOW = 0.1  # seconds between two readings: some values need two

# Sources that many machines do not have.
_OPTIONAL = ("container", "hwmon", "infiniband", "openmetrics", "powercap")

_NAMED = 5  # metrics that a message names

_NOUNS = {c.DEVICE: "disk", c.INTERFACE: "interface", c.FILESYSTEM_MOUNTPOINT: "mount", c.HW_NAME: "device"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "otel-hardware doctor [flags]"
    parser.add_argument("--format", choices=("table", "json"), default="table", help="default: table")
    parser.add_argument("--all", action="store_true", help="show why each source is absent")
    parser.add_argument(
        "--compare", metavar="FILE", help="name metrics that are missing since FILE, the JSON of an earlier run"
    )
    replay.add_argument(parser)
    settings.add(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the findings.

    Raises:
        Mistake: The file to compare with cannot be read.
    """
    before = None if arguments.compare is None else _earlier(arguments.compare)
    with collected_logs() as messages:
        config = settings.config(arguments)
        findings, series = _sources(config, arguments)
    if arguments.replay is None:  # the rest is about this machine
        findings += _settings(arguments, config, messages)
        findings += zero_code(os.environ)
        if shortage() is None:  # else gRPC would abort this process
            findings += export(os.environ)
        if (lacking := shortage()) is not None:
            fix = "set a higher limit with ulimit, or for the service or container"
            findings.append(Finding("settings", "wrong", "limit", f"{lacking}, so nothing is reported", fix))
    if before is not None:
        findings += _missing(before, series)
    findings = [finding._replace(text=redacted(finding.text), fix=redacted(finding.fix)) for finding in findings]
    wrong = sum(finding.state == "wrong" for finding in findings)
    if arguments.format == "json":
        about = {"host": host_name(), "wrong": wrong, "versions": versions(), "series": series}
        print(json.dumps(about | {"findings": [finding._asdict() for finding in findings]}, indent=2))
    else:
        width = shutil.get_terminal_size((100, 24)).columns
        bold = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        for line in report(findings, width, bold, arguments.all):
            print(line)
    return 1 if wrong else 0


# -- comparison


_Series: TypeAlias = "Mapping[str, Mapping[str, int]]"  # the number of series of each metric, by source


def _earlier(path: str) -> _Series:
    """Return the series of an earlier report.

    Raises:
        Mistake: The file is not a report.
    """
    try:
        with open(path, encoding="utf-8") as file:
            series = json.load(file)["series"]
        return {source: {name: int(count) for name, count in each.items()} for source, each in series.items()}
    except OSError as error:
        raise Mistake(f"--compare: cannot read {path}: {cause(error)}") from None
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
        raise Mistake(f"--compare: {path} is not the output of 'otel-hardware doctor --format json'") from None


def _missing(before: _Series, now: _Series) -> Iterator[Finding]:
    """Yield what was reported before and is not now."""
    for source, metrics in before.items():
        found = now.get(source, {})
        missing = [name for name in metrics if name not in found]
        if not found and missing:
            text = f"the source was available before, with {len(missing)} metrics"
            yield Finding("compare", "wrong", source, text, "see its reason: --all")
        elif missing:
            yield Finding("compare", "wrong", source, f"reported before, and not now: {listed(missing, _NAMED)}")
        fewer = [
            f"{name} ({found[name]} of {count})" for name, count in metrics.items() if 0 < found.get(name, 0) < count
        ]
        if fewer:
            yield Finding("compare", "note", source, f"fewer series than before: {listed(fewer, _NAMED)}")
    if not any(set(metrics) - set(now.get(source, {})) for source, metrics in before.items()):
        yield Finding("compare", "ok", "comparison", "all metrics of the earlier report are there")


# -- sources


def _sources(config: Config, arguments: argparse.Namespace) -> tuple[list[Finding], dict[str, dict[str, int]]]:
    """Return the findings about the sources, and the number of series of each metric by source."""
    findings: list[Finding] = []
    series = {}
    with closing(replay.session_of(arguments, config, all_processes=True)) as session:
        config = session.config
        session.start()
        session.read_now(_TIMEOUT)
        time.sleep(_WINDOW)
        session.read_now(_TIMEOUT)
        for name in discover():
            parts = [each for each in session.runners if each.name.partition(":")[0] == name]
            for runner in parts:
                points = [point for point in runner.points(session.clock()) if config.wants(point[0].metric)]
                findings += _source(runner, points, session.clock())
                metrics = Counter(each.metric.name for each, _ in points)
                if metrics:
                    series[runner.name] = dict(sorted(metrics.items()))
            if not parts and config.selects(name):
                findings.append(Finding("sources", "wrong", name, "cannot be loaded; a note below has the reason"))
            elif not parts:
                findings.append(Finding("sources", "off", name, "turned off by SOURCES"))
        findings += _spans(session)
    return findings, series


def _spans(session: Session) -> Iterator[Finding]:
    """Say which attributes the spans of a program will have on this machine, and why others will be missing."""
    from opentelemetry.instrumentation.hardware.accelerators.source import AcceleratorSource

    if session.config.spans == "off":
        yield Finding("spans", "ok", "will have", "nothing, because OTEL_PYTHON_HARDWARE_SPANS=off")
        return
    sources, found = [], set()
    for runner in session.runners:
        if runner.state is State.UP and isinstance(runner.source, AcceleratorSource):
            sources.append(runner.source)
            found |= {series.metric for series, _ in runner.points(session.clock())}
    yield Finding("spans", "ok", "will have", c.SPAN_CPU_TIME.name)
    present = {
        c.HW_ENERGY: f"{c.SPAN_ENERGY.name}, {c.SPAN_SHARE_ENERGY.name}",
        c.HW_GPU_TIME: c.SPAN_GPU_TIME.name,
        c.HW_GPU_MEMORY_USAGE: c.SPAN_GPU_MEMORY_PEAK.name,
    }
    has = [names for metric, names in present.items() if metric in found]
    if has:
        yield Finding("spans", "ok", "will have", f"{', '.join(has)} of the accelerators that the program uses")
    if any(not source.program.on_host for source in sources):
        text = "if the driver names PIDs that are not visible here, all visible accelerators count as used, and "
        yield Finding("spans", "ok", "in a container", f"{text}{c.SPAN_DEVICES.name} is visible")
    if c.HW_ENERGY not in found:
        reason = "their driver reports neither energy nor power" if found else "no accelerator is reported here"
        yield Finding("spans", "ok", "will not have", f"{c.SPAN_ENERGY.name}, because {reason}")


def _source(runner: SourceRunner, points: Sequence[tuple[Series, Number]], now: float) -> Iterator[Finding]:
    problem, source = runner.health(now), runner.source
    if runner.state is State.ABSENT and problem is not None:
        is_expected = not problem.fix or runner.name in _OPTIONAL
        yield Finding("sources", "absent" if is_expected else "note", runner.name, problem.reason, problem.fix)
    elif problem is not None:
        yield Finding("sources", "wrong", runner.name, problem.reason, problem.fix)
    elif runner.state is not State.UP:
        text = f"no reading within {_TIMEOUT:g} s: the driver or file system hangs"
        fix = f"leave it out: --sources=-{runner.name.partition(':')[0]}"
        yield Finding("sources", "wrong", runner.name, text, fix)
    else:
        yield Finding("sources", "ok", runner.name, _found(points))
    for sentence in source.unsupported if source is not None else ():
        yield Finding("sources", "note", runner.name, sentence)


def _found(points: Sequence[tuple[Series, Number]]) -> str:
    """Describe what a source found: the number of series, devices and limits."""
    if not points:
        return "nothing to report here"
    gpus = [series.attributes for series, _ in points if series.metric is c.HW_GPU_INFO]
    names: dict[str, dict[str, None]] = {}
    facts = []
    for series, value in points:
        metric = series.metric
        identity = next((key for key in IDENTITY if key in metric.attributes), "")
        if identity in _NOUNS and not (gpus and c.HW_ID in series.attributes):
            names.setdefault(_NOUNS[identity], {})[str(series.attributes[identity])] = None
        if metric is c.SYSTEM_CPU_LOGICAL_COUNT:
            facts.append(f"{value} logical CPUs")
        elif metric is c.SYSTEM_MEMORY_LIMIT:
            facts.append(f"{quantity(value, metric.unit)} of memory")
        elif not metric.attributes and metric.name.endswith(".limit"):
            facts.append(f"{metric.name.split('.')[1]} limit {quantity(value, metric.unit)}")
    parts = [f"{len(points)} series", *facts, *_gpus(gpus)]
    parts += [f"{noun}{'s' if len(found) > 1 else ''} {', '.join(found)}" for noun, found in names.items()]
    return "; ".join(parts)


def _gpus(found: Sequence[Mapping[str, str | int]]) -> Iterator[str]:
    """Describe GPUs by model, partitions, and driver versions."""
    models = Counter(str(facts.get(c.HW_MODEL, "a GPU")) for facts in found if c.HW_PARENT not in facts)
    parts = sum(c.HW_PARENT in facts for facts in found)
    drivers = {str(facts[c.HW_DRIVER_VERSION]): None for facts in found if c.HW_DRIVER_VERSION in facts}
    yield from (f"{count} x {model}" if count > 1 else model for model, count in models.items())
    if parts:
        yield counted(parts, "partition")
    if drivers:
        yield f"driver {', '.join(drivers)}"


# -- settings


def _settings(arguments: argparse.Namespace, config: Config, messages: Sequence[str]) -> Iterator[Finding]:
    """Yield the settings with their origin, and the warnings, most of which are about settings that are ignored."""
    for setting in fields(Config):
        name, variable = setting.name, PREFIX + setting.name.upper()
        value, facts = getattr(config, setting.name), setting.metadata
        shown = ",".join(value) if isinstance(value, (list, dict)) else f"{value}"  # of endpoints the names only
        given = "--" + name.replace("_", "-") if getattr(arguments, name) is not None else variable
        if value is None or name in config.invalid or (given == variable and not os.environ.get(variable, "").strip()):
            yield Finding("settings", "default", name, shown if name == "counter_origin" else facts["default"])
        elif isinstance(value, str) and os.path.isabs(value) and not os.path.exists(value):
            reason = f"{value} does not exist, or this user cannot see it"
            yield Finding("settings", "wrong", name, reason, f"correct or unset {given}")
        else:
            yield Finding("settings", "ok", name, f"{shown} (from {given})")
    for message in messages:
        name = message.partition(":")[0].removeprefix(PREFIX).removeprefix("--").replace("-", "_").lower()
        subject = name if name in {setting.name for setting in fields(Config)} else "warning"
        yield Finding("settings" if message.startswith((PREFIX, "--")) else "sources", "note", subject, message)
