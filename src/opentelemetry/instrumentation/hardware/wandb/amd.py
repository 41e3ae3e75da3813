"""W&B's keys of AMD GPUs: from the source's points, and from two numbers of rocm-smi that only W&B needs.

W&B runs rocm-smi, which reads the files that the source reads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.model import Point
from opentelemetry.instrumentation.hardware.sources.amd import Amd
from opentelemetry.instrumentation.hardware.sources.amd.device import SysfsGpu
from opentelemetry.instrumentation.hardware.sources.amd.tool import ToolGpu
from opentelemetry.instrumentation.hardware.wandb.probe import (
    Devices,
    Key,
    SourceProbe,
    by_device,
    device_key,
    extra_key,
    memory_percent,
    point_key,
    power_percent,
)

_PRINTED: Final = {
    "memoryAllocated": ("GPU memory use (%)", "GPU Memory Allocated (VRAM%)"),
    "memoryOverDrive": ("GPU Memory OverDrive value (%)",),
}
"""The keys that have a number of rocm-smi, with its names in the order of preference."""


class Probe(SourceProbe[Amd, Devices]):
    """The selected GPUs by their index."""

    source_class = Amd

    def convert(self, source: Amd, points: list[Point]) -> Devices:
        """Return each GPU that is awake and responds."""
        devices = by_device(points)
        gpus = {}
        for gpu in source.selected():
            if gpu.id in devices and not (gpu.trouble or gpu.is_suspended):
                gpus[gpu.index] = device = devices[gpu.id]
                texts = _texts(source, gpu)
                for key, names in _PRINTED.items():
                    for text in (texts.get(name, "") for name in reversed(names)):
                        if re.fullmatch("[0-9]{1,3}([.][0-9]{1,9})?", text):
                            device.values[key] = float(text)
        return gpus


def _texts(source: Amd, gpu: Device) -> Mapping[str, str]:
    """The output of rocm-smi, or the file from which it would print the overdrive."""
    if isinstance(gpu, ToolGpu):
        return gpu.output.texts if gpu.output else {}
    if isinstance(gpu, SysfsGpu) and source.files is not None:
        with suppress(OSError):
            text = source.files.read(f"{gpu.folder}/pp_mclk_od").decode(errors="replace").strip()
            return dict.fromkeys(_PRINTED["memoryOverDrive"], text)
    return {}


KEYS: Final[tuple[Key[Devices], ...]] = (
    point_key(
        "gpu.{i}.gpu", "%", "utilization of the graphics engine",
        c.HW_GPU_UTILIZATION, {c.GPU_TASK: "general"}, 100,
    ),
    device_key(
        "gpu.{i}.memoryAllocated", "%",
        "memory in use / total memory; from rocm-smi `GPU memory use (%)`, which is activity (ROCm 5), else "
        "`GPU Memory Allocated (VRAM%)`",
        memory_percent, c.HW_GPU_MEMORY_UTILIZATION,
    ),
    point_key(
        "gpu.{i}.memoryReadWriteActivity", "%", "share of the time in which memory was read or written",
        c.HW_GPU_UTILIZATION, {c.GPU_TASK: "memory"}, 100,
    ),
    extra_key("gpu.{i}.memoryOverDrive", "%", "overdrive of the memory clock"),
    point_key("gpu.{i}.temp", "°C", "temperature of the memory", c.HW_TEMPERATURE, {c.HW_SENSOR_LOCATION: "memory"}),
    point_key("gpu.{i}.powerWatts", "W", "power", c.HW_POWER),
    device_key("gpu.{i}.powerPercent", "%", "power / power limit", power_percent, c.HW_POWER_UTILIZATION),
)  # fmt: skip
"""The keys that W&B reports for an AMD GPU. It reports 0 for missing values; here the key is absent."""
