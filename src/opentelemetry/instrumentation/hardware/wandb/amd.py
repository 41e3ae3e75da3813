"""W&B's keys of AMD GPUs: from the source's points, and from two numbers of rocm-smi that only W&B needs.

W&B runs rocm-smi, which reads the files that the source reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.model import Attributes, Metric, Number, Point
from opentelemetry.instrumentation.hardware.sources.amd import Amd
from opentelemetry.instrumentation.hardware.sources.amd.device import SysfsGpu
from opentelemetry.instrumentation.hardware.sources.amd.tool import ToolGpu
from opentelemetry.instrumentation.hardware.wandb.probe import (
    DevicePoints,
    Key,
    SourceProbe,
    by_device,
    device_key,
    percent,
)

_OVERDRIVE: Final = "GPU Memory OverDrive value (%)"


class Gpu:
    """One GPU at one moment.

    Attributes:
        points: What the source read.
        texts: What rocm-smi printed, by its keys, if it was run.
    """

    def __init__(self, points: DevicePoints, texts: Mapping[str, str]) -> None:
        self.points = points
        self.texts = texts

    def number(self, *keys: str) -> float | None:
        """The number of the first of rocm-smi's keys that has one."""
        texts = (self.texts.get(key, "") for key in keys)
        return next((float(text) for text in texts if re.fullmatch("[0-9]{1,3}([.][0-9]{1,9})?", text)), None)


class Probe(SourceProbe[Amd, "Mapping[int, Gpu]"]):
    """The selected GPUs by their index."""

    source_class = Amd

    def convert(self, source: Amd, points: list[Point]) -> Mapping[int, Gpu]:
        """Return each GPU that is awake and responds."""
        devices = by_device(points)
        return {
            gpu.index: Gpu(devices[gpu.id], _texts(source, gpu))
            for gpu in source.selected()
            if gpu.id in devices and not (gpu.trouble or gpu.is_suspended)
        }


def _texts(source: Amd, gpu: Device) -> Mapping[str, str]:
    """The output of rocm-smi, or the file from which it would print the overdrive."""
    if isinstance(gpu, ToolGpu):
        return gpu.output.texts if gpu.output else {}
    if isinstance(gpu, SysfsGpu) and source.files is not None:
        with suppress(OSError):
            return {_OVERDRIVE: source.files.read(f"{gpu.folder}/pp_mclk_od").decode(errors="replace").strip()}
    return {}


def _allocated(gpu: Gpu) -> float | None:
    printed = gpu.number("GPU memory use (%)", "GPU Memory Allocated (VRAM%)")
    used, total = gpu.points.get(c.HW_GPU_MEMORY_USAGE), gpu.points.get(c.HW_GPU_MEMORY_LIMIT)
    return percent(used, total) if printed is None else printed


def _get(metric: Metric, attributes: Attributes, factor: float = 1) -> Callable[[Gpu], Number | None]:
    return lambda gpu: gpu.points.get(metric, attributes, factor)


def _key(
    name: str, unit: str, formula: str, value: Callable[[Gpu], Number | None], *metrics: Metric
) -> Key[Mapping[int, Gpu]]:
    return device_key(f"gpu.{{i}}.{name}", unit, formula, value, *metrics)


KEYS: Final[tuple[Key[Mapping[int, Gpu]], ...]] = (
    _key(
        "gpu", "%", "utilization of the graphics engine",
        _get(c.HW_GPU_UTILIZATION, {c.GPU_TASK: "general"}, 100), c.HW_GPU_UTILIZATION,
    ),
    _key(
        "memoryAllocated", "%",
        "memory in use / total memory; from rocm-smi `GPU memory use (%)`, which is activity (ROCm 5), else "
        "`GPU Memory Allocated (VRAM%)`",
        _allocated, c.HW_GPU_MEMORY_UTILIZATION,
    ),
    _key(
        "memoryReadWriteActivity", "%", "share of the time in which memory was read or written",
        _get(c.HW_GPU_UTILIZATION, {c.GPU_TASK: "memory"}, 100), c.HW_GPU_UTILIZATION,
    ),
    _key("memoryOverDrive", "%", "overdrive of the memory clock", lambda gpu: gpu.number(_OVERDRIVE)),
    _key(
        "temp", "°C", "temperature of the memory", _get(c.HW_TEMPERATURE, {c.HW_SENSOR_LOCATION: "memory"}),
        c.HW_TEMPERATURE,
    ),
    _key("powerWatts", "W", "power", _get(c.HW_POWER, {}), c.HW_POWER),
    _key(
        "powerPercent", "%", "power / power limit",
        lambda gpu: percent(
            gpu.points.get(c.HW_POWER), gpu.points.get(c.HW_POWER_LIMIT, {c.HW_LIMIT_TYPE: "enforced"})
        ),
        c.HW_POWER_UTILIZATION,
    ),
)  # fmt: skip
"""What W&B reports of an AMD GPU. It reports 0 for what is missing; here the key is absent."""
