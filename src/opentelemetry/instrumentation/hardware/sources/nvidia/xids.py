"""What the Xids that matter mean, and what to do. A summary of NVIDIA's catalog.

https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

CATALOG: Final = "https://docs.nvidia.com/deploy/xid-errors/"

_PROGRAM: Final = (
    "find the error in the program, for example with compute-sanitizer; test the GPU if other programs have it"
)
_RESET: Final = "move the work away and reset the GPU; if it returns, contact the vendor"
_RESTART: Final = "restart the program; reset the GPU at the next opportunity"
_NVLINK: Final = "check the NVLink errors of this GPU and its peers; move the work away and reset the GPUs"


class Xid(NamedTuple):
    """An Xid.

    Attributes:
        meaning: What happened.
        remedy: What to do.
        is_of_program: Whether the program is the usual cause, not the hardware.
    """

    meaning: str
    remedy: str
    is_of_program: bool = False


# By number.
XIDS: Final[Mapping[int, Xid]] = {
    13: Xid("exception of the graphics and compute engine", _PROGRAM, True),
    31: Xid("page fault in GPU memory: an address that is not mapped", _PROGRAM, True),
    32: Xid("invalid or corrupted push buffer", "check the PCIe link; " + _PROGRAM, True),
    43: Xid("the work of a program was stopped; the GPU is usable", _PROGRAM, True),
    45: Xid(
        "the work of a program was removed, after it ended or after another error", "look for the Xid before it", True
    ),
    48: Xid("uncorrectable memory error (double bit ECC)", _RESET),
    61: Xid("breakpoint or warning of an internal microcontroller", _RESET),
    62: Xid("an internal microcontroller halted", _RESET),
    63: Xid("a memory page or row was marked for replacement", _RESTART),
    64: Xid("a memory page or row could not be marked for replacement", _RESET),
    69: Xid("invalid command of the graphics and compute class", _PROGRAM, True),
    74: Xid("NVLink error", _NVLINK),
    79: Xid(
        "the GPU has fallen off the bus",
        "move the work away and restart the node; check power, seating and temperature",
    ),
    92: Xid("many corrected memory errors", "watch the errors of this GPU; run the vendor's diagnostics"),
    94: Xid("uncorrectable memory error that was contained: only the programs that used this memory failed", _RESTART),
    95: Xid("uncorrectable memory error that was not contained: all programs of the GPU are affected", _RESET),
    109: Xid("timeout of a context switch", _RESET),
    119: Xid("the GPU system processor (GSP) does not respond", _RESET),
    120: Xid("error of the GPU system processor (GSP)", _RESET),
    121: Xid(
        "corrected error of the link between CPU and GPU (C2C)", "watch it; reset the GPU at the next opportunity"
    ),
    140: Xid("uncorrectable memory error that was not recovered", _RESET),
    143: Xid("the GPU could not be initialized", _RESET),
    **dict.fromkeys((*range(144, 151), 155), Xid("NVLink error (NVLink 5)", _NVLINK)),
    154: Xid("the required recovery action changed", "see hw.gpu.recovery_action"),
    156: Xid("a part of the GPU was marked for replacement", _RESTART),
    157: Xid(
        "a part of the GPU could not be marked for replacement: no spare is left",
        "contact the vendor; programs can still run",
    ),
    158: Xid("fatal timeout of the GPU", _RESET),
    **dict.fromkeys((171, 172), Xid("uncorrectable memory error: details of Xid 48", _RESET)),
}
