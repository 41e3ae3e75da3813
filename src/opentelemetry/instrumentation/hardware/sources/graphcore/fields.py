"""The values of gcipuinfo by name, and their metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators import fields as a

# Values of an IPU. ``speed`` is the older name of ``link speed``.
FIELDS: Final[Mapping[str, a.Field]] = {
    "average board temp": a.temperature("board"),
    "average die temp": a.temperature("die"),
    "clock": a.Field(c.HW_NPU_FREQUENCY, unit="MHz", least=a.POSITIVE),
    "ipu power": a.power(),
    "ipu utilisation": a.npu_utilization(),
    "speed": a.Field(c.HW_NPU_LINK_SPEED, unit="GT/s"),
    "link speed": a.Field(c.HW_NPU_LINK_SPEED, unit="GT/s"),
    "link correctable error count": a.errors("link_corrected"),
}

# Utilization by the session of the process that uses the IPU.
SESSION: Final = "ipu utilisation (session)"
SESSION_UTILIZATION: Final = a.Field(c.PROCESS_NPU_UTILIZATION, unit="%")

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
