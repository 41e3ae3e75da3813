"""`otel-hardware free`: which GPUs are free. Mistakes in its arguments are in `cli/mistakes.txt`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from tests.sources.radeons import radeon_host
from tests.support.children import run, succeed
from tests.support.commands import otel_hardware
from tests.tools import amdsysfs
from tests.tools.nvml import HANG, MIB, FakeNvml, Gpu, Value, geforce, h100, listed, mig, p100, refused, thor, unified

from opentelemetry.instrumentation.hardware.cli.command_line import commands
from opentelemetry.instrumentation.hardware.cli.free import Limit, _memory, _percent
from opentelemetry.instrumentation.hardware.pipeline import found
from opentelemetry.instrumentation.hardware.sources.amd import Amd
from opentelemetry.instrumentation.hardware.sources.nvidia import Nvidia

DOCUMENTS = Path(__file__).parents[1] / "sources" / "nvidia" / "smi"
FIRST, SECOND, THIRD = (str(h100(index)["UUID"]) for index in range(3))


def using(gpu: Mapping[str, Value], mib: int = 0, percent: int = 0) -> Gpu:
    """The GPU, with so much of its 80 GiB and of its time in use."""
    return {
        **gpu,
        "UtilizationRates": (percent, 0),
        "MemoryInfo": (81_920 * MIB, 512 * MIB, (81_408 - mib) * MIB, mib * MIB),
    }


def free(machine: FakeNvml | None, line: str = "", env: Mapping[str, str] | None = None) -> str:
    """What the command prints: the UUIDs, or the sentence on standard error where there are none."""
    everything = {**(machine.environment if machine else {}), **(env or {})}
    answer = otel_hardware("free", *line.split(), env=everything)
    if answer.status == 0:
        assert answer.err == ""
        return answer.out.removesuffix("\n")
    assert (answer.status, answer.out) == (1, "")
    (sentence,) = answer.err.splitlines()
    return sentence.removeprefix("otel-hardware: ")


# -- which are free

LEAST = [using(h100(0), 900), using(h100(1), 300, 4), using(h100(2), 300, 1)]
BUSY = [using(h100(0), 5000), using(h100(1), 0, 97), using(h100(2))]
LIMITS = [using(h100(0), 5000), using(h100(1), 0, 60), using(h100(2), 900)]
COMPUTED: list[Gpu] = [
    {**using(h100(0)), "ComputeRunningProcesses": listed((4242, 300 * MIB))},
    {**using(h100(1)), "ComputeRunningProcesses": listed((4242, 5 * MIB), (4243, 5 * MIB))},
    {**using(h100(2), 60), "GraphicsRunningProcesses": listed((1200, 60 * MIB))},
]
MODES: list[Gpu] = [
    {**using(h100(0)), "ComputeMode": 2},
    {**using(h100(1)), "ComputeMode": 3, "ComputeRunningProcesses": listed((4242, 5 * MIB))},
    {**using(h100(2)), "ComputeMode": 3, "GraphicsRunningProcesses": listed((1200, 60 * MIB))},
]
LOST: Gpu = {call: refused(15) for call in h100(0)}
FAILED = [LOST, {**using(h100(1)), "MemoryInfo": refused(15)}, using(h100(2))]
GENEROUS = "--max-memory 100% --max-utilization 100"
IDLE = (9_984 * MIB, 16 * MIB, 9_968 * MIB, 0)
DIVIDED = [using(h100(0), 9000), mig(h100(1), 1, {0: (7, 0), 2: (9, 0)}) | {"mig2.MemoryInfo": IDLE}]
MIXED = [using(h100(0), 100), mig(h100(1), 1, {0: (7, 0), 1: (8, 0)}) | {"mig0.MemoryInfo": IDLE}]
INSTANCES = [f"MIG-00000000-0000-5000-8000-000001{slot:06x}" for slot in range(3)]
IDLE_NOW: Gpu = {"UtilizationRates": (0, 0)}
THREE = [using(h100(index), 10 * index) for index in range(3)]
MODELS = [using(h100(0)), using(geforce(1))]

# GPUs of a machine, arguments, environment, and what is printed.
CASES = {
    "least-memory-then-least-busy": (LEAST, "", {}, THIRD),
    "two": (LEAST, "2", {}, f"{THIRD},{SECOND}"),
    "three": (LEAST, "3", {}, f"{THIRD},{SECOND},{FIRST}"),
    "in-use": (BUSY, "1", {}, THIRD),
    "too-few": (BUSY, "2", {}, "2 GPUs requested, 1 GPU idle: GPU 0 has 4.88 GiB in use, GPU 1 is 97% busy"),
    "max-memory-share": (LIMITS, "2 --max-memory 10%", {}, f"{THIRD},{FIRST}"),
    "max-memory-bytes": (LIMITS, "2 --max-memory 5000MiB", {}, f"{THIRD},{FIRST}"),
    "max-utilization": (LIMITS, "2 --max-utilization 60", {}, f"{SECOND},{THIRD}"),
    "max-utilization-below": (
        LIMITS,
        "3 --max-memory 100% --max-utilization 59",
        {},
        "3 GPUs requested, 2 GPUs idle: GPU 1 is 60% busy",
    ),
    "default-limits": (
        [using(h100(0), 1024, 5), using(h100(1), 0, 6), using(h100(2), 1025)],
        "3",
        {},
        "3 GPUs requested, 1 GPU idle: GPU 1 is 6% busy, GPU 2 has 1 GiB in use",
    ),
    "max-memory-below": (
        LIMITS,
        "1 --max-memory 800M",
        {},
        "1 GPU requested, none idle: GPU 0 has 4.88 GiB in use, GPU 1 is 60% busy, GPU 2 has 900 MiB in use",
    ),
    "no-limits": (LIMITS, "3 --max-memory 100% --max-utilization 100%", {}, f"{SECOND},{THIRD},{FIRST}"),
    "process": (COMPUTED, "1", {}, THIRD),
    "process-named": (
        COMPUTED,
        "2",
        {},
        "2 GPUs requested, 1 GPU idle: GPU 0 runs process 4242, GPU 1 runs 2 processes",
    ),
    "max-processes": (COMPUTED, "2 --max-processes 1", {}, f"{FIRST},{THIRD}"),
    "compute-mode": (
        MODES,
        "2 --max-processes 7",
        {},
        "2 GPUs requested, 1 GPU idle: GPU 0 is in compute mode PROHIBITED, GPU 1 is in compute mode EXCLUSIVE_PROCESS "
        "and runs process 4242",
    ),
    "exclusive-without-process": (MODES, "1", {}, THIRD),
    "unknown-processes": ([{**using(h100(0)), "ComputeRunningProcesses": refused(3)}], "1", {}, FIRST),
    "process-of-mps": (
        [{**using(h100(0)), "MPSComputeRunningProcesses": listed((4242, 5 * MIB))}],
        "1",
        {"CUDA_MPS_PIPE_DIRECTORY": "/"},
        "1 GPU requested, none idle: GPU 0 runs process 4242",
    ),
    "process-without-a-list-of-mps": (
        [{**using(p100(0)), "ComputeRunningProcesses": listed((4242, 5 * MIB))}],
        "1",
        {"CUDA_MPS_PIPE_DIRECTORY": "/"},
        "1 GPU requested, none idle: GPU 0 runs process 4242",
    ),
    "process-of-mig-instance": (
        [
            mig(h100(0), 1, {0: (7, 0), 1: (8, 0)})
            | dict.fromkeys(("mig0.MemoryInfo", "mig1.MemoryInfo"), IDLE)
            | {"mig0.ComputeRunningProcesses": listed((4242, 8 * MIB))}
        ],
        "2",
        {},
        "2 GPUs requested, 1 MIG instance idle: MIG 0/0 runs process 4242",
    ),
    "failed-is-not-free": (FAILED, f"1 {GENEROUS}", {}, THIRD),
    "failed-is-named": (
        FAILED,
        f"2 {GENEROUS}",
        {},
        "2 GPUs requested, 1 GPU idle: GPU 0 does not respond, GPU 1 does not respond",
    ),
    "unknown-memory-is-not-free": (
        [unified(0) | {"ComputeRunningProcesses": refused(3)}],
        "",
        {},
        "1 GPU requested, none idle: GPU 0 does not report its memory in use",
    ),
    "unified-memory": ([unified(0) | IDLE_NOW], "", {}, str(unified(0)["UUID"])),
    "unified-memory-in-use": (
        [unified(0) | IDLE_NOW | {"ComputeRunningProcesses": listed((11, 300 * MIB), (12, 200 * MIB))}],
        "--max-memory 499MiB",
        {},
        "1 GPU requested, none idle: GPU 0 has 500 MiB in use",
    ),
    "jetson-by-index": ([thor(0) | IDLE_NOW], "", {"CUDA_VISIBLE_DEVICES": "0"}, "0"),
    "jetson-by-uuid": ([thor(0) | IDLE_NOW], "", {"CUDA_VISIBLE_DEVICES": str(thor(0)["UUID"])}, "0"),
    "more-than-there-are": ([using(h100(0))], "2", {}, "2 GPUs requested, 1 GPU idle: there are no more"),
    "no-gpu": ([], "", {}, "there is no GPU"),
    "many-in-use": (
        [using(h100(index), 9000) for index in range(12)],
        "",
        {},
        "1 GPU requested, none idle: "
        + "".join(f"GPU {index} has 8.79 GiB in use, " for index in range(8))
        + "4 more are busy",
    ),
    "mig-instance": (DIVIDED, "", {}, INSTANCES[2]),
    "mig-instance-in-use": (
        DIVIDED,
        "2",
        {},
        "2 GPUs requested, 1 MIG instance idle: GPU 0 has 8.79 GiB in use, MIG 1/0 has 1 GiB in use",
    ),
    "gpu-before-mig": (MIXED, "1", {}, FIRST),
    "gpu-and-mig-are-not-mixed": (
        MIXED,
        "2",
        {},
        "2 GPUs requested, 1 GPU and 1 MIG instance idle: MIG 1/1 has 2 GiB in use",
    ),
    "two-mig-instances": (
        [MIXED[0], MIXED[1] | {"mig1.MemoryInfo": IDLE}],
        "2",
        {},
        f"{INSTANCES[0]},{INSTANCES[1]}",
    ),
    "mig-without-instances": (
        [using(mig(h100(0), 0, {}))],
        "",
        {},
        "1 GPU requested, none idle: GPU 0 is partitioned and has no MIG instance",
    ),
    "cuda-uuids-no-more": (
        THREE,
        "3",
        {"CUDA_VISIBLE_DEVICES": f"{THIRD},{SECOND}"},
        "3 GPUs requested, 2 GPUs idle: there are no more",
    ),
    "setting-and-cuda": (
        THREE,
        "1",
        {"OTEL_PYTHON_HARDWARE_DEVICES": "0,2", "CUDA_VISIBLE_DEVICES": "2,1"},
        THIRD,
    ),
    "setting-process": (THREE, "3", {"OTEL_PYTHON_HARDWARE_DEVICES": "process"}, f"{FIRST},{SECOND},{THIRD}"),
    "setting-and-cuda-none": (
        THREE,
        "",
        {"OTEL_PYTHON_HARDWARE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0"},
        "no GPU is left after CUDA_VISIBLE_DEVICES=0 and OTEL_PYTHON_HARDWARE_DEVICES=1",
    ),
    "order-of-cuda-unknown": (
        MODELS,
        "",
        {"CUDA_VISIBLE_DEVICES": "1"},
        "CUDA_VISIBLE_DEVICES=1: the GPUs are of different models, and it is not known which of them CUDA considers "
        "the fastest; use UUIDs, or CUDA_DEVICE_ORDER=PCI_BUS_ID",
    ),
}


@pytest.mark.parametrize(("gpus", "line", "env", "expected"), CASES.values(), ids=CASES)
def test_free_prints_uuids_or_why_there_are_too_few(
    tmp_path: Path, gpus: list[Gpu], line: str, env: Mapping[str, str], expected: str
) -> None:
    assert free(FakeNvml(tmp_path, *gpus), line, env) == expected


def test_unknown_gpu_in_the_setting_is_a_warning(tmp_path: Path) -> None:
    env = FakeNvml(tmp_path, using(h100(0))).environment | {"OTEL_PYTHON_HARDWARE_DEVICES": "0,7"}
    answer = otel_hardware("free", env=env)
    assert (answer.status, answer.out) == (0, f"{FIRST}\n")
    assert "OTEL_PYTHON_HARDWARE_DEVICES: there is no NVIDIA GPU 7" in answer.err


# -- how it is used


def test_shell_substitution_hands_gpus_to_a_program(tmp_path: Path) -> None:
    machine = FakeNvml(tmp_path, using(h100(0), 9000), using(h100(1)), using(h100(2)))
    program = "python -c 'import os; print(os.environ[\"CUDA_VISIBLE_DEVICES\"])'"
    line = f"CUDA_VISIBLE_DEVICES=$(otel-hardware free 2) {program}"
    answer = run(["sh", "-c", line], machine.environment)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, f"{SECOND},{THIRD}\n", "")


def test_too_few_gpus_fail_a_shell_substitution(tmp_path: Path) -> None:
    machine = FakeNvml(tmp_path, using(h100(0), 9000))
    line = 'gpus=$(otel-hardware free 2) && CUDA_VISIBLE_DEVICES=$gpus echo started; echo "then $? with <$gpus>"'
    answer = run(["sh", "-c", line], machine.environment)
    assert answer.stdout == "then 1 with <>\n"
    assert len(answer.stderr.splitlines()) == 1


def test_missing_driver_fails_a_shell_substitution() -> None:
    env = {"OTEL_PYTHON_HARDWARE_NVML": "off", "OTEL_PYTHON_HARDWARE_NVIDIA_SMI": "off"}
    answer = run(["sh", "-c", "gpus=$(otel-hardware free) && echo started $gpus"], env)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert re.match(
        "otel-hardware: (no NVIDIA driver is loaded|NVML and nvidia-smi are both switched off)", answer.stderr
    )


# -- without the library


def smi(tmp_path: Path, document: str) -> dict[str, str]:
    """An nvidia-smi that prints a document, and no library."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\nexec cat {DOCUMENTS / document}\n")
    tool.chmod(0o755)
    return {"OTEL_PYTHON_HARDWARE_NVML": "off", "OTEL_PYTHON_HARDWARE_NVIDIA_SMI": str(tool)}


@pytest.mark.parametrize(
    ("document", "line", "uuid", "count", "why"),
    [
        ("v11-a100x2.xml", "", "GPU-66666666-7777-8888-9999-aaaaaaaaaaaa", "2", "GPU 0 has 77.1 GiB in use"),
        (
            "v11-a100-mig.xml",  # older drivers give instances no UUID
            "1 --max-processes 1",
            "MIG-GPU-11111111-2222-3333-4444-555555555555/5/0",
            "1",
            "MIG 0/1 runs process 9101, MIG 0/2 does not report its memory in use",
        ),
        ("v12-lost.xml", "", "GPU-abadcafe-0000-0000-0000-000000000000", "3", "GPU 1 does not respond"),
    ],
)
def test_free_reads_nvidia_smi_where_nvml_is_off(
    tmp_path: Path, document: str, line: str, uuid: str, count: str, why: str
) -> None:
    env = smi(tmp_path, document)
    assert free(None, line, env) == uuid
    assert why in free(None, count, env)


@pytest.mark.parametrize(
    ("mode", "why"), [("Prohibited", "PROHIBITED"), ("Exclusive_Process", "EXCLUSIVE_PROCESS and runs process 9101")]
)
def test_free_reads_the_compute_mode_of_nvidia_smi(tmp_path: Path, mode: str, why: str) -> None:
    text = (DOCUMENTS / "v11-a100-mig.xml").read_text()
    (tmp_path / "document.xml").write_text(text.replace("_mode>Default<", f"_mode>{mode}<"))
    assert f"is in compute mode {why}" in free(
        None, "1 --max-processes 1", smi(tmp_path, str(tmp_path / "document.xml"))
    )


# -- GPUs of AMD

AMD = "GPU-43cc8cc8af24670"  # the UUIDs but their last digit


def card(number: int, used: int = 300 << 20, **facts: Any) -> amdsysfs.Gpu:
    facts = {"unique": f"43cc8cc8af24670{number}", "busy": 0, **facts}
    return amdsysfs.Gpu(number, f"0000:{0x43 + 0x20 * number:02x}:00.0", used=used, **facts)


def kfd(pid: int, *cards: amdsysfs.Gpu) -> amdsysfs.Files:
    """A process with 8 MiB of memory of each card."""
    return {f"{amdsysfs.KFD}/proc/{pid}/vram_{amdsysfs.number_of(each)}": f"{8 << 20}\n" for each in cards}


CARDS = [card(0, 5 << 30), card(1), card(2, 200 << 20), card(3, busy=70)]

# Cards, processes, arguments, environment, and what is printed.
AMD_CASES = {
    "idle": (CARDS, {}, "2", {}, f"{AMD}2,{AMD}1"),
    "in-use": (CARDS, {}, "3", {}, "3 GPUs requested, 2 GPUs idle: GPU 0 has 5 GiB in use, GPU 3 is 70% busy"),
    "process": (
        CARDS[1:3],
        kfd(4242, CARDS[2]) | {f"{amdsysfs.KFD}/proc/4242/vram_{amdsysfs.number_of(CARDS[1])}": "0\n"},
        "2",
        {},
        "2 GPUs requested, 1 GPU idle: GPU 1 runs process 4242",
    ),
    "max-processes": (CARDS[1:3], kfd(4242, *CARDS[1:3]), "2 --max-processes 1", {}, f"{AMD}2,{AMD}1"),
    "suspended": ([CARDS[0], card(1, asleep=True)], {}, "", {}, f"{AMD}1"),
    "without-uuid": ([CARDS[0], card(1, unique=None)], {}, "", {}, "1"),
    "partitions": ([card(0, parts=2), CARDS[2]], {}, "3", {}, f"{AMD}2,0,1"),
    "partitions-in-use": (
        [card(0, 2 << 30, parts=2)],
        {},
        "",
        {},
        "1 GPU requested, none idle: GPU 0 partition 0 has 2 GiB in use, GPU 0 partition 1 has 2 GiB in use",
    ),
    "restricted-to-none": (
        CARDS[1:3],
        {},
        "",
        {"ROCR_VISIBLE_DEVICES": ""},
        "no GPU is left after ROCR_VISIBLE_DEVICES=",
    ),
}


@contextmanager
def machine_with(files: amdsysfs.Files) -> Iterator[None]:
    commands()  # one of them has a subclass of Drivers
    with patch.object(found, "Drivers", lambda: radeon_host(files)):
        yield


@pytest.mark.parametrize(("cards", "processes", "line", "env", "expected"), AMD_CASES.values(), ids=AMD_CASES)
def test_free_prints_gpus_of_amd(
    cards: Sequence[amdsysfs.Gpu], processes: amdsysfs.Files, line: str, env: Mapping[str, str], expected: str
) -> None:
    with machine_with({**amdsysfs.machine(cards), **processes}):
        assert free(None, f"{line or 1} --vendor amd", env) == expected


PRESENT = ("/", "/sys/module/amdgpu")  # on this machine, and on the one made up


@pytest.mark.parametrize(("nvidia", "printed"), [((), f"{AMD}1"), (PRESENT, "NVML is switched off")])
def test_amd_is_the_default_only_without_an_nvidia_driver(nvidia: tuple[str, ...], printed: str) -> None:
    """An idle GPU inside an AMD processor must not take the place of a busy one of NVIDIA."""
    with (
        machine_with(amdsysfs.machine(CARDS[1:2])),
        patch.object(Amd, "signs", PRESENT),
        patch.object(Nvidia, "signs", nvidia),
    ):
        assert free(None, env={"OTEL_PYTHON_HARDWARE_NVML": "off"}).startswith(printed)


def test_gpu_without_rocm_is_not_printed() -> None:
    with machine_with(amdsysfs.module() | CARDS[1].files()):
        assert free(None, "1 --vendor amd") == "1 GPU requested, none idle: GPU 0 is not a GPU of ROCm"


def test_missing_driver_of_amd_is_named() -> None:
    with machine_with({}):
        why = free(None, "1 --vendor amd")
    assert why.startswith("no AMD driver is loaded: there is no /sys/module/amdgpu. To fix it: ")


# -- simulated GPUs


@pytest.mark.parametrize(
    ("line", "vendor", "word", "count"),
    [
        ("2 --simulate 4xH100:idle@1", "NVIDIA", r"GPU-[0-9a-f-]{36}", 2),
        ("--simulate 2xMI300X:idle@1", "AMD", r"GPU-[0-9a-f]{16}", 1),
    ],
)
def test_simulated_gpus_are_printed_and_announced(line: str, vendor: str, word: str, count: int) -> None:
    answer = succeed(["otel-hardware", "free", *line.split()], {"OTEL_PYTHON_HARDWARE_SIMULATE": "T4:hot"})
    assert re.fullmatch(",".join([word] * count) + "\n", answer.stdout)
    assert re.fullmatch(
        rf"otel-hardware: --simulate: the {vendor} GPUs are simulated: .*, scenario idle\n", answer.stderr
    )


# -- where it cannot be known


def test_missing_library_says_to_install_the_driver(tmp_path: Path) -> None:
    env = {"OTEL_PYTHON_HARDWARE_NVML": str(tmp_path / "none.so"), "OTEL_PYTHON_HARDWARE_NVIDIA_SMI": "off"}
    why = free(None, env=env)
    assert why.startswith("NVML: ")
    assert "install NVIDIA's driver" in why


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (9, "Driver Not Loaded; nvidia-smi is switched off. To fix it: modprobe nvidia"),
        (18, "mismatch; nvidia-smi is switched off. To fix it: the driver was exchanged"),
        (999, "Error (999)"),
    ],
)
def test_error_of_nvml_init_is_named(tmp_path: Path, code: int, reason: str) -> None:
    machine = FakeNvml(tmp_path)
    machine.set_lines({"Init": refused(code)})
    assert reason in free(machine, env={"OTEL_PYTHON_HARDWARE_NVIDIA_SMI": "off"})


def test_driver_that_hangs_is_left_after_the_limit(tmp_path: Path) -> None:
    machine = FakeNvml(tmp_path, {**h100(0), "UtilizationRates": HANG})
    code = "from opentelemetry.instrumentation.hardware.cli import free, main; free._TIMEOUT = .1; exit(main(['free']))"
    answer = run([sys.executable, "-c", code], machine.environment)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr == "otel-hardware: the NVIDIA driver has not responded for 0.1 s\n"


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("0", Limit(0)),
        ("1048576", Limit(1 << 20)),
        ("500M", Limit(500 << 20)),
        ("1.5GiB", Limit(1.5 * (1 << 30))),
        ("2gb", Limit(2e9)),
        ("7 B", Limit(7)),
        ("12.5%", Limit(share=0.125)),
        ("100 %", Limit(share=1)),
    ],
)
def test_memory_limit_is_parsed(text: str, limit: Limit) -> None:
    assert _memory(text) == limit


def test_limit_as_share_of_unknown_total_allows_nothing() -> None:
    assert not Limit(share=1).allows(0, None)
    assert Limit(share=0).allows(0, 100)
    assert _percent("12.5%") == 0.125
