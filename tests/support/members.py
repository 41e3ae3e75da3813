"""Processes of a job, which take the lock of the reporter when a test tells them to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from tests.support.children import PATIENCE, Piped, command, started


class Member:
    """A process of a job; see the program."""

    def __init__(self, child: Piped) -> None:
        self.child = child
        self.pid: int = self._answer()

    def _answer(self) -> Any:
        line = self.child.stdout.readline()
        assert line, self.child.communicate()
        return json.loads(line)

    def ask(self, expression: str) -> Any:
        print(expression, file=self.child.stdin, flush=True)
        return self._answer()

    def update(self, arguments: str = "") -> Any:
        return self.ask(f"reporter.update({arguments})")

    def kill(self) -> None:
        self.child.kill()
        self.child.wait(PATIENCE)  # until all its threads have ended, of which each has the lock


@contextmanager
def members(*environs: dict[str, str], before: tuple[str, ...] = ()) -> Iterator[list[Member]]:
    """Start a process with each environment."""
    with ExitStack() as stack:
        yield [
            Member(stack.enter_context(started([*before, *command("processes/member")], environ)))
            for environ in environs
        ]
