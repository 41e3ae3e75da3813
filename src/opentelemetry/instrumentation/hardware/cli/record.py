"""``otel-hardware record``: captures raw driver output, for tests and bug reports."""

from __future__ import annotations

import argparse
import io
import os
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from typing import TextIO

from opentelemetry.instrumentation.hardware.cli import settings
from opentelemetry.instrumentation.hardware.cli.interrupt import interruptible
from opentelemetry.instrumentation.hardware.cli.messages import Mistake, cause, say
from opentelemetry.instrumentation.hardware.cli.privacy import Mask
from opentelemetry.instrumentation.hardware.drivers import Drivers, capture
from opentelemetry.instrumentation.hardware.model import Problem
from opentelemetry.instrumentation.hardware.pipeline import session as pipeline
from opentelemetry.instrumentation.hardware.pipeline.runner import State
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import discover, unknown_source

_UNRELATED = ("sources", "sample_interval", "counter_origin")  # settings that do not affect a source


HELP = "capture raw driver output for a bug report"

DESCRIPTION = """\
Opens one source, reads it several times, and writes every call of its drivers and the result
as lines of JSON.

Attach it to a report about a wrong or missing value: it becomes a test of this package.
'otel-hardware snapshot --replay FILE' shows it.

Names of this host and of the user, serial numbers, UUIDs, addresses, home folders and command
lines are replaced. Mounts and control groups are not: review it, and redact words by --hide.

examples:
  otel-hardware record host --output host.jsonl
  otel-hardware record container --hide "$(hostname)" --hide customer
  otel-hardware record process --pid 4242

exit status: 0; 1 if the source is not available; 2 for mistakes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "otel-hardware record SOURCE [flags]"
    parser.add_argument("source", metavar="SOURCE", help=f"one of {', '.join(discover())}")
    parser.add_argument("--ticks", type=settings.count, default=3, metavar="N", help="number of readings; default: 3")
    text = "time between two readings; default: 2"
    parser.add_argument("--interval", type=settings.seconds, default=2.0, metavar="SECONDS", help=text)
    parser.add_argument("--output", metavar="FILE", help="file to write; default: standard output")
    parser.add_argument("--pid", metavar="PID", help="process to observe; default: this command")
    parser.add_argument(
        "--hide", action="append", default=[], metavar="WORD", help="replace this word with x; may be repeated"
    )
    settings.add(parser, but=_UNRELATED)


def run(arguments: argparse.Namespace) -> int:
    if arguments.source not in discover():
        raise Mistake(unknown_source(arguments.source, discover()))
    with interruptible(), _output(arguments.output) as output:
        problem = _record(output, arguments)
    if problem is not None:
        say(str(problem))
    return int(problem is not None)


def _output(path: str | None) -> AbstractContextManager[TextIO]:
    if path is None:
        return nullcontext(sys.stdout)
    try:
        return open(path, "w", encoding="utf-8")
    except OSError as error:
        raise Mistake(f"{path} cannot be written: {cause(error)}") from None


def _record(output: TextIO, arguments: argparse.Namespace) -> Problem | None:
    """Write the capture, and return why the source is not available or failed; None if it was read."""
    config = settings.config(arguments)
    pid = os.getpid() if arguments.pid is None else settings.pid(arguments.pid)
    mask = Mask(arguments.hide)
    lines = io.StringIO()  # not the output: the source would take a full disk or a closed pipe for an error of its own
    drivers = capture.Record(Drivers(), lines, arguments.source, _header(config, pid), mask, mask_answer=mask.answer)
    config = config.changed(sources=[arguments.source])
    try:
        of_host = discover()[arguments.source]().of_all_processes
    except (Exception, SystemExit) as error:  # a third-party package
        return Problem(arguments.source, f"it cannot be loaded: {type(error).__name__}: {error}")
    session = pipeline.Session(config, pid, drivers=lambda name: drivers, all_processes=of_host)
    runner, *others = session.runners
    if others:
        say(f"only {runner.name} is recorded; to record {others[0].name}, configure it alone")
    try:
        for tick in range(arguments.ticks):
            if tick:
                time.sleep(arguments.interval)
                drivers.next()
            runner.read(everything=True)
            _move(lines, output)
            if runner.state is not State.UP:
                break
        return None if runner.state is State.UP else runner.problem
    finally:
        runner.close()
        _move(lines, output)  # those of a reading that Ctrl-C has ended
        if mask.found:
            say(f"replaced: {', '.join(f'{name} {count}' for name, count in mask.found.items())}")


def _move(lines: io.StringIO, output: TextIO) -> None:
    output.write(lines.getvalue())
    output.flush()
    lines.seek(0)
    lines.truncate()


def _header(config: Config, pid: int) -> dict[str, object]:
    """Return the header of the capture: the settings and the PID, which a replay needs."""
    chosen = {setting.name: getattr(config, setting.name) for setting in fields(config)}
    given = {name: value for name, value in chosen.items() if value is not None and name not in _UNRELATED}
    simulated = {}
    if config.simulate is not None:
        given["simulate"] = config.simulate.text
        simulated["nature"] = "simulated"
    return simulated | ({"settings": given} if given else {}) | ({"pid": pid} if pid != os.getpid() else {})
