"""Which NeuronCores a program is shown: by the variables of the Neuron runtime, and by its container's device files.

https://awsdocs-neuron.readthedocs-hosted.com/en/latest/neuron-runtime/nrt-configurable-parameters.html
https://awsdocs-neuron.readthedocs-hosted.com/en/latest/containers/tutorials/build-run-neuron-container.html
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from opentelemetry.instrumentation.hardware.accelerators.selection import (
    Chosen,
    FoundDevice,
    Part,
    VisibilityRule,
    everything,
    printable,
)

CORES: Final = "NEURON_RT_VISIBLE_CORES"
COUNT: Final = "NEURON_RT_NUM_CORES"


def device(number: int, cores: Iterable[int]) -> FoundDevice:
    """A device, with the cores that are on it; where it is not known which, with all that may be."""
    return FoundDevice(
        number, f"neuron{number}", parts=tuple(Part(f"neuroncore{core}", slot) for slot, core in enumerate(cores))
    )


def way(exists: Callable[[str], bool]) -> VisibilityRule:
    """How programs are shown some of the cores only.

    Args:
        exists: whether there is a device file.
    """
    return VisibilityRule("Neuron device", "hw.npu.*", (CORES, COUNT), partial(visible, exists))


def visible(exists: Callable[[str], bool], environ: Mapping[str, str], found: Sequence[FoundDevice]) -> Chosen:
    """The cores that the runtime takes, and their devices. A container has the files of its own devices only."""
    given = [each for each in found if exists(f"/dev/{each.id}")] or found
    said, count = (environ.get(name, "").strip() for name in (CORES, COUNT))
    cores = _cores(said)
    if cores and len(given) == len(found):
        ids = {f"neuroncore{core}" for core in cores} & everything(found)
        return Chosen(frozenset(ids | {each.id for each in found if each.ids & ids}))
    doubt = ""
    if cores:
        doubt = f"{CORES}={printable(said)}: of the devices this container has some only, and it is not known how the "
        doubt += "runtime counts their cores"
    elif said:
        doubt = f"{CORES}={printable(said)}: this is no core, and no range of cores"
    elif re.fullmatch("[0-9]{1,4}", count) and 0 < int(count) < sum(len(each.parts) for each in given):
        doubt = f"{COUNT}={count}: the runtime takes cores that are free, and it is not known which"
    return Chosen(everything(given), doubt)


def _cores(said: str) -> set[int]:
    """The cores of ``3``, ``0-3`` or ``0,4-7``; none where it is anything else."""
    cores: set[int] = set()
    for word in said.split(","):
        form = re.fullmatch(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", word.strip())
        if form is None:
            return set()
        cores |= {*range(int(form[1]), int(form[2] or form[1]) + 1)}
    return cores
