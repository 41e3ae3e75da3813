"""``otel-hardware doctor``: what this machine can say, and whether it would arrive."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from opentelemetry.instrumentation.hardware.cli import settings
from opentelemetry.instrumentation.hardware.cli.delivery import export, zero_code
from opentelemetry.instrumentation.hardware.cli.findings import Finding, report, versions
from opentelemetry.instrumentation.hardware.settings import PREFIX, Config

if TYPE_CHECKING:
    from opentelemetry.instrumentation.hardware.pipeline.runner import SourceRunner

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
_SUBJECT = 24
"""Letters of a subject, which is a column of the report."""

_NOUNS = {
    "system.device": "disk",
    "network.interface.name": "interface",
    "system.filesystem.mountpoint": "mount",
    "hw.name": "device",
}


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
        findings += zero_code(os.environ)
        findings += export(os.environ)
        wrong = sum(finding.state == "wrong" for finding in findings)
        if arguments.json:
            about = {"host": socket.gethostname(), "wrong": wrong, "versions": versions()}
            _print(json.dumps(about | {"findings": [finding._asdict() for finding in findings]}, indent=2))
        else:
            width = shutil.get_terminal_size((100, 24)).columns
            for line in report(findings, width, sys.stdout.isatty() and "NO_COLOR" not in os.environ):
                _print(line)
        return 1 if wrong else 0


# -- sources


def _sources(config: Config) -> Iterator[Finding]:
    from opentelemetry.instrumentation.hardware.pipeline.session import Session
    from opentelemetry.instrumentation.hardware.sources import discover

    session = Session(config, environ={})
    session.start()
    try:
        session.read_now(_PATIENCE)
        runners = {runner.name: runner for runner in session.runners}
        for name in discover():
            parts = [each for label, each in runners.items() if label.partition(":")[0] == name]
            if parts:
                for runner in parts:
                    yield from _source(runner, session.clock())
            elif config.selects(name):
                yield Finding("sources", "wrong", name, "cannot be loaded", "see the warnings below")
            else:
                yield Finding("sources", "note", name, "switched off by SOURCES")
    finally:
        session.close()


def _source(runner: SourceRunner, now: float) -> Iterator[Finding]:
    from opentelemetry.instrumentation.hardware.cli.view import told
    from opentelemetry.instrumentation.hardware.pipeline.runner import State

    problem, source = runner.health(now), runner.source
    if runner.state is State.ABSENT and problem is not None:
        yield Finding("sources", "note", runner.name, f"not here: {problem.reason}", problem.fix)
    elif problem is not None:
        yield Finding("sources", "wrong", runner.name, problem.reason, problem.fix)
    elif runner.state is not State.UP:
        waited = f"has not answered for {_PATIENCE:g} s"
        yield Finding(
            "sources", "wrong", runner.name, waited, "its driver or file system hangs; -NAME in SOURCES leaves it out"
        )
    else:
        yield Finding("sources", "ok", runner.name, _found(runner, now))
    for sentence in source.unsupported if source is not None else ():
        subject, why = told(sentence, _SUBJECT)
        yield Finding("sources", "note", subject or runner.name, why)


def _found(runner: SourceRunner, now: float) -> str:
    """What a source is about, from its own points: how many, of which things, under which limits."""
    from opentelemetry.instrumentation.hardware.catalog import (
        HW_GPU_INFO,
        HW_ID,
        SYSTEM_CPU_LOGICAL_COUNT,
        SYSTEM_MEMORY_LIMIT,
    )
    from opentelemetry.instrumentation.hardware.cli.table import WHO, quantity

    points, _ = runner.window(None, now)
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
    from opentelemetry.instrumentation.hardware.catalog import HW_DRIVER_VERSION, HW_MODEL, HW_PARENT

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
        elif os.environ.get(variable, "").strip() and not any(
            sentence.startswith(f"{variable}: ") and "using the default" in sentence for sentence in said
        ):
            yield Finding("settings", "ok", setting.name, f"{shown} (from {variable})")
        else:
            default = setting.metadata["default"] if value is None or setting.name != "counter_origin" else shown
            yield Finding("settings", "ok", setting.name, f"{default} (default)")
    for sentence in said:
        named = sentence.partition(":")[0].removeprefix(PREFIX).lower()
        subject = named if named in {setting.name for setting in fields(Config)} else "warning"
        yield Finding("settings", "note", subject, sentence)


def _print(text: str) -> None:
    print(text)  # noqa: T201
