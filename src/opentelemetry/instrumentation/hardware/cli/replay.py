"""The sessions of commands: of this machine, or ``--replay FILE`` of what ``otel-hardware record`` wrote."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import Any

from opentelemetry.instrumentation.hardware.cli.messages import Mistake, cause, say
from opentelemetry.instrumentation.hardware.drivers.capture import Replay
from opentelemetry.instrumentation.hardware.pipeline import session as pipeline
from opentelemetry.instrumentation.hardware.pipeline.runner import State
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import discover, unknown_source


def add_argument(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--replay", metavar="FILE", help="show a file of 'otel-hardware record' in place of this machine"
    )


def session_of(
    arguments: argparse.Namespace, config: Config, pid: int | None = None, **options: Any
) -> pipeline.Session:
    """Return a session of the recording of ``--replay``; else of this machine, even if its job has a reporter."""
    if arguments.replay is not None:
        return ReplayedSession(arguments)
    return pipeline.Session(config, pid, **options)


class ReplayedSession(pipeline.Session):
    """A session of a recording. Each reading takes the next of its ticks, in the calling thread.

    Flags that are not given are as they were for the recording, but no metric is left out.

    Raises:
        Mistake: The file cannot be read, or is no recording.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._replay = replay = _read(arguments.replay)
        header = replay.header
        say(
            f"{arguments.replay} is replayed: source {header['capture']}, {header.get('machine', 'an unknown machine')}"
        )
        flags = {row.name: getattr(arguments, row.name, None) for row in fields(Config)}
        given = {name: value for name, value in flags.items() if value is not None}
        chosen = {**header.get("settings", {}), **given, "sources": [header["capture"]], "preset": "all"}
        config = Config.read(chosen, {})
        super().__init__(
            config,
            header.get("pid"),
            drivers=lambda name: replay,
            clock=lambda: replay.time,
            all_processes="pid" not in header,
        )

    def start(self) -> None:
        self.has_started = True

    def read_now(self, seconds: float, is_last: bool = False) -> None:
        """Read the next tick; nothing after the last one."""
        has_begun = any(runner.state is not State.STARTING for runner in self.runners)
        if has_begun and not self._replay.next():
            return
        for runner in self.runners:
            if runner.state is not State.ABSENT:
                runner.read(everything=True)
        self.after_reading()

    def read_due(self, seconds: float) -> None:
        self.read_now(seconds)

    read_first = read_due

    def close(self) -> None:
        super().close()
        for runner in self.runners:
            runner.close()


def _read(path: str) -> Replay:
    try:
        with open(path, encoding="utf-8") as file:
            replay = Replay(file)
    except OSError as error:
        raise Mistake(f"--replay: cannot read {path}: {cause(error)}") from None
    except ValueError as error:
        raise Mistake(f"--replay: {path} is not a file of 'otel-hardware record': {error}") from None
    if replay.header["capture"] not in discover():
        raise Mistake(f"--replay: {path}: {unknown_source(str(replay.header['capture']), discover())}")
    return replay
