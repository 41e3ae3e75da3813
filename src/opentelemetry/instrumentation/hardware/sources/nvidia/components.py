"""Components of a GPU that are devices of their own: fans, memory, the module that it is part of, and its fabric."""

from __future__ import annotations

from typing import Final

from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.sources.nvidia import fields as f
from opentelemetry.instrumentation.hardware.sources.nvidia.calls import FATAL, LOST, Call, NvmlDevice

_MOST_FANS: Final = 16  # maximum fans of a GPU

FABRIC_COMPLETED: Final = 3  # ``NVML_GPU_FABRIC_STATE_COMPLETED``: the GPU can use NVLink


def component(gpu: Device, name: str, type: str) -> Device:  # noqa: A002
    """Return a component of a GPU. A module contains the GPU, and not the other way round."""
    return Device(f"{gpu.id}/{name}", f"{gpu.name} {name}", type, "" if type == "module" else gpu.id)


def fans(gpu: NvmlDevice) -> list[tuple[Device, list[Call]]]:
    """Return the fans with their calls. The binding reads the speed in RPM of the first one only."""
    try:
        count, reason = gpu.get("NumFans"), "it has no fan"
    except DriverError as error:
        if error.code in (*LOST, *FATAL):
            raise
        count, reason = 0, error.text
    if count == 0:
        gpu.unsupported[f.FAN_RATIO.series] = gpu.unsupported[f.FAN_SPEED.series] = reason
    found = []
    for number in range(min(count, _MOST_FANS)):
        calls = [gpu.call(f.FAN_RATIO, "FanSpeed_v2", number)]
        if number == 0:
            calls.append(gpu.call(f.FAN_SPEED, "FanSpeedRPM"))
        found.append((gpu.new_fan(number), calls))
    return found


def fabric_state(state: int, status: int, health: int) -> str:
    """Return the state of the NVLink fabric of a GPU; "" if it has none.

    Args:
        state: ``NVML_GPU_FABRIC_STATE_*``: of the registration of the GPU.
        status: The error of the registration; 0 for none.
        health: ``NVML_GPU_FABRIC_HEALTH_MASK_*``.
    """
    if not state:
        return ""
    if state == FABRIC_COMPLETED and status:
        return "failed"
    # Four values of two bits, of which 1 is a fault: degraded bandwidth, recovering routes, unhealthy routes, recovery
    # from a timeout. Then one of four bits, from 2 on the kinds of an incorrect configuration.
    has_fault = any(health >> at & 3 == 1 for at in (0, 2, 4, 6)) or health >> 8 & 15 > 1
    return "ok" if state == FABRIC_COMPLETED and not has_fault else "degraded"
