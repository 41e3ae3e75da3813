"""``otel-hardware free``: idle NVIDIA GPUs, for ``CUDA_VISIBLE_DEVICES``."""

from __future__ import annotations

import argparse
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.cli.messages import Mistake, collected_logs, say
from opentelemetry.instrumentation.hardware.settings import PREFIX, Config

if TYPE_CHECKING:
    from opentelemetry.instrumentation.hardware.accelerators.selection import FoundDevice
    from opentelemetry.instrumentation.hardware.model import Number, Point
    from opentelemetry.instrumentation.hardware.sources.nvidia import Nvidia

HELP = "print idle NVIDIA GPUs: CUDA_VISIBLE_DEVICES=$(otel-hardware free 2)"

DESCRIPTION = """\
Reads all NVIDIA GPUs once and prints the UUIDs of N idle ones, separated by commas, in the order of memory in use, then
of utilization. UUIDs do not depend on the order in which CUDA numbers the GPUs.

examples:
  CUDA_VISIBLE_DEVICES=$(otel-hardware free) python train.py
  gpus=$(otel-hardware free 2) && CUDA_VISIBLE_DEVICES=$gpus torchrun --nproc-per-node=2 train.py
  until gpus=$(otel-hardware free 4); do sleep 60; done
  otel-hardware free 1 --max-memory 1GiB --max-utilization 20

If there are not enough, nothing is printed. The first example then starts the program without any GPU, because the
variable is empty; the second one does not start it.

A GPU is idle if it responds and its memory in use and utilization do not exceed the limits. If the memory in use is
unknown, the GPU is not idle; an unknown utilization is not checked. Nothing is reserved: two commands at the same time
print the same GPUs.

Of a GPU that is partitioned (MIG), the instances are printed. Whole GPUs and instances are not mixed, because CUDA uses
only one kind; whole GPUs are preferred. A process can use only one instance.

CUDA_VISIBLE_DEVICES, NVIDIA_VISIBLE_DEVICES and OTEL_PYTHON_HARDWARE_DEVICES restrict the choice. The GPUs are read
through NVML, or nvidia-smi if NVML cannot be used (OTEL_PYTHON_HARDWARE_NVML, OTEL_PYTHON_HARDWARE_NVIDIA_SMI).

exit status: 0; 1 if there are not enough idle GPUs or none can be read; 2 for wrong arguments.
"""

_TIMEOUT = 60.0
"""Seconds after which the driver counts as hung. Waking a suspended GPU takes seconds."""

_NAMED = 8
"""The number of busy GPUs that an error message lists."""

_NO_DRIVER = "install NVIDIA's driver; start a container with its GPUs (docker run --gpus all)"

_KINDS = ("GPU", "MIG instance")
"""The kinds of devices. CUDA uses only one of them."""

_PREFIXES = "KMGTP"


class Limit(NamedTuple):
    """The memory that may be in use: bytes, or a share of the total."""

    value: float
    is_share: bool

    def allows(self, used: Number, total: Number | None) -> bool:
        """Whether the memory in use does not exceed the limit."""
        if not self.is_share:
            return used <= self.value
        return total is not None and used <= self.value * total


class _Gpu(NamedTuple):
    """A GPU or MIG instance.

    Attributes:
        name: Its name in messages.
        uuid: Its UUID for ``CUDA_VISIBLE_DEVICES``; its index if CUDA knows no UUID of that form.
        used, total: Its memory in bytes; None if unknown.
        busy: Its utilization; None if unknown.
        trouble: Why it cannot be used.
    """

    name: str
    uuid: str
    used: Number | None = None
    total: Number | None = None
    busy: Number | None = None
    trouble: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.usage = "otel-hardware free [N] [flags]"
    parser.add_argument("count", metavar="N", nargs="?", type=_count, default=1, help="how many; default: 1")
    parser.add_argument(
        "--max-memory",
        metavar="SIZE",
        type=_memory,
        default="5%",
        help="memory that may be in use: 500M or 500MiB (powers of 1024), 500MB (powers of 1000), or a share "
        "such as 5%%; default: 5%%, which allows for a desktop",
    )
    text = "utilization that is still idle; default: 5"
    parser.add_argument("--max-utilization", metavar="PERCENT", type=_percent, default="5", help=text)


def run(arguments: argparse.Namespace) -> int:
    """Print their UUIDs.

    Raises:
        Mistake: There are not enough idle GPUs.
    """
    idle: list[_Gpu] = []
    busy: list[str] = []
    for gpu in _read_all(Config.read()):
        reason = _reason(gpu, arguments.max_memory, arguments.max_utilization)
        if reason:
            busy.append(f"{gpu.name} {reason}")
        else:
            idle.append(gpu)
    kinds: dict[str, list[str]] = {kind: [] for kind in _KINDS}
    for gpu in sorted(idle, key=_order):
        kinds[_KINDS[gpu.uuid.startswith("MIG-")]].append(gpu.uuid)
    for uuids in kinds.values():
        if len(uuids) >= arguments.count:
            print(",".join(uuids[: arguments.count]), flush=True)
            return 0
    raise Mistake(_too_few(arguments.count, kinds, busy), 1)


# -- the arguments


def _count(text: str) -> int:
    if not re.fullmatch("[0-9]{1,6}", text) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of GPUs")
    return int(text)


def _memory(text: str) -> Limit:
    share = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]+)?) *%", text)
    if share and float(share[1]) <= 100:
        return Limit(float(share[1]) / 100, True)
    size = re.fullmatch(rf"([0-9]{{1,18}}(?:\.[0-9]+)?) *(?:([{_PREFIXES}])(i?B)?|B)?", text, re.IGNORECASE)
    if not size:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size, such as 500M, 1.5GiB or 5%")
    power = _PREFIXES.index(size[2].upper()) + 1 if size[2] else 0
    return Limit(float(size[1]) * (1000 if (size[3] or "").upper() == "B" else 1024) ** power, False)


def _percent(text: str) -> float:
    share = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]+)?) *%?", text)
    if not share or float(share[1]) > 100:
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage from 0 to 100")
    return float(share[1]) / 100


# -- reading the GPUs


def _read_all(config: Config) -> list[_Gpu]:
    """Return the GPUs that the environment makes available to the program.

    Raises:
        Mistake: No GPU can be read.
    """
    from opentelemetry.instrumentation.hardware.drivers import Drivers
    from opentelemetry.instrumentation.hardware.sources import SourceContext
    from opentelemetry.instrumentation.hardware.sources.nvidia import Nvidia

    if config.devices == ["process"]:  # no process uses a GPU yet
        config = Config.read({"devices": "all"})
    Nvidia.prepare(config)
    source = Nvidia(SourceContext(config, Drivers(), os.getpid()))
    results: list[list[_Gpu] | Mistake] = []
    # A call of a driver that hangs cannot be interrupted, so it gets a thread of its own.
    thread = threading.Thread(target=lambda: results.append(_read(source)), daemon=True)
    with collected_logs() as messages:
        thread.start()
        thread.join(_TIMEOUT)
    for message in messages:
        if PREFIX in message:  # about settings; failures of GPUs are reported below
            say(message)
    if not results:
        raise Mistake(f"the NVIDIA driver has not responded for {_TIMEOUT:g} s", 1)
    if isinstance(results[0], Mistake):
        raise results[0]
    return results[0]


def _read(source: Nvidia) -> list[_Gpu] | Mistake:
    from opentelemetry.instrumentation.hardware.model import Unavailable

    try:
        source.open()
        return _gpus(source, [*source.read_all()])
    except Unavailable as gone:
        return Mistake(f"{gone.reason.rstrip('.')}: {gone.fix or _NO_DRIVER}", 1)
    except Mistake as mistake:
        return mistake
    except Exception as error:
        return Mistake(f"the NVIDIA GPUs cannot be read: {error}", 1)
    finally:
        with suppress(Exception):  # its values are read already
            source.close()


def _gpus(source: Nvidia, points: Sequence[Point]) -> list[_Gpu]:
    """Return the GPUs and instances that the settings and the environment make available to the program.

    Raises:
        Mistake: There is no GPU, or the environment is ambiguous.
    """
    from opentelemetry.instrumentation.hardware.sources.nvidia.visible import CONTAINER, CUDA, visible

    found = source.selection.devices
    shown = visible(os.environ, found)
    if shown.doubt:
        raise Mistake(shown.doubt, 1)
    gpus = [
        _gpu(name, id, uuid, trouble, points)
        for device in found
        for name, id, uuid, trouble in _usable(device)  # noqa: A001
        if id in shown.ids and id in source.selection
    ]
    if not found:
        raise Mistake(next(iter(source.unsupported), "there is no GPU"), 1)
    if not gpus:
        names = [name for name in (CUDA, CONTAINER, PREFIX + "DEVICES") if name in os.environ]
        raise Mistake(f"no GPU is left after {' and '.join(f'{name}={os.environ[name]}' for name in names)}", 1)
    return gpus


def _usable(gpu: FoundDevice) -> Iterator[tuple[str, str, str, str]]:
    """Yield a GPU, or its instances if it is partitioned: the name, ``hw.id``, its UUID, and why it cannot be used."""
    uuid = gpu.id if gpu.id.startswith("GPU-") else str(gpu.number)  # that of a Jetson has no such beginning
    if not gpu.is_divided:
        yield f"GPU {gpu.number}", gpu.id, uuid, "does not respond" if gpu.is_unidentified else ""
    elif not gpu.parts:
        yield f"GPU {gpu.number}", gpu.id, uuid, "is partitioned and has no MIG instance"
    for part in gpu.parts:
        own = part.id if part.id.startswith("MIG-") else f"MIG-{part.id}"  # older drivers give instances no UUID
        yield f"MIG {gpu.number}/{part.slot}", part.id, own, ""


def _gpu(name: str, id: str, uuid: str, trouble: str, points: Sequence[Point]) -> _Gpu:  # noqa: A002
    values: dict[object, Number] = {}
    for series, value in points:
        attributes = series.attributes
        if attributes.get(c.HW_ID) == id and isinstance(value, (int, float)):
            values[series.metric, attributes.get(c.GPU_TASK, attributes.get(c.HW_STATE))] = value
    return _Gpu(
        name,
        uuid,
        values.get((c.HW_GPU_MEMORY_USAGE, None)),
        values.get((c.HW_GPU_MEMORY_LIMIT, None)),
        values.get((c.HW_GPU_UTILIZATION, "general")),
        "does not respond" if values.get((c.HW_STATUS, "failed")) else trouble,
    )


# -- choosing


def _reason(gpu: _Gpu, memory: Limit, utilization: float) -> str:
    """Return why a GPU is not idle; "" if it is idle."""
    from opentelemetry.instrumentation.hardware.cli.quantity import quantity

    if gpu.trouble:
        return gpu.trouble
    if gpu.used is None:
        return "does not report its memory in use"
    if not memory.allows(gpu.used, gpu.total):
        return f"has {quantity(gpu.used, 'By')} in use"
    if gpu.busy is not None and gpu.busy > utilization:
        return f"is {gpu.busy:.0%} busy"
    return ""


def _order(gpu: _Gpu) -> tuple[float, float]:
    """Sort by memory in use, then by utilization. An unknown utilization is last."""
    return float(gpu.used or 0), 1.0 if gpu.busy is None else float(gpu.busy)


def _too_few(wanted: int, kinds: Mapping[str, Sequence[str]], busy: Sequence[str]) -> str:
    idle = " and ".join(_count_of(len(uuids), kind) for kind, uuids in kinds.items() if uuids) or "none"
    more = [f"{len(busy) - _NAMED} more are busy"] if len(busy) > _NAMED else []
    reasons = ", ".join([*busy[:_NAMED], *more]) or "there are no more"
    return f"{_count_of(wanted, 'GPU')} requested, {idle} idle: {reasons}"


def _count_of(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count > 1 else ''}"
