"""``otel-hardware free``: idle GPUs, for ``CUDA_VISIBLE_DEVICES`` and ``ROCR_VISIBLE_DEVICES``."""

from __future__ import annotations

import argparse
import os
import re
import threading
import time
from collections.abc import Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.cli import settings
from opentelemetry.instrumentation.hardware.cli.messages import Mistake, collected_logs, say
from opentelemetry.instrumentation.hardware.cli.text import counted, listed, quantity
from opentelemetry.instrumentation.hardware.model import Number, Series
from opentelemetry.instrumentation.hardware.pipeline import session as pipeline
from opentelemetry.instrumentation.hardware.pipeline.runner import SourceRunner, State
from opentelemetry.instrumentation.hardware.settings import PREFIX, Config

if TYPE_CHECKING:
    from opentelemetry.instrumentation.hardware.accelerators.device import Device
    from opentelemetry.instrumentation.hardware.accelerators.driver import Occupancy
    from opentelemetry.instrumentation.hardware.accelerators.selection import Assignable
    from opentelemetry.instrumentation.hardware.accelerators.source import AcceleratorSource

HELP = "print idle GPUs: CUDA_VISIBLE_DEVICES=$(otel-hardware free 2)"

DESCRIPTION = """\
Reads all GPUs once and prints the UUIDs of N idle ones, separated by commas, in the order of memory in use, then of
utilization. UUIDs do not depend on the order in which CUDA and ROCm number the GPUs. An AMD GPU without a UUID of its
own is printed as its number in ROCm.

examples:
  CUDA_VISIBLE_DEVICES=$(otel-hardware free) python train.py
  gpus=$(otel-hardware free 2) && CUDA_VISIBLE_DEVICES=$gpus torchrun --nproc-per-node=2 train.py
  until gpus=$(otel-hardware free 4); do sleep 60; done
  otel-hardware free 1 --max-memory 10GiB --max-utilization 20 --max-processes 1
  ROCR_VISIBLE_DEVICES=$(otel-hardware free --vendor amd) python train.py

If there are not enough, nothing is printed. The first example then starts the program without any GPU, because the
variable is empty; the second one does not start it.

exit status: 0; 1 if there are not enough idle GPUs or none can be read; 2 for wrong arguments.
"""

DETAILS = """\
Sizes are 500M or 500MiB (powers of 1024), 500MB (powers of 1000), or a share of the memory. The default allows for a
desktop.

A GPU is idle if it responds, and its memory in use, its utilization and the number of processes that compute on it do
not exceed the limits. Programs that only draw, such as a desktop, are not counted. If the memory in use is unknown, the
GPU is not idle; an unknown utilization and unknown processes are not checked. In compute mode EXCLUSIVE_PROCESS no
process may compute on it, and in compute mode PROHIBITED it is never idle. A suspended GPU is idle. Nothing is
reserved: two commands at the same time print the same GPUs.

Of an NVIDIA GPU that is partitioned (MIG), the instances are printed. Whole GPUs and instances are not mixed, because
CUDA uses only one kind; whole GPUs are preferred. A process can use only one instance. The GPU of a Jetson is printed
by its index, because its UUID does not have the form that CUDA documents.

CUDA_VISIBLE_DEVICES, NVIDIA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES and OTEL_PYTHON_HARDWARE_DEVICES
restrict the choice. The GPUs are read through NVML, or nvidia-smi if NVML cannot be used (OTEL_PYTHON_HARDWARE_NVML,
OTEL_PYTHON_HARDWARE_NVIDIA_SMI); those of AMD through the files of amdgpu, or amd-smi or rocm-smi.
"""

_TIMEOUT = 60.0  # seconds after which the driver counts as hung. Waking a suspended GPU takes seconds.

_NAMED = 8  # the number of busy GPUs that an error message lists

# The sources, and the names of the vendors. The first one that may be present is the default.
_VENDORS = {"nvidia": "NVIDIA", "amd": "AMD"}

# The arguments of ``docker run`` for a container with the GPUs of a vendor.
_CONTAINER = {"NVIDIA": "--gpus all", "AMD": "--device /dev/kfd --device /dev/dri"}

_PREFIXES = "KMGTP"


class Limit(NamedTuple):
    """The memory that may be in use: at most so many bytes, and at most a share of the total."""

    size: float = inf
    share: float | None = None

    def allows(self, used: Number, total: Number | None) -> bool:
        if self.share is not None and (total is None or used > self.share * total):
            return False
        return used <= self.size


_DEFAULT = Limit(1 << 30, 0.05)


class _Gpu(NamedTuple):
    """A GPU, or a part that programs use like one.

    Attributes:
        choice: Its names.
        used, total: Its memory in bytes; None if unknown.
        busy: Its utilization; None if unknown.
        occupancy: Who computes on it; None if unknown.
        trouble: Why it cannot be used.
    """

    choice: Assignable
    used: Number | None = None
    total: Number | None = None
    busy: Number | None = None
    occupancy: Occupancy | None = None
    trouble: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "otel-hardware free [N] [flags]"
    parser.add_argument(
        "count", metavar="N", nargs="?", type=settings.count, default=1, help="number of GPUs; default: 1"
    )
    text = "memory that may be in use, such as 500MiB or 5%%; default: 5%% and at most 1GiB"
    parser.add_argument("--max-memory", metavar="SIZE", type=_memory, default=_DEFAULT, help=text)
    text = "maximum utilization in percent; default: 5"
    parser.add_argument("--max-utilization", metavar="PERCENT", type=_percent, default="5", help=text)
    text = "maximum number of compute processes; default: 0"
    parser.add_argument("--max-processes", metavar="N", type=partial(settings.count, least=0), default=0, help=text)
    parser.add_argument("--vendor", choices=[*_VENDORS], help="default: nvidia if its driver is present, else amd")
    settings.add_simulate(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print their UUIDs.

    Raises:
        Mistake: There are not enough idle GPUs.
    """
    idle: dict[str, list[_Gpu]] = {}
    busy: list[str] = []
    gpus = _read_all(settings.config(arguments), arguments.vendor)
    for gpu in sorted(gpus, key=lambda gpu: gpu.choice.kind):  # GPUs before MIG
        reason = _reason(gpu, arguments)
        if reason:
            busy.append(f"{gpu.choice.name} {reason}")
        else:
            idle.setdefault(gpu.choice.kind, []).append(gpu)
    for gpus in idle.values():
        if len(gpus) >= arguments.count:
            # By memory in use, then by utilization. An unknown utilization is last.
            ordered = sorted(gpus, key=lambda gpu: (gpu.used or 0, 1.0 if gpu.busy is None else gpu.busy))
            print(",".join(gpu.choice.word for gpu in ordered[: arguments.count]), flush=True)
            return 0
    found = " and ".join(counted(len(gpus), kind) for kind, gpus in idle.items()) or "none"
    reasons = listed(busy, _NAMED, "more are busy") or "there are no more"
    raise Mistake(f"{counted(arguments.count, 'GPU')} requested, {found} idle: {reasons}", 1)


# -- the arguments


def _memory(text: str) -> Limit:
    share = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]+)?) *%", text)
    if share and float(share[1]) <= 100:
        return Limit(share=float(share[1]) / 100)
    size = re.fullmatch(rf"([0-9]{{1,18}}(?:\.[0-9]+)?) *(?:([{_PREFIXES}])(i?B)?|B)?", text, re.IGNORECASE)
    if not size:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size, such as 500M, 1.5GiB or 5%")
    power = _PREFIXES.index(size[2].upper()) + 1 if size[2] else 0
    return Limit(float(size[1]) * (1000 if (size[3] or "").upper() == "B" else 1024) ** power)


def _percent(text: str) -> float:
    share = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]+)?) *%?", text)
    if not share or float(share[1]) > 100:
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage from 0 to 100")
    return float(share[1]) / 100


# -- reading the GPUs


def _read_all(config: Config, vendor: str | None) -> list[_Gpu]:
    """Return the GPUs that the environment makes available to the program.

    Raises:
        Mistake: No GPU can be read.
    """
    from opentelemetry.instrumentation.hardware.sources.amd import Amd
    from opentelemetry.instrumentation.hardware.sources.nvidia import Nvidia

    if config.devices == ["process"]:  # no process uses a GPU yet
        config = config.changed(devices=["all"])
    sources = {"nvidia": Nvidia, "amd": Amd}
    present = [name for name, source in sources.items() if source.prepare(config)]
    name = vendor or next(iter(present or sources))
    results: list[list[_Gpu] | Mistake] = []
    # A call of a driver that hangs cannot be interrupted, so it gets a thread of its own.
    with collected_logs() as messages:
        (runner,) = pipeline.Session(config.changed(sources=[name])).runners
        thread = threading.Thread(target=lambda: results.append(_read(runner, _VENDORS[name])), daemon=True)
        thread.start()
        thread.join(_TIMEOUT)
    for message in messages:
        if PREFIX in message or message.startswith("--simulate: "):  # failures of GPUs are reported below
            say(message)
    if not results:
        raise Mistake(f"the {_VENDORS[name]} driver has not responded for {_TIMEOUT:g} s", 1)
    if isinstance(results[0], Mistake):
        raise results[0]
    return results[0]


def _read(runner: SourceRunner, vendor: str) -> list[_Gpu] | Mistake:
    """Read the GPUs once, in this thread."""
    from opentelemetry.instrumentation.hardware.accelerators.source import AcceleratorSource

    runner.read()
    try:
        if runner.state is State.UP and isinstance(runner.source, AcceleratorSource):
            return _gpus(runner.source, runner.points(time.monotonic()))
        reason, fix = (runner.problem.reason, runner.problem.fix) if runner.problem else ("", "")
        if runner.state is State.ABSENT:
            install = (
                f"install {vendor}'s driver, or start the container with its GPUs (docker run {_CONTAINER[vendor]})"
            )
            return Mistake(f"{reason.rstrip('.')}. To fix it: {fix or install}", 1)
        return Mistake(f"the {vendor} GPUs cannot be read: {reason}", 1)
    except Mistake as mistake:
        return mistake
    except Exception as error:
        return Mistake(f"the {vendor} GPUs cannot be read: {error}", 1)
    finally:
        runner.close()


def _gpus(source: AcceleratorSource, points: Sequence[tuple[Series, Number]]) -> list[_Gpu]:
    """Return the GPUs and instances that the settings and the environment make available to the program.

    Raises:
        Mistake: There is no GPU, or the environment is ambiguous.
    """
    rule, found = source.visibility(), source.selection.devices
    shown = rule.select(os.environ, found)
    if shown.doubt:
        raise Mistake(shown.doubt, 1)
    if source.driver is None or not found:
        raise Mistake(next(iter(source.unsupported), "there is no GPU"), 1)
    devices = {device.selection_id: device for device in source.all_devices()}
    occupancy = {device.selection_id: each for device, each in source.driver.occupancy()}
    gpus = [
        _gpu(choice, devices.get(choice.id), occupancy.get(choice.id), points)
        for choice in rule.assignable(found)
        if choice.id in shown.ids and choice.id in source.selection
    ]
    if not gpus:
        names = [name for name in (*rule.variables, PREFIX + "DEVICES") if name in os.environ]
        raise Mistake(f"no GPU is left after {' and '.join(f'{name}={os.environ[name]}' for name in names)}", 1)
    return gpus


def _gpu(
    choice: Assignable, device: Device | None, occupancy: Occupancy | None, points: Sequence[tuple[Series, Number]]
) -> _Gpu:
    if device is None or device.trouble:
        return _Gpu(choice, trouble=choice.trouble or "does not respond")
    if device.is_suspended:
        return _Gpu(choice, 0, 1, 0, trouble=choice.trouble)
    values: dict[object, Number] = {}
    for series, value in points:
        attributes = series.attributes
        if attributes.get(c.HW_ID) == device.id:
            values[series.metric, attributes.get(c.GPU_TASK)] = value
    return _Gpu(
        choice,
        values.get((c.HW_GPU_MEMORY_USAGE, None)),
        values.get((c.HW_GPU_MEMORY_LIMIT, None)),
        values.get((c.HW_GPU_UTILIZATION, "general")),
        occupancy,
        choice.trouble,
    )


# -- choosing


def _reason(gpu: _Gpu, limits: argparse.Namespace) -> str:
    """Return why a GPU is not idle; "" if it is idle."""
    if gpu.trouble:
        return gpu.trouble
    mode, pids = ("", None) if gpu.occupancy is None else (gpu.occupancy.mode, gpu.occupancy.pids)
    if mode == "PROHIBITED":
        return f"is in compute mode {mode}"
    if gpu.used is None:
        return "does not report its memory in use"
    if not limits.max_memory.allows(gpu.used, gpu.total):
        return f"has {quantity(gpu.used, 'By')} in use"
    if gpu.busy is not None and gpu.busy > limits.max_utilization:
        return f"is {gpu.busy:.0%} busy"
    others = sorted({*(pids or ())} - {os.getpid()})
    if len(others) > (0 if mode == "EXCLUSIVE_PROCESS" else limits.max_processes):
        exclusive = f"is in compute mode {mode} and " if mode else ""
        return f"{exclusive}runs {f'process {others[0]}' if len(others) == 1 else f'{len(others)} processes'}"
    return ""
