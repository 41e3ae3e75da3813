"""The columns of hl-smi by name, and their metrics.

https://docs.habana.ai/en/latest/Management_and_Monitoring/Embedded_System_Tools_Guide/System_Management_Interface_Tool.html
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators import fields as a

UTILIZATION: Final = "utilization.aip"

FIELDS: Final[Mapping[str, a.Field]] = {
    UTILIZATION: a.npu_utilization(),
    "memory.total": a.Field(c.HW_NPU_MEMORY_LIMIT, unit="MiB"),
    "memory.used": a.Field(c.HW_NPU_MEMORY_USAGE, unit="MiB"),
    "power.draw": a.power(),
    "power.max": a.power_limit("enforced"),
    "temperature.aip": a.temperature("die"),
    "clocks.current.soc": a.Field(c.HW_NPU_FREQUENCY, unit="MHz", least=a.POSITIVE),
}

PROCESS_UTILIZATION: Final = a.Field(c.PROCESS_NPU_UTILIZATION, unit="%")

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
