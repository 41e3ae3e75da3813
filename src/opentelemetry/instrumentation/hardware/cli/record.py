"""``otel-hardware record``: write a source's drivers down, to be read again somewhere else."""

from __future__ import annotations

import argparse
import os
import re
import sys
import threading
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from typing import TextIO

from opentelemetry.instrumentation.hardware.cli import settings
from opentelemetry.instrumentation.hardware.cli.interrupt import gentle
from opentelemetry.instrumentation.hardware.cli.messages import Mistake, say
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.drivers import capture as replay
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import Source, SourceContext, discover

_ELSEWHERE = ("sources", "sample_interval", "counter_origin")
"""Settings that a source does not see."""


class Record:
    """Reads one source a few times and keeps every answer of its drivers as a capture."""

    name = "record"
    help = "write down what a source's drivers answer on this machine"
    description = """\
Opens one source, reads it a few times, and writes every question to its drivers and every
answer as lines of JSON: the kernel's files as they were, the replies of libraries and tools.

Such a capture, with the numbers that should come of it, is how a machine becomes a test of
this package, and the best thing to send with a report of a wrong or missing number. It holds
what the source reads and nothing else; for file systems, containers and processes that
includes mounts and the names of control groups. Look at it before you give it away: --hide
takes words out.

examples:
  otel-hardware record host --output host.jsonl
  otel-hardware record host --detail cpu --ticks 2
  otel-hardware record container --hide "$(hostname)" --hide customer
  otel-hardware record process --pid 4242

The exit status is 0; 1 where the source has nothing to read here, which the capture then
shows; 2 where a flag or the file to write makes no sense."""

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """The source to read, how often, and where to."""
        parser.usage = "otel-hardware record SOURCE [flags]"
        parser.add_argument("source", metavar="SOURCE", help=f"one of {', '.join(discover())}")
        parser.add_argument("--ticks", type=_count, default=3, metavar="N", help="how many times to read it (3)")
        parser.add_argument(
            "--interval", type=settings.seconds, default=2.0, metavar="SECONDS", help="between two readings (2)"
        )
        parser.add_argument("--output", metavar="FILE", help="where to write it (standard output)")
        parser.add_argument("--pid", metavar="PID", help="the process that process and container are about (this one)")
        parser.add_argument(
            "--hide", action="append", default=[], metavar="WORD", help="write xxxx for this word; may be repeated"
        )
        settings.add(parser, but=_ELSEWHERE)

    def run(self, arguments: argparse.Namespace) -> int:
        """Write the capture."""
        load = discover().get(arguments.source)
        if load is None:
            raise Mistake(f"there is no source {arguments.source}; the sources are {', '.join(discover())}")
        make = load()
        try:
            with gentle(), _place(arguments.output) as output:
                _record(make, output, arguments)
        except Unavailable as gone:
            say(f"{arguments.source}: {gone.reason}" + (f" ({gone.fix})" if gone.fix else ""))
            return 1
        return 0


def _count(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not understood: it takes a number from 1 on")
    return int(text)


def _place(path: str | None) -> AbstractContextManager[TextIO]:
    if path is None:
        return nullcontext(sys.stdout)
    try:
        return open(path, "w", encoding="utf-8")
    except OSError as error:
        raise Mistake(f"{path} cannot be written: {error.strerror}; --output takes the name of a file") from None


def _record(make: type[Source], output: TextIO, arguments: argparse.Namespace) -> None:
    config = settings.config(arguments)
    pid = os.getpid() if arguments.pid is None else settings.pid(arguments.pid)

    def mask(text: str) -> str:
        for word in arguments.hide:
            text = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", "x" * len(word), text)
        return text

    drivers = replay.Record(Drivers(), output, arguments.source, _header(config, pid), mask)
    source = make(SourceContext(config, drivers, pid))
    try:
        source.open()
        for tick in range(arguments.ticks):
            if tick:
                threading.Event().wait(arguments.interval)
                drivers.next()
            for _ in (*source.read(), *source.read_slow()):
                pass
            output.flush()
    finally:
        source.close()


def _header(config: Config, pid: int) -> dict[str, object]:
    """What a replay has to know besides the answers: the settings, and whose numbers these are."""
    chosen = {setting.name: getattr(config, setting.name) for setting in fields(config)}
    said = {name: value for name, value in chosen.items() if value is not None and name not in _ELSEWHERE}
    return ({"settings": said} if said else {}) | ({"pid": pid} if pid != os.getpid() else {})
