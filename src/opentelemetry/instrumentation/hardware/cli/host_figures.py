"""The figures of the host that people look at first: processor, memory, disks, network and sensors."""

from __future__ import annotations

from typing import NamedTuple

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.cli.figures import DEVICE_TYPES, rate, used
from opentelemetry.instrumentation.hardware.model import Metric, Number
from opentelemetry.instrumentation.hardware.pipeline.view import View

_IDLE = ("idle", "iowait")

# -- processor and memory


def cpu_modes(view: View) -> dict[str, float]:
    """Return the share of CPU time by mode, as a mean over all CPUs, without idle."""
    points = view.points(c.SYSTEM_CPU_UTILIZATION)
    cpus = len({each.get(c.CPU_NUMBER) for _, each in points})
    modes: dict[str, float] = {}
    for value, attributes in points:
        mode = str(attributes[c.CPU_MODE])
        if mode != "idle":
            modes[mode] = modes.get(mode, 0.0) + value / cpus
    return modes


def cpu_busy(view: View) -> float | None:
    """Return the share of time during which the CPUs worked; None if unknown."""
    shares = [share for mode, share in cpu_modes(view).items() if mode not in _IDLE]
    return sum(shares) if shares else None


def cores(view: View) -> dict[int, float]:
    """Return the share of time during which each logical CPU worked."""
    found: dict[int, float] = {}
    for value, attributes in view.points(c.SYSTEM_CPU_UTILIZATION):
        if c.CPU_NUMBER in attributes and attributes[c.CPU_MODE] not in _IDLE:
            cpu = int(attributes[c.CPU_NUMBER])
            found[cpu] = found.get(cpu, 0.0) + value
    return dict(sorted(found.items()))


def used_memory(view: View) -> Number | None:
    """Return total minus available memory, like ``free`` and psutil."""
    return used(view, c.SYSTEM_MEMORY_USAGE, c.MEMORY_STATE)


def pressure(view: View) -> dict[str, float]:
    """Return by resource the share of time during which some tasks waited for it."""
    return {
        str(each[c.PRESSURE_RESOURCE]): rate(view, c.SYSTEM_PRESSURE_TIME, each)
        for _, each in view.points(c.SYSTEM_PRESSURE_TIME)
        if each[c.PRESSURE_KIND] == "some"
    }


# -- disks, network, sensors


class Flow(NamedTuple):
    """A disk, a network interface or a port.

    Attributes:
        name: Its name.
        inward, outward: Bytes per second: read and written, received and sent.
        busy: The share of time for which a disk worked; None if unknown.
        troubles: Errors and dropped packets per second.
    """

    name: str
    inward: float
    outward: float
    busy: float | None = None
    troubles: float = 0.0


def disks(view: View) -> list[Flow]:
    busy = {
        str(each[c.DEVICE]): rate(view, c.SYSTEM_DISK_IO_TIME, each) for _, each in view.points(c.SYSTEM_DISK_IO_TIME)
    }
    flows = _flows(view, c.SYSTEM_DISK_IO, c.DEVICE, c.DISK_DIRECTION, "read")
    return [Flow(name, read, written, busy.get(name)) for name, (read, written) in flows.items()]


def networks(view: View) -> list[Flow]:
    """Return the network interfaces and the InfiniBand ports."""
    troubles: dict[str, float] = {}
    for metric in (c.SYSTEM_NETWORK_ERRORS, c.SYSTEM_NETWORK_PACKET_DROPPED):
        for _, each in view.points(metric):
            name = str(each[c.INTERFACE])
            troubles[name] = troubles.get(name, 0.0) + rate(view, metric, each)
    flows = _flows(view, c.SYSTEM_NETWORK_IO, c.INTERFACE, c.NETWORK_DIRECTION, "receive")
    ports = _flows(view, c.HW_NETWORK_IO, c.HW_NAME, c.NETWORK_DIRECTION, "receive")
    return [Flow(name, *rates, troubles=troubles.get(name, 0.0)) for name, rates in (flows | ports).items()]


def _flows(view: View, metric: Metric, name: str, direction: str, inward: str) -> dict[str, tuple[float, float]]:
    """Return by name the increase per second of a counter in both directions."""
    found: dict[str, tuple[float, float]] = {}
    for _, each in view.points(metric):
        key, speed = str(each[name]), rate(view, metric, each)
        into, out = found.get(key, (0.0, 0.0))
        found[key] = (into + speed, out) if each[direction] == inward else (into, out + speed)
    return found


class Space(NamedTuple):
    """A file system.

    Attributes:
        mountpoint: Where it is mounted.
        used: Bytes in use.
        total: Bytes that are in use or free. Like in ``df``, reserved space does not count.
    """

    mountpoint: str
    used: Number
    total: Number


def filesystems(view: View) -> list[Space]:
    states: dict[str, dict[str, Number]] = {}
    for value, each in view.points(c.SYSTEM_FILESYSTEM_USAGE):
        states.setdefault(str(each[c.FILESYSTEM_MOUNTPOINT]), {})[str(each[c.FILESYSTEM_STATE])] = value
    return [
        Space(mountpoint, by_state["used"], by_state["used"] + by_state["free"])
        for mountpoint, by_state in states.items()
        if by_state.keys() >= {"used", "free"}
    ]


class Sensor(NamedTuple):
    """A temperature of the host.

    Attributes:
        name: Its component, and its location if the component has several sensors.
        value: Degrees Celsius.
        limit: Where the component slows down; None if unknown.
    """

    name: str
    value: Number
    limit: Number | None


def sensors(view: View) -> list[Sensor]:
    """Return the temperatures that are not of a device in :func:`.figures.devices`."""
    limits = {
        (each[c.HW_ID], each.get(c.HW_SENSOR_LOCATION)): value
        for kind in ("high.critical", "max", "high.degraded")
        for value, each in view.points(c.HW_TEMPERATURE_LIMIT)
        if each.get(c.HW_LIMIT_TYPE) == kind
    }
    points = [point for point in view.points(c.HW_TEMPERATURE) if point[1].get(c.HW_TYPE) not in DEVICE_TYPES]
    names = [str(each.get(c.HW_NAME, each[c.HW_ID])) for _, each in points]
    found = []
    for name, (value, each) in zip(names, points):
        location = str(each.get(c.HW_SENSOR_LOCATION, "")) if names.count(name) > 1 else ""
        limit = limits.get((each[c.HW_ID], each.get(c.HW_SENSOR_LOCATION)))
        found.append(Sensor(f"{name} {location}".rstrip(), value, limit))
    return found
