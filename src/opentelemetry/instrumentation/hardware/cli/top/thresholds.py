"""From which values on the view warns."""

from __future__ import annotations

from opentelemetry.instrumentation.hardware.cli.top.shapes import GOOD, level
from opentelemetry.instrumentation.hardware.model import Number

FULL = (0.90, 0.97)  # warning and alarm of memory in use

FULL_DISK = (0.85, 0.95)  # of file systems

BUSY = (0.80, 0.95)  # of CPUs and disks

WAITING = (0.10, 0.40)  # of the share of time during which tasks waited

_HOT = (80.0, 90.0)  # of temperatures without a known limit, in degrees Celsius

_NEAR = 10.0  # degrees below a limit from which a temperature is a warning

IDLE, HELD = 0.05, 0.10  # a device is idle below this utilization, and held from this share of its memory


def heat(value: Number, limit: Number | None) -> str:
    """Return the style of a temperature; "" if it is normal."""
    warning, bad = _HOT if limit is None else (limit - _NEAR, limit)
    style = level(value, warning, bad)
    return "" if style == GOOD else style
