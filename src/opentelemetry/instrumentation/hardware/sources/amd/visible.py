"""The environment variables that restrict a program to some of ROCm's GPUs.

https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html documents them. Values are parsed as
in ROCm's own code: ``amd_filter_device.cpp`` of ROCR-Runtime, and ``rocdevice.cpp`` of clr.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.accelerators.selection import (
    Assignable,
    Selection,
    VisibilityRule,
    all_ids,
    printable,
)
from opentelemetry.instrumentation.hardware.sources.amd.topology import KFD, Node, Topology

ROCR: Final = "ROCR_VISIBLE_DEVICES"

# The first one that is not empty applies. Its numbers count the GPUs that ``ROCR_VISIBLE_DEVICES`` leaves.
HIP: Final = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")


def visibility_rule(topology: Topology) -> VisibilityRule:
    """Return the rule that restricts a program to some of the GPUs."""
    return VisibilityRule(
        "AMD GPU",
        "hw.gpu.*",
        (ROCR, *HIP),
        partial(visible_devices, topology=topology),
        "amdgpu",
        partial(assignable, topology=topology),
    )


def visible_devices(environ: Mapping[str, str], found: Sequence[Device], topology: Topology) -> Selection:
    """Select the cards with at least one partition that the program may use."""
    variables = [(name, environ[name]) for name in HIP if environ.get(name)][:1]
    if ROCR in environ:
        variables.insert(0, (ROCR, environ[ROCR]))
    if not variables and not topology.restricted:
        return Selection(all_ids(found))
    addresses = [device.address for device in found]
    if not topology.exists or not all(addresses):
        values = (
            " and ".join(f"{name}={printable(value)}" for name, value in variables) or "this container has some GPUs"
        )
        reason = "the tool does not report the PCI address of a GPU" if topology.exists else f"there is no {KFD}"
        return Selection(all_ids(found), f"{values}: {reason}, so ROCm's order of the GPUs is unknown")
    nodes: Sequence[Node] = topology.nodes
    for name, value in variables:
        nodes = select_rocr(value, nodes) if name == ROCR else select_hip(value, nodes)
    cards = {node.card(addresses) for node in nodes}
    return Selection(frozenset(device.selection_id for device in found if device.address in cards))


def assignable(found: Sequence[Device], topology: Topology) -> Iterator[Assignable]:
    """Yield the GPUs of ROCm, each partition of its own: by UUID, or by number if the UUID is missing or shared."""
    addresses = [device.address for device in found]
    uuids = [node.uuid for node in topology.nodes]
    for device in found:
        numbers = [
            number
            for number, node in enumerate(topology.nodes)
            if device.address and node.card(addresses) == device.address
        ]
        for part, number in enumerate(numbers):
            uuid = uuids[number]
            name = f"GPU {device.index}" + (f" partition {part}" if len(numbers) > 1 else "")
            yield Assignable("GPU", name, device.selection_id, uuid if uuid and uuids.count(uuid) == 1 else str(number))
        if not numbers:
            yield Assignable("GPU", f"GPU {device.index}", device.selection_id, "", "is not a GPU of ROCm")


def select_rocr(value: str, nodes: Sequence[Node]) -> list[Node]:
    """Select the nodes of ``ROCR_VISIBLE_DEVICES`` before the first word that is unknown or repeated."""
    selected: list[Node] = []
    for word in (each.strip().upper() for each in value.split(",")):
        matching: Sequence[Node]
        if word.startswith("G"):
            matching = [node for node in nodes if len(word) > 4 and node.uuid.upper().startswith(word)]
        else:
            number = _c_integer(word)
            matching = [] if number is None else nodes[number : number + 1]
        if len(matching) != 1 or matching[0] in selected:
            break
        selected += matching
    return selected


def select_hip(value: str, nodes: Sequence[Node]) -> list[Node]:
    """Select the nodes of ``HIP_VISIBLE_DEVICES`` before the first unknown word. Repetitions count once."""
    selected: list[Node] = []
    for word in value.removesuffix(",").split(","):
        matching: Sequence[Node] = ()
        if "GPU-" in word:
            matching = [node for node in nodes if (node.uuid or "GPU-XX").startswith(word)][:1]
        elif re.fullmatch("0|[1-9][0-9]{0,8}", word):
            matching = nodes[int(word) : int(word) + 1]
        if not matching:
            break
        selected += [node for node in matching if node not in selected]
    return selected


def _c_integer(word: str) -> int | None:
    """Parse a number like C: decimal, hexadecimal after ``0x``, or octal after ``0``."""
    form = re.fullmatch(r"\+?(?:0X([0-9A-F]{1,8})|0([0-7]{0,8})|([1-9][0-9]{0,8}))", word)
    if form is None:
        return None
    hexadecimal, octal, decimal = form.groups()
    return int(hexadecimal, 16) if hexadecimal else int(decimal) if decimal else int(octal or "0", 8)
