"""What one NVIDIA device is asked by NVML, and what becomes of a call that it refuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry.instrumentation.hardware.accelerators.fields import Reading
from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.model import Number, Rate
from opentelemetry.instrumentation.hardware.sources.nvidia import nvml as n
from opentelemetry.instrumentation.hardware.sources.nvidia.nvml import Nvml

_NEVER = (n.NOT_SUPPORTED, n.FUNCTION_NOT_FOUND, n.DEPRECATED, n.NO_PERMISSION, n.INVALID_ARGUMENT, n.ARGUMENT_VERSION)
"""Codes of a call that a device does not know, and will not know before the driver is another one."""

NOTHING = (n.NOT_FOUND, n.NO_DATA)
"""Codes that say that there is nothing to say just now."""

GONE = (n.LOST, n.RESET_REQUIRED)
"""Codes of a device that is out of order."""

END = (n.UNINITIALIZED, n.DRIVER_NOT_LOADED, n.NO_LIBRARY, n.VERSION_MISMATCH)
"""Codes of a library that is out of order, for all devices."""

_MOST = 32
"""Readings that a call, or a device, that failed is left out at most before it is tried again."""


class Failed(Exception):  # noqa: N818 - a state of a device
    """A device is out of order; the others are not."""


class Pause:
    """How long something is left alone after it failed.

    Attributes:
        strikes: how often it failed since it answered.
    """

    def __init__(self) -> None:
        self.strikes = self._wait = 0

    def failed(self) -> None:
        """Leave it alone for twice as many readings as the time before."""
        self._wait = min(2**self.strikes, _MOST)
        self.strikes += 1

    def well(self) -> None:
        """It answered."""
        self.strikes = 0

    def lasts(self) -> bool:
        """Whether it is left out of this reading."""
        if self._wait:
            self._wait -= 1
            return True
        return False


class Read(Pause):
    """One call to a device, and what it says.

    Args:
        ask: makes the call; None where it has nothing to say yet.
        quantities: what is expected of it; ``doctor`` lists those that no call says.
    """

    def __init__(self, ask: Callable[[], Reading | None], *quantities: str) -> None:
        super().__init__()
        self.ask = ask
        self.quantities = quantities


class Calls:
    """The calls to a device. One that it does not know is made no more, one that failed is left alone for a while.

    Args:
        nvml: the library.
        name: what the library calls the device.

    Attributes:
        missing: the quantities that it does not say, with the driver's reason.
    """

    def __init__(self, nvml: Nvml, name: str) -> None:
        self.nvml = nvml
        self.name = name
        self.unsupported: dict[str, str] = {}

    def get(self, name: str, *arguments: object) -> Any:
        """``nvmlDeviceGet<name>`` of this device."""
        return self.nvml.get(self.name, name, *arguments)

    def _perhaps(self, name: str, *arguments: object) -> Any:
        """The same, of something that need not be known; None where it is not."""
        try:
            return self.get(name, *arguments)
        except DriverError as refusal:
            if refusal.code in (*GONE, *END):
                raise
            return None

    def _fields(self, fields: n.Fields) -> list[Sequence[Any]]:
        """For each field 0 and its value, or NVML's code and reason: each is refused for itself."""
        found: list[Sequence[Any]] = []
        for code, said in self.nvml.fields(self.name, fields):
            if code in GONE:
                raise DriverError(code, said)
            found.append((code, said) if code or said >= 0 else (n.NO_DATA, "the driver has no value"))
        return found

    def _said(self, reads: list[Read]) -> dict[str, Number | Rate]:
        reading: dict[str, Number | Rate] = {}
        for read in list(reads):
            if read.lasts():
                continue
            try:
                said = read.ask()
            except DriverError as refusal:
                self._refused(reads, read, refusal)
            else:
                read.well()
                if said is not None:
                    reading.update(said)
                    for quantity in read.quantities:
                        self.unsupported.setdefault(quantity, "the driver says nothing that can be true")
        for quantity in self.unsupported.keys() & reading.keys():
            del self.unsupported[quantity]
        return reading

    def _refused(self, reads: list[Read], read: Read, refusal: DriverError) -> None:
        """Tell apart: nothing new, a call that is not known, a device out of order, a driver out of order."""
        code = refusal.code
        if code in END:
            raise refusal
        if code in GONE:
            raise Failed(refusal.text)
        self.unsupported.update(dict.fromkeys(read.quantities, refusal.text))
        if code in NOTHING:
            return
        if code in _NEVER:
            reads.remove(read)
            return
        if code == n.UNKNOWN:
            self._ping()
        read.failed()

    def _ping(self) -> None:
        """Tell a device that is gone from a call that does not work on it."""
        self.nvml.forget(self.name)
        try:
            self.get("UUID")
        except DriverError as refusal:
            raise Failed(refusal.text) from None
