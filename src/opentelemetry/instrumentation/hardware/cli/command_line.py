"""The command line: which sub-command is meant, and what becomes of its mistakes."""

from __future__ import annotations

import argparse
import io
import os
import sys
import textwrap
from collections.abc import Sequence
from typing import Protocol

from opentelemetry.instrumentation.hardware.cli.messages import Mistake, listen, say
from opentelemetry.instrumentation.hardware.version import __version__

_DESCRIPTION = """\
Hardware telemetry for OpenTelemetry: GPUs, the host, its file systems, containers and processes.

first steps:
  otel-hardware doctor                  what this machine can say, and whether it would arrive
  otel-hardware snapshot                all numbers now, as a table
  otel-hardware run                     report them over OTLP until Ctrl-C
  otel-hardware run -- python train.py  start a program and report what it uses
"""

_EPILOG = """\
Settings are the standard OTEL_* variables, our own OTEL_PYTHON_HARDWARE_* variables, and the flags of a command;
flags win. 'otel-hardware COMMAND --help' says more of each.
"""


class _Layout(argparse.RawDescriptionHelpFormatter):
    """Paragraphs are wrapped; one that holds an indented line was laid out by hand and stays."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = [
            super(_Layout, self)._fill_text(paragraph, width, indent)
            if "\n " in paragraph
            else textwrap.fill(paragraph, width, initial_indent=indent, subsequent_indent=indent)
            for paragraph in text.split("\n\n")
        ]
        return "\n\n".join(paragraphs)


class Command(Protocol):
    """One sub-command."""

    name: str
    help: str
    """One line, for the list of commands."""
    description: str
    """What it is for, with examples and the exit status."""

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the flags."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it.

        Returns:
            The exit status.

        Raises:
            Mistake: for what the user has to change; its sentence is shown instead of a traceback.
        """


def commands() -> list[Command]:
    """Every sub-command. What is heavy they import when they run."""
    from opentelemetry.instrumentation.hardware.cli.doctor import Doctor
    from opentelemetry.instrumentation.hardware.cli.free import Free
    from opentelemetry.instrumentation.hardware.cli.metrics import Metrics
    from opentelemetry.instrumentation.hardware.cli.record import Record
    from opentelemetry.instrumentation.hardware.cli.run import Run
    from opentelemetry.instrumentation.hardware.cli.snapshot import Snapshot

    return [Run(), Snapshot(), Doctor(), Free(), Metrics(), Record()]


def run(argv: Sequence[str] | None) -> int:
    """Run a sub-command.

    Returns:
        Its exit status; 2 for a mistake in the arguments.
    """
    try:
        _stand()
        parser = _parser()
        arguments = parser.parse_args(argv)
        if "command" not in arguments:
            parser.print_help()
            return 2
        with listen():
            status: int = arguments.command.run(arguments)
            sys.stdout.flush()
            return status
    except Mistake as mistake:
        say(str(mistake))
        return mistake.status
    except BrokenPipeError:  # who read our output has enough of it
        _let_go()
        return 0
    except OSError as error:
        say(f"{error.filename or 'the output'}: {(error.strerror or str(error)).lower()}")
        _let_go()
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("otel-hardware", description=_DESCRIPTION, epilog=_EPILOG, formatter_class=_Layout)
    parser.add_argument("--version", action="version", version=f"otel-hardware {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND")
    for command in commands():
        subparser = subparsers.add_parser(
            command.name, help=command.help, description=command.description, formatter_class=_Layout
        )
        command.arguments(subparser)
        subparser.set_defaults(command=command)
    return parser


def _stand() -> None:
    """Standard streams that take whatever they are given.

    One that we were started without leads nowhere: else the next file or socket would have its number. A program that
    we start does not inherit it. A letter that the terminal does not have becomes a question mark.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < 3:
        pass
    os.close(descriptor)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _let_go() -> None:
    """Of an output that takes no more: the interpreter must not find it again when it flushes."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
