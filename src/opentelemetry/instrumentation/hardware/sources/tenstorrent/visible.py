"""The environment variable that restricts a program to some Tenstorrent accelerators."""

from __future__ import annotations

from functools import partial
from typing import Final

from opentelemetry.instrumentation.hardware.accelerators.selection import Assignable, VisibilityRule, select_by_variable

VARIABLE: Final = "TT_VISIBLE_DEVICES"

RULE: Final = VisibilityRule(
    "Tenstorrent accelerator",
    "hw.npu.*",
    (VARIABLE,),
    partial(select_by_variable, VARIABLE),  # the numbers of the files in /dev/tenstorrent, or PCI addresses
    assignable=lambda found: [Assignable("NPU", f"NPU {each.index}", each.id, str(each.index)) for each in found],
)
