"""NVIDIA's GPUs by ``nvidia-smi -q -x``: what its XML says, as quantities in base units.

A number is believed when it was spelled, with its unit, and can be true; what is not believed is left out, with what
the tool said instead. A device that the output does not say to its end, or that is lost, is not believed at all, and
the others are. https://docs.nvidia.com/deploy/nvidia-smi/
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from opentelemetry.instrumentation.hardware.drivers.subprocess import Command, Tool
from opentelemetry.instrumentation.hardware.model import Number, Unavailable
from opentelemetry.instrumentation.hardware.sources.nvidia.markup import Part, clean, taken
from opentelemetry.instrumentation.hardware.sources.nvidia.spellings import BYTES, FLAGS, INSTANCE, NUMBERS

TOOL: Final = Tool(
    "nvidia-smi",
    folders=("/usr/bin", "/usr/local/nvidia/bin", "/usr/lib/wsl/lib"),
    environment=("NVIDIA_", "CUDA_", "__NVML_"),
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
    log, problem = taken(printed)
    devices = tuple(_device(index, part) for index, part in enumerate(log.all("gpu")))
    if problem is not None:
        attached = _fact(log, "nvidia_smi_log/attached_gpus") or "some"
        problem = f"the output of nvidia-smi breaks off after {len(devices)} of {attached} GPUs: {problem}"
    return Document(
        _fact(log, "nvidia_smi_log/driver_version"), _fact(log, "nvidia_smi_log/cuda_version"), devices, problem
    )


def _fact(part: Part, path: str, form: str = ".{1,200}") -> str | None:
    """A text that is no number; None for what is said instead of one."""
    text = clean(part.said.get(path, ""))
    return text if text.casefold() not in _REFUSALS and text.isprintable() and re.fullmatch(form, text) else None


def _whole(part: Part, path: str) -> int | None:
    """A number that something is called by."""
    text = _fact(part, path, "[0-9]{1,10}")
    return None if text is None else int(text)


def _address(text: str) -> str | None:
    """``00000000:1A:00.0`` as the kernel has it, ``0000:1a:00.0``."""
    found = re.fullmatch(r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", text.strip().lower())
    return f"{int(found[1], 16):04x}:{found[2]}" if found else None


_Value: TypeAlias = "Number | bool"


def _believed(
    part: Part, table: Mapping[str, tuple[Callable[[str], _Value], tuple[str, ...]]]
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
                values = [read(clean(part.said[path])) for path in paths]
            except ValueError as error:
                refused = refused or str(error)[:200]
                continue
            yield quantity, values[0] if len(values) == 1 else sum(values), spelling
            break
        else:
            if refused is not None:
                yield quantity, None, refused


def _device(index: int, part: Part) -> Device:
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
    lost = next((word for word in _LOST if word in map(clean, part.said.values())), None)
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


def _instances(gpu: Part) -> Iterator[Instance]:
    for part in gpu.all("mig_device"):
        index = _whole(part, "index")
        if index is None:
            continue
        numbers: dict[str, Number] = {}
        refused: dict[str, str] = {}
        for quantity, value, said in _believed(part, INSTANCE):
            if value is None:
                refused[quantity] = said
            else:
                numbers[quantity] = value
        _weigh(numbers, refused)
        ids = _whole(part, "gpu_instance_id"), _whole(part, "compute_instance_id")
        yield Instance(index, *ids, _fact(part, "uuid", "MIG-[0-9a-fA-F/GPU-]{4,100}"), numbers, refused)


def _processes(gpu: Part) -> Iterator[Process]:
    for part in gpu.all("process_info"):
        pid = _whole(part, "pid")
        if not pid:
            continue
        try:
            memory: Number | None = BYTES(clean(part.said.get("used_memory", "")))
        except ValueError:
            memory = None
        ids = _whole(part, "gpu_instance_id"), _whole(part, "compute_instance_id")
        yield Process(pid, _fact(part, "type") or "", memory, *ids)
