"""The settings as flags of a command: every one that ``OTEL_PYTHON_HARDWARE_<NAME>`` knows, in the same words."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Collection
from dataclasses import fields
from typing import Any

from opentelemetry.instrumentation.hardware.cli.messages import Mistake
from opentelemetry.instrumentation.hardware.settings import PREFIX, Config, unmatched


def add(parser: argparse.ArgumentParser, but: Collection[str] = ()) -> None:
    """Add a flag for each setting but these, which mean nothing to the command."""
    group = parser.add_argument_group("settings", f"the same as {PREFIX}<NAME> in the environment; a flag wins")
    for setting in fields(Config):
        if setting.name in but:
            continue
        facts = setting.metadata
        read = _sources if setting.name == "sources" else facts["read"]
        group.add_argument(
            "--" + setting.name.replace("_", "-"),
            type=_reader(read, facts["form"]),
            metavar=setting.name.rpartition("_")[2].upper(),
            help=f"{facts['help']} Takes {facts['form']}; default: {facts['default']}.",
        )


def _sources(value: object) -> list[str]:
    """The words of ``--sources``.

    Raises:
        ValueError: for one that names no source; in the environment it costs a warning.
    """
    from opentelemetry.instrumentation.hardware.sources import discover

    read = {setting.name: setting.metadata["read"] for setting in fields(Config)}["sources"]
    words: list[str] = read(value)
    known = [*discover(), "auto"]
    for word in words:
        if word.removeprefix("-") not in known:
            raise ValueError(f"there is no source {word.removeprefix('-')}; the sources are {', '.join(known[:-1])}")
    return words


def _reader(read: Callable[[object], Any], form: str) -> Callable[[str], Any]:
    def value(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error) or f"{text!r} is not understood: it takes {form}") from None

    return value


def config(arguments: argparse.Namespace) -> Config:
    """The settings of the flags and, below them, of the environment.

    Raises:
        Mistake: a flag names a metric that does not exist.
    """
    endpoints = getattr(arguments, "openmetrics", None) or os.environ.get(f"{PREFIX}OPENMETRICS")
    for name in ("include_metrics", "exclude_metrics"):
        idle = unmatched(getattr(arguments, name, None) or (), endpoints)
        if idle:
            flag = "--" + name.replace("_", "-")
            raise Mistake(f"{flag}: no metric matches {', '.join(idle)}; 'otel-hardware metrics' lists all metrics")
    return Config.read({setting.name: getattr(arguments, setting.name, None) for setting in fields(Config)})


def seconds(text: str) -> float:
    """A span of time given by hand."""
    try:
        value = float(text.removesuffix("s"))
    except ValueError:
        value = -1.0
    if not 0 < value <= 86400 * 366:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time: it takes seconds, such as 15 or 0.5")
    return value


def pid(text: str) -> int:
    """The pid of a process that runs.

    Raises:
        Mistake: where there is none.
    """
    from opentelemetry.instrumentation.hardware.pipeline.reporter import born

    if not text.isdecimal() or born(int(text)) is None:
        raise Mistake(f"there is no process {text}; --pid takes the number of one that runs, such as {os.getpid()}")
    return int(text)
