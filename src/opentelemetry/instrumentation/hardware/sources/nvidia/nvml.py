"""NVIDIA's management library (NVML) through its Python binding. Each method is one call.

Answers are plain data; errors are :class:`~.drivers.DriverError` with NVML's code. GPUs are named by index as text,
``"0"``, and MIG instances by index and slot, ``"0/3"``. https://docs.nvidia.com/deploy/nvml-api/
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Final, TypeAlias

from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.sources.nvidia import codes
from opentelemetry.instrumentation.hardware.sources.nvidia.binding import Binding
from opentelemetry.instrumentation.hardware.sources.nvidia.gpm import GpmSamples

XID: Final = 8  # ``nvmlEventTypeXidCriticalError``

# NVML_VOLATILE_ECC, NVML_MEMORY_LOCATION_DEVICE_MEMORY
VOLATILE_ECC: Final = 0
DEVICE_MEMORY: Final = 2

_ABSENT = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)  # NVML's "not available", as a number of 32 or 64 bits

# ``nvmlFieldValue_t`` and ``nvmlSample_t``: reading the structures of the binding takes three times as long.
_FIELD = struct.Struct("IIqqII8s")
_SAMPLE = struct.Struct("Q8s")

# Formats of ``nvmlValue_t``, by ``nvmlValueType_t``.
_VALUES = tuple(map(struct.Struct, "dILQqiH"))

_SAMPLES = 256  # maximum samples of a call. The driver's buffers have about 100.

_EVENTS = 64  # maximum events per reading. The next readings get the rest.

# Capacity for processes, or samples of them, at the first attempt and the next ones.
_ROOMS = (64, 1024, 16384)

_GPUS, _SLOTS = 256, 64  # maximum GPUs of a machine and MIG instances of a GPU

# Codes of a slot that is empty, or of another container.
_NO_INSTANCE = (codes.NOT_FOUND, codes.INVALID_ARGUMENT, codes.NO_PERMISSION)

Fields: TypeAlias = "tuple[tuple[int, int], ...]"  # pairs of a field and its scope


class Nvml(Binding):
    """The library, initialized. One thread uses it."""

    def __init__(self, path: str = "") -> None:
        super().__init__(path)
        self._handles: dict[str, Any] = {}
        self._gpm: dict[str, GpmSamples] = {}
        self._events: Any = None
        self._registered: dict[int | None, str] = {}

    def _handle(self, device: str) -> Any:
        handle = self._handles.get(device)
        if handle is None:
            index, _, slot = device.partition("/")
            with self._errors():
                if slot:
                    parent = self._handle(index)
                    handle = self._binding.nvmlDeviceGetMigDeviceHandleByIndex(parent, int(slot))
                else:
                    handle = self._binding.nvmlDeviceGetHandleByIndex(int(index))
            self._handles[device] = handle
        return handle

    def forget(self, device: str) -> None:
        """Drop the handles and samples of a device and its parts; the next call looks it up again."""
        parts = f"{device}/"
        for name in [name for name in self._handles if name == device or name.startswith(parts)]:
            del self._handles[name]
        for name in [name for name in self._gpm if name == device or name.startswith(parts)]:
            self._gpm.pop(name).free()

    # -- one call each

    def system(self, name: str) -> Any:
        """``nvmlSystemGet<name>``."""
        return self._plain(self._call(f"nvmlSystemGet{name}"))

    def count(self) -> int:
        return min(int(self._call("nvmlDeviceGetCount")), _GPUS)

    def get(self, device: str, name: str, *arguments: object) -> Any:
        """``nvmlDeviceGet<name>`` of a device, structures as dicts.

        NVML's "not available" is None in a structure or list, else a DriverError.
        """
        answer = self._plain(self._call(f"nvmlDeviceGet{name}", self._handle(device), *arguments))
        if answer is None:
            raise DriverError(codes.NO_DATA, "the driver has no value")
        return answer

    def _plain(self, answer: Any) -> Any:
        if isinstance(answer, (int, float)):
            return None if answer in _ABSENT else answer
        if isinstance(answer, ctypes.Structure):
            # Not by the binding's own __getattribute__, which fails for text that is not UTF-8.
            return {name: self._plain(_attribute(answer, name)) for name, *_ in answer._fields_}
        if isinstance(answer, bytes):
            return answer.decode(errors="replace")
        if isinstance(answer, (list, tuple)):
            return [self._plain(each) for each in answer]
        return answer

    def fields(self, device: str, ids: Fields) -> Sequence[Sequence[Any]]:
        """``nvmlDeviceGetFieldValues``: for each field and scope 0 and the value, or NVML's code and text."""
        return [answer[:2] for answer in self.stamped_fields(device, ids)]

    def stamped_fields(self, device: str, ids: Fields) -> Sequence[Sequence[Any]]:
        """Return the same, and the time stamps of the values in microseconds since the epoch."""
        asked = b"".join([_FIELD.pack(field, scope, 0, 0, 0, codes.NOT_SUPPORTED, b"") for field, scope in ids])
        values = ctypes.create_string_buffer(asked, len(asked))
        self._check(self._raw("nvmlDeviceGetFieldValues")(self._handle(device), len(ids), values))
        found: list[Sequence[Any]] = []
        for _, _, stamp, _, kind, code, value in _FIELD.iter_unpack(values):
            number = None if code else _number(kind, value)
            failed = code or (codes.NO_DATA if number is None else 0)
            found.append((failed, self._text(failed) if failed else number, stamp))
        return found

    def structure(self, device: str, name: str, version: int) -> list[int]:
        """``nvmlDeviceGet<name>`` of a structure that begins with its version: its words of 32 bits.

        The oldest supported binding lacks some of them.
        """
        words = (ctypes.c_uint * ((version & 0xFFFFFF) // 4))(version)
        self._check(self._raw(f"nvmlDeviceGet{name}")(self._handle(device), ctypes.byref(words)))
        return list(words)

    def samples(self, device: str, kind: int, since: int) -> Sequence[Any]:
        """``nvmlDeviceGetSamples``: the time of the newest sample in microseconds, and the values since ``since``."""
        count, kind_of_value = ctypes.c_uint(_SAMPLES), ctypes.c_int()
        room = ctypes.create_string_buffer(_SAMPLES * _SAMPLE.size)
        arguments = ctypes.c_ulonglong(since), ctypes.byref(kind_of_value), ctypes.byref(count), room
        self._check(self._raw("nvmlDeviceGetSamples")(self._handle(device), kind, *arguments))
        samples = _SAMPLE.iter_unpack(memoryview(room)[: count.value * _SAMPLE.size])
        pairs = [(at, _number(kind_of_value.value, value)) for at, value in samples]
        newer = [(at, number) for at, number in pairs if at > since and number is not None]
        return max((at for at, _ in newer), default=since), [number for _, number in newer]

    def processes(self, device: str, kind: str) -> list[Sequence[Any]]:
        """``nvmlDeviceGet<kind>RunningProcesses``: PID, and bytes in use or None."""
        for version in ("_v3", "_v2", ""):
            form = self._binding.c_nvmlProcessInfo_v2_t if version else _ProcessInfoV1
            try:
                ask = self._raw(f"nvmlDeviceGet{kind}RunningProcesses{version}")
                processes = self._list(form, partial(ask, self._handle(device)))
                break
            except DriverError as error:
                if error.code != codes.FUNCTION_NOT_FOUND or not version:
                    raise
        return [(pid, None if used in _ABSENT else used) for pid, used, *_ in processes]

    def shares(self, device: str, since: int) -> list[Sequence[int]]:
        """``nvmlDeviceGetProcessUtilization``: PID, time in microseconds, percent of SM, memory, encoder, decoder."""
        ask, handle = self._raw("nvmlDeviceGetProcessUtilization"), self._handle(device)
        form, after = self._binding.c_nvmlProcessUtilizationSample_t, ctypes.c_ulonglong(since)
        samples = self._list(form, lambda count, room: ask(handle, room, count, after))
        return [sample for sample in samples if sample[1] > since]

    def _list(self, form: Any, ask: Callable[[Any, Any], int]) -> list[tuple[Any, ...]]:
        """A list of structures, usually by one call; the binding would first ask for its length."""
        for most in _ROOMS:
            count, room = ctypes.c_uint(most), (form * most)()
            code = ask(ctypes.byref(count), room)
            if code != codes.INSUFFICIENT_SIZE:
                break
        self._check(code)
        return [tuple(getattr(each, name) for name, _ in form._fields_) for each in room[: count.value]]

    def slots(self, device: str) -> list[int]:
        """Return the slots of a GPU that have a MIG instance now."""
        found = []
        for slot in range(min(self.get(device, "MaxMigDeviceCount"), _SLOTS)):
            name = f"{device}/{slot}"
            self._handles.pop(name, None)
            try:
                self._handle(name)
            except DriverError as error:
                if error.code not in _NO_INSTANCE:
                    raise
            else:
                found.append(slot)
        return found

    # -- GPM: means between two samples

    def gpm(self, device: str, ids: Sequence[int], instance: int | None = None) -> list[Sequence[Any]] | None:
        """GPM metrics (``NVML_GPM_METRIC_*``) since the previous call: 0 and the value, or NVML's code and text.

        A MIG instance needs the number of its GPU instance.

        Returns:
            None at the first call; within a tenth of a second the previous answer.

        Raises:
            DriverError: The call failed, for example because the GPU is older than Hopper.
        """
        whole = self._handle(device.partition("/")[0])
        samples = self._gpm.get(device)
        if samples is None:
            with self._errors():
                if not self._binding.nvmlGpmQueryDeviceSupport(whole).isSupportedDevice:
                    raise DriverError(codes.NOT_SUPPORTED, "GPM needs a Hopper GPU or a newer one")
                samples = self._gpm[device] = GpmSamples(self._binding, ids)
        with self._errors():
            answers = samples.compare(whole, instance)
        return None if answers is None else [(code, self._text(code) if code else value) for code, value in answers]

    # -- events

    def listen(self, devices: Sequence[str]) -> list[str]:
        """Register for critical events of more devices. Returns all registered ones."""
        if self._events is None:
            with self._errors():
                self._events = self._binding.nvmlEventSetCreate()
        for device in devices:
            with suppress(DriverError):
                if self.get(device, "SupportedEventTypes") & XID:
                    with self._errors():
                        self._binding.nvmlDeviceRegisterEvents(self._handle(device), XID, self._events)
                    self._registered[_address(self._handle(device))] = device
        return list(self._registered.values())

    def deafen(self) -> None:
        """Drop all registrations."""
        if self._events is not None:
            with suppress(self._binding.NVMLError):
                self._binding.nvmlEventSetFree(self._events)
        self._events, self._registered = None, {}

    def events(self) -> list[Sequence[Any]]:
        """``nvmlEventSetWait_v2`` without waiting: device and Xid of each event since the previous call."""
        found: list[Sequence[Any]] = []
        while self._events is not None and len(found) < _EVENTS:
            try:
                with self._errors():
                    event = self._binding.nvmlEventSetWait_v2(self._events, 0)
            except DriverError as error:
                if error.code == codes.TIMEOUT:
                    break
                raise
            if event.eventType == XID:
                found.append((self._registered.get(_address(event.device)), event.eventData))
        return found

    def release(self) -> None:
        """Shut the library down. While it is open, the GPUs cannot be reset."""
        for samples in self._gpm.values():
            samples.free()
        self.deafen()
        with self._errors():
            self._binding.nvmlShutdown()


def driver_version(nvml: Nvml) -> str:
    """Return the version of the driver; "" if it is not reported."""
    try:
        return str(nvml.system("DriverVersion"))
    except DriverError:
        return ""


def cuda_version(nvml: Nvml) -> str:
    """Return the newest version of CUDA that the driver supports, such as ``12.8``; "" if it is not reported."""
    try:
        number = int(nvml.system("CudaDriverVersion"))
    except DriverError:
        return ""
    return f"{number // 1000}.{number % 1000 // 10}"


def pci_address(bus_id: str | None) -> str:
    """Format NVML's PCI address like the kernel, with a domain of at least four digits."""
    domain, colon, rest = (bus_id or "").lower().partition(":")
    return f"{domain.lstrip('0'):0>4}:{rest}" if colon else ""


class _ProcessInfoV1(ctypes.Structure):
    """``nvmlProcessInfo_v1_t`` of drivers before 450, which the binding has no more."""

    _fields_: ClassVar = [("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong)]


_attribute = object.__getattribute__


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


def _number(kind: int, value: bytes) -> int | float | None:
    """A value of the union ``nvmlValue_t``; None for "not available"."""
    if not 0 <= kind < len(_VALUES):
        return None
    number: int | float = _VALUES[kind].unpack_from(value)[0]
    return None if number in _ABSENT or (_VALUES[kind].format == "H" and number == 0xFFFF) else number
