"""``otel-hardware free``: GPUs that nobody uses, for ``CUDA_VISIBLE_DEVICES``."""

from __future__ import annotations

import argparse
import itertools
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.cli.messages import Mistake, overhear, say
from opentelemetry.instrumentation.hardware.settings import PREFIX, Config

if TYPE_CHECKING:
    from opentelemetry.instrumentation.hardware.accelerators.selection import FoundDevice
    from opentelemetry.instrumentation.hardware.model import Number, Point
    from opentelemetry.instrumentation.hardware.sources.nvidia import Nvidia

_DESCRIPTION = """\
Looks once at all NVIDIA GPUs and prints the UUIDs of N that are free, with commas, the one with the least memory in
use first, and of equals the least busy one. UUIDs mean the same GPUs to CUDA in whatever order it counts them.

examples:
  CUDA_VISIBLE_DEVICES=$(otel-hardware free) python train.py
  gpus=$(otel-hardware free 2) && CUDA_VISIBLE_DEVICES=$gpus torchrun --nproc-per-node=2 train.py
  until gpus=$(otel-hardware free 4); do sleep 60; done
  otel-hardware free 1 --max-memory 1GiB --max-utilization 20

Nothing is printed where there are not enough. The first example then starts the program without any GPU, as CUDA
takes an empty list; the second one does not start it.

A GPU is free if its memory in use and its utilization are no more than the limits, and it answers. One whose memory
in use is not known is not free; utilization counts where it is known. Nothing is reserved: of two that look at the
same moment both find the same GPUs.

A GPU that is divided (MIG) is used by its instances, so those are printed. Whole GPUs and instances are not
mixed, because CUDA would show the program one kind only, and whole ones come first; one process uses one instance.

Where CUDA_VISIBLE_DEVICES, NVIDIA_VISIBLE_DEVICES or OTEL_PYTHON_HARDWARE_DEVICES restrict the GPUs already, it is
some of those. The driver's library is asked, or nvidia-smi where that cannot be used; OTEL_PYTHON_HARDWARE_NVML and
OTEL_PYTHON_HARDWARE_NVIDIA_SMI say where they are.

exit status: 0; 1 where there are not so many, or no GPU can be asked; 2 for a mistake in the arguments.
"""

_PATIENCE = 60.0
"""Seconds until the driver counts as hung: it takes seconds for each GPU that it has to wake first."""

_NAMED = 8
"""GPUs that are not free are named, up to so many."""

_NO_DRIVER = "install NVIDIA's driver; a container needs to be started with its GPUs (docker run --gpus all)"

_KINDS = {"GPU-": "GPU", "MIG-": "MIG instance"}
"""How a UUID begins, and of what."""

_PREFIXES = "KMGTP"


class Limit(NamedTuple):
    """How much memory may be in use: bytes, or a share of what there is."""

    value: float
    is_share: bool

    def allows(self, used: Number, total: Number | None) -> bool:
        """Whether a device that uses so much is free."""
        if not self.is_share:
            return used <= self.value
        return total is not None and used <= self.value * total


class _Gpu(NamedTuple):
    """A GPU or MIG instance.

    Attributes:
        name: what people call it.
        word: what CUDA calls it.
        used, total: its memory in bytes; None where that is not known.
        busy: its utilization.
        trouble: why it cannot be used at all.
    """

    name: str
    word: str
    used: Number | None = None
    total: Number | None = None
    busy: Number | None = None
    trouble: str = ""


class Free:
    """GPUs that nobody uses."""

    name = "free"
    help = "print free GPUs: CUDA_VISIBLE_DEVICES=$(otel-hardware free 2)"
    description = _DESCRIPTION

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """The flags."""
        parser.usage = "otel-hardware free [N] [flags]"
        parser.add_argument("count", metavar="N", nargs="?", type=_count, default=1, help="how many; default: 1")
        parser.add_argument(
            "--max-memory",
            metavar="SIZE",
            type=_memory,
            default="5%",
            help="memory that may be in use: bytes as 500M, 1GiB (of 1024) or 1GB (of 1000), or a share of "
            "what the GPU has as 5%%; default: 5%%, which lets a desktop run on it",
        )
        parser.add_argument(
            "--max-utilization",
            metavar="PERCENT",
            type=_percent,
            default="5",
            help="share of time that it may be busy; default: 5",
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """Print them.

        Raises:
            Mistake: where there are not so many.
        """
        free: list[_Gpu] = []
        others: list[str] = []
        for gpu in _asked(Config.read()):
            why = _why_not(gpu, arguments.max_memory, arguments.max_utilization)
            if why:
                others.append(f"{gpu.name} {why}")
            else:
                free.append(gpu)
        kinds = {kind: [gpu.word for gpu in sorted(free, key=_order) if gpu.word.startswith(kind)] for kind in _KINDS}
        for words in kinds.values():
            if len(words) >= arguments.count:
                print(",".join(words[: arguments.count]), flush=True)  # noqa: T201
                return 0
        raise Mistake(_too_few(arguments.count, kinds, others), 1)


# -- the arguments


def _count(text: str) -> int:
    if not re.fullmatch("[0-9]{1,6}", text) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of GPUs; it takes 1, 2, 3 …")
    return int(text)


def _memory(text: str) -> Limit:
    share = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]+)?) *%", text)
    if share and float(share[1]) <= 100:
        return Limit(float(share[1]) / 100, True)
    size = re.fullmatch(rf"([0-9]{{1,18}}(?:\.[0-9]+)?) *(?:([{_PREFIXES}])(i?B)?|B)?", text, re.IGNORECASE)
    if not size:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; it takes bytes, such as 500M or 1.5GiB, or 5%")
    power = _PREFIXES.index(size[2].upper()) + 1 if size[2] else 0
    return Limit(float(size[1]) * (1000 if (size[3] or "").upper() == "B" else 1024) ** power, False)


def _percent(text: str) -> float:
    share = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]+)?) *%?", text)
    if not share or float(share[1]) > 100:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share; it takes percent, 0 to 100")
    return float(share[1]) / 100


# -- what there is


def _asked(config: Config) -> list[_Gpu]:
    """The GPUs that there are to choose from.

    Raises:
        Mistake: where none can be asked.
    """
    from opentelemetry.instrumentation.hardware.drivers import Drivers
    from opentelemetry.instrumentation.hardware.sources import SourceContext
    from opentelemetry.instrumentation.hardware.sources.nvidia import Nvidia

    if config.devices == ["process"]:  # of which there is none yet
        config = Config.read({"devices": "all"})
    Nvidia.prepare(config)
    source = Nvidia(SourceContext(config, Drivers(), os.getpid()))
    answer: list[list[_Gpu] | Mistake] = []
    # A driver that hangs cannot be interrupted, but it can be left behind.
    asking = threading.Thread(target=lambda: answer.append(_read(source)), daemon=True)
    with overhear() as said:
        asking.start()
        asking.join(_PATIENCE)
    for sentence in said:
        if PREFIX in sentence:  # the user's words; what ails a GPU is said by us
            say(sentence)
    if not answer:
        raise Mistake(f"NVIDIA's driver has not answered for {_PATIENCE:g} s", 1)
    if isinstance(answer[0], Mistake):
        raise answer[0]
    return answer[0]


def _read(source: Nvidia) -> list[_Gpu] | Mistake:
    from opentelemetry.instrumentation.hardware.model import Unavailable

    try:
        source.open()
        return _gpus(source, [*source.read(), *source.read_slow()])
    except Unavailable as gone:
        return Mistake(f"{gone.reason.rstrip('.')}: {gone.fix or _NO_DRIVER}", 1)
    except Mistake as mistake:
        return mistake
    except Exception as error:
        return Mistake(f"NVIDIA's GPUs cannot be asked: {error}", 1)
    finally:
        with suppress(Exception):  # it has said what it had to say
            source.close()


def _gpus(source: Nvidia, points: Sequence[Point]) -> list[_Gpu]:
    """What a program can use, of the GPUs that the settings and the environment leave to it.

    Raises:
        Mistake: where there is none, or it cannot be known which those are.
    """
    from opentelemetry.instrumentation.hardware.sources.nvidia.visible import CONTAINER, CUDA, visible

    found = source.selection.found
    shown = visible(os.environ, found)
    if shown.doubt:
        raise Mistake(shown.doubt, 1)
    gpus = [
        _gpu(name, id, trouble, points)
        for name, id, trouble in itertools.chain.from_iterable(map(_usable, found))  # noqa: A001
        if id in shown.ids and id in source.selection
    ]
    if not found:
        raise Mistake(next(iter(source.unsupported), "there is no GPU"), 1)
    if not gpus:
        said = [f"{name}={os.environ[name]}" for name in (CUDA, CONTAINER, PREFIX + "DEVICES") if name in os.environ]
        raise Mistake(f"{' and '.join(said)} leaves no GPU to choose from", 1)
    return gpus


def _usable(gpu: FoundDevice) -> Iterator[tuple[str, str, str]]:
    """What a GPU is used by, itself or its instances: the name, ``hw.id``, and why it cannot be used."""
    if not gpu.divided:
        yield f"GPU {gpu.number}", gpu.id, "does not answer" if gpu.unknown else ""
    elif not gpu.parts:
        yield f"GPU {gpu.number}", gpu.id, "is divided and has no MIG instance"
    for part in gpu.parts:
        yield f"MIG {gpu.number}/{part.slot}", part.id, ""


def _gpu(name: str, id: str, trouble: str, points: Sequence[Point]) -> _Gpu:  # noqa: A002
    told: dict[object, Number] = {}
    for series, value in points:
        attributes = series.attributes
        if attributes.get(c.HW_ID) == id and isinstance(value, (int, float)):
            told[series.metric, attributes.get(c.GPU_TASK, attributes.get(c.HW_STATE))] = value
    return _Gpu(
        name,
        f"MIG-{id}" if id.startswith("GPU-") and "/" in id else id,  # an instance without a UUID, of older drivers
        told.get((c.HW_GPU_MEMORY_USAGE, None)),
        told.get((c.HW_GPU_MEMORY_LIMIT, None)),
        told.get((c.HW_GPU_UTILIZATION, "general")),
        "does not answer" if told.get((c.HW_STATUS, "failed")) else trouble,
    )


# -- which of it is free


def _why_not(gpu: _Gpu, memory: Limit, utilization: float) -> str:
    """Why it is not free; nothing where it is."""
    from opentelemetry.instrumentation.hardware.cli.table import quantity

    if gpu.trouble:
        return gpu.trouble
    if gpu.used is None:
        return "does not say how much of its memory is in use"
    if not memory.allows(gpu.used, gpu.total):
        return f"has {quantity(gpu.used, 'By')} in use"
    if gpu.busy is not None and gpu.busy > utilization:
        return f"is {gpu.busy:.0%} busy"
    return ""


def _order(gpu: _Gpu) -> tuple[float, float]:
    """Least memory in use first, then least busy; of what does not say that it is idle, the last."""
    return float(gpu.used or 0), 1.0 if gpu.busy is None else float(gpu.busy)


def _too_few(wanted: int, kinds: Mapping[str, Sequence[str]], others: Sequence[str]) -> str:
    there = " and ".join(_many(len(words), _KINDS[kind]) for kind, words in kinds.items() if words) or "none"
    more = [f"{len(others) - _NAMED} more are in use too"] if len(others) > _NAMED else []
    why = ", ".join([*others[:_NAMED], *more]) or "there are no more"
    return f"{_many(wanted, 'GPU')} wanted, {there} free: {why}"


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count > 1 else ''}"
