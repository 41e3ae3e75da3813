"""``otel-hardware snapshot``: all numbers of this machine, once or again and again."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from opentelemetry.instrumentation.hardware.cli import settings
from opentelemetry.instrumentation.hardware.cli.interrupt import gentle
from opentelemetry.instrumentation.hardware.cli.messages import Mistake, say
from opentelemetry.instrumentation.hardware.cli.settings import seconds

if TYPE_CHECKING:
    from opentelemetry.instrumentation.hardware.pipeline.session import Session
    from opentelemetry.instrumentation.hardware.settings import Config

_DESCRIPTION = """\
Reads everything, waits for the window, reads again, and prints the numbers. Counters are totals since boot or
since the process began; shares, means and rates (+) are those of the window.

examples:
  otel-hardware snapshot                               a table of everything
  otel-hardware snapshot --watch                       redrawn every two seconds
  otel-hardware snapshot --pid 4242 --sources process  one process and its tree
  otel-hardware snapshot --format csv --every 10 >> numbers.csv
  otel-hardware snapshot --format wandb --every 15
  otel-hardware snapshot --format otlp-json | curl -d @- \\
      -H 'Content-Type: application/json' http://localhost:4318/v1/metrics

formats:
  table      for people; what this machine does not say stands below, with why
  json       one object per moment: time, host, window, pid, problems, missing,
             and metrics, each with name, kind, unit, attributes, value
  csv        one line per number, under a header
  wandb      one object per moment: _timestamp, _runtime, and the keys as W&B's
             pages have them (cpu, proc.memory.rssMB, gpu.0.powerWatts ...;
             W&B's own history export writes "system." before each)
  otlp-json  one ExportMetricsServiceRequest per moment, as OTLP/HTTP takes it

exit status: 0; 2 for a mistake in the arguments; 130 when interrupted before there was anything to print.
"""

_WATCH = 2.0


class Snapshot:
    """All numbers, now."""

    name = "snapshot"
    help = "print all numbers now: a table, JSON, CSV, W&B's keys, OTLP"
    description = _DESCRIPTION

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """The flags."""
        parser.usage = "otel-hardware snapshot [flags]"
        parser.add_argument(
            "--format", choices=("table", "json", "csv", "wandb", "otlp-json"), default="table", help="default: table"
        )
        parser.add_argument(
            "--window",
            type=seconds,
            metavar="SECONDS",
            help="time between the two readings that shares and rates are made of; default: 1",
        )
        parser.add_argument("--every", type=seconds, metavar="SECONDS", help="again and again, until Ctrl-C")
        parser.add_argument(
            "--watch", action="store_true", help="redraw the table in place, every 2 seconds if --every does not say"
        )
        parser.add_argument("--count", type=_count, metavar="N", help="stop after so many")
        parser.add_argument("--pid", metavar="PID", help="the process to look at; default: this command itself")
        settings.add(parser)

    def run(self, arguments: argparse.Namespace) -> int:
        """Print."""
        if arguments.watch and arguments.format != "table":
            raise Mistake("--watch draws tables; for the other formats take --every")
        if arguments.watch and arguments.every is None:
            arguments.every = _WATCH
        if arguments.count and arguments.count > 1 and arguments.every is None:
            raise Mistake("--count takes --every, the seconds between two of them")
        pid = os.getpid() if arguments.pid is None else settings.pid(arguments.pid)
        config = settings.config(arguments)
        printers = {"wandb": _rows, "otlp-json": _requests}
        try:
            printers.get(arguments.format, _views)(arguments, config, pid)
        except KeyboardInterrupt:
            if arguments.every is None:
                raise
        return 0


def _count(text: str) -> int:
    if not text.isdigit() or text == "0":
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of times; it takes 1, 2, 3 …")
    return int(text)


def _moments(arguments: argparse.Namespace) -> Iterator[int]:
    """Wait for each moment that is to be printed, and number them from 0."""
    number = 0
    due = time.monotonic()
    count = arguments.count or (1 if arguments.every is None else None)
    with gentle():
        while count is None or number < count:
            first = arguments.window or min(1.0, arguments.every or 1.0)
            due = max(due + (arguments.every if number else first), time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))
            yield number
            number += 1


def _session(arguments: argparse.Namespace, config: Config, pid: int) -> Session:
    """A session of our own: other programs of a job do not keep it from looking at the host."""
    from opentelemetry.instrumentation.hardware.pipeline.session import Session

    return Session(
        config, pid, arguments.every or arguments.window or 1.0, environ={}, all_processes=pid == os.getpid()
    )


def _views(arguments: argparse.Namespace, config: Config, pid: int) -> None:
    from opentelemetry.instrumentation.hardware.cli.lines import as_csv, as_json
    from opentelemetry.instrumentation.hardware.cli.screen import Screen
    from opentelemetry.instrumentation.hardware.cli.view import Viewer

    session = _session(arguments, config, pid)
    session.start()
    try:
        viewer = Viewer(session, pid)
        with Screen(sys.stdout, arguments.watch) as screen:
            for number in _moments(arguments):
                view = viewer.look()
                if arguments.format == "table":
                    screen.show(view)
                    continue
                _print(as_json(view) if arguments.format == "json" else as_csv(view, header=not number))
                if number == 0 and arguments.format == "csv":
                    for sentence in view.unsupported:
                        say(sentence)
    finally:
        session.close()


def _rows(arguments: argparse.Namespace, config: Config, pid: int) -> None:
    import json

    from opentelemetry.instrumentation.hardware.wandb.keys import Rows

    rows = Rows(config, pid, say)
    try:
        rows.start()
        for _ in _moments(arguments):
            _print(json.dumps(rows.read()))
    except FileNotFoundError:
        raise Mistake(f"process {pid} has ended", 1) from None
    finally:
        rows.close()


def _requests(arguments: argparse.Namespace, config: Config, pid: int) -> None:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.resources import Resource

    from opentelemetry.instrumentation.hardware.cli.lines import as_otlp
    from opentelemetry.instrumentation.hardware.cli.otlp import prepare
    from opentelemetry.instrumentation.hardware.instrumentor import HardwareInstrumentor

    prepare(os.environ, arguments.every)
    session = _session(arguments, config, pid)
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], Resource.create(), shutdown_on_exit=False)
    instrumentor = HardwareInstrumentor()
    instrumentor.instrument(meter_provider=provider, session=session)
    try:
        session.read_now(2.0)
        for _ in _moments(arguments):
            session.read_now(0.5)
            data = reader.get_metrics_data()
            if data is not None:
                _print(as_otlp(data))
    finally:
        provider.shutdown()
        instrumentor.uninstrument()


def _print(text: str) -> None:
    print(text, flush=True)  # noqa: T201
