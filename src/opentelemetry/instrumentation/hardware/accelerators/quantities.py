"""Quantities by name, for the vendors that are not ported to :mod:`.fields` and :mod:`.device`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import NONE, Attributes, Metric, Number, Point, Rate, Series

__all__ = ["BUSY", "QUANTITIES", "REASONS", "STATES", "UNITS", "Device", "Reading"]

Reading: TypeAlias = "Mapping[str, Number | Rate]"
"""Quantities of one device, of one moment."""

STATES: Final = ("ok", "degraded", "failed")

REASONS: Final = (
    "power_cap",
    "thermal_sw",
    "thermal_hw",
    "power_brake",
    "slowdown_hw",
    "sync_boost",
    "application_clocks",
    "current_cap",
)
"""Why clocks are held down."""

BUSY: Final = ("general", "memory", "encoder", "decoder", "jpeg", "ofa", "video")
"""The tasks whose utilization is a share of time; video is encoder and decoder in one."""

UNITS: Final = ("sm", "tensor", "dram", "fp64", "fp32", "fp16", "scaled")
"""The tasks whose utilization is a share of what the unit could do at most; scaled: the GPU, at its top frequency."""

_ERRORS = (
    "corrected",
    "uncorrected",
    "deferred",
    "chip_corrected",
    "chip_uncorrected",
    "chip_deferred",
    "xid",
    "retired_page",
    "row_remap",
    "pcie_replay",
    "nvlink_crc",
    "nvlink_replay",
    "nvlink_recovery",
    "link_corrected",
    "mem_corrected",
    "mem_uncorrected",
    "mem_repairable",
    "sram_corrected",
    "sram_uncorrected",
    "recovery",
)


class _Row(NamedTuple):
    """A metric and what its series has beside the device."""

    metric: Metric
    attributes: Attributes = NONE


def _by(prefix: str, metric: Metric, attribute: str, words: tuple[str, ...]) -> dict[str, tuple[_Row, ...]]:
    return {f"{prefix}.{word}": (_Row(metric, {attribute: word}),) for word in words}


def _temperature(sensor: str) -> dict[str, tuple[_Row, ...]]:
    where = {c.HW_SENSOR_LOCATION: sensor}
    limits = {
        f"temperature.limit.{sensor}.{limit}": (_Row(c.HW_TEMPERATURE_LIMIT, {**where, c.HW_LIMIT_TYPE: limit}),)
        for limit in ("high.degraded", "high.critical", "max")
    }
    return {
        f"temperature.{sensor}": (_Row(c.HW_TEMPERATURE, where), _Row(c.HW_TEMPERATURE_PEAK, where)),
        **limits,
    }


def _link(link: str) -> dict[str, tuple[_Row, ...]]:
    return {
        f"io.{link}.{way}": (_Row(c.HW_GPU_IO, {c.GPU_LINK: link, c.NETWORK_DIRECTION: way}),)
        for way in ("transmit", "receive")
    }


QUANTITIES: Final[Mapping[str, tuple[_Row, ...]]] = {
    **_by("utilization", c.HW_GPU_UTILIZATION, c.GPU_TASK, BUSY + UNITS),
    "utilization.peak": (_Row(c.HW_GPU_UTILIZATION_PEAK),),
    **_by("time", c.HW_GPU_TIME, c.GPU_TASK, BUSY),
    "occupancy": (_Row(c.HW_GPU_SM_OCCUPANCY),),
    "memory.used": (_Row(c.HW_GPU_MEMORY_USAGE), _Row(c.HW_GPU_MEMORY_PEAK)),
    "memory.total": (_Row(c.HW_GPU_MEMORY_LIMIT),),
    "memory.utilization": (_Row(c.HW_GPU_MEMORY_UTILIZATION),),
    **_link("pcie"),
    **_link("nvlink"),
    **_link("xgmi"),
    "power": (_Row(c.HW_POWER), _Row(c.HW_POWER_PEAK)),
    **_by("power.limit", c.HW_POWER_LIMIT, c.HW_LIMIT_TYPE, ("enforced", "max", "default")),
    "power.utilization": (_Row(c.HW_POWER_UTILIZATION),),
    "energy": (_Row(c.HW_ENERGY),),
    **_temperature("gpu"),
    **_temperature("memory"),
    **_temperature("cpu"),
    **_temperature("board"),
    **_temperature("die"),
    **_temperature("edge"),
    **_temperature("junction"),
    **{name: rows for stack in range(4) for name, rows in _temperature(f"hbm{stack}").items()},
    **_by("voltage", c.HW_VOLTAGE, c.HW_SENSOR_LOCATION, ("gpu", "soc", "memory")),
    **_by("frequency", c.HW_GPU_FREQUENCY, c.FREQUENCY_DOMAIN, ("graphics", "sm", "memory", "video")),
    **_by(
        "frequency.limit",
        c.HW_GPU_FREQUENCY_LIMIT,
        c.FREQUENCY_DOMAIN,
        ("graphics", "sm", "memory", "video"),
    ),
    **_by("throttle", c.HW_GPU_THROTTLE_TIME, c.THROTTLE_REASON, REASONS),
    "performance_state": (_Row(c.HW_GPU_PERFORMANCE_STATE),),
    **_by("errors", c.HW_ERRORS, c.ERROR_TYPE, _ERRORS),
    "fan.ratio": (_Row(c.HW_FAN_SPEED_RATIO),),
    "fan.speed": (_Row(c.HW_FAN_SPEED),),
    "npu.utilization": (_Row(c.HW_NPU_UTILIZATION, {c.NPU_TASK: "general"}),),
    "npu.memory.used": (_Row(c.HW_NPU_MEMORY_USAGE),),
    "npu.memory.total": (_Row(c.HW_NPU_MEMORY_LIMIT),),
    "npu.memory.utilization": (_Row(c.HW_NPU_MEMORY_UTILIZATION),),
    "npu.frequency": (_Row(c.HW_NPU_FREQUENCY),),
    "npu.link.speed": (_Row(c.HW_NPU_LINK_SPEED),),
    "speed": (_Row(c.HW_CPU_SPEED),),
    "host.power": (_Row(c.HW_HOST_POWER),),
    "host.energy": (_Row(c.HW_HOST_ENERGY),),
}
"""Every quantity, with the rows that carry it.

Shares are 0..1; bytes, watts, joules, volts, degrees Celsius, hertz, revolutions a minute, counts. A quantity of a
counter's row is a running total, or a :class:`~.model.Rate` where the device counts nothing.
"""


class Device:
    """One GPU, a part of one, or one of its fans; it makes points of what a reader says.

    Args:
        id: ``hw.id``.
        name: ``hw.name``.
        kind: ``hw.type``.
        parent: ``hw.id`` of the device that it is a part of.

    Attributes:
        limit: watts that it may draw, the newest that was said.
    """

    def __init__(self, id: str, name: str, kind: str = "gpu", parent: str = "") -> None:  # noqa: A002
        self.id = id
        self.name = name
        self.parent = parent
        self._kind = kind
        self._series: dict[str, tuple[Series, ...]] = {}
        self._status: dict[str, Series] = {}
        self.limit: Number | Rate = 0

    def series(self, metric: Metric, attributes: Attributes = NONE) -> Series:
        """A series of this device."""
        own: dict[str, str | int] = {c.HW_ID: self.id, c.HW_NAME: self.name}
        if c.HW_TYPE in metric.attributes:
            own[c.HW_TYPE] = self._kind
        if self.parent:
            own[c.HW_PARENT] = self.parent
        return Series(metric, {**own, **attributes})

    def points(self, reading: Reading) -> Iterator[Point]:
        """The points of what was said, and of what follows from it.

        Raises:
            KeyError: for a quantity that there is none of.
        """
        known = self._series
        for said in (reading, self._following(reading)):
            for quantity, value in said.items():
                for series in known.get(quantity) or self._make(quantity):
                    yield series(value)

    def _make(self, quantity: str) -> tuple[Series, ...]:
        made = self._series[quantity] = tuple(self.series(*row) for row in QUANTITIES[quantity])
        return made

    def _following(self, reading: Reading) -> Reading:
        """Ratios whose parts are known, time integrals, and peaks: where the reading does not say them itself."""
        found: dict[str, Number | Rate] = {}
        for task in BUSY:
            share = reading.get(f"utilization.{task}")
            if isinstance(share, (int, float)):
                found[f"time.{task}"] = Rate(share)
        if "utilization.general" in reading:
            found["utilization.peak"] = reading["utilization.general"]
        used, total = reading.get("memory.used"), reading.get("memory.total")
        if isinstance(used, int) and isinstance(total, int) and total:
            found["memory.utilization"] = used / total
        self.limit = reading.get("power.limit.enforced", self.limit)
        power = reading.get("power")
        if isinstance(power, (int, float)):
            if isinstance(self.limit, (int, float)) and self.limit > 0:
                found["power.utilization"] = power / self.limit
            found["energy"] = Rate(power)
        return {quantity: value for quantity, value in found.items() if quantity not in reading}

    def status(self, state: str) -> Iterator[Point]:
        """The operational state, one of :data:`STATES`: 1 for it, 0 for the others."""
        for each in STATES:
            series = self._status.get(each)
            if series is None:
                series = self._status[each] = self.series(c.HW_STATUS, {c.HW_STATE: each})
            yield series(int(each == state))

    def info(self, facts: Attributes) -> Point:
        """What the device is: the attributes of ``hw.gpu.info``, those that are known."""
        return self.series(c.HW_GPU_INFO, facts)(1)
