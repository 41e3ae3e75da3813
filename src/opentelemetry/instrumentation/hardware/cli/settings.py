"""The settings as flags: the same words and values as ``OTEL_PYTHON_HARDWARE_<NAME>``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, Final

from opentelemetry.instrumentation.hardware.catalog import DETAILS
from opentelemetry.instrumentation.hardware.cli.messages import Mistake
from opentelemetry.instrumentation.hardware.settings import PREFIX, Config, unmatched
from opentelemetry.instrumentation.hardware.sources import discover, unknown_source
from opentelemetry.instrumentation.hardware.system.job import start_time

# The settings that ``--help`` shows, in short; ``--help-settings`` describes all.
_COMMON: Final = {
    "sources": "sources to read, such as host,nvidia; -NAME leaves one out; default: all",
    "devices": "GPUs and NPUs to report, such as 0,1; visible: those that the program can use; default: all",
    "detail": f"more metrics: {', '.join(DETAILS)}",
    "simulate": "GPUs to simulate, such as 8xH100 or 4xA100:inference",
}


def add(parser: argparse.ArgumentParser, but: Collection[str] = ()) -> None:
    """Add a flag for each setting, except those that have no effect on the command."""
    group = parser.add_argument_group("settings")
    _add_flags(group, but, _COMMON)
    text = f"show all settings (variables: {PREFIX}*)"
    group.add_argument("--help-settings", action=HelpAction, nargs=0, const=partial(_all_settings, but), help=text)


def add_simulate(parser: argparse.ArgumentParser) -> None:
    """Add ``--simulate``, for a command without the other settings."""
    _add_flags(parser, {setting.name for setting in fields(Config)} - {"simulate"}, _COMMON)


class HelpAction(argparse.Action):
    """Prints a text and exits. The constant returns it for the parser of a command."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        print(self.const(parser), end="")
        parser.exit()


def _all_settings(but: Collection[str], parser: argparse.ArgumentParser) -> str:
    shown = argparse.ArgumentParser(usage=argparse.SUPPRESS, add_help=False)
    text = f"A flag overrides the variable {PREFIX}NAME."
    _add_flags(shown.add_argument_group(f"settings of {parser.prog}", text), but)
    return shown.format_help()


def _add_flags(group: argparse._ActionsContainer, but: Collection[str], brief: Mapping[str, str] | None = None) -> None:
    """Add the flags, each with its description; if brief ones are given, others have none."""
    for setting in fields(Config):
        if setting.name in but:
            continue
        facts = setting.metadata
        text = f"{facts['help']} Takes {facts['form']}; default: {facts['default']}."
        group.add_argument(
            "--" + setting.name.replace("_", "-"),
            type=_parser(facts["read"]),
            metavar=setting.name.rpartition("_")[2].upper(),
            help=text if brief is None else brief.get(setting.name, argparse.SUPPRESS),
        )


def _parser(read: Callable[[object], Any]) -> Callable[[str], Any]:
    def value(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return value


def config(arguments: argparse.Namespace) -> Config:
    """The settings of the flags; where a flag is missing, of the environment.

    Raises:
        Mistake: A flag names a source or a metric that does not exist. In the environment it only causes a warning.
    """
    for name in getattr(arguments, "sources", None) or ():
        if name != "auto" and name.removeprefix("-") not in discover():
            raise Mistake(f"--sources: {unknown_source(name.removeprefix('-'), discover())}")
    endpoints = getattr(arguments, "openmetrics", None) or os.environ.get(f"{PREFIX}OPENMETRICS")
    for name in ("include_metrics", "exclude_metrics"):
        unknown = unmatched(getattr(arguments, name, None) or (), endpoints)
        if unknown:
            flag = "--" + name.replace("_", "-")
            raise Mistake(f"{flag}: no metric matches {', '.join(unknown)}; 'otel-hardware metrics' lists all metrics")
    flags = {setting.name: getattr(arguments, setting.name, None) for setting in fields(Config)}
    return Config.read(flags, flags=True)


def without_process(config: Config) -> Config:
    """Leave out the source ``process``, which would be this command itself, unless the user has named it."""
    words = config.sources or ()
    return config if "process" in words else config.changed(sources=[*words, "-process"])


_SECONDS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}  # by the unit of a duration


def seconds(text: str) -> float:
    number = text.rstrip("smhd")
    try:
        value = float(number) * _SECONDS[text[len(number) :]]
    except (ValueError, KeyError):
        value = -1.0
    if not 0 < value <= 86400 * 366:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds, such as 15 or 0.5")
    return value


def duration(text: str) -> float:
    """The value of a flag in seconds, which may be 0."""
    return 0.0 if text in ("0", "0s") else seconds(text)


def count(text: str, least: int = 1) -> int:
    if not text.isdecimal() or int(text) < least:
        form = "a positive integer" if least else "an integer, 0 or more"
        raise argparse.ArgumentTypeError(f"{text!r} is not {form}")
    return int(text)


def pid(text: str) -> int:
    """The PID of a running process.

    Raises:
        Mistake: There is no such process.
    """
    if not text.isdecimal() or start_time(int(text)) is None:
        raise Mistake(f"there is no process {text}; --pid takes the PID of a running process, such as {os.getpid()}")
    return int(text)
