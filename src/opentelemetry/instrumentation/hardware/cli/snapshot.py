"""``otel-hardware snapshot``: all numbers of this machine, once or again and again."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

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

_PATIENCE = 5.0
"""Seconds that the driver of GPUs may take for an answer; nvidia-smi needs some where no driver stays loaded."""


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


class _Raw(Protocol):
    """Accelerators as they stand at one moment."""

    def read(self) -> Mapping[int, Any]:
        """What they say, by number."""

    def close(self) -> None:
        """Let go of them."""


class _Aside:
    """GPUs that are read in a thread of their own: a driver that hangs costs their numbers, and nobody else's.

    Args:
        gpus: them.
        vendor: who made them.
        keys: how their keys begin.
    """

    def __init__(self, gpus: _Raw, vendor: str, keys: str = "gpu.") -> None:
        self._gpus = gpus
        self._vendor = vendor
        self._keys = keys
        self._asked: SimpleQueue[bool] = SimpleQueue()
        self._said: SimpleQueue[Mapping[int, Any]] = SimpleQueue()
        self._overdue = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while self._asked.get():
            self._said.put(self._gpus.read())
        self._gpus.close()

    def read(self) -> Mapping[int, Any]:
        """What they say; nothing as long as an answer is overdue, which is too old when it comes."""
        if self._overdue:
            if self._said.empty():
                return {}
            self._said.get()
        self._asked.put(True)
        try:
            said = self._said.get(timeout=_PATIENCE)
        except Empty:
            self._overdue = True
            say(f"the {self._vendor} driver does not answer, so there are no {self._keys} keys until it does")
            return {}
        self._overdue = False
        return said

    def close(self) -> None:
        """Let go of them, unless they hang."""
        self._asked.put(False)
        self._thread.join(0 if self._overdue else _PATIENCE)


def _rows(arguments: argparse.Namespace, config: Config, pid: int) -> None:
    import json

    from opentelemetry.instrumentation.hardware.drivers import Drivers
    from opentelemetry.instrumentation.hardware.system.machine import machine
    from opentelemetry.instrumentation.hardware.wandb import amd, apple, graphcore, nvidia, tpu, trainium
    from opentelemetry.instrumentation.hardware.wandb import keys as wandb
    from opentelemetry.instrumentation.hardware.wandb.openmetrics import Raw as Pages

    drivers = Drivers()
    paths = config.disk_paths or ["/"]
    cards, radeons, chip = nvidia.Raw(config, pid), amd.Raw(config, pid), apple.Raw(config, pid)
    of_nvidia = _Aside(cards, "NVIDIA") if cards.expected and config.selects("nvidia") else None
    of_amd = _Aside(radeons, "AMD") if radeons.expected and config.selects("amd") else None
    of_apple = _Aside(chip, "Apple") if chip.expected and config.selects("apple") else None
    tpus = tpu.Raw(config, os.environ)
    of_tpu = _Aside(tpus, "TPU", "tpu.") if tpus.expected and config.selects("tpu") else None
    ipus, neuron = graphcore.Raw(config, pid), trainium.Raw(config, pid)
    of_graphcore = _Aside(ipus, "IPU", "ipu.") if ipus.expected and config.selects("graphcore") else None
    of_trainium = _Aside(neuron, "Neuron", "trn.") if neuron.expected and config.selects("trainium") else None
    asides = (of_nvidia, of_amd, of_apple, of_tpu, of_graphcore, of_trainium)

    pages = Pages(config) if config.selects("openmetrics") else None

    def take() -> wandb.Reading:
        reading = wandb.take(asked, pid, paths, *(aside.read() if aside else {} for aside in asides))
        return reading._replace(scraped=pages.read()) if pages else reading

    try:
        asked = machine(drivers)
        first = before = take()
        for path in sorted(set(paths) - set(first.spaces)):
            say(f"{path} cannot be read, so there are no disk.{path} keys")
        for trouble in filter(None, (cards.trouble, radeons.trouble, chip.trouble)):
            say(f"there are no gpu. keys: {trouble}")
        if pages and pages.trouble:
            say(f"there are no openmetrics. keys: {pages.trouble}")
        for keys, trouble in (("tpu.", tpus.trouble), ("ipu.", ipus.trouble), ("trn.", neuron.trouble)):
            if trouble:
                say(f"there are no {keys} keys: {trouble}")
        for _ in _moments(arguments):
            now = take()
            _print(json.dumps(wandb.row(wandb.Span(first, before, now))))
            before = now
    except FileNotFoundError:
        raise Mistake(f"process {pid} has ended", 1) from None
    finally:
        for aside in asides:
            if aside:
                aside.close()
        drivers.close()


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
