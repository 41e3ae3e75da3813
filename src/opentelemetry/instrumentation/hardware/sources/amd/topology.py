"""What ROCm's driver (KFD) shows to programs, in the order in which ROCm counts, and what variables leave of that.

https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html says what the variables mean. What they mean to the
last comma is as ROCm's own programs have it: ``amd_filter_device.cpp`` of ROCR-Runtime, ``rocdevice.cpp`` of clr.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware.accelerators.selection import (
    Chosen,
    FoundDevice,
    VisibilityRule,
    everything,
    printable,
)
from opentelemetry.instrumentation.hardware.system.files import Files

KFD: Final = "/sys/class/kfd/kfd"

ROCR: Final = "ROCR_VISIBLE_DEVICES"
HIP: Final = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
"""Its numbers count what ROCR leaves. Of these the first one that is not empty is obeyed."""

_NO_UUID: Final = "GPU-XX"


class Node(NamedTuple):
    """What ROCm takes for a GPU: a card, or a part of one that is divided.

    Attributes:
        number: the driver's own for it.
        address: where it is on the bus; of a part, the function is its number in the card.
        uuid: ``GPU-`` and sixteen digits.
    """

    number: str
    address: str
    uuid: str

    def card(self, known: Collection[str]) -> str:
        """The address of the card that it is, or is a part of: one of those that are known, else function 0."""
        return self.address if self.address in known else f"{self.address[:-1]}0"


class Topology:
    """ROCm's GPUs.

    Args:
        kernel: reads the files.

    Attributes:
        nodes: those that this container is shown, in ROCm's order.
        hidden: whether there are others.
        known: whether there is ROCm's driver at all.
    """

    def __init__(self, kernel: Files) -> None:
        self.nodes: list[Node] = []
        self.hidden = False
        folder = f"{KFD}/topology/nodes"
        try:
            names = sorted((name for name in kernel.names(folder) if name.isdecimal()), key=int)
        except OSError:
            names = []
        self.known = bool(names)
        for name in names:
            try:
                number = kernel.read(f"{folder}/{name}/gpu_id").decode(errors="replace").strip()
                text = kernel.read(f"{folder}/{name}/properties").decode(errors="replace")
            except OSError:  # its device is not this container's
                self.hidden = True
                continue
            said = {key: int(value) for key, value in re.findall(r"^([a-z_]+) ([0-9]{1,20})$", text, re.MULTILINE)}
            place = said.get("location_id", 0)  # older drivers have the number of a part in its highest bits
            if number.isdecimal() and int(number) and place:
                address = f"{said.get('domain', 0):04x}:{place >> 8 & 255:02x}:{place >> 3 & 31:02x}.{place & 7}"
                unique = said.get("unique_id", 0)
                self.nodes.append(Node(number, address, f"GPU-{unique:016x}" if unique else _NO_UUID))

    def cards(self, known: Collection[str]) -> dict[str, str]:
        """By number of a node, the address of its card."""
        return {node.number: node.card(known) for node in self.nodes}

    def names(self, address: str) -> tuple[str, ...]:
        """What ROCm calls a card, and its parts where they have names of their own."""
        uuids = dict.fromkeys(node.uuid for node in self.nodes if node.card((address,)) == address)
        return tuple(name for uuid in uuids if uuid != _NO_UUID for name in (uuid, uuid[4:]))

    def way(self) -> VisibilityRule:
        """How programs are shown some of the GPUs only."""
        return VisibilityRule("AMD GPU", "hw.gpu.*", (ROCR, *HIP), self.visible, "amdgpu")

    def visible(self, environ: Mapping[str, str], found: Sequence[FoundDevice]) -> Chosen:
        """The cards of which a program is shown at least a part."""
        said = [(name, environ[name]) for name in HIP if environ.get(name)][:1]
        if ROCR in environ:
            said.insert(0, (ROCR, environ[ROCR]))
        if not said and not self.hidden:
            return Chosen(everything(found))
        addresses = [device.address for device in found]
        if not self.known or not all(addresses):
            why = f"{self._why()}, so it is not known how ROCm counts them"
            return Chosen(
                everything(found), f"{' and '.join(f'{name}={printable(text)}' for name, text in said)}: {why}"
            )
        nodes: Sequence[Node] = self.nodes
        for name, text in said:
            nodes = by_rocr(text, nodes) if name == ROCR else by_hip(text, nodes)
        shown = {node.card(addresses) for node in nodes}
        return Chosen(frozenset(device.id for device in found if device.address in shown))

    def _why(self) -> str:
        return "the tool does not say the address of a GPU" if self.known else f"there is no {KFD}"


def by_rocr(said: str, nodes: Sequence[Node]) -> list[Node]:
    """What ROCR leaves: up to the first word that means none, or one that was there before."""
    left: list[Node] = []
    for word in (each.strip().upper() for each in said.split(",")):
        if word.startswith("G"):
            meant = [node for node in nodes if len(word) > 4 and node.uuid.upper().startswith(word)]
            meant = [node for node in meant if node.uuid != _NO_UUID]
        else:
            number = _number(word)
            meant = [] if number is None else [*nodes[number : number + 1]]
        if len(meant) != 1 or meant[0] in left:
            break
        left += meant
    return left


def _number(word: str) -> int | None:
    """A number as C reads it: decimal, ``0x`` and hexadecimal, or ``0`` and octal."""
    form = re.fullmatch(r"\+?(?:0X([0-9A-F]{1,8})|0([0-7]{0,8})|([1-9][0-9]{0,8}))", word)
    if form is None:
        return None
    hexadecimal, octal, decimal = form.groups()
    return int(hexadecimal, 16) if hexadecimal else int(decimal) if decimal else int(octal or "0", 8)


def by_hip(said: str, nodes: Sequence[Node]) -> list[Node]:
    """What HIP leaves of those: up to the first word that means none; one that comes twice counts once."""
    left: list[Node] = []
    for word in said.removesuffix(",").split(","):
        meant: Sequence[Node] = ()
        if "GPU-" in word:
            meant = [node for node in nodes if node.uuid.startswith(word)][:1]
        elif re.fullmatch("0|[1-9][0-9]{0,8}", word):
            meant = nodes[int(word) : int(word) + 1]
        if not meant:
            break
        left += [node for node in meant if node not in left]
    return left
