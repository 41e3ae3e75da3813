"""Faults of devices: the names and attributes of log events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from opentelemetry.instrumentation.hardware.catalog import attributes as a

DEVICE_LOST: Final = "hw.device.lost"
DEVICE_RECOVERED: Final = "hw.device.recovered"
XID_EVENT: Final = "hw.gpu.xid"
RECOVERY_EVENT: Final = "hw.gpu.recovery_action"
BOTTLENECK_EVENT: Final = "hw.gpu.bottleneck"

# What each event means, and its attributes.
EVENTS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    DEVICE_LOST: ("A device does not respond any more.", (*a.HW_COMPONENT, a.FAULT_REMEDY)),
    DEVICE_RECOVERED: ("A device that did not respond does so again.", a.HW_COMPONENT),
    XID_EVENT: ("An Xid: an error that the NVIDIA driver reports.", (*a.HW_COMPONENT, a.GPU_XID, a.FAULT_REMEDY)),
    RECOVERY_EVENT: ("The NVIDIA driver requires an action before the GPU can be used again.", a.HW_COMPONENT),
    BOTTLENECK_EVENT: (
        "Something else, or nothing, holds the GPU back now.",
        (*a.HW_COMPONENT, a.GPU_BOTTLENECK, a.FAULT_REMEDY),
    ),
}

# What the NVIDIA driver may require, by its number.
RECOVERY_ACTIONS: Final[Mapping[int, str]] = {
    0: "nothing",
    1: "reset the GPU",
    2: "reboot the node",
    3: "drain peer-to-peer traffic",
    4: "drain it and reset the GPU",
    5: "recover the IMEX domain",
    6: "reset the bus",
    7: "reboot the system",
}
