"""The GPUs and processes of ROCm: the files of KFD, the part of the driver that computes."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware.system.files import Files, names_or_empty

KFD: Final = "/sys/class/kfd/kfd"


def chip_number(text: str) -> str:
    """The number of a chip as the sixteen digits of the kernel's ``unique_id``; empty if it is unknown.

    Args:
        text: ``unique_id``, or what a tool prints: rocm-smi without leading zeros, amd-smi of ROCm 6.1 a decimal number
            behind ``0x``. A decimal number with 16 digits or less cannot be told from a hexadecimal one: these are the
            numbers below 2**53, which no known chip has.
    """
    digits = text.strip().casefold().removeprefix("0x")
    if re.fullmatch("[0-9]{17,20}", digits):
        digits = f"{int(digits):x}"
    number = digits.zfill(16)
    return number if re.fullmatch("(?!0{16}|f{16})[0-9a-f]{16}", number) else ""


class Node(NamedTuple):
    """A GPU or partition of a GPU, as ROCm sees it.

    Attributes:
        number: KFD's ``gpu_id``.
        address: PCI address. The function is the number of the partition.
        uuid: ``GPU-`` and sixteen digits; empty if the GPU has none.
    """

    number: str
    address: str
    uuid: str

    def card(self, known: Collection[str]) -> str:
        """Address of the card: the node's own if there is a card, else its function 0."""
        return self.address if self.address in known else f"{self.address[:-1]}0"


class Topology:
    """ROCm's GPUs.

    Attributes:
        nodes: The GPUs that this container may use, in ROCm's order.
        restricted: Whether there are others.
        exists: Whether KFD is present.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self.nodes: list[Node] = []
        self.restricted = False
        folder = f"{KFD}/topology/nodes"
        names = sorted((name for name in names_or_empty(files, folder) if name.isdecimal()), key=int)
        self.exists = bool(names)
        for name in names:
            try:
                number = files.read(f"{folder}/{name}/gpu_id").decode(errors="replace").strip()
                text = files.read(f"{folder}/{name}/properties").decode(errors="replace")
            except OSError:  # the device cgroup denies the GPU
                self.restricted = True
                continue
            facts = {key: int(value) for key, value in re.findall(r"^([a-z_]+) ([0-9]{1,20})$", text, re.MULTILINE)}
            place = facts.get("location_id", 0)  # older drivers have the number of the partition in the highest bits
            if number.isdecimal() and int(number) and place:
                address = f"{facts.get('domain', 0):04x}:{place >> 8 & 255:02x}:{place >> 3 & 31:02x}.{place & 7}"
                unique = facts.get("unique_id", 0)
                self.nodes.append(Node(number, address, f"GPU-{unique:016x}" if unique else ""))

    def cards(self, known: Collection[str]) -> Mapping[str, str]:
        """By ``gpu_id``, the address of the card."""
        return {node.number: node.card(known) for node in self.nodes}

    def names(self, address: str) -> tuple[str, ...]:
        """ROCm's names of a card and of its partitions."""
        uuids = dict.fromkeys(node.uuid for node in self.nodes if node.uuid and node.card((address,)) == address)
        return tuple(name for uuid in uuids for name in (uuid, uuid[4:]))

    def pids(self) -> list[int]:
        """The processes of ROCm, by the host's PIDs."""
        return [int(name) for name in names_or_empty(self._files, f"{KFD}/proc") if name.isdecimal()]

    def memory(self, pid: int, cards: Mapping[str, str]) -> Mapping[str, int]:
        """By address of a card, the bytes of its memory that a process has. A process has a file for every GPU."""
        found: dict[str, int] = {}
        with suppress(OSError):
            for name in self._files.names(f"{KFD}/proc/{pid}"):
                address = cards.get(name.removeprefix("vram_"))
                text = self._files.read(f"{KFD}/proc/{pid}/{name}").strip() if address else b""
                if address and text.isdigit() and int(text):
                    found[address] = found.get(address, 0) + int(text)
        return found
