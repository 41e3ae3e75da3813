"""A device of NVML: calls that fill fields, and the handling of failed calls."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import Device, DeviceFailed
from opentelemetry.instrumentation.hardware.accelerators.fields import Field
from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.drivers.backoff import Backoff
from opentelemetry.instrumentation.hardware.model import Point
from opentelemetry.instrumentation.hardware.sources.nvidia import codes
from opentelemetry.instrumentation.hardware.sources.nvidia import fields as f
from opentelemetry.instrumentation.hardware.sources.nvidia import nvml as n
from opentelemetry.instrumentation.hardware.sources.nvidia.nvml import Nvml
from opentelemetry.instrumentation.hardware.sources.nvidia.processes import Shares, mean_shares

# Codes of a call that this device and driver do not support. It is not made again.
NEVER: Final = (
    codes.NOT_SUPPORTED,
    codes.FUNCTION_NOT_FOUND,
    codes.DEPRECATED,
    codes.NO_PERMISSION,
    codes.INVALID_ARGUMENT,
    codes.ARGUMENT_VERSION,
)

NO_VALUE: Final = (codes.NOT_FOUND, codes.NO_DATA)  # codes of a call that has no value at the moment

LOST: Final = (codes.LOST, codes.RESET_REQUIRED)  # codes of a device that has failed

# Codes of a library that has failed, for all devices.
FATAL: Final = (codes.UNINITIALIZED, codes.DRIVER_NOT_LOADED, codes.NO_LIBRARY, codes.VERSION_MISMATCH)

# What to do about a failed device, by prefix of the driver's text.
REMEDIES: Final = {
    "GPU is lost": "the kernel log has the cause; restart the machine",
    "GPU requires": "run nvidia-smi --gpu-reset when no process uses it, or restart the machine",
}

# ``nvmlMemory_v2``: the version of the structure that reports reserved memory separately.
_MEMORY_V2: Final = 0x02000028

# Codes of drivers that do not know that structure; the last one is that of some drivers in WSL.
_NO_MEMORY_V2: Final = (codes.FUNCTION_NOT_FOUND, codes.ARGUMENT_VERSION, codes.INVALID_ARGUMENT, codes.UNKNOWN)

Values = Mapping[Field, object]


class Call:
    """A call to a device, and the fields that it fills. One that fails is retried with backoff.

    Args:
        function: Makes the call; None if it has no values yet.
        fields: The fields that it should fill. Missing ones are listed as not supported.
    """

    def __init__(self, function: Callable[[], Values | None], *fields: Field) -> None:
        self.function = function
        self.fields = fields
        self.backoff = Backoff(2, 33)
        self.readings = 0


class NvmlDevice(Device):
    """A GPU or MIG instance. A subclass supplies the calls.

    Args:
        key: Its name in :class:`~.nvml.Nvml`: ``0``, or ``0/3`` for a MIG instance.
    """

    remedies = REMEDIES

    def __init__(self, nvml: Nvml, key: str, name: str) -> None:
        super().__init__(f"gpu{key}", name, index=int(key.partition("/")[0]))
        self.state = "ok"
        self.nvml = nvml
        self.key = key
        self._often: list[Call] = []
        self._slow: list[Call] = []
        self._newest_share = -1
        self.gpm_fields: Mapping[int, Field] = f.GPM

    @abstractmethod
    def identify(self) -> None:
        """Read the identity of the device.

        Raises:
            DriverError: It does not respond.
        """

    @abstractmethod
    def read_calls(self) -> tuple[list[Call], list[Call]]:
        """Return the calls of each reading, and of each slow reading."""

    def get(self, name: str, *arguments: object) -> Any:
        """Call ``nvmlDeviceGet<name>`` for this device."""
        return self.nvml.get(self.key, name, *arguments)

    def call(self, field: Field, name: str, *arguments: object, at: int = 0) -> Call:
        """Return the call of ``nvmlDeviceGet<name>`` for a field; of several numbers it is the one at an index."""

        def value() -> Values:
            answer = self.get(name, *arguments)
            return {field: answer[at] if isinstance(answer, list) else answer}

        return Call(value, field)

    def get_optional(self, name: str, *arguments: object) -> Any:
        """Call ``nvmlDeviceGet<name>``. Returns None if it is not supported or has no value."""
        try:
            return self.get(name, *arguments)
        except DriverError as error:
            if error.code in (*LOST, *FATAL):
                raise
            return None

    def open(self) -> None:
        """Identify the device, and read its limits.

        Raises:
            DeviceFailed: It does not respond.
            DriverError: The library does not.
        """
        if self.trouble:
            self.nvml.forget(self.key)
        self.unsupported.clear()
        try:
            self.identify()
        except DriverError as error:
            if error.code in FATAL:
                raise
            raise DeviceFailed(error.text) from None
        self._often, self._slow = self.read_calls()

    def read(self) -> Iterator[Point]:
        yield from self.points(self.values(self._often))

    def read_slow(self) -> Iterator[Point]:
        yield from self.points(self.values(self._slow))

    def values(self, calls: list[Call]) -> dict[Field, object]:
        """Make the calls that are due.

        Raises:
            DeviceFailed: The device does not respond.
            DriverError: The library does not.
        """
        found: dict[Field, object] = {}
        for call in list(calls):
            call.readings += 1
            if call.backoff.is_waiting(call.readings):
                continue
            try:
                values = call.function()
            except DriverError as error:
                self._handle(error, call, calls)
                continue
            call.backoff.succeed()
            if values is None:
                continue
            for field, value in values.items():
                if value is None:
                    self.unsupported[field.series] = "the driver has no value"
                else:
                    found[field] = value
            for field in call.fields:
                if field not in values:
                    self.unsupported.setdefault(field.series, "the driver has no value")
        return found

    def _handle(self, error: DriverError, call: Call, calls: list[Call]) -> None:
        """Distinguish a missing value, an unsupported call, a failed device and a failed library."""
        if error.code in FATAL:
            raise error
        if error.code in LOST:
            raise DeviceFailed(error.text)
        self.unsupported.update((field.series, error.text) for field in call.fields)
        if error.code in NO_VALUE:
            return
        if error.code in NEVER:
            calls.remove(call)
            return
        if error.code == codes.UNKNOWN:  # the call failed, or the device is lost
            self.nvml.forget(self.key)
            try:
                self.get("UUID")
            except DriverError as failure:
                raise DeviceFailed(failure.text) from None
        call.backoff.fail(call.readings)

    def field_values(self, ids: n.Fields) -> list[Sequence[Any]]:
        """Return for each field 0 and its value, or NVML's code and text."""
        return self._checked(self.nvml.fields(self.key, ids))

    def stamped_values(self, ids: n.Fields) -> list[Sequence[Any]]:
        """Return the same, and the time stamps of the values in microseconds since the epoch."""
        return self._checked(self.nvml.stamped_fields(self.key, ids))

    @staticmethod
    def _checked(found: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
        answers: list[Sequence[Any]] = []
        for code, value, *stamp in found:
            if code in LOST:
                raise DriverError(code, value)
            is_known = code or value >= 0
            answers.append((code, value, *stamp) if is_known else (codes.NO_DATA, "the driver has no value", *stamp))
        return answers

    # -- values that GPUs and MIG instances have in common

    def memory(self) -> Values:
        """Return used and total memory. Version 1 of the call counts memory reserved by the driver as used."""
        try:
            answer = self.get("MemoryInfo", _MEMORY_V2)
        except DriverError as error:
            if error.code not in _NO_MEMORY_V2:
                raise
            answer = self.get("MemoryInfo")
        used, total = answer["used"], answer["total"]
        if total == 0 or (used is not None and total is not None and used > total):
            raise DriverError(codes.NO_DATA, f"the driver reports {used} of {total} bytes in use")
        return {f.MEMORY_USED: used, f.MEMORY_TOTAL: total}

    def gpm(self, *instance: int) -> Values | None:
        """Means since the previous reading; see :meth:`.nvml.Nvml.gpm`."""
        answers = self.nvml.gpm(self.key, list(self.gpm_fields), *instance)
        if answers is None:
            return None
        found: dict[Field, object] = {}
        for field, (code, value) in zip(self.gpm_fields.values(), answers):
            if code:
                self.unsupported[field.series] = value
            else:
                found[field] = value
        return found

    def users(self, kinds: Sequence[str]) -> dict[int, int | None]:
        """Return the bytes in use by PID of each process that uses the device."""
        found: dict[int, int | None] = {}
        for kind in kinds:
            try:
                processes = self.nvml.processes(self.key, kind)
            except DriverError as error:
                if error.code in FATAL:
                    raise
                if kind == "Compute":
                    self.unsupported[f.PROCESS_MEMORY.series] = error.text
                continue
            if kind == "Compute":
                self.unsupported.pop(f.PROCESS_MEMORY.series, None)
            for pid, used in processes:
                found[pid] = max((size for size in (used, found.get(pid)) if size is not None), default=None)
        return found

    def shares(self) -> Shares | None:
        """Return the mean utilization by each process since the previous call; None if unknown."""
        is_first = self._newest_share < 0
        name = c.PROCESS_GPU_UTILIZATION.name
        try:
            samples = self.nvml.shares(self.key, max(0, self._newest_share))
        except DriverError as error:
            if error.code in FATAL:
                raise
            if error.code not in NO_VALUE:
                self.unsupported[name] = error.text
                return None
            samples = []
        self.unsupported.pop(name, None)
        self._newest_share = max([0, self._newest_share, *(at for _, at, *_ in samples)])
        return None if is_first else mean_shares(samples)
