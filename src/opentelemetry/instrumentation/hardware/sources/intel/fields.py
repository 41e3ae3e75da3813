"""The files of i915 and xe by name, and their metrics.

https://docs.kernel.org/gpu/xe/index.html, and sysfs-driver-intel-i915-hwmon and sysfs-driver-intel-xe-hwmon of
https://docs.kernel.org/admin-guide/abi-testing.html
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators import fields as a

UTILIZATION: Final = a.utilization("general", "")
MEDIA_UTILIZATION: Final = a.utilization("video", "")
FREQUENCIES: Final = (a.frequency("graphics"), a.frequency_limit("graphics"))
MEDIA_FREQUENCIES: Final = (a.frequency("video"), a.frequency_limit("video"))
MEMORY_USED: Final = a.memory_used()
MEMORY_TOTAL: Final = a.memory_total()
ENERGY: Final = a.Field(c.HW_ENERGY, unit=(1, 10**6))
POWER: Final = a.power(least=0)  # the growth of a counter, which has steps

POWER_LIMITS: Final[Mapping[str, a.Field]] = {
    **dict.fromkeys(("max", "cap"), a.power_limit("enforced", "µW")),  # sustained, else for bursts; 0: there is none
    "rated_max": a.power_limit("default", "µW"),
}

SENSORS: Final[Mapping[str, a.Field]] = {
    "temp1_input": a.temperature("gpu", "m°C"),  # of i915
    "temp2_input": a.temperature("gpu", "m°C"),  # of xe, as are all below
    "temp3_input": a.temperature("memory", "m°C"),
}
SENSORS_SLOW: Final[Mapping[str, a.Field]] = {
    **{
        f"temp{number}_{file}": a.temperature_limit(sensor, limit, "m°C")
        for number, sensor in {2: "gpu", 3: "memory"}.items()
        for file, limit in {"max": "max", "crit": "high.degraded", "emergency": "high.critical"}.items()
    },
    "in0_input": a.voltage("gpu"),  # of i915
    "in1_input": a.voltage("gpu"),
}

THROTTLED: Final[Mapping[str, a.Field]] = {
    reason: a.throttle(reason) for reason in ("power_cap", "current_cap", "thermal_sw", "thermal_hw")
}

# By the end of a file's name, the reason of ``hw.gpu.throttle.time``, as for AMD: the temperature that the firmware
# controls is ``thermal_sw``, a signal from outside ``thermal_hw``.
THROTTLE_FILES: Final[Mapping[str, str]] = {
    "pl1": "power_cap",
    "pl2": "power_cap",
    "psys_pl1": "power_cap",
    "psys_pl2": "power_cap",
    "pl4": "current_cap",
    "vr_tdc": "current_cap",
    "iccmax": "current_cap",
    "thermal": "thermal_sw",
    "ratl": "thermal_sw",
    "soc_thermal": "thermal_sw",
    "soc_avg_thermal": "thermal_sw",
    "mem_thermal": "thermal_sw",
    "prochot": "thermal_hw",
    "vr_thermalert": "thermal_hw",
    "vr_thermal": "thermal_hw",
}

# By PCI device number, the cards. https://dgpu-docs.intel.com/devices/hardware-table.html
MODELS: Final[Mapping[str, str]] = {
    "56A0": "Arc A770",
    "56A1": "Arc A750",
    "56A2": "Arc A580",
    "56A5": "Arc A380",
    "56A6": "Arc A310",
    "E20B": "Arc B580",
    "E20C": "Arc B570",
    "E211": "Arc Pro B60",
    "E212": "Arc Pro B50",
    "E223": "Arc Pro B70",
    "56C0": "Data Center GPU Flex 170",
    "56C1": "Data Center GPU Flex 140",
    "0BD5": "Data Center GPU Max 1550",
    "0BDA": "Data Center GPU Max 1100",
}
