"""NVIDIA's management library (NVML), through its Python binding: each method is one call, and what it says.

Answers are plain data; what is not an answer is a :class:`~..drivers.DriverError` with NVML's own code. GPUs are named
by their index as text, ``"0"``; their MIG instances by index and slot, ``"0/3"``. Documentation of every call:
https://docs.nvidia.com/deploy/nvml-api/
"""

from __future__ import annotations

import ctypes
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

from opentelemetry.instrumentation.hardware.drivers import DriverError

UNINITIALIZED: Final = 1
INVALID_ARGUMENT: Final = 2
NOT_SUPPORTED: Final = 3
NO_PERMISSION: Final = 4
NOT_FOUND: Final = 6
INSUFFICIENT_SIZE: Final = 7
DRIVER_NOT_LOADED: Final = 9
TIMEOUT: Final = 10
NO_LIBRARY: Final = 12
FUNCTION_NOT_FOUND: Final = 13
LOST: Final = 15
RESET_REQUIRED: Final = 16
VERSION_MISMATCH: Final = 18
NO_DATA: Final = 21
ARGUMENT_VERSION: Final = 25
DEPRECATED: Final = 26
UNKNOWN: Final = 999

XID: Final = 8
"""The type of event that says that something critical happened on a GPU."""

ALL_LINKS: Final = 0xFFFFFFFF
"""The scope of an NVLink field that stands for the sum over all links."""

_ABSENT = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
"""NVML's "not available", in a number of 32 or 64 bits."""

_FIELD = struct.Struct("=IIqqii8s")
"""``nvmlFieldValue_t``."""

_KINDS = tuple(struct.Struct(form) for form in ("=d", "=I", "=Q", "=Q", "=q", "=i", "=H"))
"""How the 8 bytes of a value are read, by ``nvmlValueType_t``."""

_SHORT = 6
"""``NVML_VALUE_TYPE_UNSIGNED_SHORT``."""

_SAMPLE = struct.Struct("=Q8s")
"""``nvmlSample_t``."""

_METRIC = struct.Struct("@IIdPPP")
"""``nvmlGpmMetric_t``: number, code, value, and three texts."""

_PROCESSES = {
    version: struct.Struct(form) for version, form in (("_v3", "=IxxxxQII"), ("_v2", "=IxxxxQII"), ("", "=IxxxxQ"))
}
"""``nvmlProcessInfo_t`` by the version of the call."""

_SHARE = struct.Struct("=IxxxxQIIII")
"""``nvmlProcessUtilizationSample_t``."""

_SAMPLES = 256
"""Samples fetched at a time; the driver's buffers hold some 100."""

_EVENTS = 64
"""Events fetched at a time: a storm of them is counted over several readings."""

_ROOMS = (64, 1024, 16384)
"""Processes, or samples of them, that there is room for at the first try and at the next ones."""

_GPUS, _SLOTS = 256, 64
"""GPUs of a machine and MIG instances of a GPU at most; a driver that says more says nonsense."""

_GPM_LEAST = 0.1
"""Seconds between two GPM samples: below, the library has nothing to compare."""

Answer: TypeAlias = "Any"
"""Numbers, text, lists and dicts."""

Fields: TypeAlias = "tuple[tuple[int, int], ...]"
"""Pairs of a field and its scope."""


SIGNS: Final = (
    "/sys/module/nvidia/initstate",
    "/proc/driver/nvidia/version",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
    "C:\\Windows\\System32\\nvml.dll",
)
"""One of them is there where a driver is loaded: on Linux, in WSL (where the module is Windows's), on Windows."""


def is_here(exists: Callable[[str], bool]) -> bool:
    """Whether there is a driver to talk to.

    To be asked before the library is loaded: initialized as root without the kernel module it makes a device node, and
    tries to load the module.
    """
    return any(exists(path) for path in SIGNS)


class Nvml:
    """The library, initialized; one thread uses it.

    Args:
        path: where the library is; empty: where the system's loader finds it.

    Raises:
        DriverError: where it cannot be loaded or initialized.
    """

    def __init__(self, path: str = "") -> None:
        try:
            import pynvml
        except ImportError as error:
            raise DriverError(NO_LIBRARY, f"its Python binding cannot be imported: {error}") from None
        self._binding = pynvml
        self._said = _Said(pynvml)
        self._reasons: dict[int, str] = {}
        self._unknown: set[tuple[object, ...]] = set()
        self._handles: dict[str, Any] = {}
        self._fields: dict[tuple[str, Fields], Any] = {}
        self._gpm: dict[str, _Chain] = {}
        self._events: Any = None
        self._heard: dict[int | None, str] = {}
        self._samples = ctypes.create_string_buffer(_SAMPLE.size * _SAMPLES)
        if path:
            try:
                ctypes.CDLL(path)  # the binding asks for it by its name, and is then given this one
            except OSError as error:
                raise DriverError(NO_LIBRARY, str(error)) from None
        with self._said:
            pynvml.nvmlInit()

    def _check(self, code: int) -> None:
        if code:
            raise DriverError(code, self._reason(code))

    def _reason(self, code: int) -> str:
        if code not in self._reasons:
            self._reasons[code] = _words(self._binding, self._binding.NVMLError(code))
        return self._reasons[code]

    def _raw(self, name: str) -> Callable[..., int]:
        """A function of the library itself, where the binding makes two calls of one, or too much of its answer."""
        try:
            found: Callable[..., int] = getattr(self._binding.nvmlLib, name)
        except AttributeError:
            raise DriverError(FUNCTION_NOT_FOUND, f"the driver has no {name}") from None
        return found

    def _handle(self, device: str) -> Any:
        handle = self._handles.get(device)
        if handle is None:
            index, _, slot = device.partition("/")
            with self._said:
                if slot:
                    parent = self._handle(index)
                    handle = self._binding.nvmlDeviceGetMigDeviceHandleByIndex(parent, int(slot))
                else:
                    handle = self._binding.nvmlDeviceGetHandleByIndex(int(index))
            self._handles[device] = handle
        return handle

    def forget(self, device: str) -> None:
        """Look a device up anew at the next call; what was kept of it and of its parts is dropped."""
        parts = f"{device}/"
        for name in [name for name in self._handles if name == device or name.startswith(parts)]:
            del self._handles[name]
        for name in [name for name in self._gpm if name == device or name.startswith(parts)]:
            self._gpm.pop(name).free()

    # -- one call each

    def system(self, name: str) -> Answer:
        """``nvmlSystemGet<name>``."""
        return self._plain(self._call(f"nvmlSystemGet{name}"))

    def count(self) -> int:
        """How many GPUs there are."""
        return min(int(self._call("nvmlDeviceGetCount")), _GPUS)

    def get(self, device: str, name: str, *arguments: object) -> Answer:
        """``nvmlDeviceGet<name>`` of a device; structures come back as dicts.

        NVML's "not available", a number of all ones, is None in a structure or list, else a DriverError.
        """
        answer = self._plain(self._call(f"nvmlDeviceGet{name}", self._handle(device), *arguments))
        if answer is None:
            raise DriverError(NO_DATA, "the driver has no value")
        return answer

    def _call(self, name: str, *arguments: object) -> Any:
        function, form = getattr(self._binding, name, None), (name, *arguments[1:])
        if function is None or form in self._unknown:
            raise DriverError(FUNCTION_NOT_FOUND, self._reason(FUNCTION_NOT_FOUND))
        try:
            with self._said:
                return function(*arguments)
        except DriverError as refusal:
            if refusal.code == FUNCTION_NOT_FOUND:  # the binding would look for it again, under a lock that forks copy
                self._unknown.add(form)
            raise

    def _plain(self, answer: Any) -> Answer:
        if isinstance(answer, ctypes.Structure):
            # Past the binding's own way to an attribute, which is slow and fails where text is no text.
            return {name: self._plain(_attribute(answer, name)) for name, *_ in answer._fields_}
        if isinstance(answer, bytes):
            return answer.decode(errors="replace")
        if isinstance(answer, (list, tuple)):
            return [self._plain(each) for each in answer]
        return None if answer in _ABSENT else answer

    def fields(self, device: str, ids: Fields) -> list[Sequence[Any]]:
        """``nvmlDeviceGetFieldValues``: for each pair of field and scope 0 and the value, or NVML's code and reason."""
        buffer = self._fields.get((device, ids))
        if buffer is None:
            packed = b"".join(_FIELD.pack(field, scope, 0, 0, 0, NOT_SUPPORTED, bytes(8)) for field, scope in ids)
            buffer = self._fields[device, ids] = ctypes.create_string_buffer(packed, len(packed))
        self._check(self._raw("nvmlDeviceGetFieldValues")(self._handle(device), len(ids), buffer))
        found: list[Sequence[Any]] = []
        for _, _, _, _, kind, code, value in _FIELD.iter_unpack(buffer.raw):
            number = _number(kind, value)
            failed = code or (NO_DATA if number is None else 0)
            found.append((failed, self._reason(failed) if failed else number))
        return found

    def samples(self, device: str, kind: int, since: int) -> Sequence[Any]:
        """``nvmlDeviceGetSamples``: the time of the newest sample (microseconds), and all that are newer than
        ``since``.
        """
        count, form = ctypes.c_uint(_SAMPLES), ctypes.c_int()
        ask = self._raw("nvmlDeviceGetSamples")
        arguments = ctypes.byref(form), ctypes.byref(count), self._samples
        self._check(ask(self._handle(device), kind, ctypes.c_ulonglong(since), *arguments))
        taken = self._samples.raw[: count.value * _SAMPLE.size]
        pairs = [(at, _number(form.value, value)) for at, value in _SAMPLE.iter_unpack(taken)]
        said = [(at, number) for at, number in pairs if at > since and number is not None]
        return max((at for at, _ in said), default=since), [number for _, number in said]

    def processes(self, device: str, kind: str) -> list[Sequence[Any]]:
        """``nvmlDeviceGet<kind>RunningProcesses``: pid and bytes in use, which are None where they are not known."""
        for version in ("_v3", "_v2", ""):
            try:
                return self._processes(device, f"nvmlDeviceGet{kind}RunningProcesses{version}", version)
            except DriverError as refusal:
                if refusal.code != FUNCTION_NOT_FOUND or not version:
                    raise
        raise AssertionError  # the last version was asked

    def _processes(self, device: str, name: str, version: str) -> list[Sequence[Any]]:
        ask, handle = self._raw(name), self._handle(device)
        said = self._listed(_PROCESSES[version], lambda count, room: ask(handle, count, room))
        return [(pid, None if used in _ABSENT else used) for pid, used, *_ in said]

    def shares(self, device: str, since: int) -> list[Sequence[int]]:
        """``nvmlDeviceGetProcessUtilization``: pid, time (us), percent of SM, memory, encoder and decoder."""
        ask, handle, after = (
            self._raw("nvmlDeviceGetProcessUtilization"),
            self._handle(device),
            ctypes.c_ulonglong(since),
        )
        said = self._listed(_SHARE, lambda count, room: ask(handle, room, count, after))
        return [share for share in said if share[1] > since]

    def _listed(self, form: struct.Struct, ask: Callable[[Any, Any], int]) -> list[tuple[Any, ...]]:
        """A list, by one call as a rule, where the binding would first ask how long it is."""
        for most in _ROOMS:
            count, room = ctypes.c_uint(most), ctypes.create_string_buffer(form.size * most)
            code = ask(ctypes.byref(count), room)
            if code != INSUFFICIENT_SIZE:
                break
        self._check(code)
        return list(form.iter_unpack(room.raw[: min(most, count.value) * form.size]))

    def slots(self, device: str) -> list[int]:
        """The slots of a GPU in which there is a MIG instance now."""
        found = []
        for slot in range(min(self.get(device, "MaxMigDeviceCount"), _SLOTS)):
            name = f"{device}/{slot}"
            self._handles.pop(name, None)
            try:
                self._handle(name)
            except DriverError as refusal:
                if refusal.code not in (NOT_FOUND, INVALID_ARGUMENT, NO_PERMISSION):  # empty, or not ours
                    raise
            else:
                found.append(slot)
        return found

    # -- GPM: what happened between two samples

    def gpm(self, device: str, ids: Sequence[int], instance: int | None = None) -> list[Sequence[Any]] | None:
        """GPM metrics over the time since this was asked before: for each id 0 and the value, or NVML's code and
        reason.

        Windows lie end to end, so nothing is missed, however seldom it is asked.

        Args:
            device: a GPU or a MIG instance.
            ids: ``NVML_GPM_METRIC_*``.
            instance: the GPU instance that a MIG instance lies in.

        Returns:
            None at the first time; within a tenth of a second the same as before.

        Raises:
            DriverError: also on a GPU that is older than Hopper.
        """
        whole = self._handle(device.partition("/")[0])
        chain = self._gpm.get(device)
        if chain is None:
            with self._said:
                if not self._binding.nvmlGpmQueryDeviceSupport(whole).isSupportedDevice:
                    raise DriverError(NOT_SUPPORTED, "GPM needs a Hopper GPU or a newer one")
                chain = self._gpm[device] = _Chain(self._binding, ids)
        now = time.monotonic()
        if chain.taken is not None and now - chain.taken < _GPM_LEAST:
            return chain.said
        name = "nvmlGpmSampleGet" if instance is None else "nvmlGpmMigSampleGet"
        which = () if instance is None else (instance,)
        self._check(self._raw(name)(whole, *which, chain.newer))
        chain.said = None
        if chain.take(now):
            self._check(self._raw("nvmlGpmMetricsGet")(ctypes.byref(chain.metrics)))
            chain.said = [(code, self._reason(code) if code else value) for code, value in chain.values()]
        return chain.said

    # -- events

    def listen(self, devices: Sequence[str]) -> list[str]:
        """Ask to be told of critical events (Xid) on the devices too; all that can say them."""
        if self._events is None:
            with self._said:
                self._events = self._binding.nvmlEventSetCreate()
        for device in devices:
            with suppress(DriverError):
                if self.get(device, "SupportedEventTypes") & XID:
                    with self._said:
                        self._binding.nvmlDeviceRegisterEvents(self._handle(device), XID, self._events)
                    self._heard[_address(self._handle(device))] = device
        return list(self._heard.values())

    def deafen(self) -> None:
        """Listen to no device any more."""
        if self._events is not None:
            with suppress(self._binding.NVMLError):
                self._binding.nvmlEventSetFree(self._events)
        self._events, self._heard = None, {}

    def events(self) -> list[Sequence[Any]]:
        """``nvmlEventSetWait_v2`` without waiting: device and Xid of what happened since it was asked before."""
        found: list[Sequence[Any]] = []
        while self._events is not None and len(found) < _EVENTS:
            try:
                with self._said:
                    event = self._binding.nvmlEventSetWait_v2(self._events, 0)
            except DriverError as refusal:
                if refusal.code == TIMEOUT:
                    break
                raise
            if event.eventType == XID:
                found.append((self._heard.get(_address(event.device)), event.eventData))
        return found

    def release(self) -> None:
        """Let go of the GPUs: an open library keeps them from being reset."""
        for chain in self._gpm.values():
            chain.free()
        self.deafen()
        with self._said:
            self._binding.nvmlShutdown()


def driver(nvml: Nvml) -> str:
    """The driver's version; empty where it does not say it."""
    try:
        return str(nvml.system("DriverVersion"))
    except DriverError:
        return ""


class _Chain:
    """Two GPM samples, of which the newer one becomes the older one; and the structure that compares them."""

    def __init__(self, binding: Any, ids: Sequence[int]) -> None:
        self._binding = binding
        self.metrics = binding.c_nvmlGpmMetricsGet_t()
        self.metrics.version = binding.NVML_GPM_METRICS_GET_VERSION
        self.metrics.numMetrics = len(ids)
        for at, number in enumerate(ids):
            self.metrics.metrics[at].metricId = number
        self._each = (ctypes.c_char * (_METRIC.size * len(ids))).from_buffer(
            self.metrics, type(self.metrics).metrics.offset
        )
        self._older, self.newer = binding.nvmlGpmSampleAlloc(), binding.nvmlGpmSampleAlloc()
        self.taken: float | None = None
        self.said: list[Sequence[Any]] | None = None

    def take(self, now: float) -> bool:
        """The newer sample has been filled; whether there is an older one to compare it with."""
        first, self.taken = self.taken is None, now
        self.metrics.sample1, self.metrics.sample2 = self._older, self.newer
        self._older, self.newer = self.newer, self._older
        return not first

    def values(self) -> list[tuple[int, float]]:
        """What the comparison said: for each metric NVML's code and the value."""
        return [(code, value) for _, code, value, *_ in _METRIC.iter_unpack(self._each.raw)]

    def free(self) -> None:
        """Give the samples back."""
        for sample in (self._older, self.newer):
            with suppress(self._binding.NVMLError):
                self._binding.nvmlGpmSampleFree(sample)


def _words(binding: Any, error: Exception) -> str:
    """What an error of the binding says.

    A code that is newer than the binding it would ask the driver for, too, but also write down, where nvitop finds it
    when the program imports it later, looks for its class, finds none and ends the program.
    """
    if type(error) is not binding.NVMLError:
        return str(error)
    code = getattr(error, "value", FUNCTION_NOT_FOUND)
    try:
        text = binding.nvmlErrorString(code)
    except binding.NVMLError:
        return f"NVML says {code}"
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text)


class _Said:
    """What the binding raises within this is a DriverError."""

    def __init__(self, binding: Any) -> None:
        self._binding = binding

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, self._binding.NVMLError):
            words = _words(self._binding, error)
            raise DriverError(getattr(error, "value", FUNCTION_NOT_FOUND), words) from None


_attribute = object.__getattribute__


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


def _number(kind: int, packed: bytes) -> int | float | None:
    """A value of NVML's union; None for its "not available"."""
    if not 0 <= kind < len(_KINDS):
        return None
    number: int | float = _KINDS[kind].unpack_from(packed)[0]
    return None if number in _ABSENT or (kind == _SHORT and number == 0xFFFF) else number
