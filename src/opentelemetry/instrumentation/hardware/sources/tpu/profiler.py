"""The profiler of a TPU node.

https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/profiler/profiler_service.proto
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.drivers.rpc import UNAVAILABLE
from opentelemetry.instrumentation.hardware.sources.tpu.services import Services

# Minimum seconds between two calls. For each call, the host of the TPU profiles its cores.
MIN_INTERVAL: Final = 10.0

DURATION: Final = 100  # milliseconds to profile

LEVEL: Final = 2  # the level of detail. Level 2 adds idle time, cores and step times.

_PERCENT: Final = r"[^:\n]*:\s*([0-9]{1,3}(?:\.[0-9]{1,9})?)\s*%"


class Page(NamedTuple):
    """The values of a page; None for a value that is missing.

    Attributes:
        model: The model of the TPU.
        idle: Percent of the time that the TPU was idle.
        matrix: Utilization of the matrix units in percent of their peak rate.
    """

    model: str | None = None
    idle: float | None = None
    matrix: float | None = None


def parse(text: str) -> Page:
    """Parse a page of level 1 or 2."""
    model = re.search(r"^\s*TPU type:[ \t]*(\S[^\n]{0,63}?)[ \t\r]*$", text, re.MULTILINE)
    return Page(
        model[1] if model and model[1].isprintable() else None,
        _percent(text, "TPU idle time"),
        _percent(text, "Utilization of TPU Matrix Units"),
    )


def _percent(text: str, subject: str) -> float | None:
    match = re.search(rf"^\s*{subject}{_PERCENT}", text, re.MULTILINE)
    percent = float(match[1]) if match else None
    return percent if percent is not None and percent <= 100 else None


class Profiler:
    """The profiler of a TPU node.

    Attributes:
        error: Why values are missing, in a sentence; "" if there are all.
    """

    def __init__(self, services: Services, address: str) -> None:
        self._services = services
        self._address = address
        self.error = ""

    def read(self) -> Page | None:
        """Profile, and return the values; None if no profiler responds.

        Raises:
            DriverError: The profiler fails.
        """
        try:
            page = parse(self._services.monitor(self._address, DURATION, LEVEL))
        except DriverError as error:
            if error.code != UNAVAILABLE:
                raise
            self.error = f"hw.npu.*: no profiler responds at {self._address} ({error.text})"
            return None
        self.error = ""
        if page.matrix is None:
            self.error = (
                f"hw.npu.utilization (matrix): the profiler at {self._address} does not report it; is the TPU in use?"
            )
        return page
