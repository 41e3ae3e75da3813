"""The environment variable that restricts a program to some Tenstorrent accelerators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.accelerators.selection import (
    Assignable,
    Selection,
    VisibilityRule,
    all_ids,
    select_by_name,
)

VARIABLE: Final = "TT_VISIBLE_DEVICES"


def visible_devices(environ: Mapping[str, str], found: Sequence[Device]) -> Selection:
    """Select the devices of the variable: the numbers of the files in ``/dev/tenstorrent``, or PCI addresses."""
    words = [word.strip() for word in environ.get(VARIABLE, "").split(",") if word.strip()]
    return select_by_name(words, found) if words else Selection(all_ids(found))


RULE: Final = VisibilityRule(
    "Tenstorrent accelerator",
    "hw.npu.*",
    (VARIABLE,),
    visible_devices,
    assignable=lambda found: [Assignable("NPU", f"NPU {each.index}", each.id, str(each.index)) for each in found],
)
