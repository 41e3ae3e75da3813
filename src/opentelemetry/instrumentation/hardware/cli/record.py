"""``otel-hardware record``: write a source's drivers down, to be read again somewhere else."""

from __future__ import annotations

import argparse
import os
import sys
import threading
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import TextIO

from opentelemetry.instrumentation.hardware import replay
from opentelemetry.instrumentation.hardware.config import Config
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.sources import Site, Source, discover


class Record:
    """Reads one source a few times and keeps every answer of its drivers as a capture."""

    name = "record"
    help = "write down what a source's drivers answer on this machine"
    description = (
        "Opens one source, reads it a few times, and writes every question to its drivers and every answer as lines of "
        "JSON: the kernel's files as they were, the replies of libraries and tools. Such a capture, with the numbers "
        "that should come of it, is how a machine becomes a test of this package, and the best thing to send with a "
        "report of a wrong or missing number. It holds what the source reads and nothing else; for file systems, "
        "containers and processes that includes mounts and the names of control groups. Look at it before you give it "
        "away: --hide takes words out."
    )
    epilog = (
        "examples: otel-hardware record host --output host.jsonl | otel-hardware record container --hide $(hostname) | "
        "OTEL_PYTHON_HARDWARE_DETAIL=cpu otel-hardware record host --ticks 2"
    )

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """The source to read, how often, and where to."""
        parser.description, parser.epilog = self.description, self.epilog
        parser.add_argument("source", metavar="SOURCE", help=f"one of {', '.join(discover())}")
        parser.add_argument("--ticks", type=int, default=3, metavar="N", help="how many times to read it (3)")
        parser.add_argument("--interval", type=float, default=2.0, metavar="S", help="seconds between two readings (2)")
        parser.add_argument("--output", metavar="FILE", help="where to write it (standard output)")
        parser.add_argument(
            "--hide",
            action="append",
            default=[],
            metavar="TEXT",
            help="write x for every letter of TEXT; may be repeated",
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """Write the capture; what goes wrong is one sentence on standard error.

        Returns:
            0; 1 where the source has nothing to read here, which the capture then shows; 2 where it could not be done.
        """
        load = discover().get(arguments.source)
        if load is None:
            return _complain(f"there is no source {arguments.source}; the sources are {', '.join(discover())}", 2)
        if arguments.ticks < 1 or arguments.interval < 0:
            return _complain("--ticks takes a number from 1 on, --interval seconds from 0 on", 2)
        try:
            with _place(arguments.output) as output:
                _record(load(), output, arguments)
        except KeyboardInterrupt:
            return _complain("interrupted; the capture ends with the last reading", 1)
        except Unavailable as gone:
            return _complain(f"{arguments.source}: {gone.reason}" + (f" ({gone.fix})" if gone.fix else ""), 1)
        except OSError as error:
            where = error.filename or arguments.output or "standard output"
            return _complain(f"{where}: {error.strerror or error}", 2)
        return 0


def _place(path: str | None) -> AbstractContextManager[TextIO]:
    return open(path, "w", encoding="utf-8") if path else nullcontext(sys.stdout)


def _record(make: type[Source], output: TextIO, arguments: argparse.Namespace) -> None:
    config = Config.read()
    chosen = {name: value for name, value in asdict(config).items() if value is not None and name != "counter_origin"}

    def mask(line: str) -> str:
        for text in arguments.hide:
            line = line.replace(text, "x" * len(text))
        return line

    header = {"settings": chosen} if chosen else None
    drivers = replay.Record(Drivers(), output, arguments.source, header, mask)
    source = make(Site(config, drivers, os.getpid()))
    try:
        source.open()
        for tick in range(arguments.ticks):
            if tick:
                threading.Event().wait(arguments.interval)
                drivers.next()
            for _ in (*source.read(), *source.read_seldom()):
                pass
            output.flush()
    finally:
        source.close()


def _complain(sentence: str, status: int) -> int:
    sys.stderr.write(f"otel-hardware record: {sentence}\n")
    return status
