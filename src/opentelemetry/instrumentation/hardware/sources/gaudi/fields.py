"""The columns of hl-smi by name, and their metrics.

https://docs.habana.ai/en/latest/Management_and_Monitoring/Embedded_System_Tools_Guide/System_Management_Interface_Tool.html
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.fields import (
    POSITIVE,
    Field,
    npu_utilization,
    power,
    power_limit,
    temperature,
)

UTILIZATION: Final = "utilization.aip"

FIELDS: Final[Mapping[str, Field]] = {
    UTILIZATION: npu_utilization(),
    "memory.total": Field(c.HW_NPU_MEMORY_LIMIT, unit="MiB"),
    "memory.used": Field(c.HW_NPU_MEMORY_USAGE, unit="MiB"),
    "power.draw": power(),
    "power.max": power_limit("enforced"),
    "temperature.aip": temperature("die"),
    "clocks.current.soc": Field(c.HW_NPU_FREQUENCY, unit="MHz", least=POSITIVE),
}

PROCESS_UTILIZATION: Final = Field(c.PROCESS_NPU_UTILIZATION, unit="%")

INDEX: Final = "index"
ADDRESS: Final = "bus_id"
MODULE: Final = "module_id"
UUID: Final = "uuid"

# Attributes of the info metric.
FACTS: Final[Mapping[str, str]] = {
    c.HW_MODEL: "name",
    c.HW_SERIAL_NUMBER: "serial",
    c.HW_DRIVER_VERSION: "driver_version",
}

# Columns that older versions of the tool do not know. Its help lists the columns that it knows.
NEWER: Final = ("power.max", "clocks.current.soc")

COLUMNS: Final = (INDEX, MODULE, UUID, ADDRESS, *FACTS.values(), *FIELDS)
