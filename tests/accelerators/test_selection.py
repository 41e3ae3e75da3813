"""The selection of devices: one table for all vendors, and changes of devices, programs and environment.

A row of the table has the devices selected on a machine, by the setting OTEL_PYTHON_HARDWARE_DEVICES and by the
variables that restrict a program. Devices are written as DEVICES has them: `1` is a device with all of its parts, `1:2`
the part in slot 2, `1:` the device without its parts.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources import npus
from tests.sources.machines import STRANGER
from tests.sources.npus import CHILD, HOST, IPU_DEVICES, moved_files, npu_host, old_files, program, runtime
from tests.sources.radeons import ALL, DENIED, alone, by_amd_smi, radeon_host, rocm
from tests.sources.reading import all_of, often
from tests.sources.tree import Fabricated, Tree
from tests.support.stage import PATIENT, warnings
from tests.tools import amdsysfs
from tests.tools.amdsysfs import KFD, Files, Gpu, number_of
from tests.tools.nvml import FakeNvml, h100, listed, mig, orin, refused
from tests.tools.nvml import Gpu as NvmlGpu

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.accelerators.selection import (
    DeviceFilter,
    VisibilityRule,
    all_ids,
)
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import Source, SourceContext
from opentelemetry.instrumentation.hardware.sources.amd import Amd
from opentelemetry.instrumentation.hardware.sources.amd.topology import Topology
from opentelemetry.instrumentation.hardware.sources.amd.visible import visibility_rule
from opentelemetry.instrumentation.hardware.sources.graphcore import Graphcore
from opentelemetry.instrumentation.hardware.sources.nvidia import Nvidia, visible
from opentelemetry.instrumentation.hardware.sources.trainium import Trainium
from opentelemetry.instrumentation.hardware.sources.trainium import visible as neuron

linux = pytest.mark.skipif(sys.platform != "linux", reason="the simulated driver is of Linux")

CUDA, ORDER, CONTAINER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES"
ROCR, HIP, ORDINAL = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"
CORES, COUNT = "NEURON_RT_VISIBLE_CORES", "NEURON_RT_NUM_CORES"
SLURM, KUBERNETES = {"SLURM_JOB_ID": "7"}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
JOBS = [*("SLURM_JOB_ID", "SLURM_STEP_ID", "PBS_JOBID", "LSB_JOBID", "SGE_TASK_ID", "FLUX_JOB_ID")]
JOBS += ["_CONDOR_SCRATCH_DIR", "KUBERNETES_SERVICE_HOST"]
DEVICES = "OTEL_PYTHON_HARDWARE_DEVICES"

Environ = Mapping[str, str]

# Reads the source once: the ids of the reported devices, and the sentences of the selection.
ReadOnce = Callable[[], tuple[set[str], list[str]]]


class Machine(NamedTuple):
    """A simulated machine.

    Attributes:
        labels: Its devices and parts: the label in the table, and the hw.id.
        opened_with: Opens the source with DEVICES and an environment.
    """

    labels: Mapping[str, str]
    opened_with: Callable[[str | None, Environ], AbstractContextManager[ReadOnce]]

    def ids(self, chosen: str) -> set[str]:
        """The ids of the devices in a cell of the table."""
        if chosen == "all":
            return {*self.labels.values()}
        return {
            device
            for word in chosen.split()
            for label, device in self.labels.items()
            if label == word.rstrip(":") or label.startswith(f"{word}:")
        }


@contextmanager
def opened(kind: type[Source], drivers: Drivers, devices: str | None, environ: Environ, **more: str) -> Iterator[Any]:
    """An open source that observes the process STRANGER; NVIDIA's observes this process."""
    pid = os.getpid() if kind is Nvidia else STRANGER
    source = kind(SourceContext(Config.read({"devices": devices, **more}, {}), drivers, pid, environ=environ))
    source.open()
    try:
        yield source
    finally:
        source.close()


def reported(source: Source) -> set[str]:
    """The hw.id of each device with a point in one reading; a component such as a fan counts as its GPU."""
    ids = (str(series.attributes.get("hw.id", "")) for series in all_of(source))
    return {re.sub("/(fan.*|fabric|module|memory)$", "", each) for each in ids if each}


def by_source(
    kind: type[Source], drivers: Callable[[], Drivers], labels: Mapping[str, str], **settings: str
) -> Callable[[Path], Machine]:
    """A machine with a source that is opened and read."""

    @contextmanager
    def opened_with(devices: str | None, environ: Environ) -> Iterator[ReadOnce]:
        with opened(kind, drivers(), devices, environ, **settings) as source:

            def read_once() -> tuple[set[str], list[str]]:
                ids, missing = reported(source), source.selection.unsupported()
                assert {*missing} <= {*source.unsupported}
                return ids, missing

            yield read_once

    return lambda _: Machine(labels, opened_with)


def numbered(name: str, *numbers: int, label: str = "") -> dict[str, str]:
    """Labels and ids of devices whose ids end with a number."""
    return {f"{label}{number}": f"{name}{number}" for number in numbers}


# -- NVIDIA: a list of found GPUs without a driver, the simulated NVML, and a simulated nvidia-smi

A, B, C = "GPU-8f6a1111-aaaa", "GPU-8f6a2222-bbbb", "GPU-12345678-cccc"
X, Y, Z = "MIG-5ee7aaaa-0000", "MIG-5ee7bbbb-1111", "MIG-0123cccc-2222"
FIRST, SECOND, THIRD = (str(h100(index)["UUID"]) for index in range(3))
ONE, TWO = (f"MIG-00000000-0000-5000-8000-000001{slot:06x}" for slot in (0, 2))
WHOLE = "GPU-11111111-2222-3333-4444-555555555555"
TEGRA = str(orin()["UUID"])


def device(
    number: int, name: str, model: str = "", address: str = "", parts: Mapping[int, Device] | None = None
) -> Device:
    """A device with its parts, which has no driver."""
    found = Device(name, name, index=number, address=address)
    found.facts = {c.HW_MODEL: model} if model else {}
    found.parts, found.is_divided = dict(parts or {}), bool(parts)
    return found


def instance(uuid: str, alias: str = "") -> Device:
    part = Device(uuid, uuid)
    part.aliases = (alias,) if alias else ()
    return part


ALIKE = (
    device(0, A, "H100", "0000:1a:00.0"),
    device(1, B, "H100", "0000:1b:00.0"),
    device(2, C, "H100", "0001:c1:00.0"),
)
_INSTANCES = {0: instance(X, f"MIG-{B}/7/0"), 2: instance(Y, f"MIG-{B}/9/0"), 3: instance(Z, f"MIG-{B}/9/1")}
DIVIDED = (ALIKE[0], device(1, B, "H100", "0000:1b:00.0", _INSTANCES))
LOST = (ALIKE[0], device(1, "gpu1"), ALIKE[2])
LOST[1].is_unidentified = True


def as_listed(*found: Device) -> Callable[[Path], Machine]:
    """A machine where NVML or nvidia-smi found these GPUs. Neither is called."""

    @contextmanager
    def opened_with(devices: str | None, environ: Environ) -> Iterator[ReadOnce]:
        selected = DeviceFilter(devices if devices is None else devices.split(","), environ, visible.RULE)

        def read_once() -> tuple[set[str], list[str]]:
            selected.update(found)
            return {each for each in all_ids(found) if each in selected}, selected.unsupported()

        yield read_once

    labels = {str(gpu.index): gpu.id for gpu in found}
    return lambda _: Machine(
        labels | {f"{gpu.index}:{slot}": part.id for gpu in found for slot, part in gpu.parts.items()}, opened_with
    )


def by_nvml(tmp_path: Path) -> Machine:
    gpus = (h100(0), mig(h100(1), 1, {0: (7, 0), 2: (9, 0)}), h100(2))
    return _by_nvml(tmp_path, {"0": FIRST, "1": SECOND, "2": THIRD, "1:0": ONE, "1:2": TWO}, *gpus)


def jetson_by_nvml(tmp_path: Path) -> Machine:
    return _by_nvml(tmp_path, {"0": TEGRA}, orin())


def _by_nvml(tmp_path: Path, labels: Mapping[str, str], *gpus: NvmlGpu) -> Machine:
    fake = FakeNvml(tmp_path, *gpus)
    machine = by_source(Nvidia, Drivers, labels, nvml=str(fake.path), nvidia_smi="off")(tmp_path)

    @contextmanager
    def opened_with(devices: str | None, environ: Environ) -> Iterator[ReadOnce]:
        with patch.dict(os.environ, fake.environment), machine.opened_with(devices, environ) as read_once:
            yield read_once

    return machine._replace(opened_with=opened_with)


SMI = Path(__file__).parents[1] / "sources" / "nvidia" / "smi"


def by_nvidia_smi(tmp_path: Path) -> Machine:
    labels = {"0": WHOLE, "0:0": f"{WHOLE}/1/0", "0:1": f"{WHOLE}/5/0", "0:2": f"{WHOLE}/13/1"}
    return _by_nvidia_smi(tmp_path, labels, (SMI / "v11-a100-mig.xml").read_text())


def jetson_by_nvidia_smi(tmp_path: Path) -> Machine:
    text = re.sub("<uuid>.*</uuid>", f"<uuid>{TEGRA}</uuid>", (SMI / "v13-gb10.xml").read_text())
    return _by_nvidia_smi(tmp_path, {"0": TEGRA}, text)


def _by_nvidia_smi(tmp_path: Path, labels: Mapping[str, str], text: str) -> Machine:
    document, tool = tmp_path / "document.xml", tmp_path / "nvidia-smi"
    document.write_text(text)
    tool.write_text(f"#!/bin/sh\nexec cat {document}\n")
    tool.chmod(0o755)
    return by_source(Nvidia, Drivers, labels, nvml="off", nvidia_smi=str(tool))(tmp_path)


# -- AMD: three cards; ROCm counts them in another order than the PCI bus

D, E, F = "43cc8cc8af246700", "43cc9999af246701", "719d230578348e8c"
CARDS = (
    Gpu(0, "0000:63:00.0", unique=E),
    Gpu(1, "0000:05:00.0", unique=D),
    Gpu(2, "0001:c9:12.0", unique=F),
)
PARTED = (Gpu(0, "0000:05:00.0", unique=D, parts=8), Gpu(1, "0000:63:00.0", unique=E, parts=8))


def cards(gpus: Sequence[Gpu] = CARDS, more: Files | None = None) -> Files:
    return amdsysfs.machine(gpus) | dict(more or {})


def by_files(files: Files, *ids: str) -> Callable[[Path], Machine]:
    labels = {str(number): name for number, name in enumerate(ids or (D, E, F))}
    return by_source(Amd, lambda: radeon_host(files), labels)


def given_nodes(*nodes: int) -> Files:
    """The files in a container that was given these nodes of ROCm's driver: reading those of others is refused."""
    folder = f"{KFD}/topology/nodes/"
    given = tuple(f"{folder}{node}/" for node in nodes)
    denied = {
        path: DENIED
        for path in cards()
        if path.startswith(folder) and not path.startswith(given) and path.endswith(("gpu_id", "ties"))
    }
    return cards() | denied


def without_kfd(gpus: Sequence[Gpu] = CARDS) -> Files:
    return {path: text for path, text in cards(gpus).items() if not path.startswith(KFD)}


def parts_by_highest_bits() -> Files:
    """The files of older drivers for partitioned cards: the highest bits of location_id have the partition."""
    files = cards((replace(PARTED[0], parts=2), replace(PARTED[1], parts=1)))
    properties, place = f"{KFD}/topology/nodes/2/properties", PARTED[0].place
    report = str(files[properties])
    assert f"location_id {place + 1}\n" in report
    return files | {properties: report.replace(f"location_id {place + 1}\n", f"location_id {place | 1 << 28}\n")}


def by_rocm_smi() -> Fabricated:
    """The first two cards by rocm-smi, which counts them in another order."""
    report = {
        f"card{gpu.number}": {
            **rocm("6.1", 0)["card0"],
            "Unique ID": f"0x{gpu.unique}",
            "PCI Bus": gpu.bdf.upper(),
        }
        for gpu in CARDS[:2]
    }
    files = amdsysfs.machine(CARDS[:2]) | {"/sys/class/drm/version": ""}
    return radeon_host(files, {"rocm-smi": {ALL: json.dumps(report).encode()}})


def by_amd_smi_without_addresses() -> Fabricated:
    story = by_amd_smi(7)(0)
    story.tools["amd-smi"].prints = {**story.tools["amd-smi"].prints, "static --json": b"[]"}
    story.tree.files |= amdsysfs.topology(CARDS)
    return story


# -- Trainium: two devices of four cores each; the program uses 0 and 1, its child 4, another program 6 and 7


def trn2(*, files: bool = True, nodes: Sequence[int] = (), own: bool = True, **hardware: object) -> Fabricated:
    ranks = [runtime(STRANGER, (0, 1), 1), runtime(CHILD, (4,), 1, "rank-1")] if own else []
    report = npus.report([*ranks, runtime(4242, (6, 7), 1)], 2, 1, {**npus.TRN2, **hardware})
    known = moved_files(2, 8, 1) if files else {"/sys/module/neuron/initstate": "live\n"}
    given = {f"/dev/neuron{number}": "" for number in nodes}
    return npu_host(npus.HOST | known | given | program(CHILD), npus.lines(report))


def trn1_that_names_no_device() -> Fabricated:
    report = npus.report([runtime(STRANGER, (0, 3), 1)], 0, 1, npus.TRN1)
    return npu_host(npus.HOST | {"/sys/module/neuron/initstate": "live\n"} | program(), npus.lines(report))


def trn1_without_a_tool() -> Fabricated:
    return npu_host(npus.HOST | old_files(2, 2, 1) | program(), None)


NEURON = {
    **numbered("neuron", 0, 1),
    **numbered("neuroncore", 0, 1, label="0:"),
    "1:0": "neuroncore4",
    "1:2": "neuroncore6",
    "1:3": "neuroncore7",
}


# -- Graphcore: four IPUs; the program uses the first one, its child the second one, another program the third one


def ipus() -> Fabricated:
    report = [npus.c2(number, 1, pid) for number, pid in enumerate((STRANGER, CHILD, 4242, None))]
    return npu_host(npus.HOST | IPU_DEVICES | program(CHILD), npus.lines(report))


MACHINES: Mapping[str, Callable[[Path], Machine]] = {
    "nvidia": as_listed(*ALIKE),
    "nvidia-first-two": as_listed(*ALIKE[:2]),
    "nvidia-first": as_listed(*ALIKE[:1]),
    "nvidia-mixed": as_listed(ALIKE[0], device(1, B, "T4", "0000:1b:00.0"), ALIKE[2]),
    "nvidia-mig": as_listed(*DIVIDED),
    "nvidia-mig-only": as_listed(*DIVIDED[1:]),
    "nvidia-one-instance": as_listed(device(1, B, "H100", "0000:1b:00.0", {0: instance(X)})),
    "nvidia-lost": as_listed(*LOST),
    "nvidia-unnamed": as_listed(ALIKE[0], device(1, B, "", "0000:1b:00.0")),
    "nvidia-none": as_listed(),
    "nvml": by_nvml,
    "nvidia-smi": by_nvidia_smi,
    "jetson": jetson_by_nvml,
    "jetson-smi": jetson_by_nvidia_smi,
    "amd": by_files(cards()),
    "amd-container": by_files(given_nodes(0, 2, 3)),
    "amd-container-none": by_files(given_nodes(0)),
    "amd-without-uuid": by_files(cards((replace(CARDS[0], unique=None), CARDS[1])), D, CARDS[0].bdf),
    "amd-one-asleep": by_files(without_kfd((replace(CARDS[0], asleep=True), CARDS[1])), D, E),
    "amd-without-kfd": by_files(without_kfd()),
    "amd-divided": by_files(cards(PARTED), D, E),
    "amd-divided-older": by_files(parts_by_highest_bits(), D, E),
    "rocm-smi": by_source(Amd, by_rocm_smi, {"0": D, "1": E}, amdgpu="off", amd_smi="off"),
    "amd-smi-no-address": by_source(
        Amd, by_amd_smi_without_addresses, {"0": "gpu0", "1": "gpu1"}, amdgpu="off", rocm_smi="off"
    ),
    "neuron": by_source(Trainium, trn2, NEURON),
    # without the driver's files neuron-monitor reports the number of cores of a device
    "neuron-tool": by_source(Trainium, lambda: trn2(files=False, logical_neuroncore_config=1), NEURON),
    # two physical cores make a logical one, and it is not known which it counts: a core may be on any device
    "neuron-uncertain": by_source(
        Trainium, lambda: trn2(files=False), numbered("neuron", 0, 1) | numbered("neuroncore", 0, 1, 4, 6, 7, label="c")
    ),
    "neuron-no-device": by_source(Trainium, trn1_that_names_no_device, numbered("neuroncore", 0, 3, label="c")),
    "neuron-nodes-0-1": by_source(Trainium, lambda: trn2(nodes=(0, 1)), NEURON),
    "neuron-node-0": by_source(Trainium, lambda: trn2(nodes=(0,)), NEURON),
    "neuron-node-1": by_source(Trainium, lambda: trn2(nodes=(1,)), NEURON),
    "neuron-unused": by_source(Trainium, lambda: trn2(own=False), NEURON),
    "neuron-files": by_source(
        Trainium,
        trn1_without_a_tool,
        numbered("neuron", 0, 1)
        | numbered("neuroncore", 0, 1, label="0:")
        | {"1:0": "neuroncore2", "1:1": "neuroncore3"},
    ),
    "ipu": by_source(Graphcore, ipus, numbered("ipu", *range(4))),
}

PLAIN = "nvidia nvml nvidia-smi amd rocm-smi neuron neuron-tool ipu"
NEURONS = "neuron neuron-tool"

# machines, chosen devices, and the values of DEVICES
NAMED: list[tuple[str, str, list[str]]] = [
    (PLAIN, "all", ["all", "visible"]),
    (PLAIN, "0", ["0", "0,0"]),
    ("nvidia nvml nvidia-smi amd rocm-smi", "", ["process"]),
    ("nvml amd neuron ipu", "1", ["1"]),
    ("nvml amd ipu", "0 2", ["2,0"]),
    ("nvidia", "0", [A, A.lower(), "0000:1a:00.0", "0000:1A:00.0", "00000000:1A:00.0"]),
    ("nvidia", "0 1", ["GPU-8f6a"]),
    ("nvidia", "1", ["1b:00.0"]),
    ("nvidia", "2", ["GPU-12", "0001:c1:00.0"]),
    ("nvidia-none", "", ["all"]),
    ("jetson jetson-smi", "0", ["all", "0", TEGRA, TEGRA.upper(), f"GPU-{TEGRA}", f"GPU-{TEGRA[:6]}"]),
    ("nvidia-mig", "1", ["1", B, "1b:00.0"]),
    ("nvidia-mig", "1:0", [X]),
    ("nvidia-mig", "1:0 1:2", ["MIG-5ee7"]),
    ("nvidia-mig", "1:2", ["1:2"]),
    ("nvidia-mig", "1:3", [f"MIG-{B}/9/1"]),
    ("nvidia-mig", "0 1:0", [f"MIG-{B}/7/0,0"]),
    ("nvidia-lost", "0", [A]),
    ("nvidia-lost", "1", ["1", "GPU-99999999", "1b:00.0"]),  # the GPU that does not respond may be it
    ("nvml", "0", ["0000:1A:00.0"]),
    ("nvml", "2 1:2", ["2,1:2"]),
    ("nvidia-smi", "0:1", ["0:1"]),
    ("amd", "0", [D, f"GPU-{D}"]),
    ("amd", "0 1", ["GPU-43cc"]),
    ("amd", "1", ["0000:63:00.0"]),
    ("amd", "2", ["GPU-719d", "0001:C9:12.0"]),
    ("amd", "0 2", [f"GPU-{D.upper()},{F}"]),
    ("amd-divided", "1", ["1"]),
    ("rocm-smi", "1", [f"GPU-{E}", "63:00.0"]),
    (NEURONS, "all", ["1,0"]),
    (NEURONS, "1", ["neuron1"]),
    (NEURONS, "1:2", ["neuroncore6"]),
    (NEURONS, "0:1 1:3", ["0:1,1:3"]),
    (NEURONS, "0 1: 1:0", ["process"]),
    ("neuron-unused", "", ["process"]),
    ("neuron-uncertain", "0 c0 c1 c4 c6 c7", ["0"]),
    ("neuron-uncertain neuron-no-device", "all", ["visible"]),
    ("neuron-uncertain", "c4", ["neuroncore4"]),
    ("neuron-files", "1", ["1"]),
    ("ipu", "0 3", ["0,3"]),
    ("ipu", "2", ["ipu2"]),
    ("ipu", "1", ["0000:27:00.0"]),
    ("ipu", "0 1", ["process"]),
]

# machines, DEVICES, chosen devices, unknown words
UNKNOWN: list[tuple[str, str, str, str]] = [
    (PLAIN, "0,7", "0", "7"),
    (PLAIN, "-1", "", "-1"),
    (PLAIN, "first", "", "first"),
    ("nvidia", "8f6a", "", "8f6a"),
    ("nvidia", "0,7,GPU-9", "0", "7, GPU-9"),
    ("nvidia", "1a:00.1", "", "1a:00.1"),
    ("nvidia", "0001:1a:00.0", "", "0001:1a:00.0"),
    ("nvidia", "1:2", "", "1:2"),
    ("nvidia-none", "0", "", "0"),
    ("nvidia-mig", "1:1", "", "1:1"),
    ("nvidia-mig", f"MIG-{B}/9/7", "", f"MIG-{B}/9/7"),
    ("nvidia-lost", "7", "", "7"),
    ("nvidia-lost", "first", "", "first"),
    ("amd-without-uuid", "GPU-XX", "", "GPU-XX"),
    ("amd-one-asleep", "0,99:00.0", "0", "99:00.0"),  # the sleeping card has another address
]

# machines, variable, chosen devices where DEVICES=visible, and the values of the variable
RESTRICTED: list[tuple[str, str, str, list[str]]] = [
    ("nvidia", CUDA, "", ["", " ", "-1", "NoDevFiles", "none", "all", "void", "99", "8f6a1111"]),
    ("nvidia", CUDA, "", ["1,1", f"{A},{A}", "GPU-8f6a"]),  # a device named twice; a prefix of two UUIDs
    ("nvidia", CUDA, "0", ["0", A, "GPU-8F6A1"]),
    ("nvidia", CUDA, "0", ["0,-1,2", "0,3,2", "0,,2", "0,"]),  # up to the first word that means no device
    ("nvidia", CUDA, "1", ["+1", "1x"]),  # the number that a word begins with
    ("nvidia", CUDA, "2", ["GPU-12", f"{C},GPU-8f6a,{A}", f"{C},GPU-0000,{A}"]),
    ("nvidia", CUDA, "0 2", ["2,0"]),
    ("nvidia", CUDA, "1 2", [" 1 , 2 "]),
    ("jetson jetson-smi", CUDA, "0", ["0", TEGRA, f"GPU-{TEGRA}", f"GPU-{TEGRA[:6]}"]),
    ("jetson jetson-smi", CUDA, "", ["-1", "1", "GPU-0000", A]),
    ("nvidia-mixed", CUDA, "0", [A]),
    ("nvidia-mixed", CUDA, "", ["-1"]),
    ("nvidia-mig", CUDA, "", ["MIG-5ee7", f"MIG-{B}/9/5,{A}"]),
    ("nvidia-mig", CUDA, "0", [A]),
    ("nvidia-mig", CUDA, "1", [B]),
    ("nvidia-mig", CUDA, "1:0", [X]),
    ("nvidia-mig", CUDA, "1:2", [f"MIG-{B}/9/0"]),
    ("nvidia-mig", CUDA, "1:0 1:3", [f"{X},{Z}"]),
    ("nvidia-lost", CUDA, "0", [A]),
    ("nvidia-lost", CUDA, "0 1", [f"{A},GPU-9999"]),
    ("nvidia-none", CUDA, "", ["0"]),
    ("nvml", CUDA, "2 1:2", [f"{THIRD},{TWO}"]),
    ("nvml", CUDA, "1:0", [f"MIG-{SECOND}/7/0"]),
    ("nvml nvidia-smi", CUDA, "", [""]),
    ("nvidia-smi", CUDA, "0:0 0:1", [f"MIG-{WHOLE}/5/0,MIG-{WHOLE}/1/0"]),
    ("nvidia", CONTAINER, "", ["none"]),
    ("nvidia", CONTAINER, "all", ["all", "nvidia.com/gpu=all"]),
    ("nvidia", CONTAINER, "all", ["void", "", "/var/run/nvidia-container-devices"]),  # something else assigns devices
    ("nvidia", CONTAINER, "all", ["GPU-0000"]),  # no container runtime obeyed it
    ("nvidia", CONTAINER, "all", ["5,6,7"]),  # indices of the host, counted anew inside
    ("nvidia-first-two nvidia-first", CONTAINER, "all", ["5,6"]),
    ("nvidia-first", CONTAINER, "all", [f"{A},{C}"]),
    ("nvidia", CONTAINER, "0", [A, "nvidia.com/gpu=0"]),
    ("nvidia", CONTAINER, "1", ["1"]),  # a privileged container sees them all
    ("nvidia", CONTAINER, "2", [f"nvidia.com/gpu={C}"]),
    ("nvidia", CONTAINER, "0 2", [f"{A},{C}", "GPU-8f6a1,GPU-12"]),
    ("nvidia-mig", CONTAINER, "all", ["0,1:2"]),
    ("nvidia-mig", CONTAINER, "1", ["1"]),
    ("nvidia-mig", CONTAINER, "1:0", [X, "1:0"]),
    ("nvidia-mig", CONTAINER, "1:0 1:3", ["1:0,1:3"]),
    ("nvidia-mig-only", CONTAINER, "1:0 1:2", ["1:0,1:2"]),
    ("nvidia-one-instance", CONTAINER, "all", [X, "3:1"]),
    ("amd", ROCR, "", ["", "-1", "08", "GPU-XX", f"GPU-{D}0"]),
    ("amd", ROCR, "0", [f"GPU-{D}"]),
    ("amd", ROCR, "1", ["0", "0,7,1", "0,,1", "0,0,1"]),  # ROCm counts in the order of its own driver
    ("amd", ROCR, "2", ["GPU-719,GPU-43cc"]),  # a prefix of two UUIDs
    ("amd", ROCR, "0 1", ["1,0", f"gpu-{D.upper()},0"]),
    ("amd", ROCR, "0 2", [" 2 , 0x1"]),
    ("amd", HIP, "", [" ", " 1", "01", "NoDevFiles"]),
    ("amd", HIP, "all", [""]),
    ("amd", HIP, "0", ["1", "1,-1,0", "1,", "1, 0"]),
    ("amd", HIP, "1", ["0", "GPU-43cc"]),  # of several with this prefix the first one
    ("amd", HIP, "1 2", ["2,2,0", f"GPU-{F},0"]),
    ("amd", CUDA, "0", ["1"]),
    ("amd", CUDA, "", [A]),
    ("amd", ORDINAL, "0", ["1"]),
    ("amd-without-uuid", ROCR, "", ["GPU-XX", "GPU-"]),
    ("amd-without-uuid", ROCR, "1", ["0"]),
    ("amd-without-uuid", HIP, "1", ["GPU-XX"]),
    ("amd-without-uuid", HIP, "0", [f"GPU-{D}"]),
    ("amd-container", ROCR, "0", ["0"]),  # counted anew inside
    ("amd-divided", ROCR, "", ["16", f"GPU-{D}"]),  # the UUID of all parts
    ("amd-divided", ROCR, "0", ["0", "7"]),
    ("amd-divided", ROCR, "1", ["8", "017", "15"]),  # one is octal, as C reads it
    ("amd-divided", ROCR, "0 1", ["3,12"]),
    ("amd-divided-older", ROCR, "0", ["1"]),
    ("amd-divided-older", ROCR, "1", ["2"]),
    ("rocm-smi", ROCR, "1", ["0"]),
    (NEURONS, CORES, "all", [""]),
    (NEURONS, CORES, "0: 0:0", ["0"]),
    (NEURONS, CORES, "1: 1:0 1:2", ["4-6"]),
    (NEURONS, CORES, "0: 0:1 1: 1:0", [" 1, 3-4 "]),
    (NEURONS, COUNT, "all", ["8", "0"]),
    ("neuron-uncertain", CORES, "0 1 c6", ["6"]),
]

# machines, DEVICES, environment, chosen devices
COMBINED: list[tuple[str, str | None, Environ, str]] = [
    ("nvidia-mixed", "visible", {CUDA: "1", ORDER: "PCI_BUS_ID"}, "1"),
    ("nvidia", "visible", {CONTAINER: f"{A},{B}", CUDA: "1,2"}, "1"),
    ("amd", "visible", {HIP: "", CUDA: "1"}, "0"),
    ("amd", "visible", {HIP: "2", CUDA: "1"}, "2"),
    ("amd", "visible", {CUDA: "0", ORDINAL: "1"}, "1"),
    ("amd", "visible", {ROCR: "1,2", HIP: "0"}, "0"),  # an index among those that ROCR leaves
    ("amd", "visible", {ROCR: "1,2", CUDA: "1"}, "2"),
    ("amd-container", "visible", {}, "0 2"),
    ("amd-container", "visible", {ROCR: "1", HIP: "0"}, "2"),
    ("amd-divided", "visible", {ROCR: "4,5,6,7,8,9", HIP: "0,1"}, "0"),
    ("rocm-smi", "visible", {ROCR: "1", CUDA: "0"}, "0"),
    (NEURONS, "visible", {CORES: "7", COUNT: "1"}, "1: 1:3"),
    # by default everything, and what is visible in the job of a scheduler
    (PLAIN, None, {}, "all"),
    (PLAIN, None, {"SLURM_JOB_ID": ""}, "all"),
    (PLAIN, None, SLURM, "all"),
    *(("nvidia", None, {CUDA: "1", job: "4242"}, "1") for job in JOBS),
    ("nvidia", None, {CUDA: "1", "SLURM_JOB_ID": ""}, "all"),
    ("nvidia", "all", {CUDA: "1", **SLURM}, "all"),
    ("nvml", None, {CUDA: FIRST}, "all"),
    ("nvml", None, {CUDA: FIRST, **SLURM}, "0"),
    ("nvidia-smi", None, {CUDA: f"MIG-{WHOLE}/5/0", "PBS_JOBID": "7"}, "0:1"),
    ("amd", None, {ROCR: "0"}, "all"),
    ("amd", None, {ROCR: "0", **SLURM}, "1"),
    ("amd", None, {HIP: "1", **KUBERNETES}, "0"),
    ("amd-container", None, {}, "all"),
    ("amd-container", None, KUBERNETES, "0 2"),
    (NEURONS, None, {CORES: "0"}, "all"),
    (NEURONS, None, {CORES: "0", **SLURM}, "0: 0:0"),
    ("neuron-nodes-0-1 neuron", None, KUBERNETES, "all"),
    ("neuron-node-0", None, KUBERNETES, "0"),
]

# machine, environment where DEVICES=visible, chosen devices, and the beginning of the sentence with the reason
SENTENCES: list[tuple[str, Environ, str, str]] = [
    ("nvidia", {CUDA: "-1"}, "", f"hw.gpu.*: {CUDA}=-1 shows the program no NVIDIA GPU"),
    (
        "nvidia-mixed",
        {CUDA: "0,1"},
        "all",
        f"{CUDA}=0,1: the GPUs are of different models, and it is not known which of them CUDA considers the fastest; "
        "use UUIDs, or CUDA_DEVICE_ORDER=PCI_BUS_ID; all are reported",
    ),
    ("nvidia-mixed", {CUDA: "0,1", ORDER: "FASTEST_FIRST"}, "all", f"{CUDA}=0,1: the GPUs are of different models"),
    ("nvidia-mig", {CUDA: "0,1"}, "all", f"{CUDA}=0,1: a GPU is divided, so it is not known which MIG"),
    ("nvidia-mig", {CUDA: "0,1", ORDER: "PCI_BUS_ID"}, "all", f"{CUDA}=0,1: a GPU is divided"),
    ("nvidia-lost", {CUDA: "0,1"}, "all", f"{CUDA}=0,1: a GPU does not respond"),
    ("nvidia-lost", {CUDA: "0,1", ORDER: "PCI_BUS_ID"}, "all", f"{CUDA}=0,1: a GPU does not respond"),
    ("nvidia-unnamed", {CUDA: "0,1"}, "all", f"{CUDA}=0,1: a GPU does not respond"),
    ("amd", {ROCR: "2", CUDA: "2"}, "", f"hw.gpu.*: {ROCR}=2 and {CUDA}=2 show the program no AMD GPU"),
    ("amd", {ROCR: "", HIP: "0"}, "", f"hw.gpu.*: {ROCR}= and {HIP}=0 show the program no AMD GPU"),
    ("amd", {CUDA: A}, "", f"hw.gpu.*: {CUDA}={A} shows the program no AMD GPU"),
    ("amd-container-none", {}, "", "hw.gpu.*: this container shows the program no AMD GPU"),
    (
        "amd-without-kfd",
        {ROCR: "0", CUDA: "0"},
        "all",
        f"{ROCR}=0 and {CUDA}=0: there is no {KFD}, so ROCm's order of the GPUs is unknown; all are reported",
    ),
    ("amd-smi-no-address", {ROCR: "0"}, "all", f"{ROCR}=0: the tool does not report the PCI address of a GPU, so"),
    ("neuron", {COUNT: "2"}, "all", f"{COUNT}=2: the runtime uses any free cores"),
    ("neuron", {CORES: "all"}, "all", f"{CORES}=all: not a core or a range of cores"),
    ("neuron", {CORES: "0-"}, "all", f"{CORES}=0-: not a core or a range of cores"),
    ("neuron", {CORES: "0,x"}, "all", f"{CORES}=0,x: not a core or a range of cores"),
    ("neuron-node-1", {CORES: "0"}, "1", f"{CORES}=0: this container has only some"),
]


class Case(NamedTuple):
    """A row of the table, on one machine."""

    machine: str
    devices: str | None
    environ: Environ
    chosen: str
    unknown: str = ""
    why: str = ""

    @property
    def marks(self) -> Sequence[pytest.MarkDecorator]:
        """A machine whose source is opened has Linux."""
        return () if self.machine.startswith("nvidia") and self.machine != "nvidia-smi" else (linux,)

    def __str__(self) -> str:
        words = {**({} if self.devices is None else {"DEVICES": self.devices}), **self.environ}
        return " ".join([self.machine, *(f"{name}={value}" for name, value in words.items())])


CASES = [
    *(Case(name, words, {}, chosen) for names, chosen, each in NAMED for words in each for name in names.split()),
    *(Case(name, words, {}, chosen, unknown) for names, words, chosen, unknown in UNKNOWN for name in names.split()),
    *(
        Case(name, "visible", {variable: value}, chosen)
        for names, variable, chosen, values in RESTRICTED
        for value in values
        for name in names.split()
    ),
    *(Case(name, devices, environ, chosen) for names, devices, environ, chosen in COMBINED for name in names.split()),
    *(Case(name, "visible", environ, chosen, why=why) for name, environ, chosen, why in SENTENCES),
]


@pytest.mark.parametrize("case", [pytest.param(case, id=str(case), marks=case.marks) for case in CASES])
def test_devices_chosen_by_setting_and_environment(
    case: Case, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    machine = MACHINES[case.machine](tmp_path)
    with machine.opened_with(case.devices, case.environ) as read_once:
        read_once()
        chosen, missing = read_once()
    assert chosen == machine.ids(case.chosen)
    if case.why or (machine.labels and not chosen):
        (sentence,) = missing
        assert sentence.startswith(case.why or "hw.")
        assert sentence.startswith("hw.") != sentence.endswith("; all are reported")
    else:
        assert missing == []
    messages = warnings(caplog)
    assert len(messages) == bool(case.unknown), "one warning for all readings"
    assert all(f" {case.unknown}, left out; there " in sentence for sentence in messages)


def _given(machine: str) -> str:
    """Return the name by which a machine of these tests gets the setting: a variable or an argument."""
    return DEVICES if machine.startswith("nvidia") else "devices"


@linux
@pytest.mark.parametrize(
    ("name", "devices", "sentence"),
    [
        (
            "nvidia",
            "process",
            "hw.gpu.*: the program has used no NVIDIA GPU so far (devices=process)",
        ),
        ("amd", "process", "hw.gpu.*: the program has used no AMD GPU so far (devices=process)"),
        (
            "neuron-unused",
            "process",
            "hw.npu.*: the program has used no Neuron device so far (devices=process)",
        ),
        ("ipu", "7", "hw.npu.*: no IPU is one of those in devices"),
    ],
)
def test_missing_says_why_no_device_is_chosen(name: str, devices: str, sentence: str, tmp_path: Path) -> None:
    with MACHINES[name](tmp_path).opened_with(devices, {}) as read_once:
        assert read_once() == (set(), [sentence.replace("devices", _given(name))])


@linux
@pytest.mark.parametrize(
    ("name", "devices", "sentence"),
    [
        (
            "nvidia-mig",
            "0,7",
            f"there is no NVIDIA GPU 7, left out; there are 0 ({A}, 0000:1a:00.0), "
            f"1 ({B}, 0000:1b:00.0, {X}, {Y}, {Z})",
        ),
        ("nvidia-none", "0", "there is no NVIDIA GPU 0, left out; there is none"),
        (
            "amd",
            "0,7",
            f"there is no AMD GPU 7, left out; there are 0 (0000:05:00.0, GPU-{D}), 1 (0000:63:00.0, GPU-{E}), "
            f"2 (0001:c9:12.0, GPU-{F})",
        ),
        ("ipu", "7", "there is no IPU 7, left out; there are 0 (ipu0, 0000:26:00.0), 1 (ipu1, 0000:27:00.0)"),
        ("neuron", "0,5", "there is no Neuron device 5, left out; there are 0 (neuron0, neuroncore0, neuroncore1"),
    ],
)
def test_warning_names_the_devices_that_exist(
    name: str, devices: str, sentence: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with MACHINES[name](tmp_path).opened_with(devices, {}) as read_once:
        read_once()
    (messages,) = warnings(caplog)
    assert messages.startswith(f"{_given(name)}: {sentence}")


@linux
@pytest.mark.parametrize("kind", [Trainium, Graphcore])
def test_unknown_word_is_warned_of_after_the_first_report_of_a_tool(
    kind: type[Source], caplog: pytest.LogCaptureFixture
) -> None:
    drivers = trn2(files=False) if kind is Trainium else ipus()
    output = drivers.tools["gcipuinfo"]  # also that of the other tool
    lines, output.lines = output.lines, []
    with opened(kind, drivers, "0,7", {}) as source:
        often(source)
        assert not warnings(caplog), "the devices are not known yet"
        output.lines = lines
        often(source)
        often(source)
    assert len(warnings(caplog)) == 1


# Two GPUs of NVIDIA's beside one of AMD's.
BUS = "\n".join(
    f"{place:04x}\t{device}\t20\t0\t0\t0\t0\t0\t0\t0\t0\t0\t0\t0\t0\t0\t0\t{driver}"
    for place, (device, driver) in enumerate(
        [("10221480", ""), ("10de2330", "nvidia"), ("10de2330", "nvidia"), ("1002740f", "amdgpu"), ("8086a000", "nvme")]
    )
)


@linux
@pytest.mark.parametrize(
    ("devices", "warns"), [("0,1", False), ("GPU-8f6a1111-aaaa", False), ("0000:1a:00.0", False), ("0,2", True)]
)
def test_word_for_a_gpu_of_another_vendor_is_not_warned_of(
    caplog: pytest.LogCaptureFixture, devices: str, warns: bool
) -> None:
    drivers = radeon_host(cards(CARDS[:1], {"/proc/bus/pci/devices": BUS}))
    with opened(Amd, drivers, devices, {}) as source:
        assert reported(source) == ({E} if "0," in devices else set())
    assert bool(warnings(caplog)) == warns


# -- devices, programs and the environment change


@linux
@pytest.mark.parametrize(
    ("name", "variable", "changes"),
    [
        ("nvidia", CUDA, {"0": "0", "2": "2"}),
        ("nvml", CUDA, {FIRST: "0", THIRD: "2"}),
        ("amd", ROCR, {"0": "1", "1": "0"}),
        ("neuron", CORES, {"0": "0: 0:0", "4": "1: 1:0"}),
    ],
)
def test_environment_change_is_followed(name: str, variable: str, changes: Mapping[str, str], tmp_path: Path) -> None:
    machine = MACHINES[name](tmp_path)
    environ: dict[str, str] = {}
    with machine.opened_with("visible", environ) as read_once:
        for environ[variable], chosen in changes.items():
            read_once()
            assert read_once() == (machine.ids(chosen), [])


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """NVML with three GPUs. The second one has two MIG instances."""
    fake = FakeNvml(tmp_path, h100(0), mig(h100(1), 1, {0: (7, 0), 2: (9, 0)}), h100(2))
    for name, value in fake.environment.items():
        monkeypatch.setenv(name, value)
    return fake


def by_library(fake: FakeNvml, devices: str) -> AbstractContextManager[Any]:
    return opened(Nvidia, Drivers(), devices, {}, nvml=str(fake.path), nvidia_smi="off")


USED = listed((os.getpid(), 1 << 30))


@linux
def test_nvml_makes_no_calls_for_devices_that_are_not_chosen(gpus: FakeNvml) -> None:
    gpus.set_lines({"gpu0.Temperature": refused(15)})
    with by_library(gpus, TWO) as source:
        reported(source)
        gpus.forget_calls()
        reported(source)
        assert gpus.calls()["nvmlDeviceGetUtilizationRates"] == 0
        assert gpus.calls()["nvmlDeviceGetPowerUsage"] == 0
        assert not [sentence for sentence in source.unsupported if "GPU 0" in sentence or "GPU 1" in sentence]


@linux
def test_amdgpu_files_of_cards_that_are_not_chosen_are_not_read() -> None:
    drivers = radeon_host(cards((*CARDS[:2], replace(CARDS[2], asleep=True))))
    with opened(Amd, drivers, "1", {}) as source:
        reported(source)
        files_read = [path for path in drivers.tree.asked if path.startswith((CARDS[1].folder, CARDS[2].folder))]
        assert {path.rpartition("/")[2] for path in files_read} <= {"uevent"}
        assert source.unsupported == []


@linux
def test_nvml_device_is_reported_from_its_first_use_on(gpus: FakeNvml) -> None:
    with by_library(gpus, "process") as source:
        assert reported(source) == set()
        gpus.set_lines({"gpu2.ComputeRunningProcesses": USED})
        assert reported(source) >= {THIRD}
        gpus.set_lines({"gpu1.mig2.ComputeRunningProcesses": USED})
        assert reported(source) == {THIRD, TWO}
        gpus.set_lines({"gpu1.mig2.ComputeRunningProcesses": "", "gpu0.ComputeRunningProcesses": listed((1, 5))})
        assert reported(source) == {THIRD, TWO}


def used(*parts: tuple[Gpu, int, int]) -> Files:
    """What the program uses of cards and their parts, in bytes."""
    return {f"{KFD}/proc/{STRANGER}/vram_{number_of(gpu, part)}": f"{size}\n" for gpu, part, size in parts}


@linux
def test_amdgpu_card_is_reported_from_its_first_use_on() -> None:
    drivers = radeon_host(cards())
    with opened(Amd, drivers, "process", {}) as source:
        assert reported(source) == set()
        drivers.become(radeon_host(cards(CARDS, used((CARDS[1], 0, 4096)))))
        assert reported(source) >= {D}
        drivers.become(radeon_host(cards()))
        assert reported(source) == {D}


@linux
def test_rocm_smi_card_in_use_is_reported() -> None:
    drivers = by_rocm_smi()
    drivers.tree.files |= used((CARDS[0], 0, 4096))
    with opened(Amd, drivers, "process", {}, amdgpu="off", amd_smi="off") as source:
        all_of(source)
        assert reported(source) == {E}


@linux
def test_amdgpu_memory_of_parts_is_added_to_their_card() -> None:
    use = used((PARTED[1], 0, 1000), (PARTED[1], 5, 20000), (PARTED[0], 5, 0))
    with opened(Amd, radeon_host(cards(PARTED, {**HOST, **alone(), **use})), "process", {}) as source:
        found = all_of(source).items()
        memory = {series.attributes["hw.id"]: value for series, value in found if "process." in series.metric.name}
        assert memory == {E: 21_000}
        assert reported(source) == {E}


@linux
def test_process_use_of_other_devices_is_not_reported(gpus: FakeNvml) -> None:
    gpus.set_lines({"gpu0.ComputeRunningProcesses": USED, "gpu2.ComputeRunningProcesses": USED})
    use = used(*((card, 0, 4096) for card in CARDS))
    for context, ids in (
        (by_library(gpus, "0"), {FIRST}),
        (opened(Amd, radeon_host(cards(CARDS, use)), "0", {}), {D}),
        (opened(Graphcore, ipus(), "1,3", {}), {"ipu1"}),
        (opened(Graphcore, ipus(), "all", {}), {"ipu0", "ipu1"}),
    ):
        with context as source:
            found = [series for series in all_of(source) if series.metric.name.startswith("process.")]
            assert {series.attributes["hw.id"] for series in found} == ids


@linux
def test_mig_instance_that_is_made_later_is_chosen_by_its_name(gpus: FakeNvml) -> None:
    gpus.set_lines({f"gpu1.mig2.{call}": None for call in ("UUID", "GpuInstanceId", "ComputeInstanceId")})
    with by_library(gpus, "1:2,0") as source:
        assert reported(source) == {FIRST}
        again = mig(h100(1), 1, {2: (9, 0)})
        gpus.set_lines({f"gpu1.{call}": value for call, value in again.items() if call.startswith("mig2.")})
        all_of(source)
        assert reported(source) == {FIRST, TWO}


def test_all_includes_devices_that_have_not_been_looked_at() -> None:
    device_filter = DeviceFilter(["all"], {}, visible.RULE)
    assert A in device_filter
    device_filter.update(ALIKE[:1])
    assert B in device_filter


@linux
@pytest.mark.parametrize(("devices", "lost"), [(FIRST, {"gpu0"}), ("process", set())])
def test_nvml_device_without_a_uuid_at_first_is_chosen_once_it_answers(
    gpus: FakeNvml, devices: str, lost: set[str]
) -> None:
    gpus.set_lines({"gpu0.UUID": refused(15)})
    with by_library(gpus, devices) as source:
        assert reported(source) == lost, "it may be the selected one"
        gpus.set_lines({"gpu0.UUID": FIRST, "gpu0.ComputeRunningProcesses": USED})
        for _ in range(8):
            found = reported(source)
        assert found == {FIRST}


@linux
def test_missing_says_nothing_of_devices_that_are_not_chosen(gpus: FakeNvml) -> None:
    gpus.set_lines({"gpu2.UUID": refused(15)})
    with by_library(gpus, "0") as source:
        assert reported(source) == {FIRST}
        assert not [sentence for sentence in source.unsupported if "does not respond" in sentence]


@linux
def test_suspended_amd_card_is_chosen_by_its_uuid_and_not_woken(caplog: pytest.LogCaptureFixture) -> None:
    drivers = radeon_host(cards((CARDS[0], replace(CARDS[1], asleep=True), CARDS[2])))
    with opened(Amd, drivers, f"GPU-{D}", {}) as source:
        assert reported(source) == set()
        assert [each for each in source.unsupported if "is suspended, and is not woken" in each]
        drivers.become(radeon_host(cards()))
        assert reported(source) == {D}
    assert not warnings(caplog)


@linux
def test_suspended_amd_cards_without_a_known_uuid_are_read_once_awake() -> None:
    asleep = without_kfd((CARDS[0], replace(CARDS[1], asleep=True), replace(CARDS[2], asleep=True)))
    drivers = radeon_host(asleep)
    with opened(Amd, drivers, f"GPU-{F}", {}) as source:
        assert reported(source) == set()
        drivers.become(radeon_host(without_kfd()))
        assert reported(source) == {D, F}, "either may be the selected one"
        assert reported(source) == {F}


@linux
def test_neuron_files_say_the_same_of_one_device_as_of_all() -> None:
    drivers = trn1_without_a_tool()
    with opened(Trainium, drivers, "1", {}) as source:
        of_one = all_of(source)
    with opened(Trainium, drivers, "all", {}) as source:
        of_all = all_of(source)
    assert of_one.items() <= of_all.items()


@linux
def test_ipu_board_is_reported_with_one_of_its_ipus() -> None:
    devices = [npus.c600(number, 1) for number in range(2)]
    drivers = npu_host(npus.HOST | IPU_DEVICES | program(), npus.lines(devices))
    with opened(Graphcore, drivers, "1", {}) as source:
        assert {each for each in reported(source) if each.startswith("board-")} == {"board-0063.0063.822391"}


# -- commands and W&B's keys

IN_A_JOB = {"SLURM_JOB_ID": "7", CUDA: THIRD, "OTEL_METRICS_EXPORTER": "console"}


@linux
def test_snapshot_in_a_job_has_the_visible_devices(gpus: FakeNvml) -> None:
    from tests.support.commands import otel_hardware

    line = ["snapshot", "--sources", "nvidia", "--window", "0.1", "--format", "json"]
    answer = otel_hardware(*line, env={**gpus.environment, **IN_A_JOB})
    assert answer.status == 0
    assert THIRD in answer.out
    assert not [each for each in (FIRST, SECOND, ONE, TWO) if each in answer.out]


@linux
def test_doctor_in_a_job_finds_the_visible_devices(gpus: FakeNvml) -> None:
    from tests.support.commands import otel_hardware

    answer = otel_hardware("doctor", "--sources", "nvidia", "--format", "json", env={**gpus.environment, **IN_A_JOB})
    (found, *_) = [each["text"] for each in json.loads(answer.out)["findings"] if each["subject"] == "nvidia"]
    assert "; NVIDIA H100 80GB HBM3" in found, "one of the three"


# -- any text

WORDS = st.sampled_from(
    [
        *("0", "1", "7", "-1", "+1", "1x", "0x1", "08", "0:0", "1:2", "0-", "0" * 30, "99999999999", "²", "", " "),
        *(A, X, "GPU-", "GPU-XX", "MIG-", "GPU-8f6a", f"GPU-{D}", f"MIG-{B}/9/0", "1a:00.0", "nvidia.com/gpu=0"),
        *("all", "none", "void", "process", "visible"),
    ]
) | st.text(max_size=20)


def _amd(gpus: Sequence[Gpu]) -> tuple[VisibilityRule, Sequence[Device]]:
    found = [device(number, gpu.bdf, address=gpu.bdf) for number, gpu in enumerate(gpus)]
    return visibility_rule(Topology(Tree(amdsysfs.topology(gpus)))), found


def _neuron(*nodes: str) -> tuple[VisibilityRule, Sequence[Device]]:
    return neuron.visibility_rule(nodes.__contains__), [
        device(number, f"neuron{number}", parts={core: instance(f"neuroncore{4 * number + core}") for core in range(4)})
        for number in range(2)
    ]


RULES: list[tuple[VisibilityRule, Sequence[Device]]] = [
    *((visible.RULE, found) for found in (ALIKE, DIVIDED, DIVIDED[1:], LOST, ALIKE[:1], ())),
    *(_amd(gpus) for gpus in (CARDS, PARTED, CARDS[:1])),
    *(_neuron(*nodes) for nodes in ((), ("/dev/neuron0",), ("/dev/neuron0", "/dev/neuron1"))),
]


@PATIENT
@given(
    words=st.lists(WORDS, min_size=1, max_size=4),
    environ=st.dictionaries(
        st.sampled_from([CUDA, ORDER, CONTAINER, ROCR, HIP, ORDINAL, CORES, COUNT, "SLURM_JOB_ID"]),
        st.lists(WORDS, max_size=4).map(",".join),
    ),
    machine=st.sampled_from(RULES),
    uses=st.sets(st.sampled_from([A, X, "gpu1", "neuroncore4", "nobody"])),
)
def test_any_words_choose_devices_that_exist(
    words: list[str], environ: dict[str, str], machine: tuple[VisibilityRule, Sequence[Device]], uses: set[str]
) -> None:
    rule, found = machine
    for setting in (words, ["visible"], ["process"], None):
        device_filter = DeviceFilter(setting, environ, rule)
        device_filter.update(found)
        for used in uses:
            device_filter.add_used(used)
        chosen = device_filter._selection
        assert chosen.ids <= all_ids(found)
        assert {*chosen.unmatched} <= {*(setting or ())}
        assert all(sentence.isprintable() for sentence in device_filter.unsupported())
        if rule.noun.startswith("Neuron"):  # device files may be missing without any variable
            continue
        if chosen.doubt:
            assert rule is visible.RULE, "ROCm reports the order of its GPUs"
            assert CONTAINER in environ or chosen.ids == all_ids(found)
        if setting in (None, ["visible"]) and not {*environ} & {*rule.variables}:
            assert chosen.ids == all_ids(found)
