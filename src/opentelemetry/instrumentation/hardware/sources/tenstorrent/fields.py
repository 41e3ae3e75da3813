"""The files of tt-kmd by name, and their metrics.

https://github.com/tenstorrent/tt-kmd/blob/main/docs/sysfs-attributes.md. The clocks of the fabric and of the management
processor (``tt_axiclk``, ``tt_arcclk``) and the current are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators import fields as a

ATTRIBUTES: Final[Mapping[str, a.Field]] = {
    "tt_aiclk": a.Field(c.HW_NPU_FREQUENCY, unit="MHz", least=a.POSITIVE),
    "tt_therm_trip_count": a.errors("thermal_trip", most=(1 << 32) - 2),
}

HEARTBEAT: Final = "tt_heartbeat"

SENSORS: Final[Mapping[str, a.Field]] = {
    "temp1_input": a.temperature("die", "m°C"),
    "power1_input": a.power("µW", most=1000),  # a release of tt-kmd reports some kW
    "in0_input": a.voltage("core"),
}
SENSORS_SLOW: Final[Mapping[str, a.Field]] = {
    "temp1_max": a.temperature_limit("die", "max", "m°C"),
    "power1_max": a.power_limit("max", "µW"),
}

WORD: Final = 32  # bytes that the counters count

# Counters of the PCIe tile by name, each without the number of its network on the chip (0 or 1).
#
# They count what the tile sends and receives on the chip. Master is what the host begins: it writes to the chip, which
# is *sent* to the other tiles, or reads from it. Slave is what the chip begins: it writes to the host, which the tile
# *received* from the others, or reads from it.
COUNTERS: Final[Mapping[str, a.Field]] = {
    **dict.fromkeys(
        ("mst_posted_wr_data_word_sent", "mst_nonposted_wr_data_word_sent", "slv_rd_data_word_sent"),
        a.Field(c.HW_NPU_IO, {c.NETWORK_DIRECTION: "receive"}),
    ),
    **dict.fromkeys(
        (
            "mst_rd_data_word_received",
            "slv_posted_wr_data_word_received",
            "slv_nonposted_wr_data_word_received",
        ),
        a.Field(c.HW_NPU_IO, {c.NETWORK_DIRECTION: "transmit"}),
    ),
}

# Attributes of the info metric, each with a file and the form of its content.
FACTS: Final[Mapping[str, tuple[str, str]]] = {
    c.HW_MODEL: ("tt_card_type", "[0-9A-Za-z_-]{1,40}"),
    c.HW_SERIAL_NUMBER: ("tt_serial", "(?!0+$|F+$)[0-9A-Fa-f]{1,32}"),
    c.HW_FIRMWARE_VERSION: ("tt_fw_bundle_ver", "(?!0.0.0.0$)[0-9.]{1,32}"),
}
