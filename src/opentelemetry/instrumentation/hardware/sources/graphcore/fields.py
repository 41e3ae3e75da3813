"""The values of gcipuinfo by name, and their metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.fields import (
    POSITIVE,
    Field,
    errors,
    npu_utilization,
    power,
    temperature,
)

# Values of an IPU. ``speed`` is the older name of ``link speed``.
FIELDS: Final[Mapping[str, Field]] = {
    "average board temp": temperature("board"),
    "average die temp": temperature("die"),
    "clock": Field(c.HW_NPU_FREQUENCY, unit="MHz", least=POSITIVE),
    "ipu power": power(),
    "ipu utilisation": npu_utilization(),
    "speed": Field(c.HW_NPU_LINK_SPEED, unit="GT/s"),
    "link speed": Field(c.HW_NPU_LINK_SPEED, unit="GT/s"),
    "link correctable error count": errors("link_corrected"),
}

# Utilization by the session of the process that uses the IPU.
SESSION: Final = "ipu utilisation (session)"
SESSION_UTILIZATION: Final = Field(c.PROCESS_NPU_UTILIZATION, unit="%")

BOARD: Final = "board serial number"
BOARD_POWER: Final = "total board power"  # of all IPUs of the board

# Attributes of the info metric.
FACTS: Final[Mapping[str, str]] = {
    c.HW_MODEL: "board type",
    c.HW_SERIAL_NUMBER: BOARD,
    c.HW_DRIVER_VERSION: "driver version",
    c.HW_FIRMWARE_VERSION: "firmware version",
    c.PCI_BDF: "pci id",
}
