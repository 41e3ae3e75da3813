"""The command line: its sub-commands, and the exit status of errors."""

from __future__ import annotations

import argparse
import codecs
import io
import os
import re
import sys
import textwrap
from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import NoReturn

from opentelemetry.instrumentation.hardware.cli.messages import Mistake, cause, printed_logs, say
from opentelemetry.instrumentation.hardware.cli.settings import HelpAction
from opentelemetry.instrumentation.hardware.settings.redaction import did_you_mean, redacted
from opentelemetry.instrumentation.hardware.system.limits import is_limit
from opentelemetry.instrumentation.hardware.version import __version__

_DESCRIPTION = """\
Hardware telemetry for OpenTelemetry: GPUs, the host, its file systems, containers and processes.

first steps:
  otel-hardware doctor                  detected hardware and export check
  otel-hardware snapshot                all values now, as a table
  otel-hardware run                     export them over OTLP until Ctrl-C
  otel-hardware run -- python train.py  start a program and export what it uses
"""

_EPILOG = """\
Settings come from the standard OTEL_* variables, OTEL_PYTHON_HARDWARE_* variables and flags. A flag overrides a
variable. 'otel-hardware COMMAND --help' describes a command.
"""


_ASCII = {"→": "->", "…": "..."}


class _Layout(argparse.RawDescriptionHelpFormatter):
    """Wraps paragraphs, except those with an indented line."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = [
            super(_Layout, self)._fill_text(paragraph, width, indent)
            if "\n " in paragraph
            else textwrap.fill(paragraph, width, initial_indent=indent, subsequent_indent=indent)
            for paragraph in text.split("\n\n")
        ]
        return "\n\n".join(paragraphs)


def commands() -> dict[str, ModuleType]:
    """The module of each sub-command, by name. They import what is expensive when they run.

    A module has ``HELP``, a line for the list of commands; ``DESCRIPTION`` with examples and exit status; if it needs
    more than a screen, ``DETAILS``, which only ``--help-all`` shows;
    ``add_arguments(parser)``; and ``run(arguments)``, which returns the exit status. It raises Mistake if the user has
    to change something; that sentence is printed instead of a traceback.
    """
    from opentelemetry.instrumentation.hardware.cli import doctor, free, mcp, metrics, record, run, snapshot, top, why

    return {
        "top": top,
        "run": run,
        "snapshot": snapshot,
        "why": why,
        "doctor": doctor,
        "free": free,
        "metrics": metrics,
        "record": record,
        "mcp": mcp,
    }


def run(argv: Sequence[str] | None) -> int:
    """Run a sub-command.

    Returns:
        The exit status; 2 for wrong arguments.
    """
    try:
        _open_standard_streams()
        parser = _parser()
        arguments, unknown = parser.parse_known_args(argv)
        if unknown:
            getattr(arguments, "parser", parser).error(f"unrecognized arguments: {' '.join(unknown)}")
        if "command" not in arguments:
            parser.print_help()
            return 2
        with printed_logs():
            status: int = arguments.command.run(arguments)
            sys.stdout.flush()
            return status
    except Mistake as mistake:
        say(str(mistake))
        return mistake.status
    except BrokenPipeError:  # the reader closed the pipe
        return 0
    except OSError as error:
        say(f"{error.filename or 'the output'}: {cause(error)}")
        return 1
    except (MemoryError, RuntimeError) as error:
        if not is_limit(error):
            raise
        reason = str(error) or "no memory is left"
        say(f"this command cannot run: {reason}; set a higher limit with ulimit, or for the service or container")
        return 1
    finally:  # what cannot be written is discarded, else Python's flush at exit makes the status 120
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class _Parser(argparse.ArgumentParser):
    """A parser with errors that show no secrets: only the names of unknown flags."""

    def error(self, message: str) -> NoReturn:
        """Print usage and message, and exit with status 2."""
        text, unknown, arguments = message.partition("unrecognized arguments: ")
        flags = re.findall(r"(?:^|(?<= ))--?[\w-]+", arguments)
        choice = re.search(r"invalid choice: '?([^']*?)'? \(choose from (.*)\)", message)
        hint = ""
        if flags:
            hint = did_you_mean(flags[0], [each for action in self._actions for each in action.option_strings], "")
        elif choice:
            hint = did_you_mean(choice[1], re.findall(r"[\w-]+", choice[2]), "")
        shown = text + unknown + (" ".join(flags) or arguments)
        super().error(redacted(f"{shown}; {hint}" if hint else shown))


def _with_details(details: str, parser: argparse.ArgumentParser) -> str:
    parser.description = f"{parser.description}\n{details}"
    return parser.format_help()


def _parser() -> argparse.ArgumentParser:
    parser = _Parser("otel-hardware", description=_DESCRIPTION, epilog=_EPILOG, formatter_class=_Layout)
    parser.add_argument("--version", action="version", version=f"otel-hardware {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, command in commands().items():
        subparser = subparsers.add_parser(
            name, help=command.HELP, description=command.DESCRIPTION, formatter_class=_Layout
        )
        command.add_arguments(subparser)
        if hasattr(command, "DETAILS"):
            text = "show this message with more details and exit"
            details = partial(_with_details, command.DETAILS)
            subparser.add_argument("--help-all", action=HelpAction, nargs=0, const=details, help=text)
        subparser.set_defaults(command=command, parser=subparser)
    return parser


def _open_standard_streams() -> None:
    """Open missing standard streams to /dev/null, and replace characters that the encoding of the output lacks.

    Otherwise the next file or socket would get their descriptor. Programs that we start do not inherit them.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < 3:
        pass
    os.close(descriptor)
    for name, mode in ("stdin", "r"), ("stdout", "w"), ("stderr", "w"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - Python may have opened a file as descriptor 0
    if isinstance(sys.stdout, io.TextIOWrapper):
        codecs.register_error("otel-hardware", _replaced)
        sys.stdout.reconfigure(errors="otel-hardware")


def _replaced(error: UnicodeError) -> tuple[str, int]:
    """Return what is printed instead of characters that cannot be encoded: ASCII for those of our own messages."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_ASCII.get(each, "?") for each in error.object[error.start : error.end]), error.end
