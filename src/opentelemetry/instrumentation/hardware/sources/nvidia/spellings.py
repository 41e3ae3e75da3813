"""How nvidia-smi spells its numbers, in every schema there has been, and which of our quantities they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from opentelemetry.instrumentation.hardware.model import Number

Parse: TypeAlias = "Callable[[str], Number]"
"""A text as a number in base units.

Raises:
    ValueError: it is none, or none that can be true; the text says why.
"""


def _measure(unit: str, most: float, least: float = 0, *, times: int = 1, per: int = 1) -> Parse:
    """Numbers with a unit; the most and the least of them that can be true; and what makes base units of them."""
    form = re.compile(r"([0-9]{1,18})" + (rf"(\.[0-9]{{1,9}})? *{re.escape(unit)}" if unit else "()"))

    def parse(text: str) -> Number:
        found = form.fullmatch(text)
        if found is None:
            raise ValueError(text)
        number = float(text[: found.end(2)]) if found[2] else int(found[1])
        if not least <= number <= most:
            raise ValueError(f"{text} cannot be true")
        return number / per if per > 1 else round(number * times) if times > 1 else number

    return parse


_SHARE = _measure("%", 100, per=100)
_FAN = _measure("%", 200, per=100)  # of the speed at which it is as loud as it should ever be
BYTES = _measure("MiB", 1 << 26, times=1 << 20)
_CAPACITY = _measure("MiB", 1 << 26, 1, times=1 << 20)
_CELSIUS = _measure("C", 150)
_THRESHOLD = _measure("C", 150, 20)  # a smaller one is a distance to a threshold
_WATTS = _measure("W", 20_000)
_LIMIT = _measure("W", 20_000, 1)
_HERTZ = _measure("MHz", 50_000, times=10**6)
_SECONDS = _measure("us", 1e16, per=10**6)
_COUNT = _measure("", (1 << 32) - 2)  # all ones stand for "not available"
_WORDS: Final = {
    "yes": True,
    "no": False,
    "active": True,
    "not active": False,
    "enabled": True,
    "disabled": False,
}
_ACTIONS: Final = {
    "none": False,
    "reset": True,
    "gpu reset": True,
    "reboot": True,
    "node reboot": True,
    "drain p2p": True,
    "drain and reset": True,
}


def _word(words: Mapping[str, bool]) -> Callable[[str], bool]:
    def parse(text: str) -> bool:
        if text.casefold() not in words:
            raise ValueError(text)
        return words[text.casefold()]

    return parse


_FLAG = _word(_WORDS)


def _state(text: str) -> Number:
    if not re.fullmatch(r"P([0-9]|1[0-5])", text):
        raise ValueError(text)
    return int(text[1:])


NUMBERS: Final[Mapping[str, tuple[Parse, tuple[str, ...]]]] = {
    "utilization.general": (_SHARE, ("utilization/gpu_util",)),
    "utilization.memory": (_SHARE, ("utilization/memory_util",)),
    "utilization.encoder": (_SHARE, ("utilization/encoder_util",)),
    "utilization.decoder": (_SHARE, ("utilization/decoder_util",)),
    "utilization.jpeg": (_SHARE, ("utilization/jpeg_util",)),
    "utilization.ofa": (_SHARE, ("utilization/ofa_util",)),
    "memory.total": (_CAPACITY, ("fb_memory_usage/total",)),
    "memory.reserved": (BYTES, ("fb_memory_usage/reserved",)),
    "memory.used": (BYTES, ("fb_memory_usage/used",)),
    "memory.free": (BYTES, ("fb_memory_usage/free",)),
    "temperature.gpu": (_CELSIUS, ("temperature/gpu_temp",)),
    "temperature.memory": (_CELSIUS, ("temperature/memory_temp",)),
    "temperature.limit.gpu.high.critical": (_THRESHOLD, ("temperature/gpu_temp_max_threshold",)),
    "temperature.limit.gpu.high.degraded": (_THRESHOLD, ("temperature/gpu_temp_slow_threshold",)),
    "temperature.limit.gpu.max": (_THRESHOLD, ("temperature/gpu_temp_max_gpu_threshold",)),
    "temperature.limit.memory.max": (_THRESHOLD, ("temperature/gpu_temp_max_mem_threshold",)),
    "power": (
        _WATTS,
        (
            "gpu_power_readings/power_draw",
            "power_readings/power_draw",
            "gpu_power_readings/average_power_draw",
            "gpu_power_readings/instant_power_draw",
        ),
    ),
    "power.average": (_WATTS, ("gpu_power_readings/average_power_draw",)),
    "power.instant": (_WATTS, ("gpu_power_readings/instant_power_draw",)),
    "power.module": (
        _WATTS,
        (
            "module_power_readings/power_draw",
            "module_power_readings/average_power_draw",
            "module_power_readings/instant_power_draw",
        ),
    ),
    "power.memory": (
        _WATTS,
        ("gpu_memory_power_readings/average_power_draw", "gpu_memory_power_readings/instant_power_draw"),
    ),
    "power.limit.enforced": (_LIMIT, ("gpu_power_readings/current_power_limit", "power_readings/enforced_power_limit")),
    "power.limit.requested": (_LIMIT, ("gpu_power_readings/requested_power_limit", "power_readings/power_limit")),
    "power.limit.default": (_LIMIT, ("gpu_power_readings/default_power_limit", "power_readings/default_power_limit")),
    "power.limit.min": (_LIMIT, ("gpu_power_readings/min_power_limit", "power_readings/min_power_limit")),
    "power.limit.max": (_LIMIT, ("gpu_power_readings/max_power_limit", "power_readings/max_power_limit")),
    "power.limit.module": (_LIMIT, ("module_power_readings/current_power_limit",)),
    "frequency.graphics": (_HERTZ, ("clocks/graphics_clock",)),
    "frequency.sm": (_HERTZ, ("clocks/sm_clock",)),
    "frequency.memory": (_HERTZ, ("clocks/mem_clock",)),
    "frequency.video": (_HERTZ, ("clocks/video_clock",)),
    "frequency.limit.graphics": (_HERTZ, ("max_clocks/graphics_clock",)),
    "frequency.limit.sm": (_HERTZ, ("max_clocks/sm_clock",)),
    "frequency.limit.memory": (_HERTZ, ("max_clocks/mem_clock",)),
    "frequency.limit.video": (_HERTZ, ("max_clocks/video_clock",)),
    **{
        f"throttle.{reason}": (
            _SECONDS,
            (f"clocks_event_reasons_counters/clocks_event_reasons_counters_{spelling}",),
        )
        for reason, spelling in {
            "power_cap": "sw_power_cap",
            "sync_boost": "sync_boost",
            "thermal_sw": "sw_therm_slowdown",
            "thermal_hw": "hw_therm_slowdown",
            "power_brake": "hw_power_brake",
        }.items()
    },
    "performance_state": (_state, ("performance_state",)),
    "fan.ratio": (_FAN, ("fan_speed",)),
    "errors.corrected": (
        _COUNT,
        (
            "ecc_errors/aggregate/dram_correctable",
            "ecc_errors/aggregate/single_bit/device_memory",
            "ecc_errors/aggregate/single_bit/total",
        ),
    ),
    "errors.uncorrected": (
        _COUNT,
        (
            "ecc_errors/aggregate/dram_uncorrectable",
            "ecc_errors/aggregate/double_bit/device_memory",
            "ecc_errors/aggregate/double_bit/total",
        ),
    ),
    "sram.corrected": (_COUNT, ("ecc_errors/aggregate/sram_correctable",)),
    "sram.uncorrected": (
        _COUNT,
        (
            "ecc_errors/aggregate/sram_uncorrectable",
            "ecc_errors/aggregate/sram_uncorrectable_parity + ecc_errors/aggregate/sram_uncorrectable_secded",
        ),
    ),
    "retired.single_bit": (_COUNT, ("retired_pages/multiple_single_bit_retirement/retired_count",)),
    "retired.double_bit": (_COUNT, ("retired_pages/double_bit_retirement/retired_count",)),
    "errors.retired_page": (
        _COUNT,
        (
            "retired_pages/multiple_single_bit_retirement/retired_count"
            " + retired_pages/double_bit_retirement/retired_count",
        ),
    ),
    "remapped.corrected": (_COUNT, ("remapped_rows/remapped_row_corr",)),
    "remapped.uncorrected": (_COUNT, ("remapped_rows/remapped_row_unc",)),
    "errors.row_remap": (_COUNT, ("remapped_rows/remapped_row_corr + remapped_rows/remapped_row_unc",)),
    "errors.pcie_replay": (_COUNT, ("pci/replay_counter",)),
}
"""Every quantity: how its text is read, and where it stands; the first spelling that is believed counts. ``a + b`` is a
sum of which all parts must be said. Names that :mod:`~..devices` has too mean the same.

``memory.used`` contains what the driver keeps for itself where nothing is said of that (before 510). Left out: the
throughput of PCIe, which is that of 20 ms; and the distances to thresholds of temperature (``tlimit``) that Ada and
newer devices say, which are no temperatures.
"""

_EVENTS = ("clocks_event_reasons/clocks_event_reason", "clocks_throttle_reasons/clocks_throttle_reason")

FLAGS: Final[Mapping[str, tuple[Callable[[str], bool], tuple[str, ...]]]] = {
    **{
        f"throttled.{reason}": (_FLAG, tuple(f"{prefix}_{spelling}" for prefix in _EVENTS))
        for reason, spelling in {
            "power_cap": "sw_power_cap",
            "thermal_sw": "sw_thermal_slowdown",
            "thermal_hw": "hw_thermal_slowdown",
            "power_brake": "hw_power_brake_slowdown",
            "slowdown_hw": "hw_slowdown",
            "sync_boost": "sync_boost",
            "application_clocks": "applications_clocks_setting",
        }.items()
    },
    "mig": (_FLAG, ("mig_mode/current_mig",)),
    "retired.pending": (_FLAG, ("retired_pages/pending_retirement", "retired_pages/pending_blacklist")),
    "remapped.pending": (_FLAG, ("remapped_rows/remapped_row_pending",)),
    "remapped.failure": (_FLAG, ("remapped_rows/remapped_row_failure",)),
    "reset.required": (_FLAG, ("gpu_reset_status/reset_required",)),
    "recovery.needed": (_word(_ACTIONS), ("gpu_recovery_action",)),
}
"""What holds or does not: the same way."""

INSTANCE: Final[Mapping[str, tuple[Parse, tuple[str, ...]]]] = {
    **{name: NUMBERS[name] for name in ("memory.total", "memory.reserved", "memory.used", "memory.free")},
    "sram.uncorrected": (
        _COUNT,
        (
            "ecc_error_count/volatile_count/sram_uncorrectable",
            "ecc_error_count/volatile_count/sram_uncorrectable_parity"
            " + ecc_error_count/volatile_count/sram_uncorrectable_secded",
        ),
    ),
}
"""What is said of a MIG instance; its errors are those since the driver was loaded."""
