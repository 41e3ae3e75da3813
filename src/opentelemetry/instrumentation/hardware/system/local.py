"""The machine that this process runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.instrumentation.hardware.model import Unavailable

if TYPE_CHECKING:
    from opentelemetry.instrumentation.hardware.system.machine import Drivers, Machine
    from opentelemetry.instrumentation.hardware.system.tree import SharedWalk


def machine(drivers: Drivers, walk: SharedWalk | None = None) -> Machine:
    """Return the local machine: read from the kernel's files on Linux, through psutil elsewhere.

    Args:
        drivers: Access to it.
        walk: A walk over the process tree that is shared with other sources.
    """
    from opentelemetry.instrumentation.hardware.system.linux import LinuxMachine
    from opentelemetry.instrumentation.hardware.system.psutil_backend import PsutilMachine

    try:
        return LinuxMachine(drivers.files(), walk)
    except Unavailable:
        return PsutilMachine(drivers.python_module("psutil"), drivers.python_module("time"))
