"""A tool that is run again and again, and says an Apple chip as it stands then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from opentelemetry.instrumentation.hardware.drivers.subprocess import Command
from opentelemetry.instrumentation.hardware.sources.apple.reading import Said

DEADLINE: Final = 10.0
"""Seconds that a run may take."""


class Running:
    """The tool.

    Args:
        name: of the tool.
        command: runs it.
        ways: the arguments that its generations take; each is tried until one says what can be understood.
        parse: what is made of what it prints.
    """

    min_interval = 10.0

    def __init__(
        self, name: str, command: Command, ways: Sequence[Sequence[str]], parse: Callable[[bytes], Said]
    ) -> None:
        self.name = name
        self._command = command
        self._ways = ways
        self._parse = parse

    def read(self) -> Said:
        """What it says now.

        Raises:
            Unavailable: there is no GPU of Apple's.
            OSError: it hangs, or cannot be run.
            ValueError: it says nothing that can be understood.
        """
        for arguments in self._ways[:-1]:
            try:
                return self._ask(arguments)
            except ValueError:
                continue
        return self._ask(self._ways[-1])

    def _ask(self, arguments: Sequence[str]) -> Said:
        return self._parse(self._command.run(list(arguments), DEADLINE).stdout)
