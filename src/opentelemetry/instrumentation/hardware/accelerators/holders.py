"""Who uses each device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.accelerators.driver import AcceleratorDriver, Holders
from opentelemetry.instrumentation.hardware.model import Series
from opentelemetry.instrumentation.hardware.system.holders import HeldDevice, Owner


class Holder(NamedTuple):
    """A process that uses a device.

    Attributes:
        device: ``hw.id``.
        pid: Its PID, as the driver reports it.
        memory: Bytes of the device's memory that it uses; None if unknown.
        is_known: Whether it is the process with this PID in ``/proc``. In a container, that may be another one.
    """

    device: str
    pid: int
    memory: int | None
    is_known: bool


def held_devices(
    vendor: str,
    driver: AcceleratorDriver,
    devices: Iterable[Device],
    listed: Mapping[Device, Holders],
    owners: Mapping[int, Owner],
) -> Sequence[HeldDevice]:
    """Return the devices that programs use, without those of which they use parts, with the listed processes."""
    held = []
    for device in devices:
        if device.is_divided:
            continue
        users, shares = None, None
        sizes = listed.get(device)
        if sizes is not None:  # else the driver does not list them
            users = [(owners.get(pid, {}), size) for pid, size in sizes.items()]
            ran = driver.shares(device) if sizes else None
            shares = None if ran is None else [ran.get(pid, 0.0) for pid in sizes]
        names = {name.lower() for name in (device.id, device.address, *device.aliases) if name}
        attributes = device.series(Series(c.HW_HOLDER_INFO)).attributes
        memory = None if device.trouble or device.memory_used is None else int(device.memory_used)
        index = -1 if device.parent else device.index
        held.append(HeldDevice(vendor, names, index, attributes, memory, users, shares))
    return held
