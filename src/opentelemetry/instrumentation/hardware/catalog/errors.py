"""The types of errors: the values of ``error.type`` of ``hw.errors``. A type means the same for every vendor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ERROR_TYPES: Final[Mapping[str, str]] = {
    "corrected": "ECC error of the device memory that was corrected",
    "uncorrected": "ECC error of the device memory that could not be corrected",
    "deferred": "uncorrected ECC error of the device memory in data that nothing has used so far",
    "repairable": "uncorrected ECC error of the device memory that can be repaired",
    "sram_corrected": "ECC error of memory on the chip, such as caches and registers, that was corrected",
    "sram_uncorrected": "ECC error of memory on the chip that could not be corrected",
    "sram_deferred": "uncorrected ECC error of memory on the chip in data that nothing has used so far",
    "chip_corrected": "corrected error of another block of the chip, such as a fabric or a bus",
    "chip_uncorrected": "uncorrected error of another block of the chip",
    "chip_deferred": "deferred error of another block of the chip",
    "retired_page": "page of the device memory that is no longer used",
    "row_remap": "row of the device memory that was replaced by a spare one",
    "pcie_replay": "PCIe packet that was sent again",
    "nvlink_crc": "CRC error of a data packet or control packet of NVLink",
    "nvlink_replay": "NVLink packet that was sent again",
    "nvlink_recovery": "NVLink that recovered from an error",
    "link_corrected": "corrected error of the link to an IPU",
    "xid": "critical event of an NVIDIA GPU; hw.gpu.xid is its number",
    "recovery": "restart of an Apple GPU that did not respond",
    "symbol": "InfiniBand: symbol error of a lane",
    "link_recovery": "InfiniBand: the link recovered from an error",
    "link_downed": "InfiniBand: the link failed to recover and went down",
    "receive": "InfiniBand: received packet with an error",
    "transmit_discard": "InfiniBand: packet that was discarded instead of sent",
    "link_integrity": "InfiniBand: errors of the local link exceeded a threshold",
}
"""Each with its meaning."""
