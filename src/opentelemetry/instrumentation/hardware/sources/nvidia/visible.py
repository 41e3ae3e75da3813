"""The GPUs that a program may use: variables of CUDA and of the container runtime.

https://docs.nvidia.com/cuda/cuda-c-programming-guide/#env-vars
https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.accelerators.selection import (
    Assignable,
    Selection,
    VisibilityRule,
    all_ids,
    is_uuid,
    matches,
    printable,
    select_by_name,
    unidentified,
)

CUDA: Final = "CUDA_VISIBLE_DEVICES"
CONTAINER: Final = "NVIDIA_VISIBLE_DEVICES"

_UNSPECIFIED: Final = ("", "void")  # values of the container's variable if something else assigns the devices


def cuda_aliases(uuid: str) -> tuple[str, ...]:
    """Return the name for CUDA of a GPU with a UUID without prefix, such as that of a Jetson."""
    return () if uuid.startswith("GPU-") else (f"GPU-{uuid}",)


def visible(environ: Mapping[str, str], devices: Sequence[Device]) -> Selection:
    """Select the devices that both variables allow."""
    selection = _by_cuda(environ, devices)
    return selection._replace(ids=selection.ids & _by_container(environ, devices))


def _by_cuda(environ: Mapping[str, str], devices: Sequence[Device]) -> Selection:
    """Select the devices before the first word that matches none. If a device is repeated, CUDA shows no device."""
    value = environ.get(CUDA)
    if value is None:
        return Selection(all_ids(devices))
    shown: list[frozenset[str]] = []
    for word in (each.strip() for each in value.split(",")):
        number = re.match(r"\+?([0-9]{1,9})", word)  # CUDA takes the number that a word begins with
        alias = f"GPU-{word.casefold()}"  # of a Jetson
        named = [device.selection_ids for device in devices if alias in device.aliases]
        if named:
            matching = named[0]
        elif number is None:
            matching = _by_uuid(word, devices)
        elif int(number[1]) >= len(devices):
            break
        elif doubt := _doubt(environ, devices):
            return Selection(all_ids(devices), f"{CUDA}={printable(value)}: {doubt}")
        else:
            matching = devices[int(number[1])].selection_ids
        if not matching:
            break
        if matching in shown:
            return Selection(frozenset())
        shown.append(matching)
    return Selection(frozenset[str]().union(*shown))


def _by_uuid(word: str, devices: Sequence[Device]) -> frozenset[str]:
    """Return the ids of the device with a UUID that begins with the word; empty if there are several.

    A word that matches no identified device may mean an unidentified one.
    """
    if not is_uuid(word):
        return frozenset()
    matching = list(matches(word, devices)) or [unidentified(devices)]
    return matching[0] if len(matching) == 1 else frozenset()


def _doubt(environ: Mapping[str, str], devices: Sequence[Device]) -> str:
    """Return why CUDA's number of a GPU may differ from NVML's."""
    models = {device.facts.get(c.HW_MODEL, "") for device in devices}
    if "" in models or any(device.is_unidentified for device in devices):
        return "a GPU does not respond, so CUDA's numbers of the others are not known; use UUIDs"
    if any(device.is_divided for device in devices):
        return "a GPU is divided, so it is not known which MIG instance a number means; use UUIDs"
    if len(models) > 1 and environ.get("CUDA_DEVICE_ORDER", "").strip() != "PCI_BUS_ID":
        return (
            "the GPUs are of different models, and it is not known which of them CUDA considers the fastest; use "
            "UUIDs, or CUDA_DEVICE_ORDER=PCI_BUS_ID"
        )
    return ""


def _by_container(environ: Mapping[str, str], devices: Sequence[Device]) -> frozenset[str]:
    """Select the devices that were assigned to a container.

    Its runtime hides all others, and those that remain are numbered from 0, while the variable has the numbers of the
    host. A privileged container has all devices, with the numbers of the host.
    """
    value = environ.get(CONTAINER, "").strip()
    if value in _UNSPECIFIED or value.startswith("/"):
        return all_ids(devices)
    if value == "none":
        return frozenset()
    words = {word.strip().rpartition("=")[2] for word in value.split(",")}  # or nvidia.com/gpu=0
    if "all" in words or _is_enforced(words, devices):
        return all_ids(devices)
    return select_by_name(sorted(words), devices).ids or all_ids(devices)  # no runtime obeys words that match nothing


def _is_enforced(words: Collection[str], devices: Sequence[Device]) -> bool:
    """Whether there are no more devices than were assigned, so that they are the assigned ones."""
    gpus = {word.partition(":")[0] for word in words}
    if len(devices) > len(gpus):
        return False
    are_gpus = any(":" not in word and not word.casefold().startswith("mig-") for word in words)
    return are_gpus or sum(len(device.parts) or 1 for device in devices) <= len(words)


def assignable(gpus: Sequence[Device]) -> Iterator[Assignable]:
    """Yield the GPUs, or the instances of a partitioned one. A Jetson has no UUID for CUDA, only an index."""
    for gpu in gpus:
        name, word = f"GPU {gpu.index}", gpu.id if gpu.id.startswith("GPU-") else str(gpu.index)
        if not gpu.is_divided:
            yield Assignable("GPU", name, gpu.id, word, "does not respond" if gpu.is_unidentified else "")
        elif not gpu.parts:
            yield Assignable("GPU", name, gpu.id, word, "is partitioned and has no MIG instance")
        for slot, part in gpu.parts.items():
            own = part.id if part.id.startswith("MIG-") else f"MIG-{part.id}"  # older drivers give instances no UUID
            yield Assignable("MIG instance", f"MIG {gpu.index}/{slot}", part.id, own)


RULE: Final = VisibilityRule("NVIDIA GPU", "hw.gpu.*", (CUDA, CONTAINER), visible, "nvidia", assignable)
