"""``otel-hardware snapshot``: all values of this machine, once or repeatedly."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import quote

from opentelemetry.instrumentation.hardware import wandb
from opentelemetry.instrumentation.hardware.cli import exporters, replay, settings
from opentelemetry.instrumentation.hardware.cli.interrupt import interruptible
from opentelemetry.instrumentation.hardware.cli.messages import Mistake, say
from opentelemetry.instrumentation.hardware.cli.screen import INTERVAL, Screen
from opentelemetry.instrumentation.hardware.cli.settings import seconds
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.pipeline.view import View, Viewer
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.settings.redaction import printable
from opentelemetry.instrumentation.hardware.system.identity import host_name, timestamp
from opentelemetry.instrumentation.hardware.system.job import start_time

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricsData

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

exit status: 0; 1 if the process of --pid has ended; 2 for wrong arguments; 130 if interrupted
before anything was printed.
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "otel-hardware snapshot [flags]"
    parser.add_argument(
        "--format",
        choices=("table", "json", "csv", "wandb", "otlp-json"),
        metavar="FORMAT",
        default="table",
        help="table, json, csv, wandb (W&B's keys) or otlp-json; default: table",
    )
    parser.add_argument("--window", type=seconds, metavar="SECONDS", help="time that means and rates cover; default: 1")
    parser.add_argument("--every", type=seconds, metavar="SECONDS", help="repeat at this interval, until Ctrl-C")
    parser.add_argument("--watch", action="store_true", help="redraw the table in place")
    parser.add_argument("--count", type=settings.count, metavar="N", help="stop after N snapshots")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--pid", metavar="PID", help="add the metrics of this process and its descendants")
    replay.add_argument(shown)
    settings.add(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.watch and arguments.format != "table":
        raise Mistake("--watch redraws a table; for the other formats use --every")
    if arguments.watch and arguments.every is None:
        arguments.every = INTERVAL
    if arguments.count and arguments.count > 1 and arguments.every is None:
        raise Mistake("--count needs --every, the seconds between two snapshots")
    config = settings.config(arguments)
    pid = os.getpid() if arguments.pid is None else settings.pid(arguments.pid)
    if arguments.format == "wandb":
        config = wandb.needs(config)
    elif arguments.pid is None:
        config = settings.without_process(config)
    show = _print_otlp_requests if arguments.format == "otlp-json" else _print_views
    try:
        show(arguments, config, pid)
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
            if arguments.pid is not None and start_time(int(arguments.pid)) is None:
                raise Mistake(f"process {arguments.pid} has ended; these are its last values", 1)


def _session(arguments: argparse.Namespace, config: Config, pid: int) -> Session:
    is_of_host = pid == os.getpid() and arguments.format != "wandb"
    interval = arguments.every or arguments.window or 1.0
    return replay.session_of(arguments, config, pid, interval=interval, all_processes=is_of_host)


def _print_views(arguments: argparse.Namespace, config: Config, pid: int) -> None:
    with closing(_session(arguments, config, pid)) as session:
        session.start()
        viewer = Viewer(session, None if arguments.pid is None else pid)
        points = wandb.Points(viewer.first, time.time(), config, pid)
        with Screen(sys.stdout, arguments.watch) as screen:
            for number in _snapshots(arguments):
                view = viewer.collect()
                if arguments.format == "table":
                    screen.show(view)
                    continue
                if arguments.format == "json":
                    text = as_json(view)
                else:
                    text = as_csv(view, not number) if arguments.format == "csv" else json.dumps(points.row(view))
                print(text, flush=True)
                if number == 0 and arguments.format != "json":  # the others have no place for failures
                    absent = [each.problem for each in session.runners if each.name in session.accelerators]
                    problems = [*view.snapshot.problems, *filter(None, absent)]
                    for problem in dict.fromkeys(problems):
                        say(str(problem))


def _print_otlp_requests(arguments: argparse.Namespace, config: Config, pid: int) -> None:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.resources import Resource

    from opentelemetry.instrumentation.hardware.instrumentor import HardwareInstrumentor
    from opentelemetry.instrumentation.hardware.resource_detector import of_agent

    exporters.set_defaults(os.environ, arguments.every)
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


# -- for programs


_HEADER = ("time", "host", "name", "kind", "unit", "attributes", "value")


def as_json(view: View) -> str:
    """One object: time, host, window, the observed process, metrics, problems, and what is missing."""
    metrics = [
        {
            "name": metric.name,
            "kind": metric.kind.value,
            "unit": metric.unit,
            "attributes": dict(attributes),
            "value": value,
        }
        for metric, points in view.rows()
        for value, attributes in points
    ]
    problems = [{"source": each.source, "reason": each.reason, "fix": each.fix} for each in view.snapshot.problems]
    return json.dumps(
        {
            "time": timestamp(view.time),
            "host": host_name(),
            "window": round(view.window, 3),
            **({} if view.pid is None else {"pid": view.pid}),
            "metrics": metrics,
            "problems": problems,
            "missing": list(view.unsupported),
        }
    )


def as_csv(view: View, header: bool) -> str:
    """Return one line per value with the columns of ``_HEADER``. Attributes are ``name=value`` with semicolons."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if header:
        writer.writerow(_HEADER)
    time, host = timestamp(view.time), host_name()
    for metric, points in view.rows():
        for value, attributes in points:
            pairs = ";".join(
                f"{printable(name)}={quote(str(word), safe='/:@ ')}" for name, word in sorted(attributes.items())
            )
            writer.writerow((time, host, printable(metric.name), metric.kind.value, metric.unit, pairs, value))
    return text.getvalue().rstrip("\n")


def as_otlp(data: MetricsData) -> str:
    """Return an export request in OTLP's JSON encoding: enumerations as numbers, 64-bit integers as strings."""
    from google.protobuf.json_format import MessageToDict
    from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics

    return json.dumps(MessageToDict(encode_metrics(data), use_integers_for_enums=True))
