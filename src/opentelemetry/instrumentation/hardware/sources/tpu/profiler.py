"""What a TPU node's profiler says: a page of text, after it has looked for a moment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.sources.tpu.driver import UNAVAILABLE, Services

PACE: Final = 10.0
"""Seconds between two looks, at least: each makes the TPU's host gather what its cores did."""

LOOK: Final = 100
"""Milliseconds that it looks, as W&B has it do."""

LEVEL: Final = 2
"""How much it says: 2 has idle time, cores and step times beside what 1 has."""

_PERCENT = r"[^:\n]*:\s*([0-9]{1,3}(?:\.[0-9]{1,9})?)\s*%"


class Said(NamedTuple):
    """What it says; None for what is not there or cannot be true.

    Attributes:
        model: of the TPU.
        idle: percent of the time in which it did nothing.
        matrix: percent of what its matrix units could do at most.
    """

    model: str | None = None
    idle: float | None = None
    matrix: float | None = None


def parse(text: str) -> Said:
    """A page of level 1 or 2."""
    model = re.search(r"^\s*TPU type:[ \t]*(\S[^\n]{0,63}?)[ \t\r]*$", text, re.MULTILINE)
    return Said(
        model[1] if model and model[1].isprintable() else None,
        _percent(text, "TPU idle time"),
        _percent(text, "Utilization of TPU Matrix Units"),
    )


def _percent(text: str, subject: str) -> float | None:
    found = re.search(rf"^\s*{subject}{_PERCENT}", text, re.MULTILINE)
    number = float(found[1]) if found else None
    return number if number is not None and number <= 100 else None


class Profiler:
    """The profiler of one TPU node.

    Args:
        services: calls it.
        address: where it is.
    """

    def __init__(self, services: Services, address: str) -> None:
        self._services = services
        self._address = address
        self._away = ""
        self._said = Said()

    def read(self) -> Said:
        """What it says now; nothing while it is away.

        Raises:
            DriverError: the call failed.
        """
        self._away = ""
        try:
            self._said = parse(self._services.monitor(self._address, LOOK, LEVEL))
        except DriverError as refusal:
            if refusal.code != UNAVAILABLE:
                raise
            self._away = refusal.text
            self._said = Said()
        return self._said

    def unsupported(self) -> Iterator[str]:
        """What is not said, and why."""
        if self._away:
            yield f"hw.npu.*: no profiler answers at {self._address} ({self._away})"
        elif self._said.matrix is None:
            yield f"hw.npu.utilization (matrix): the profiler at {self._address} does not say it; is the TPU in use?"
