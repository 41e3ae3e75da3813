"""A case: a program, its surroundings, and what may differ when the package is loaded."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.support.journal import Export
from tests.support.sink import Sink

PROGRAMS: Final = Path(__file__).parent / "programs"
OWN: Final = "application.steps"
ABSENT: Final = "(absent)"  # the value of an environment variable that is removed

# Sets the title of a terminal, clears it, sets its color, and reverses the text.
ESCAPES: Final = "\x1b]0;title\x07\x1b[2J\x9b31m\u202etext"

AGENT: Final = {"OTEL_PYTHON_HARDWARE_MODE": "agent"}


def reports_host(export: Export) -> bool:
    """Whether an export has numbers of the host."""
    return any(name.startswith("system.") for name in export.names())


# Makes files or servers in a folder, and yields environment variables.
Surroundings = Callable[[Path], AbstractContextManager[Mapping[str, str]]]


def python(program: str, *arguments: str, flags: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the command line of one of the programs."""
    return (sys.executable, *flags, str(PROGRAMS / f"{program}.py"), *arguments)


APP: Final = python("app", "return")


@dataclass
class Run:
    """A program while it runs.

    Attributes:
        process: The program.
        sink: The receiver of its exports.
        folder: The folder of its files.
        is_on: Whether the package is loaded.
        address: A free address for a server, `{address}` in the command line.
        has_own: Whether the application has a metric of its own.
        patience: By how much waits are longer.
        acted: When it was told to end, on the monotonic clock.
        notes: What was observed, the same with and without the package.
    """

    process: subprocess.Popen[bytes]
    sink: Sink
    folder: Path
    is_on: bool
    address: str = ""
    has_own: bool = False
    patience: float = 1.0
    acted: float = field(default_factory=time.monotonic)
    notes: list[str] = field(default_factory=list)

    def until(self, condition: Callable[[], object], seconds: float = 40.0) -> bool:
        """Wait for a condition. Returns False if it does not hold in time, or the program ended before."""
        deadline = time.monotonic() + seconds * self.patience
        while not condition():
            if time.monotonic() > deadline or self.process.poll() is not None:
                return bool(condition())
            time.sleep(0.02)
        return True

    def has_started(self) -> bool:
        """Whether the application runs: it has written its PID."""
        return (self.folder / "go.started").exists()

    def go(self) -> None:
        """Let the application end."""
        self.acted = time.monotonic()
        (self.folder / "go").touch()

    def stop(self, number: int, wait: bool = False) -> None:
        """Send a signal that ends the program."""
        self.acted = time.monotonic()
        os.kill(self.process.pid, number)

    def has_reported(self, *names: str, count: int = 2) -> bool:
        """Whether the application's metric has arrived and, with the package, those of the host and these."""
        exports = [*self.sink.exports]
        if self.is_on:
            found = set().union(*(export.names() for export in exports))
            if sum(map(reports_host, exports)) < count or not found.issuperset(names):
                return False
        return not self.has_own or any(export.values(OWN) for export in exports)


def after_reports(*names: str, count: int = 2, seconds: float = 30.0) -> Callable[[Run], None]:
    """Let the program end after exports of the host, and of these metrics."""

    def act(run: Run) -> None:
        run.until(run.has_started)
        run.until(lambda: run.has_reported(*names, count=count), seconds)
        run.go()

    return act


def after_start(run: Run) -> None:
    """Let the program end as soon as it runs."""
    run.until(run.has_started)
    run.go()


def alone(run: Run) -> None:
    """The program ends by itself."""


@dataclass(frozen=True)
class Case:
    """One row of the matrix.

    Attributes:
        name: Its name in the group.
        command: The command line of both runs.
        environment: Variables of both runs.
        settings: Variables of the run with the package.
        around: What must exist around the run with the package.
        shared: Whether that also exists around the run without the package.
        act: What happens to the program while it runs.
        lines: New lines that may stand on standard error.
        delay: Seconds by which its end may be later than without the package.
        hosts: Processes that report the host; None if that is not compared.
        reports: Metrics that must arrive.
        expected: The reason why the case differs, if that is a documented limit.
        fast: Whether it is part of the suite.
        check: Returns what is wrong with the folder after the run with the package.
        group: Its part of the matrix.
    """

    name: str
    command: tuple[str, ...] = APP
    environment: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    around: Surroundings = lambda folder: nullcontext({})
    shared: bool = False
    act: Callable[[Run], None] = after_reports()
    lines: int = 0
    delay: float = 5.0
    hosts: int | None = 1
    reports: frozenset[str] = frozenset()
    expected: str = ""
    fast: bool = False
    check: Callable[[Path], str] = lambda folder: ""
    group: str = ""

    @property
    def title(self) -> str:
        """Its name in the table."""
        return f"{self.group}/{self.name}"

    @property
    def program(self) -> tuple[object, ...]:
        """The run without the package; cases with the same one share it."""
        own = self.title if self.shared else ""
        return self.command, tuple(sorted(self.environment.items())), _name(self.act), own


def _name(act: Callable[[Run], None]) -> str:
    return "" if act is after_start or "after_reports" in act.__qualname__ else f"{act.__qualname__}{id(act)}"
