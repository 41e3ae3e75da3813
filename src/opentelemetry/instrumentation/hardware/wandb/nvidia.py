"""W&B's keys of NVIDIA GPUs: from the source's points, and from three NVML calls that only W&B needs."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.drivers.subprocess import setting_path
from opentelemetry.instrumentation.hardware.model import Metric, Number, Point
from opentelemetry.instrumentation.hardware.sources.nvidia import Nvidia
from opentelemetry.instrumentation.hardware.sources.nvidia.nvml import Nvml
from opentelemetry.instrumentation.hardware.wandb.probe import (
    DevicePoints,
    Key,
    SourceProbe,
    by_device,
    device_key,
    percent,
)

GPM: Final = (2, 3, 5, 7, 10, 11, 12, 13, 20, 21, 60, 61)
"""``NVML_GPM_METRIC_*``: percent, from 20 on MiB per second.
https://docs.nvidia.com/deploy/nvml-api/group__nvmlGpmEnums.html
"""

_VOLATILE = 0
"""``NVML_VOLATILE_ECC``: since the driver was loaded. The source exports lifetime counts."""

_DEVICE_MEMORY = 2
"""``NVML_MEMORY_LOCATION_DEVICE_MEMORY``."""


class Gpu:
    """One GPU at one moment.

    Attributes:
        points: What the source read.
        nvml: The answers that only W&B needs: ``gpu`` and ``memory`` (percent), ``corrected`` and ``uncorrected``.
        gpm: By number of :data:`GPM`, over the time since the previous reading.
        used: Whether the observed process or a child of it uses the GPU or an instance of it.
    """

    def __init__(self, points: DevicePoints, used: bool) -> None:
        self.points = points
        self.nvml: dict[str, Number] = {}
        self.gpm: dict[int, float] = {}
        self.used = used


class Probe(SourceProbe[Nvidia, "Mapping[int, Gpu]"]):
    """The GPUs by their index, without MIG instances, which W&B does not report."""

    source_class = Nvidia
    _nvml: Nvml | None = None

    def convert(self, source: Nvidia, points: list[Point]) -> Mapping[int, Gpu]:
        """Return each GPU that answers."""
        devices = by_device(points)
        used = {
            device.index
            for device in devices.values()
            if c.PROCESS_GPU_MEMORY_USAGE in device or c.PROCESS_GPU_UTILIZATION in device
        }
        found = {
            device.index: Gpu(device, device.index in used)
            for device in devices.values()
            if device.index is not None and device.kind != "partition"
        }
        self._call_nvml(found)
        return found

    def _call_nvml(self, gpus: Mapping[int, Gpu]) -> None:
        """Read what the source does not. A suspended GPU has no sampled points, and is not woken."""
        if not any(_is_sampled(gpu) for gpu in gpus.values()):
            return
        if (
            self._nvml is None
            and self.config.nvml != "off"
            and Nvidia.is_expected(self.config, os.environ, os.path.exists, os.listdir)
        ):
            with suppress(DriverError):
                self._nvml = Nvml(setting_path(self.config.nvml))
        if self._nvml is None:
            return
        for index, gpu in gpus.items():
            if gpu.points.get(c.HW_STATUS, {c.HW_STATE: "failed"}):
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


def _is_sampled(gpu: Gpu) -> bool:
    return c.HW_GPU_MEMORY_USAGE in gpu.points or c.HW_GPU_UTILIZATION in gpu.points


def _add(gpu: Gpu, nvml: Nvml, device: str) -> None:
    with suppress(DriverError):  # the source exports a mean over the window instead
        rates: Any = nvml.get(device, "UtilizationRates")
        gpu.nvml |= {name: rates[name] for name in ("gpu", "memory") if rates[name] is not None}
    for number, kind in enumerate(("corrected", "uncorrected")):
        with suppress(DriverError):
            errors: Any = nvml.get(device, "MemoryErrorCounter", number, _VOLATILE, _DEVICE_MEMORY)
            gpu.nvml[kind] = errors
    with suppress(DriverError):
        answers = nvml.gpm(device, GPM) or ()
        gpu.gpm = {number: value for number, (code, value) in zip(GPM, answers) if not code and 0 <= value < math.inf}


_Value = Callable[[Gpu], "Number | None"]


def _point(metric: Metric, attribute: str = "", word: str = "", factor: float = 1) -> _Value:
    return lambda gpu: gpu.points.get(metric, {attribute: word} if attribute else {}, factor)


def _utilization(name: str, task: str) -> _Value:
    read = _point(c.HW_GPU_UTILIZATION, c.GPU_TASK, task, 100)
    return lambda gpu: gpu.nvml[name] if name in gpu.nvml else read(gpu)


def _errors(kind: str) -> _Value:
    return lambda gpu: gpu.nvml.get(kind)


def _gpm(number: int) -> _Value:
    return lambda gpu: gpu.gpm.get(number)


_POWER: Final = _point(c.HW_POWER)
_POWER_LIMIT: Final = _point(c.HW_POWER_LIMIT, c.HW_LIMIT_TYPE, "enforced")


def _key(name: str, unit: str, formula: str, value: _Value, *metrics: Metric) -> Key[Mapping[int, Gpu]]:
    return device_key(f"gpu.{{i}}.{name}", unit, formula, value, *metrics)


_OF_PROCESSES: Final = (
    _key("gpu", "%", "share of time in which a kernel ran", _utilization("gpu", "general"), c.HW_GPU_UTILIZATION),
    _key(
        "memory", "%", "share of time in which memory was accessed", _utilization("memory", "memory"),
        c.HW_GPU_UTILIZATION,
    ),
    _key(
        "memoryAllocated", "%", "memory in use / memory",
        lambda gpu: percent(gpu.points.get(c.HW_GPU_MEMORY_USAGE), gpu.points.get(c.HW_GPU_MEMORY_LIMIT)),
        c.HW_GPU_MEMORY_UTILIZATION,
    ),
    _key(
        "memoryAllocatedBytes", "bytes", "memory in use, without what the driver reserves",
        _point(c.HW_GPU_MEMORY_USAGE), c.HW_GPU_MEMORY_USAGE,
    ),
    _key(
        "temp", "°C", "temperature of the GPU", _point(c.HW_TEMPERATURE, c.HW_SENSOR_LOCATION, "gpu"), c.HW_TEMPERATURE
    ),
    _key("powerWatts", "W", "power draw", _POWER, c.HW_POWER),
    _key("enforcedPowerLimitWatts", "W", "enforced power limit", _POWER_LIMIT, c.HW_POWER_LIMIT),
    _key(
        "powerPercent", "%", "power draw / enforced power limit",
        lambda gpu: percent(_POWER(gpu), _POWER_LIMIT(gpu)), c.HW_POWER_UTILIZATION,
    ),
)  # fmt: skip
"""The keys that W&B repeats as ``gpu.process.{i}`` for a GPU that the process uses."""


def _of_process(key: Key[Mapping[int, Gpu]]) -> Key[Mapping[int, Gpu]]:
    name = key.name.replace("gpu.", "gpu.process.", 1)
    formula = f"`{key.name}` of each GPU that the process or a child of it uses: the value of the whole GPU"

    def values(gpus: Mapping[int, Gpu]) -> Iterator[tuple[str, Number]]:
        for index, gpu in gpus.items():
            if gpu.used:
                for _, value in key.values({index: gpu}):
                    yield name.format(i=index), value

    return Key(name, key.unit, formula, values, key.metrics)


KEYS: Final[tuple[Key[Mapping[int, Gpu]], ...]] = (
    *_OF_PROCESSES,
    _key(
        "smClock", "MHz", "clock of the streaming multiprocessors",
        _point(c.HW_GPU_FREQUENCY, c.FREQUENCY_DOMAIN, "sm", 1e-6), c.HW_GPU_FREQUENCY,
    ),
    _key(
        "memoryClock", "MHz", "clock of the memory",
        _point(c.HW_GPU_FREQUENCY, c.FREQUENCY_DOMAIN, "memory", 1e-6), c.HW_GPU_FREQUENCY,
    ),
    _key(
        "graphicsClock", "MHz", "graphics clock",
        _point(c.HW_GPU_FREQUENCY, c.FREQUENCY_DOMAIN, "graphics", 1e-6), c.HW_GPU_FREQUENCY,
    ),
    _key(
        "correctedMemoryErrors", "errors", "corrected errors of the device memory since the driver was loaded",
        _errors("corrected"), c.HW_ERRORS,
    ),
    _key(
        "unCorrectedMemoryErrors", "errors", "uncorrected errors of the device memory since the driver was loaded",
        _errors("uncorrected"), c.HW_ERRORS,
    ),
    _key(
        "uncorrectedMemoryErrors", "errors", "the same; W&B's pages spell it as above, its program like this",
        _errors("uncorrected"), c.HW_ERRORS,
    ),
    _key("fanSpeed", "%", "speed of the first fan", _point(c.HW_FAN_SPEED_RATIO, factor=100), c.HW_FAN_SPEED_RATIO),
    _key(
        "encoderUtilization", "%", "share of time in which the encoder was busy",
        _point(c.HW_GPU_UTILIZATION, c.GPU_TASK, "encoder", 100), c.HW_GPU_UTILIZATION,
    ),
    _key(
        "smActive", "%", "SM utilization (GPM: Hopper and newer; since the previous row)", _gpm(2),
        c.HW_GPU_UTILIZATION,
    ),
    _key("smOccupancy", "%", "SM occupancy (GPM)", _gpm(3), c.HW_GPU_SM_OCCUPANCY),
    _key("pipeTensorActive", "%", "tensor core utilization, any kind (GPM)", _gpm(5), c.HW_GPU_UTILIZATION),
    _key("pipeTensorHmmaActive", "%", "tensor core utilization, HMMA only (GPM)", _gpm(7)),
    _key("dramActive", "%", "memory bandwidth utilization (GPM)", _gpm(10), c.HW_GPU_UTILIZATION),
    _key("pipeFp64Active", "%", "utilization of the FP64 pipe (GPM)", _gpm(11), c.HW_GPU_UTILIZATION),
    _key("pipeFp32Active", "%", "utilization of the FP32 pipe (GPM)", _gpm(12), c.HW_GPU_UTILIZATION),
    _key("pipeFp16Active", "%", "utilization of the FP16 pipe (GPM)", _gpm(13), c.HW_GPU_UTILIZATION),
    _key("pcieTxBytes", "MiB/s", "sent over PCIe (GPM); MiB per second despite the name", _gpm(20), c.HW_GPU_IO),
    _key("pcieRxBytes", "MiB/s", "received over PCIe (GPM); MiB per second despite the name", _gpm(21), c.HW_GPU_IO),
    _key(
        "nvlinkTxBytes", "MiB/s", "sent over all NVLinks (GPM); MiB per second despite the name", _gpm(61),
        c.HW_GPU_IO,
    ),
    _key(
        "nvlinkRxBytes", "MiB/s", "received over all NVLinks (GPM); MiB per second despite the name", _gpm(60),
        c.HW_GPU_IO,
    ),
    *(_of_process(key) for key in _OF_PROCESSES),
)  # fmt: skip
"""What W&B reports of an NVIDIA GPU by default, now or in an earlier version."""
