"""The NeuronCores that a program may use: variables of the Neuron runtime, and the device files of its container.

https://awsdocs-neuron.readthedocs-hosted.com/en/latest/neuron-runtime/nrt-configurable-parameters.html
https://awsdocs-neuron.readthedocs-hosted.com/en/latest/containers/tutorials/build-run-neuron-container.html
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.accelerators.selection import Selection, VisibilityRule, all_ids, printable

CORES: Final = "NEURON_RT_VISIBLE_CORES"
COUNT: Final = "NEURON_RT_NUM_CORES"


def visibility_rule(exists: Callable[[str], bool]) -> VisibilityRule:
    """Return the rule that restricts programs to some of the cores."""
    return VisibilityRule("Neuron device", "hw.npu.*", (CORES, COUNT), partial(visible, exists))


def visible(exists: Callable[[str], bool], environ: Mapping[str, str], found: Sequence[Device]) -> Selection:
    """Select the cores that the runtime may use, and their devices. A container has only its own devices' files."""
    present = [device for device in found if exists(f"/dev/{device.id}")] or found
    cores, count = (environ.get(name, "").strip() for name in (CORES, COUNT))
    numbers = _core_numbers(cores)
    if numbers and len(present) == len(found):
        ids = {f"neuroncore{core}" for core in numbers} & all_ids(found)
        return Selection(frozenset(ids | {device.id for device in found if device.selection_ids & ids}))
    doubt = ""
    if numbers:
        doubt = (
            f"{CORES}={printable(cores)}: this container has only some of the devices, and how the runtime numbers "
            "their cores is not known"
        )
    elif cores:
        doubt = f"{CORES}={printable(cores)}: not a core or a range of cores"
    elif re.fullmatch("[0-9]{1,4}", count) and 0 < int(count) < sum(len(device.selectable) for device in present):
        doubt = f"{COUNT}={count}: the runtime uses any free cores, and which ones is not known"
    return Selection(all_ids(present), doubt)


def _core_numbers(text: str) -> set[int]:
    """Parse numbers of cores such as ``3``, ``0-3`` or ``0,4-7``; empty if the text is invalid."""
    numbers: set[int] = set()
    for word in text.split(","):
        match = re.fullmatch(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", word.strip())
        if match is None:
            return set()
        numbers |= {*range(int(match[1]), int(match[2] or match[1]) + 1)}
    return numbers
