"""The figures of a View that people look at first: its devices, and sums; :mod:`.host_figures` has the host's."""

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

DEVICE_TYPES = ("gpu", "npu")

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
    for metric, points in view.snapshot.values.items():
        for value, attributes in points:
            of_device = values.get(str(attributes.get(c.HW_ID)))
            if of_device is not None:
                aspect = " ".join(str(attributes[key]) for key in _ASPECTS if key in attributes)
                of_device.setdefault(metric, {}).setdefault(aspect, value)
    _add_cores(view, values)
    throttling = _throttling(view)
    return [_device(each, known[each], values[each], throttling.get(each, (0.0, ""))) for each in known]


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
            if attributes.get(c.HW_TYPE, "gpu") in DEVICE_TYPES and not is_core:
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
    throttling: tuple[float, str],
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
        *throttling,
    )


def links(view: View) -> dict[tuple[str, str], dict[str, float]]:
    """Return by ``hw.id`` and link, such as ``pcie``, the bytes per second in each direction."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for _, each in view.points(c.HW_GPU_IO):
        key = str(each[c.HW_ID]), str(each[c.GPU_LINK])
        found.setdefault(key, {})[str(each[c.NETWORK_DIRECTION])] = rate(view, c.HW_GPU_IO, each)
    return found


def _throttling(view: View) -> dict[str, tuple[float, str]]:
    """Return by ``hw.id`` the share of the time for the most frequent throttle reason of the window, and the reason."""
    found: dict[str, tuple[float, str]] = {}
    for _, attributes in view.points(c.HW_GPU_THROTTLE_TIME):
        share = rate(view, c.HW_GPU_THROTTLE_TIME, attributes)
        device = str(attributes[c.HW_ID])
        if share >= max(THROTTLED, found.get(device, (0.0, ""))[0]):
            found[device] = (share, str(attributes[c.THROTTLE_REASON]))
    return found


# -- sums


def total(view: View, *metrics: Metric) -> Number | None:
    """Return the sum over all series of the first of these metrics that has any."""
    for metric in metrics:
        points = view.points(metric)
        if points:
            return sum(value for value, _ in points)
    return None


def used(view: View, metric: Metric, key: str) -> Number | None:
    """Return the value of the series with the state ``used``, or None."""
    return next((value for value, each in view.points(metric) if each.get(key) == "used"), None)


def rate(view: View, metric: Metric, attributes: Attributes) -> float:
    """Return the increase per second of a series; 0 if it is not known."""
    return view.rates.get(Series(metric, attributes), 0.0)
