"""Which of NVIDIA's GPUs a program is shown: by CUDA, and by the runtime of its container.

https://docs.nvidia.com/cuda/cuda-c-programming-guide/#env-vars
https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from opentelemetry.instrumentation.hardware.accelerators.selection import (
    Chosen,
    FoundDevice,
    Part,
    VisibilityRule,
    by_name,
    everything,
    is_uuid,
    named,
    printable,
    unknown,
)

CUDA: Final = "CUDA_VISIBLE_DEVICES"
CONTAINER: Final = "NVIDIA_VISIBLE_DEVICES"

_SILENT: Final = ("", "void")
"""What the variable of containers is where it does not say what there is: others put the devices there."""


def gpu(
    number: int,
    id: str,  # noqa: A002
    model: str = "",
    address: str = "",
    divided: bool = False,
    parts: Sequence[Part] = (),
) -> FoundDevice:
    """A GPU; it says its name where its ``hw.id`` is a UUID."""
    return FoundDevice(number, id, model, address, divided, tuple(parts), unknown=not id.startswith("GPU-"))


def instance(gpu: str, id: str, slot: int, gpu_instance: int | None, compute_instance: int | None) -> Part:  # noqa: A002
    """A MIG instance of a GPU, which CUDA knows by the driver's numbers as well."""
    known = gpu_instance is not None and compute_instance is not None
    return Part(id, slot, (f"MIG-{gpu}/{gpu_instance}/{compute_instance}",) if known else ())


def visible(environ: Mapping[str, str], found: Sequence[FoundDevice]) -> Chosen:
    """Those that both leave."""
    seen = _by_cuda(environ, found)
    return seen._replace(ids=seen.ids & _by_container(environ, found))


def _by_cuda(environ: Mapping[str, str], found: Sequence[FoundDevice]) -> Chosen:
    """Those that CUDA shows to a program: up to the first word that means none, and none if one comes twice."""
    said = environ.get(CUDA)
    if said is None:
        return Chosen(everything(found))
    shown: list[frozenset[str]] = []
    for word in (each.strip() for each in said.split(",")):
        number = re.match(r"\+?([0-9]{1,9})", word)  # CUDA takes the number that a word begins with
        if number is None:
            meant = _by_uuid(word, found)
        elif int(number[1]) >= len(found):
            break
        elif doubt := _doubt(environ, found):
            return Chosen(everything(found), f"{CUDA}={printable(said)}: {doubt}")
        else:
            meant = found[int(number[1])].ids
        if not meant:
            break
        if meant in shown:
            return Chosen(frozenset())
        shown.append(meant)
    return Chosen(frozenset[str]().union(*shown))


def _by_uuid(word: str, found: Sequence[FoundDevice]) -> frozenset[str]:
    """The one whose UUID begins so; of several that begin alike CUDA takes none.

    Where it is none of those that answer, it is one of the others.
    """
    if not is_uuid(word):
        return frozenset()
    meant = list(named(word, found)) or [unknown(found)]
    return meant[0] if len(meant) == 1 else frozenset()


def _doubt(environ: Mapping[str, str], found: Sequence[FoundDevice]) -> str:
    """Why a number of CUDA's is not known to be the same GPU as NVML's."""
    if any(gpu.unknown or not gpu.model for gpu in found):
        return "a GPU does not answer, so it is not known how CUDA counts the others; UUIDs would tell"
    if any(gpu.divided for gpu in found):
        return "a GPU is divided, so that numbers do not tell which MIG instance is meant; UUIDs would tell"
    if len({gpu.model for gpu in found}) > 1 and environ.get("CUDA_DEVICE_ORDER", "").strip() != "PCI_BUS_ID":
        return (
            "the GPUs are of different models, and which of them CUDA takes for the fastest is not known; "
            "UUIDs would tell, or CUDA_DEVICE_ORDER=PCI_BUS_ID"
        )
    return ""


def _by_container(environ: Mapping[str, str], found: Sequence[FoundDevice]) -> frozenset[str]:
    """Those that were given to a container.

    Its runtime sees to it that there are no others, and then they are counted anew: the numbers in the variable are
    those of the host. A privileged container sees them all, by the host's numbers.
    """
    said = environ.get(CONTAINER, "").strip()
    if said in _SILENT or said.startswith("/"):
        return everything(found)
    if said == "none":
        return frozenset()
    words = {word.strip().rpartition("=")[2] for word in said.split(",")}  # or nvidia.com/gpu=0
    if "all" in words or _is_enforced(words, found):
        return everything(found)
    return by_name(sorted(words), found).ids or everything(found)  # no runtime obeyed words that mean no device


def _is_enforced(words: Collection[str], found: Sequence[FoundDevice]) -> bool:
    """Whether there are no more devices than were given, so that they are those."""
    gpus = {word.partition(":")[0] for word in words}
    if len(found) > len(gpus):
        return False
    return any(_is_whole(word) for word in words) or sum(len(gpu.parts) or 1 for gpu in found) <= len(words)


def _is_whole(word: str) -> bool:
    return ":" not in word and not word.casefold().startswith("mig-")


RULE: Final = VisibilityRule("NVIDIA GPU", "hw.gpu.*", (CUDA, CONTAINER), visible, "nvidia")
