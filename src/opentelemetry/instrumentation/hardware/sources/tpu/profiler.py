"""The profiler of a TPU node.

https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/profiler/profiler_service.proto
"""

from __future__ import annotations

import re
from typing import Final

from opentelemetry.instrumentation.hardware.accelerators.fields import Field
from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.drivers.rpc import UNAVAILABLE
from opentelemetry.instrumentation.hardware.sources.tpu.fields import BUSY, MATRIX
from opentelemetry.instrumentation.hardware.sources.tpu.services import Services

# Minimum seconds between two calls. For each call, the host of the TPU profiles its cores.
MIN_INTERVAL: Final = 10.0

DURATION: Final = 100  # milliseconds to profile

LEVEL: Final = 2  # the level of detail. Level 2 adds idle time, cores and step times.

_PERCENT: Final = r"[^:\n]*:\s*([0-9]{1,3}(?:\.[0-9]{1,9})?)\s*%"


def parse(text: str) -> tuple[str, dict[Field, float]]:
    """Parse a page of level 1 or 2. Returns the model of the TPU, "" if unknown, and the values in percent."""
    model = re.search(r"^\s*TPU type:[ \t]*(\S[^\n]{0,63}?)[ \t\r]*$", text, re.MULTILINE)
    matrix, idle = (_percent(text, subject) for subject in ("Utilization of TPU Matrix Units", "TPU idle time"))
    values = {} if matrix is None else {MATRIX: matrix}
    if idle is not None:
        values[BUSY] = 100 - idle
    return model[1] if model and model[1].isprintable() else "", values


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

    def read(self) -> tuple[str, dict[Field, float]]:
        """Profile, and return model and values; none if no profiler responds.

        Raises:
            DriverError: The profiler fails.
        """
        try:
            model, values = parse(self._services.monitor(self._address, DURATION, LEVEL))
        except DriverError as error:
            if error.code != UNAVAILABLE:
                raise
            self.error = f"hw.npu.*: no profiler responds at {self._address} ({error.text})"
            return "", {}
        self.error = ""
        if MATRIX not in values:
            self.error = (
                f"hw.npu.utilization (matrix): the profiler at {self._address} does not report it; is the TPU in use?"
            )
        return model, values
