"""NVIDIA's GPUs by ``nvidia-smi -q -x``: its XML, of every schema there has been, as quantities in base units.

A number is believed when it was spelled, with its unit, and can be true; what is not believed is left out, with what
the tool said instead. A device that the output does not say to its end, or that is lost, is not believed at all, and
the others are. https://docs.nvidia.com/deploy/nvidia-smi/
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from xml.parsers import expat

from opentelemetry.instrumentation.hardware.command import Command, Tool
from opentelemetry.instrumentation.hardware.model import Number, Unavailable

TOOL: Final = Tool(
    "nvidia-smi",
    folders=("/usr/bin", "/usr/local/nvidia/bin", "/usr/lib/wsl/lib"),
    keep=("NVIDIA_", "CUDA_", "__NVML_"),
    fix="it comes with NVIDIA's driver",
)

_ABSENT: Final = {6: "", 9: "modprobe nvidia", 12: "install NVIDIA's driver"}
"""Exit codes, which are NVML's, and what to do: there is no device, no kernel driver, no library."""

_LOST = ("GPU is lost", "GPU requires reset")
"""What every value of a device may be instead, once it is out of order."""

_UNKNOWN = "Unknown Error"

_REFUSALS = frozenset(
    word.casefold()
    for word in (
        *_LOST,
        _UNKNOWN,
        "",
        "N/A",
        "None",
        "Not Supported",
        "Not Found",
        "REDACTED",
        "Insufficient Permissions",
        "Requested functionality has been deprecated",
        "GPU access blocked by the operating system",
    )
)
"""What a fact may be instead; a number is anything but a number then."""

_DROPPED = ("supported_clocks", "process_name", "accounted_processes")
"""Left out before the XML is read: most of it by length; a name holds any bytes that a user gave a process, and the
table of clocks was malformed in some versions.
"""

_LISTED = ("gpu", "mig_device", "process_info")
"""Elements of which there may be several."""

_DEPTH = 12
_ELEMENTS = 200_000
"""More of either is no output of this tool: a GPU has some 300 elements, 8 deep, and 7 for each of its processes."""


# -- what is understood


Parse: TypeAlias = "Callable[[str], Number]"
"""A text as a number in base units.

Raises:
    ValueError: it is none, or none that can be true; the text says why.
"""


def _measure(unit: str, most: float, least: float = 0, *, times: int = 1, per: int = 1) -> Parse:
    """Numbers with a unit; the most and the least of them that can be true; and what makes base units of them."""
    form = re.compile(r"([0-9]{1,18})" + (rf"(\.[0-9]{{1,9}})? *{re.escape(unit)}" if unit else "()"))

    def parse(text: str) -> Number:
        found = form.fullmatch(text)
        if found is None:
            raise ValueError(text)
        number = float(text[: found.end(2)]) if found[2] else int(found[1])
        if not least <= number <= most:
            raise ValueError(f"{text} cannot be true")
        return number / per if per > 1 else round(number * times) if times > 1 else number

    return parse


_SHARE = _measure("%", 100, per=100)
_FAN = _measure("%", 200, per=100)  # of the speed at which it is as loud as it should ever be
_BYTES = _measure("MiB", 1 << 26, times=1 << 20)
_CAPACITY = _measure("MiB", 1 << 26, 1, times=1 << 20)
_CELSIUS = _measure("C", 150)
_THRESHOLD = _measure("C", 150, 20)  # a smaller one is a distance to a threshold
_WATTS = _measure("W", 20_000)
_LIMIT = _measure("W", 20_000, 1)
_HERTZ = _measure("MHz", 50_000, times=10**6)
_SECONDS = _measure("us", 1e16, per=10**6)
_COUNT = _measure("", (1 << 32) - 2)  # all ones stand for "not available"
_WORDS: Final = {
    "yes": True,
    "no": False,
    "active": True,
    "not active": False,
    "enabled": True,
    "disabled": False,
}
_ACTIONS: Final = {
    "none": False,
    "reset": True,
    "gpu reset": True,
    "reboot": True,
    "node reboot": True,
    "drain p2p": True,
    "drain and reset": True,
}


def _word(words: Mapping[str, bool]) -> Callable[[str], bool]:
    def parse(text: str) -> bool:
        if text.casefold() not in words:
            raise ValueError(text)
        return words[text.casefold()]

    return parse


_FLAG = _word(_WORDS)


def _state(text: str) -> Number:
    if not re.fullmatch(r"P([0-9]|1[0-5])", text):
        raise ValueError(text)
    return int(text[1:])


NUMBERS: Final[Mapping[str, tuple[Parse, tuple[str, ...]]]] = {
    "utilization.general": (_SHARE, ("utilization/gpu_util",)),
    "utilization.memory": (_SHARE, ("utilization/memory_util",)),
    "utilization.encoder": (_SHARE, ("utilization/encoder_util",)),
    "utilization.decoder": (_SHARE, ("utilization/decoder_util",)),
    "utilization.jpeg": (_SHARE, ("utilization/jpeg_util",)),
    "utilization.ofa": (_SHARE, ("utilization/ofa_util",)),
    "memory.total": (_CAPACITY, ("fb_memory_usage/total",)),
    "memory.reserved": (_BYTES, ("fb_memory_usage/reserved",)),
    "memory.used": (_BYTES, ("fb_memory_usage/used",)),
    "memory.free": (_BYTES, ("fb_memory_usage/free",)),
    "temperature.gpu": (_CELSIUS, ("temperature/gpu_temp",)),
    "temperature.memory": (_CELSIUS, ("temperature/memory_temp",)),
    "temperature.limit.gpu.high.critical": (_THRESHOLD, ("temperature/gpu_temp_max_threshold",)),
    "temperature.limit.gpu.high.degraded": (_THRESHOLD, ("temperature/gpu_temp_slow_threshold",)),
    "temperature.limit.gpu.max": (_THRESHOLD, ("temperature/gpu_temp_max_gpu_threshold",)),
    "temperature.limit.memory.max": (_THRESHOLD, ("temperature/gpu_temp_max_mem_threshold",)),
    "power": (
        _WATTS,
        (
            "gpu_power_readings/power_draw",
            "power_readings/power_draw",
            "gpu_power_readings/average_power_draw",
            "gpu_power_readings/instant_power_draw",
        ),
    ),
    "power.average": (_WATTS, ("gpu_power_readings/average_power_draw",)),
    "power.instant": (_WATTS, ("gpu_power_readings/instant_power_draw",)),
    "power.module": (
        _WATTS,
        (
            "module_power_readings/power_draw",
            "module_power_readings/average_power_draw",
            "module_power_readings/instant_power_draw",
        ),
    ),
    "power.memory": (
        _WATTS,
        ("gpu_memory_power_readings/average_power_draw", "gpu_memory_power_readings/instant_power_draw"),
    ),
    "power.limit.enforced": (_LIMIT, ("gpu_power_readings/current_power_limit", "power_readings/enforced_power_limit")),
    "power.limit.requested": (_LIMIT, ("gpu_power_readings/requested_power_limit", "power_readings/power_limit")),
    "power.limit.default": (_LIMIT, ("gpu_power_readings/default_power_limit", "power_readings/default_power_limit")),
    "power.limit.min": (_LIMIT, ("gpu_power_readings/min_power_limit", "power_readings/min_power_limit")),
    "power.limit.max": (_LIMIT, ("gpu_power_readings/max_power_limit", "power_readings/max_power_limit")),
    "power.limit.module": (_LIMIT, ("module_power_readings/current_power_limit",)),
    "frequency.graphics": (_HERTZ, ("clocks/graphics_clock",)),
    "frequency.sm": (_HERTZ, ("clocks/sm_clock",)),
    "frequency.memory": (_HERTZ, ("clocks/mem_clock",)),
    "frequency.video": (_HERTZ, ("clocks/video_clock",)),
    "frequency.limit.graphics": (_HERTZ, ("max_clocks/graphics_clock",)),
    "frequency.limit.sm": (_HERTZ, ("max_clocks/sm_clock",)),
    "frequency.limit.memory": (_HERTZ, ("max_clocks/mem_clock",)),
    "frequency.limit.video": (_HERTZ, ("max_clocks/video_clock",)),
    **{
        f"throttle.{reason}": (
            _SECONDS,
            (f"clocks_event_reasons_counters/clocks_event_reasons_counters_{spelling}",),
        )
        for reason, spelling in {
            "power_cap": "sw_power_cap",
            "sync_boost": "sync_boost",
            "thermal_sw": "sw_therm_slowdown",
            "thermal_hw": "hw_therm_slowdown",
            "power_brake": "hw_power_brake",
        }.items()
    },
    "performance_state": (_state, ("performance_state",)),
    "fan.ratio": (_FAN, ("fan_speed",)),
    "errors.corrected": (
        _COUNT,
        (
            "ecc_errors/aggregate/dram_correctable",
            "ecc_errors/aggregate/single_bit/device_memory",
            "ecc_errors/aggregate/single_bit/total",
        ),
    ),
    "errors.uncorrected": (
        _COUNT,
        (
            "ecc_errors/aggregate/dram_uncorrectable",
            "ecc_errors/aggregate/double_bit/device_memory",
            "ecc_errors/aggregate/double_bit/total",
        ),
    ),
    "sram.corrected": (_COUNT, ("ecc_errors/aggregate/sram_correctable",)),
    "sram.uncorrected": (
        _COUNT,
        (
            "ecc_errors/aggregate/sram_uncorrectable",
            "ecc_errors/aggregate/sram_uncorrectable_parity + ecc_errors/aggregate/sram_uncorrectable_secded",
        ),
    ),
    "retired.single_bit": (_COUNT, ("retired_pages/multiple_single_bit_retirement/retired_count",)),
    "retired.double_bit": (_COUNT, ("retired_pages/double_bit_retirement/retired_count",)),
    "errors.retired_page": (
        _COUNT,
        (
            "retired_pages/multiple_single_bit_retirement/retired_count"
            " + retired_pages/double_bit_retirement/retired_count",
        ),
    ),
    "remapped.corrected": (_COUNT, ("remapped_rows/remapped_row_corr",)),
    "remapped.uncorrected": (_COUNT, ("remapped_rows/remapped_row_unc",)),
    "errors.row_remap": (_COUNT, ("remapped_rows/remapped_row_corr + remapped_rows/remapped_row_unc",)),
    "errors.pcie_replay": (_COUNT, ("pci/replay_counter",)),
}
"""Every quantity: how its text is read, and where it stands; the first spelling that is believed counts. ``a + b`` is a
sum of which all parts must be said. Names that :mod:`~..devices` has too mean the same.

``memory.used`` contains what the driver keeps for itself where nothing is said of that (before 510). Left out: the
throughput of PCIe, which is that of 20 ms; and the distances to thresholds of temperature (``tlimit``) that Ada and
newer devices say, which are no temperatures.
"""

_EVENTS = ("clocks_event_reasons/clocks_event_reason", "clocks_throttle_reasons/clocks_throttle_reason")

FLAGS: Final[Mapping[str, tuple[Callable[[str], bool], tuple[str, ...]]]] = {
    **{
        f"throttled.{reason}": (_FLAG, tuple(f"{prefix}_{spelling}" for prefix in _EVENTS))
        for reason, spelling in {
            "power_cap": "sw_power_cap",
            "thermal_sw": "sw_thermal_slowdown",
            "thermal_hw": "hw_thermal_slowdown",
            "power_brake": "hw_power_brake_slowdown",
            "slowdown_hw": "hw_slowdown",
            "sync_boost": "sync_boost",
            "application_clocks": "applications_clocks_setting",
        }.items()
    },
    "mig": (_FLAG, ("mig_mode/current_mig",)),
    "retired.pending": (_FLAG, ("retired_pages/pending_retirement", "retired_pages/pending_blacklist")),
    "remapped.pending": (_FLAG, ("remapped_rows/remapped_row_pending",)),
    "remapped.failure": (_FLAG, ("remapped_rows/remapped_row_failure",)),
    "reset.required": (_FLAG, ("gpu_reset_status/reset_required",)),
    "recovery.needed": (_word(_ACTIONS), ("gpu_recovery_action",)),
}
"""What holds or does not: the same way."""

_INSTANCE: Final[Mapping[str, tuple[Parse, tuple[str, ...]]]] = {
    **{name: NUMBERS[name] for name in ("memory.total", "memory.reserved", "memory.used", "memory.free")},
    "sram.uncorrected": (
        _COUNT,
        (
            "ecc_error_count/volatile_count/sram_uncorrectable",
            "ecc_error_count/volatile_count/sram_uncorrectable_parity"
            " + ecc_error_count/volatile_count/sram_uncorrectable_secded",
        ),
    ),
}
"""What is said of a MIG instance; its errors are those since the driver was loaded."""


# -- what comes out


@dataclass(frozen=True, slots=True)
class Instance:
    """A MIG instance: a part of a GPU that is used like one.

    Attributes:
        index: its place among those of the GPU.
        gpu_instance, compute_instance: what the driver calls it; no two of a GPU have the same pair.
        uuid: ``MIG-…``, of the drivers that say it here.
        numbers: memory in bytes, and uncorrected errors of SRAM since the driver was loaded.
        refused: by quantity, what was said instead.
    """

    index: int
    gpu_instance: int | None
    compute_instance: int | None
    uuid: str | None
    numbers: dict[str, Number]
    refused: dict[str, str]


@dataclass(frozen=True, slots=True)
class Process:
    """A process that uses a GPU.

    Attributes:
        pid: its number, in the namespace of the driver.
        type: C (computes), G (draws), C+G, or M+C (computes through MPS).
        memory: bytes that it holds, where that is said.
        gpu_instance, compute_instance: the MIG instance that it uses.
    """

    pid: int
    type: str
    memory: Number | None
    gpu_instance: int | None
    compute_instance: int | None


@dataclass(frozen=True, slots=True)
class Device:
    """What was said of one GPU.

    Attributes:
        index: its place in the output, which is NVML's index.
        uuid, name, serial, vbios: what it is called; None where that is not said.
        bdf: its address, as ``0000:1a:00.0``.
        minor: of its device node, ``/dev/nvidia<minor>``.
        addressing: how the host's memory is shared (HMM, ATS), where it is.
        recovery: what the driver wants done with it, where that is not nothing.
        lost: why nothing of it is believed.
        numbers: by quantity of :data:`NUMBERS`, in base units.
        flags: by name of :data:`FLAGS`.
        refused: by the names of both, what was said instead.
        spelled: by the names of both, where what is believed was found.
    """

    index: int
    uuid: str | None = None
    name: str | None = None
    serial: str | None = None
    vbios: str | None = None
    bdf: str | None = None
    minor: int | None = None
    addressing: str | None = None
    recovery: str | None = None
    lost: str | None = None
    numbers: dict[str, Number] = field(default_factory=dict)
    flags: dict[str, bool] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    spelled: dict[str, str] = field(default_factory=dict)
    instances: tuple[Instance, ...] = ()
    processes: tuple[Process, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """What the tool said of all GPUs.

    Attributes:
        driver_version, cuda_version: None where they are not said.
        devices: those that it said to their end.
        problem: what is wrong with the rest.
    """

    driver_version: str | None
    cuda_version: str | None
    devices: tuple[Device, ...]
    problem: str | None = None


class Smi:
    """The tool.

    Args:
        command: runs it, as it is found by :data:`TOOL`.
        seconds: how long it may take: some for each GPU, where no driver stays loaded between two runs.
    """

    def __init__(self, command: Command, seconds: float = 10.0) -> None:
        self._command = command
        self._seconds = seconds

    def read(self) -> Document:
        """What it says now.

        Raises:
            Unavailable: there is no GPU, no driver, or no such tool.
            ValueError: what it says is no document; the error is what it says instead.
            OSError: it did not end in time, or could not be run: see :meth:`~.command.Command.run`.
        """
        said = self._command.run(["-q", "-x"], self._seconds)
        try:
            return parse(said.stdout)
        except ValueError:
            sentence = _sentence(said.stdout) or _sentence(said.stderr) or "nothing"
            if said.code in _ABSENT:
                raise Unavailable(sentence, _ABSENT[said.code]) from None
            raise ValueError(f"nvidia-smi says {sentence!r} and ends with {said.code}") from None


def _sentence(said: bytes) -> str:
    """The first line that says something."""
    lines = (line.strip() for line in said.decode("utf-8", "replace").splitlines())
    return next((line[:200] for line in lines if line and line.isprintable()), "")


# -- how it is read


def parse(printed: bytes) -> Document:
    """What the tool printed; of several documents, the newest.

    Raises:
        ValueError: there is no document.
    """
    text = printed.decode("utf-8", "replace")
    for name in _DROPPED:
        text = _without(text, name)
    begin = text.rfind("<nvidia_smi_log")  # behind warnings, and behind a DOCTYPE: no entity is ever defined
    if begin < 0:
        raise ValueError("there is no document of nvidia-smi")
    body, end, _ = text[begin:].partition("</nvidia_smi_log>")
    taken = _Taken()
    problem = taken.take(body + end)
    log = taken.log
    devices = tuple(_device(index, part) for index, part in enumerate(log.all("gpu")))
    if problem is not None:
        attached = _fact(log, "nvidia_smi_log/attached_gpus") or "some"
        problem = f"the output of nvidia-smi breaks off after {len(devices)} of {attached} GPUs: {problem}"
    return Document(
        _fact(log, "nvidia_smi_log/driver_version"), _fact(log, "nvidia_smi_log/cuda_version"), devices, problem
    )


def _without(text: str, name: str) -> str:
    """The text without an element, wherever it stands."""
    first, *others = text.split(f"<{name}>")
    kept = [first]
    for other in others:
        inside, closed, after = other.partition(f"</{name}>")
        kept.append(after if closed else inside)
    return "".join(kept)


class _Part:
    """An element that may come several times: the texts below it, by path, and such elements below it."""

    def __init__(self, id: str = "") -> None:  # noqa: A002
        self.id = id
        self.said: dict[str, str] = {}
        self.parts: list[tuple[str, _Part]] = []

    def all(self, name: str) -> Iterator[_Part]:
        """The elements of a name below it."""
        return (part for each, part in self.parts if each == name)

    def instead(self, path: str) -> str | None:
        """What is said of a folder instead of what is at a path in it."""
        while path := path.rpartition("/")[0]:
            if path in self.said:
                return _clean(self.said[path])
        return None


class _Taken:
    """Takes XML apart. A part is only there once it was said to its end."""

    def __init__(self) -> None:
        self.log = _Part()
        self._open: list[tuple[_Part, list[str]]] = [(self.log, [])]
        self._text: list[str] = []
        self._elements = 0

    def take(self, text: str) -> str | None:
        """Take what there is; why not all of it."""
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._begin
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text.append
        try:
            parser.Parse(text, True)
        except expat.ExpatError as error:
            return expat.ErrorString(error.code)
        except ValueError as error:
            return str(error)
        return None

    def _begin(self, name: str, attributes: dict[str, str]) -> None:
        self._elements += 1
        if self._elements > _ELEMENTS or sum(len(path) + 1 for _, path in self._open) > _DEPTH:
            raise ValueError("it is more than a document of nvidia-smi is")
        if name in _LISTED:
            self._open.append((_Part(attributes.get("id", "")), []))
        else:
            self._open[-1][1].append(name)
        self._text.clear()

    def _end(self, name: str) -> None:
        part, path = self._open[-1]
        if path:
            said = "".join(self._text).strip()
            if said:
                part.said.setdefault("/".join(path), said)
            path.pop()
        else:
            self._open.pop()
            self._open[-1][0].parts.append((name, part))
        self._text.clear()


def _clean(text: str) -> str:
    """What is said, without the brackets that some versions put around what is no value."""
    text = " ".join(text.split())
    return text[1:-1].strip() if text.startswith("[") and text.endswith("]") else text


def _fact(part: _Part, path: str, form: str = ".{1,200}") -> str | None:
    """A text that is no number; None for what is said instead of one."""
    text = _clean(part.said.get(path, ""))
    return text if text.casefold() not in _REFUSALS and text.isprintable() and re.fullmatch(form, text) else None


def _whole(part: _Part, path: str) -> int | None:
    """A number that something is called by."""
    text = _fact(part, path, "[0-9]{1,10}")
    return None if text is None else int(text)


def _address(text: str) -> str | None:
    """``00000000:1A:00.0`` as the kernel has it, ``0000:1a:00.0``."""
    found = re.fullmatch(r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", text.strip().lower())
    return f"{int(found[1], 16):04x}:{found[2]}" if found else None


_Value: TypeAlias = "Number | bool"


def _believed(
    part: _Part, table: Mapping[str, tuple[Callable[[str], _Value], tuple[str, ...]]]
) -> Iterator[tuple[str, _Value | None, str]]:
    """Of each quantity that is said: its number, and where it stands; or no number, and what is said instead."""
    for quantity, (read, spellings) in table.items():
        refused = None
        for spelling in spellings:
            paths = spelling.split(" + ")
            if any(path not in part.said for path in paths):
                refused = refused or part.instead(paths[0])
                continue
            try:
                values = [read(_clean(part.said[path])) for path in paths]
            except ValueError as error:
                refused = refused or str(error)[:200]
                continue
            yield quantity, values[0] if len(values) == 1 else sum(values), spelling
            break
        else:
            if refused is not None:
                yield quantity, None, refused


def _device(index: int, part: _Part) -> Device:
    numbers: dict[str, Number] = {}
    flags: dict[str, bool] = {}
    refused: dict[str, str] = {}
    spelled: dict[str, str] = {}
    for quantity, value, said in (*_believed(part, NUMBERS), *_believed(part, FLAGS)):
        if value is None:
            refused[quantity] = said
            continue
        spelled[quantity] = said
        if isinstance(value, bool):
            flags[quantity] = value
        else:
            numbers[quantity] = value
    _weigh(numbers, refused)
    lost = next((word for word in _LOST if word in map(_clean, part.said.values())), None)
    if lost is None and not numbers and _UNKNOWN in refused.values():
        lost = _UNKNOWN
    if lost is not None:
        numbers, flags, refused, spelled = {}, {}, {}, {}
    return Device(
        index,
        uuid=_fact(part, "uuid", "GPU-[0-9a-fA-F-]{4,64}"),
        name=_fact(part, "product_name"),
        serial=_fact(part, "serial", "[0-9A-Za-z-]{1,64}"),
        vbios=_fact(part, "vbios_version", "[0-9A-Fa-f.]{1,64}"),
        bdf=_address(part.said.get("pci/pci_bus_id", "")) or _address(part.id),
        minor=_whole(part, "minor_number"),
        addressing=_fact(part, "addressing_mode"),
        recovery=_fact(part, "gpu_recovery_action"),
        lost=lost,
        numbers=numbers,
        flags=flags,
        refused=refused,
        spelled={quantity: where for quantity, where in spelled.items() if quantity not in refused},
        instances=() if lost else tuple(_instances(part)),
        processes=() if lost else tuple(_processes(part)),
    )


def _weigh(numbers: dict[str, Number], refused: dict[str, str]) -> None:
    """Do not believe parts of a memory that is not there, or that are more than the whole."""
    total = numbers.get("memory.total")
    for quantity in ("memory.reserved", "memory.used", "memory.free"):
        if quantity in numbers and (total is None or numbers[quantity] > total):
            refused[quantity] = "there is no total" if total is None else "it is more than the total"
            del numbers[quantity]


def _instances(gpu: _Part) -> Iterator[Instance]:
    for part in gpu.all("mig_device"):
        index = _whole(part, "index")
        if index is None:
            continue
        numbers: dict[str, Number] = {}
        refused: dict[str, str] = {}
        for quantity, value, said in _believed(part, _INSTANCE):
            if value is None:
                refused[quantity] = said
            else:
                numbers[quantity] = value
        _weigh(numbers, refused)
        ids = _whole(part, "gpu_instance_id"), _whole(part, "compute_instance_id")
        yield Instance(index, *ids, _fact(part, "uuid", "MIG-[0-9a-fA-F/GPU-]{4,100}"), numbers, refused)


def _processes(gpu: _Part) -> Iterator[Process]:
    for part in gpu.all("process_info"):
        pid = _whole(part, "pid")
        if not pid:
            continue
        try:
            memory: Number | None = _BYTES(_clean(part.said.get("used_memory", "")))
        except ValueError:
            memory = None
        ids = _whole(part, "gpu_instance_id"), _whole(part, "compute_instance_id")
        yield Process(pid, _fact(part, "type") or "", memory, *ids)
