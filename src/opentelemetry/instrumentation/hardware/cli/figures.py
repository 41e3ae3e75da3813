"""The figures of a View that people look at first: devices, processor, memory, disks, network and sensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Attributes, Metric, Number, Series
from opentelemetry.instrumentation.hardware.pipeline.view import View

# The sensors of a device's temperature, in the order of preference. AMD Instinct GPUs have only the second.
_SENSORS = ("gpu", "junction", "edge", "die", "board", "")

# The tasks of a device's utilization, in the order of preference.
_BUSY = ("general", "sm", "tensorcore", "matrix", "")

_CLOCKS = ("sm", "graphics", "compute", "")

THROTTLED = 0.005  # the share of time from which throttling is shown

_IDLE = ("idle", "iowait")

_DEVICE_TYPES = ("gpu", "npu")

_ASPECTS = (c.GPU_TASK, c.NPU_TASK, c.HW_SENSOR_LOCATION, c.FREQUENCY_DOMAIN, c.HW_LIMIT_TYPE, c.HW_STATE)


class Device(NamedTuple):
    """An accelerator, or a part of a GPU. None and "" are unknown.

    Attributes:
        id: ``hw.id``.
        name: ``hw.name``.
        model: Its model, without the vendor.
        parent: ``hw.id`` of the device that contains it.
        state: ``degraded`` or ``failed``.
        busy: Utilization, 0 to 1.
        used, total: Memory in bytes.
        power, power_limit: Watts.
        temperature, temperature_limit: Degrees Celsius; the limit is where it slows down.
        clock, clock_limit: Hertz.
        throttled: The share of time for which its clocks were throttled for the most frequent reason.
        reason: That reason.
    """

    id: str
    name: str
    model: str
    parent: str
    state: str
    busy: Number | None
    used: Number | None
    total: Number | None
    power: Number | None
    power_limit: Number | None
    temperature: Number | None
    temperature_limit: Number | None
    clock: Number | None
    clock_limit: Number | None
    throttled: float
    reason: str


def devices(view: View) -> list[Device]:
    """Return the GPUs with their parts, and the other accelerators."""
    known = _identities(view)
    values: dict[str, dict[Metric, dict[str, Number]]] = {device: {} for device in known}
    for metric in (*_OF_GPUS, *_OF_NPUS, *_OF_BOTH):
        for value, attributes in view.points(metric):
            of_device = values.get(str(attributes[c.HW_ID]))
            if of_device is not None:
                aspect = " ".join(str(attributes[key]) for key in _ASPECTS if key in attributes)
                of_device.setdefault(metric, {}).setdefault(aspect, value)
    _add_cores(view, values)
    throttling = _throttling(view)
    return [_device(each, known[each], values[each], throttling.get(each, ("", 0.0))) for each in known]


_OF_GPUS = (
    c.HW_GPU_UTILIZATION,
    c.HW_GPU_MEMORY_USAGE,
    c.HW_GPU_MEMORY_LIMIT,
    c.HW_GPU_FREQUENCY,
    c.HW_GPU_FREQUENCY_LIMIT,
)
_OF_NPUS = (c.HW_NPU_UTILIZATION, c.HW_NPU_MEMORY_USAGE, c.HW_NPU_MEMORY_LIMIT, c.HW_NPU_FREQUENCY)
_OF_BOTH = (c.HW_STATUS, c.HW_POWER, c.HW_POWER_LIMIT, c.HW_TEMPERATURE, c.HW_TEMPERATURE_LIMIT)


def _identities(view: View) -> dict[str, Attributes]:
    """GPUs with their parts and other accelerators by ``hw.id``, with the attributes of the first point.

    A failed device has no info. The cores of an NPU are not listed; see :func:`_add_cores`.
    """
    found: dict[str, Attributes] = {}
    for metric in (
        c.HW_GPU_INFO,
        c.HW_NPU_INFO,
        c.HW_STATUS,
        c.HW_GPU_UTILIZATION,
        c.HW_GPU_MEMORY_USAGE,
        c.HW_NPU_UTILIZATION,
        c.HW_NPU_MEMORY_USAGE,
    ):
        for _, attributes in view.points(metric):
            is_core = c.HW_PARENT in attributes and metric in (c.HW_NPU_UTILIZATION, c.HW_NPU_MEMORY_USAGE)
            if attributes.get(c.HW_TYPE, "gpu") in _DEVICE_TYPES and not is_core:
                found.setdefault(str(attributes[c.HW_ID]), attributes)
    return found


def _add_cores(view: View, values: Mapping[str, dict[Metric, dict[str, Number]]]) -> None:
    """Add mean utilization and memory in use of the cores of NPUs to devices that report neither."""
    for metric in (c.HW_NPU_UTILIZATION, c.HW_NPU_MEMORY_USAGE):
        cores: dict[str, list[Number]] = {}
        for value, attributes in view.points(metric):
            if c.HW_PARENT in attributes:
                cores.setdefault(str(attributes[c.HW_PARENT]), []).append(value)
        for device, numbers in cores.items():
            if device in values and metric not in values[device]:
                total = sum(numbers)
                values[device][metric] = {"": total / len(numbers) if metric is c.HW_NPU_UTILIZATION else total}


def _device(
    id: str,  # noqa: A002
    known: Attributes,
    values: Mapping[Metric, Mapping[str, Number]],
    throttling: tuple[str, float],
) -> Device:
    def number(metrics: Sequence[Metric], *aspects: str) -> Number | None:
        for metric in metrics:
            found = values.get(metric, {})
            for aspect in aspects or ("",):
                if aspect in found:
                    return found[aspect]
        return None

    sensor = next((each for each in _SENSORS if each in values.get(c.HW_TEMPERATURE, {})), "")
    clock = next((each for each in _CLOCKS if each in values.get(c.HW_GPU_FREQUENCY, {})), "")
    limits = (f"{sensor} high.degraded", f"{sensor} max", f"{sensor} high.critical")
    return Device(
        id,
        str(known.get(c.HW_NAME, id)),
        str(known.get(c.HW_MODEL, "")).removeprefix(f"{known.get(c.HW_VENDOR)} "),
        str(known.get(c.HW_PARENT, "")),
        next((state for state in ("failed", "degraded") if number([c.HW_STATUS], state)), ""),
        number([c.HW_GPU_UTILIZATION, c.HW_NPU_UTILIZATION], *_BUSY),
        number([c.HW_GPU_MEMORY_USAGE, c.HW_NPU_MEMORY_USAGE]),
        number([c.HW_GPU_MEMORY_LIMIT, c.HW_NPU_MEMORY_LIMIT]),
        number([c.HW_POWER]),
        number([c.HW_POWER_LIMIT], "enforced"),
        number([c.HW_TEMPERATURE], sensor),
        number([c.HW_TEMPERATURE_LIMIT], *limits),
        number([c.HW_GPU_FREQUENCY, c.HW_NPU_FREQUENCY], clock, ""),
        number([c.HW_GPU_FREQUENCY_LIMIT], clock),
        throttling[1],
        throttling[0],
    )


def links(view: View) -> dict[tuple[str, str], dict[str, float]]:
    """Return by ``hw.id`` and link, such as ``pcie``, the bytes per second in each direction."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for _, each in view.points(c.HW_GPU_IO):
        key = str(each[c.HW_ID]), str(each[c.GPU_LINK])
        found.setdefault(key, {})[str(each[c.NETWORK_DIRECTION])] = _rate(view, c.HW_GPU_IO, each)
    return found


def _throttling(view: View) -> dict[str, tuple[str, float]]:
    """Return by ``hw.id`` the most frequent throttle reason of the window, and its share of the time."""
    found: dict[str, tuple[str, float]] = {}
    for _, attributes in view.points(c.HW_GPU_THROTTLE_TIME):
        share = _rate(view, c.HW_GPU_THROTTLE_TIME, attributes)
        device = str(attributes[c.HW_ID])
        if share >= max(THROTTLED, found.get(device, ("", 0.0))[1]):
            found[device] = (str(attributes[c.THROTTLE_REASON]), share)
    return found


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
    return of_state(view, c.SYSTEM_MEMORY_USAGE, c.MEMORY_STATE, "used")


def pressure(view: View) -> dict[str, tuple[float, float | None]]:
    """Return by resource the share of time during which some tasks, and all tasks, waited for it."""
    shares = {
        (str(each[c.PRESSURE_RESOURCE]), str(each[c.PRESSURE_KIND])): _rate(view, c.SYSTEM_PRESSURE_TIME, each)
        for _, each in view.points(c.SYSTEM_PRESSURE_TIME)
    }
    return {name: (share, shares.get((name, "full"))) for (name, kind), share in shares.items() if kind == "some"}


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
    """Return the disks."""
    busy = {
        str(each[c.DEVICE]): _rate(view, c.SYSTEM_DISK_IO_TIME, each) for _, each in view.points(c.SYSTEM_DISK_IO_TIME)
    }
    flows = _flows(view, c.SYSTEM_DISK_IO, c.DEVICE, c.DISK_DIRECTION, "read")
    return [Flow(name, read, written, busy.get(name)) for name, (read, written) in flows.items()]


def networks(view: View) -> list[Flow]:
    """Return the network interfaces and the InfiniBand ports."""
    troubles: dict[str, float] = {}
    for metric in (c.SYSTEM_NETWORK_ERRORS, c.SYSTEM_NETWORK_PACKET_DROPPED):
        for _, each in view.points(metric):
            name = str(each[c.INTERFACE])
            troubles[name] = troubles.get(name, 0.0) + _rate(view, metric, each)
    flows = _flows(view, c.SYSTEM_NETWORK_IO, c.INTERFACE, c.NETWORK_DIRECTION, "receive")
    ports = _flows(view, c.HW_NETWORK_IO, c.HW_NAME, c.NETWORK_DIRECTION, "receive")
    return [Flow(name, *rates, troubles=troubles.get(name, 0.0)) for name, rates in (flows | ports).items()]


def _flows(view: View, metric: Metric, name: str, direction: str, inward: str) -> dict[str, tuple[float, float]]:
    """Return by name the increase per second of a counter in both directions."""
    found: dict[str, tuple[float, float]] = {}
    for _, each in view.points(metric):
        key, rate = str(each[name]), _rate(view, metric, each)
        into, out = found.get(key, (0.0, 0.0))
        found[key] = (into + rate, out) if each[direction] == inward else (into, out + rate)
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
    """Return the file systems."""
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
    """Return the temperatures that are not of a device in :func:`devices`."""
    limits = {
        (each[c.HW_ID], each.get(c.HW_SENSOR_LOCATION)): value
        for kind in ("high.critical", "max", "high.degraded")
        for value, each in view.points(c.HW_TEMPERATURE_LIMIT)
        if each.get(c.HW_LIMIT_TYPE) == kind
    }
    points = [point for point in view.points(c.HW_TEMPERATURE) if point[1].get(c.HW_TYPE) not in _DEVICE_TYPES]
    names = [str(each.get(c.HW_NAME, each[c.HW_ID])) for _, each in points]
    found = []
    for name, (value, each) in zip(names, points):
        location = str(each.get(c.HW_SENSOR_LOCATION, "")) if names.count(name) > 1 else ""
        limit = limits.get((each[c.HW_ID], each.get(c.HW_SENSOR_LOCATION)))
        found.append(Sensor(f"{name} {location}".rstrip(), value, limit))
    return found


# -- sums


def total(view: View, *metrics: Metric) -> Number | None:
    """Return the sum over all series of the first of these metrics that has any."""
    for metric in metrics:
        points = view.points(metric)
        if points:
            return sum(value for value, _ in points)
    return None


def of_state(view: View, metric: Metric, key: str, state: str) -> Number | None:
    """Return the value of the series in a state; None if there is none."""
    return next((value for value, each in view.points(metric) if each.get(key) == state), None)


def directions(view: View, metric: Metric) -> dict[str, float]:
    """Return the increase per second of a counter in each direction, over all series."""
    key = c.DISK_DIRECTION if c.DISK_DIRECTION in metric.attributes else c.NETWORK_DIRECTION
    rates: dict[str, float] = {}
    for _, each in view.points(metric):
        rates[str(each[key])] = rates.get(str(each[key]), 0.0) + _rate(view, metric, each)
    return rates


def _rate(view: View, metric: Metric, attributes: Attributes) -> float:
    return view.rates.get(Series(metric, attributes), 0.0)
