"""W&B's keys of NVIDIA GPUs: from the source's points, and from three NVML calls that only W&B needs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.drivers.number import number
from opentelemetry.instrumentation.hardware.drivers.subprocess import setting_path
from opentelemetry.instrumentation.hardware.model import Point
from opentelemetry.instrumentation.hardware.sources.nvidia import Nvidia
from opentelemetry.instrumentation.hardware.sources.nvidia.nvml import Nvml
from opentelemetry.instrumentation.hardware.sources.nvidia.tool import SmiGpu
from opentelemetry.instrumentation.hardware.wandb.probe import (
    Device,
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

_GPM: Final = {
    2: "smActive",
    3: "smOccupancy",
    5: "pipeTensorActive",
    7: "pipeTensorHmmaActive",
    10: "dramActive",
    11: "pipeFp64Active",
    12: "pipeFp32Active",
    13: "pipeFp16Active",
    20: "pcieTxBytes",
    21: "pcieRxBytes",
    60: "nvlinkRxBytes",
    61: "nvlinkTxBytes",
}
"""``NVML_GPM_METRIC_*``: percent, from 20 on MiB per second.
https://docs.nvidia.com/deploy/nvml-api/group__nvmlGpmEnums.html
"""

_ERRORS: Final = {
    0: ("correctedMemoryErrors",),
    1: ("uncorrectedMemoryErrors", "unCorrectedMemoryErrors"),
}
"""``nvmlMemoryErrorType_t``, with the keys. W&B's pages spell the last one as its program does not."""

_ELEMENTS: Final = {
    0: ("dram_correctable", "single_bit/device_memory"),
    1: ("dram_uncorrectable", "double_bit/device_memory"),
}
"""Where the XML of nvidia-smi has them, by schema."""

_VOLATILE = 0
"""``NVML_VOLATILE_ECC``: since the driver was loaded. The source exports lifetime counts."""

_DEVICE_MEMORY = 2
"""``NVML_MEMORY_LOCATION_DEVICE_MEMORY``."""


class Probe(SourceProbe[Nvidia, Devices]):
    """The GPUs by their index, without MIG instances, which W&B does not report."""

    source_class = Nvidia
    _nvml: Nvml | None = None

    def convert(self, source: Nvidia, points: list[Point]) -> Devices:
        """Return each GPU that responds."""
        devices = by_device(points, source.used).values()
        gpus = {gpu.index: gpu for gpu in devices if gpu.index is not None and gpu.kind != "partition"}
        for part in devices:
            if part.is_used and part.index in gpus:
                gpus[part.index].is_used = True
        for device in source.devices:
            if isinstance(device, SmiGpu) and device.index in gpus:
                _add_volatile_errors(gpus[device.index], device.texts)
        self._call_nvml(gpus)
        return gpus

    def _call_nvml(self, gpus: Devices) -> None:
        """Read the values that the source does not. A suspended GPU has no sampled points, and is not woken."""
        if not any(map(_is_sampled, gpus.values())):
            return
        if self._nvml is None and self.config.nvml != "off" and Nvidia.prepare(self.config):
            with suppress(DriverError):
                self._nvml = Nvml(setting_path(self.config.nvml))
        if self._nvml is None:
            return
        for index, gpu in gpus.items():
            if gpu.get(c.HW_STATUS, {c.HW_STATE: "failed"}):
                self._nvml.forget(str(index))  # its handle may be invalid when it is back
            elif _is_sampled(gpu):
                _add(gpu, self._nvml, str(index))

    def close(self) -> None:
        """Close the source and the library."""
        super().close()
        nvml, self._nvml = self._nvml, None
        if nvml is not None:
            with suppress(DriverError):
                nvml.release()


def _is_sampled(gpu: Device) -> bool:
    return c.HW_GPU_MEMORY_USAGE in gpu or c.HW_GPU_UTILIZATION in gpu


def _add(gpu: Device, nvml: Nvml, device: str) -> None:
    with suppress(DriverError):  # the source exports a mean over the window instead
        rates: Any = nvml.get(device, "UtilizationRates")
        gpu.values |= {name: rates[name] for name in ("gpu", "memory") if rates[name] is not None}
    for kind, names in _ERRORS.items():
        with suppress(DriverError):
            errors: Any = nvml.get(device, "MemoryErrorCounter", kind, _VOLATILE, _DEVICE_MEMORY)
            gpu.values |= dict.fromkeys(names, errors)
    with suppress(DriverError):  # over the time since the previous reading
        for name, (code, value) in zip(_GPM.values(), nvml.gpm(device, tuple(_GPM)) or ()):
            if not code and 0 <= value < math.inf:
                gpu.values[name] = value


def _add_volatile_errors(gpu: Device, texts: Mapping[str, str]) -> None:
    """Add the errors since the driver was loaded that nvidia-smi reports."""
    for kind, names in _ERRORS.items():
        for path in _ELEMENTS[kind]:
            with suppress(KeyError, ValueError):
                gpu.values |= dict.fromkeys(names, number(texts[f"ecc_errors/volatile/{path}"]))
                break


def _of_process(key: Key[Devices]) -> Key[Devices]:
    name = key.name.replace("gpu.", "gpu.process.", 1)
    formula = f"`{key.name}` of each GPU that the process or a child of it uses: the value of the whole GPU"

    return replace(
        key,
        name=name,
        formula=formula,
        value=lambda gpus: key.value({index: gpu for index, gpu in gpus.items() if gpu.is_used}),
    )


_OF_PROCESSES: Final = (
    point_key(
        "gpu.{i}.gpu", "%", "share of time in which a kernel ran",
        c.HW_GPU_UTILIZATION, {c.GPU_TASK: "general"}, 100,
    ),
    point_key(
        "gpu.{i}.memory", "%", "share of time in which memory was accessed",
        c.HW_GPU_UTILIZATION, {c.GPU_TASK: "memory"}, 100,
    ),
    device_key(
        "gpu.{i}.memoryAllocated", "%", "memory in use / memory", memory_percent, c.HW_GPU_MEMORY_UTILIZATION
    ),
    point_key(
        "gpu.{i}.memoryAllocatedBytes", "bytes", "memory in use, without what the driver reserves",
        c.HW_GPU_MEMORY_USAGE,
    ),
    point_key("gpu.{i}.temp", "°C", "temperature of the GPU", c.HW_TEMPERATURE, {c.HW_SENSOR_LOCATION: "gpu"}),
    point_key("gpu.{i}.powerWatts", "W", "power draw", c.HW_POWER),
    point_key(
        "gpu.{i}.enforcedPowerLimitWatts", "W", "enforced power limit", c.HW_POWER_LIMIT, {c.HW_LIMIT_TYPE: "enforced"}
    ),
    device_key(
        "gpu.{i}.powerPercent", "%", "power draw / enforced power limit", power_percent, c.HW_POWER_UTILIZATION
    ),
)  # fmt: skip
"""The keys that W&B repeats as ``gpu.process.{i}`` for a GPU that the process uses."""

_CORRECTED: Final = "corrected errors of the device memory since the driver was loaded"
_SPELLING: Final = "the same; W&B's pages spell it as above, its program like this"
_MIB: Final = "(GPM); MiB per second despite the name"

KEYS: Final[tuple[Key[Devices], ...]] = (
    *_OF_PROCESSES,
    *(
        point_key(f"gpu.{{i}}.{name}", "MHz", words, c.HW_GPU_FREQUENCY, {c.FREQUENCY_DOMAIN: domain}, 1e-6)
        for name, domain, words in (
            ("smClock", "sm", "clock of the streaming multiprocessors"),
            ("memoryClock", "memory", "clock of the memory"),
            ("graphicsClock", "graphics", "graphics clock"),
        )
    ),
    extra_key("gpu.{i}.correctedMemoryErrors", "errors", _CORRECTED, c.HW_ERRORS),
    extra_key("gpu.{i}.unCorrectedMemoryErrors", "errors", f"un{_CORRECTED}", c.HW_ERRORS),
    extra_key("gpu.{i}.uncorrectedMemoryErrors", "errors", _SPELLING, c.HW_ERRORS),
    point_key("gpu.{i}.fanSpeed", "%", "speed of the first fan", c.HW_FAN_SPEED_RATIO, factor=100),
    point_key(
        "gpu.{i}.encoderUtilization", "%", "share of time in which the encoder was busy",
        c.HW_GPU_UTILIZATION, {c.GPU_TASK: "encoder"}, 100,
    ),
    extra_key(
        "gpu.{i}.smActive", "%", "SM utilization (GPM: Hopper and newer; since the previous row)", c.HW_GPU_UTILIZATION
    ),
    extra_key("gpu.{i}.smOccupancy", "%", "SM occupancy (GPM)", c.HW_GPU_SM_OCCUPANCY),
    extra_key("gpu.{i}.pipeTensorActive", "%", "tensor core utilization, any kind (GPM)", c.HW_GPU_UTILIZATION),
    extra_key("gpu.{i}.pipeTensorHmmaActive", "%", "tensor core utilization, HMMA only (GPM)"),
    extra_key("gpu.{i}.dramActive", "%", "memory bandwidth utilization (GPM)", c.HW_GPU_UTILIZATION),
    extra_key("gpu.{i}.pipeFp64Active", "%", "utilization of the FP64 pipe (GPM)", c.HW_GPU_UTILIZATION),
    extra_key("gpu.{i}.pipeFp32Active", "%", "utilization of the FP32 pipe (GPM)", c.HW_GPU_UTILIZATION),
    extra_key("gpu.{i}.pipeFp16Active", "%", "utilization of the FP16 pipe (GPM)", c.HW_GPU_UTILIZATION),
    extra_key("gpu.{i}.pcieTxBytes", "MiB/s", f"sent over PCIe {_MIB}", c.HW_GPU_IO),
    extra_key("gpu.{i}.pcieRxBytes", "MiB/s", f"received over PCIe {_MIB}", c.HW_GPU_IO),
    extra_key("gpu.{i}.nvlinkTxBytes", "MiB/s", f"sent over all NVLinks {_MIB}", c.HW_GPU_IO),
    extra_key("gpu.{i}.nvlinkRxBytes", "MiB/s", f"received over all NVLinks {_MIB}", c.HW_GPU_IO),
    *(_of_process(key) for key in _OF_PROCESSES),
)  # fmt: skip
"""The keys that W&B reports for an NVIDIA GPU by default, now or in an earlier version."""
