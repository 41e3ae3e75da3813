"""``otel-hardware snapshot``: all values of this machine, once or repeatedly."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from opentelemetry.instrumentation.hardware.cli import replay, settings
from opentelemetry.instrumentation.hardware.cli.interrupt import interruptible
from opentelemetry.instrumentation.hardware.cli.messages import Mistake, say
from opentelemetry.instrumentation.hardware.cli.settings import seconds

if TYPE_CHECKING:
    from opentelemetry.instrumentation.hardware.pipeline.session import Session
    from opentelemetry.instrumentation.hardware.settings import Config

HELP = "print all values now, as a table, JSON, CSV, W&B keys or OTLP"

DESCRIPTION = """\
Reads all sources twice, and prints the values. Counters are totals since boot or process start. Means, ratios and rates
(+) cover the time between the readings.

examples:
  otel-hardware snapshot                               a table of all values
  otel-hardware snapshot --watch                       redrawn every two seconds
  otel-hardware snapshot --pid 4242 --sources process  one process and its descendants
  otel-hardware snapshot --format csv --every 10 >> values.csv
  otel-hardware snapshot --format wandb --every 15
  otel-hardware snapshot --format otlp-json | curl -d @- \\
      -H 'Content-Type: application/json' http://localhost:4318/v1/metrics

exit status: 0; 2 for wrong arguments; 130 if interrupted before anything was printed.
"""

DETAILS = """\
formats:
  table      for people, with the reasons for missing values at the end
  json       one object per snapshot: time, host, window, pid (with --pid), problems,
             missing, and metrics, each with name, kind, unit, attributes, value
  csv        one line per value, under a header
  wandb      one object per snapshot: _timestamp, _runtime, and the keys of W&B's
             system metrics (cpu, proc.memory.rssMB, gpu.0.powerWatts ...).
             W&B's own history export adds "system." before each key. proc.* is
             the process of --pid, by default this command itself.
  otlp-json  one ExportMetricsServiceRequest per snapshot, in OTLP/HTTP's JSON
"""

_WATCH_INTERVAL = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.usage = "otel-hardware snapshot [flags]"
    parser.add_argument(
        "--format",
        choices=("table", "json", "csv", "wandb", "otlp-json"),
        metavar="FORMAT",
        default="table",
        help="table, json, csv, wandb (W&B's keys) or otlp-json; default: table",
    )
    parser.add_argument(
        "--window",
        type=seconds,
        metavar="SECONDS",
        help="time that means and rates cover; default: 1",
    )
    parser.add_argument("--every", type=seconds, metavar="SECONDS", help="repeat at this interval, until Ctrl-C")
    parser.add_argument("--watch", action="store_true", help="redraw the table in place")
    parser.add_argument("--count", type=settings.count, metavar="N", help="stop after N snapshots")
    parser.add_argument("--pid", metavar="PID", help="add the metrics of this process and its descendants")
    replay.add_argument(parser)
    settings.add(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the values."""
    from opentelemetry.instrumentation.hardware import wandb

    if arguments.watch and arguments.format != "table":
        raise Mistake("--watch redraws a table; for the other formats use --every")
    if arguments.watch and arguments.every is None:
        arguments.every = _WATCH_INTERVAL
    if arguments.count and arguments.count > 1 and arguments.every is None:
        raise Mistake("--count needs --every, the seconds between two snapshots")
    config = settings.config(arguments)
    pid = os.getpid() if arguments.pid is None else settings.pid(arguments.pid)
    if arguments.format == "wandb":
        config = wandb.needs(config)
    elif arguments.pid is None and "process" not in (config.sources or ()):
        config = config.changed(sources=[*(config.sources or ()), "-process"])  # it would be this command itself
    printers = {"otlp-json": _print_otlp_requests}
    try:
        printers.get(arguments.format, _print_views)(arguments, config, pid)
    except KeyboardInterrupt:
        if arguments.every is None:
            raise
    return 0


def _snapshots(arguments: argparse.Namespace) -> Iterator[int]:
    """Wait until each snapshot is due, and yield its number, from 0.

    Raises:
        Mistake: The process of ``--pid`` has ended.
    """
    number = 0
    due = time.monotonic()
    count = arguments.count or (1 if arguments.every is None else None)
    with interruptible():
        while count is None or number < count:
            first = arguments.window or min(1.0, arguments.every or 1.0)
            due = max(due + (arguments.every if number else first), time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))
            yield number
            number += 1
            if arguments.pid is not None and _has_ended(int(arguments.pid)):
                raise Mistake(f"process {arguments.pid} has ended; these are its last values", 1)


def _has_ended(pid: int) -> bool:
    import psutil

    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _session(arguments: argparse.Namespace, config: Config, pid: int) -> Session:
    """Return a session that reports the host, even in a job that already has a reporter."""
    from opentelemetry.instrumentation.hardware.pipeline.session import Session

    if arguments.replay is not None:
        return replay.ReplayedSession(arguments.replay, arguments)
    is_of_host = pid == os.getpid() and arguments.format != "wandb"
    return Session(config, pid, arguments.every or arguments.window or 1.0, all_processes=is_of_host)


def _print_views(arguments: argparse.Namespace, config: Config, pid: int) -> None:
    from opentelemetry.instrumentation.hardware import wandb
    from opentelemetry.instrumentation.hardware.cli.lines import as_csv, as_json
    from opentelemetry.instrumentation.hardware.cli.screen import Screen
    from opentelemetry.instrumentation.hardware.pipeline.view import Viewer

    session = _session(arguments, config, pid)
    session.start()
    try:
        viewer = Viewer(session, None if arguments.pid is None else pid)
        rows = wandb.Rows(viewer.first, time.time(), config, pid)
        with Screen(sys.stdout, arguments.watch) as screen:
            for number in _snapshots(arguments):
                view = viewer.collect()
                if arguments.format == "table":
                    screen.show(view)
                    continue
                if arguments.format == "json":
                    text = as_json(view)
                else:
                    text = as_csv(view, not number) if arguments.format == "csv" else json.dumps(rows.row(view))
                print(text, flush=True)
                if number == 0 and arguments.format != "json":  # the others have no place for failures
                    absent = [each.problem for each in session.runners if each.name in session.accelerators]
                    problems = [*view.snapshot.problems, *filter(None, absent)]
                    for problem in dict.fromkeys(problems):
                        say(f"{problem.source}: {problem.reason}")
    finally:
        session.close()


def _print_otlp_requests(arguments: argparse.Namespace, config: Config, pid: int) -> None:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.resources import Resource

    from opentelemetry.instrumentation.hardware.cli.lines import as_otlp
    from opentelemetry.instrumentation.hardware.cli.otlp import set_defaults
    from opentelemetry.instrumentation.hardware.instrumentor import HardwareInstrumentor
    from opentelemetry.instrumentation.hardware.resource_detector import of_agent

    set_defaults(os.environ, arguments.every)
    session = _session(arguments, config.changed(preset="all"), pid)
    reader = InMemoryMetricReader()
    resource = Resource.create(of_agent(pid, config.simulate is not None))
    provider = MeterProvider([reader], resource, shutdown_on_exit=False)
    instrumentor = HardwareInstrumentor()
    instrumentor.instrument(meter_provider=provider, session=session)
    try:
        session.read_now(2.0)
        for _ in _snapshots(arguments):
            session.read_now(0.5)
            data = reader.get_metrics_data()
            if data is not None:
                print(as_otlp(data), flush=True)
    finally:
        provider.shutdown()
        instrumentor.uninstrument()
