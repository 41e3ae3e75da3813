"""GPU memory and utilization of the observed program and its children, by NVML's process lists."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.sources.nvidia_gpus import simulated_gpus
from tests.support.children import started
from tests.tools.nvml import MIB, NOT_AVAILABLE, geforce, h100, listed, mig, refused

ME = os.getpid()
SOMEBODY = 1  # never a child of ours
SERVER = 1 << 30  # a process of the files only

ID = "GPU-00002330-0000-4000-8000-00000000000"


@pytest.fixture
def children() -> Iterator[list[int]]:
    """Two children that live for as long as the test does."""
    with ExitStack() as stack:
        made = [stack.enter_context(started([sys.executable, "-c", "input()"])) for _ in range(2)]
        yield [child.pid for child in made]


def test_gpu_memory_of_a_program_and_its_children_is_summed(
    tmp_path: Path, children: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))  # there is a multi-process service
    one, other = children
    users = {
        "gpu0.ComputeRunningProcesses": listed((ME, 100 * MIB), (one, 20 * MIB), (SOMEBODY, 4000 * MIB)),
        "gpu0.GraphicsRunningProcesses": listed((one, 20 * MIB), (other, 3 * MIB)),
        "gpu1.ComputeRunningProcesses": listed((SOMEBODY, 4000 * MIB)),
        "gpu2.MPSComputeRunningProcesses": listed((other, 7 * MIB)),
    }
    with simulated_gpus(tmp_path, h100(0), h100(1), h100(2), lines=users) as machine:
        now = machine.tick(0)
        assert {dict(pairs)["hw.id"]: value for pairs, value in now.of("process.gpu.memory.usage").items()} == {
            f"{ID}0": 123 * MIB,
            f"{ID}2": 7 * MIB,
        }
        now = machine.tick(10, {"gpu0.ComputeRunningProcesses": "", "gpu0.GraphicsRunningProcesses": ""})
        assert {dict(pairs)["hw.id"] for pairs in now.of("process.gpu.memory.usage")} == {f"{ID}2"}
        assert machine.up()
        assert not machine.unsupported("process.gpu.memory.usage")
        assert machine.unsupported("process.gpu.utilization")
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY")
    with simulated_gpus(tmp_path, h100(0), h100(1), h100(2), lines=users) as machine:
        now = machine.tick(0)
        assert {dict(pairs)["hw.id"] for pairs in now.of("process.gpu.memory.usage")} == {f"{ID}0"}, (
            "the list of MPS is not read"
        )


def test_clients_of_a_service_that_starts_later_in_any_folder_are_counted(tmp_path: Path, children: list[int]) -> None:
    """The server of MPS is in the list of all processes, its clients are in their own."""
    clients = {"gpu0.MPSComputeRunningProcesses": listed((children[0], 7 * MIB))}
    name = {f"/proc/{SERVER}/comm": "nvidia-cuda-mps\n"}
    with simulated_gpus(tmp_path, h100(0), lines=clients, files=name) as machine:
        assert machine.tick(0).of("process.gpu.memory.usage") == {}, "no program uses MPS, so its list is not read"
        now = machine.tick(10, {"gpu0.ComputeRunningProcesses": listed((SERVER, 30 * MIB))})
        assert now.one("process.gpu.memory.usage") == 7 * MIB


def test_unknown_process_memory_is_left_out_of_the_sum(tmp_path: Path, children: list[int]) -> None:
    unknown = {"gpu0.ComputeRunningProcesses": listed((ME, NOT_AVAILABLE))}
    with simulated_gpus(tmp_path, h100(0), lines=unknown) as machine:
        assert machine.tick(0).of("process.gpu.memory.usage") == {}
        now = machine.tick(10, {"gpu0.ComputeRunningProcesses": listed((ME, NOT_AVAILABLE), (children[0], 5))})
        assert now.one("process.gpu.memory.usage") == 5


def test_process_utilization_is_the_sum_of_the_means_of_its_processes(tmp_path: Path, children: list[int]) -> None:
    one, other = children
    old = [(ME, 5, 100, 100, 0, 0)]
    users = {"gpu0.ComputeRunningProcesses": listed((ME, 1), (one, 1), (other, 1), (SOMEBODY, 1))}
    with simulated_gpus(tmp_path, h100(0), lines={**users, "gpu0.ProcessUtilization": listed(*old)}) as machine:
        assert machine.tick(0).of("process.gpu.utilization") == {}, "what was before us"
        shares = [(ME, 10, 20, 10, 0, 0), (ME, 20, 40, 10, 0, 6), (one, 15, 30, 5, 2, 0), (SOMEBODY, 15, 99, 99, 9, 9)]
        now = machine.tick(10, {"gpu0.ProcessUtilization": listed(*old, *shares)})
        tasks = {dict(pairs)["hw.gpu.task"]: value for pairs, value in now.of("process.gpu.utilization").items()}
        assert tasks == pytest.approx({"sm": 0.3 + 0.3, "memory": 0.1 + 0.05, "encoder": 0.02, "decoder": 0.03})
        crowd = [(pid, 30, 80, 0, 0, 0) for pid in (ME, one, other)]
        now = machine.tick(10, {"gpu0.ProcessUtilization": listed(*shares, *crowd)})
        assert now.one("process.gpu.utilization", hw_gpu_task="sm") == 1, "never more than the whole"


def test_looking_for_the_devices_in_use_keeps_what_was_measured(tmp_path: Path) -> None:
    with simulated_gpus(tmp_path, h100(0), lines={"gpu0.ComputeRunningProcesses": listed((ME, 1))}) as machine:
        machine.tick(0)
        machine.tick(10, {"gpu0.ProcessUtilization": listed((ME, 5, 10, 0, 0, 0))})
        machine.pass_time(5, {"gpu0.ProcessUtilization": listed((ME, 10, 60, 0, 0, 0))})
        assert machine.runner.source is not None
        machine.runner.source._look_for_use()  # type: ignore[attr-defined]
        assert machine.tick(5).one("process.gpu.utilization", hw_gpu_task="sm") == 0.6


def test_idle_process_counts_as_zero_in_the_mean(tmp_path: Path) -> None:
    idle = {"gpu0.ComputeRunningProcesses": listed((ME, 1)), "gpu0.ProcessUtilization": ""}
    with simulated_gpus(tmp_path, h100(0), lines=idle) as machine:
        assert machine.tick(0).of("process.gpu.utilization") == {}, "nothing is known of the time before"
        for at, percent in ((10, 60), (20, None), (30, 30)):
            samples = "" if percent is None else listed((ME, at, percent, 0, 0, 0))
            machine.sample(5, {"gpu0.ProcessUtilization": samples}, due=True)
        now = machine.collect()
        # The first reading of a series is a baseline.
        assert now.one("process.gpu.utilization", hw_gpu_task="sm") == pytest.approx((0 + 0.3) / 2)
        now = machine.tick(10, {"gpu0.ProcessUtilization": refused(3)})
        assert now.of("process.gpu.utilization") == {}
        assert machine.unsupported("process.gpu.utilization")
        now = machine.tick(10, {"gpu0.ProcessUtilization": listed((ME, 60, 50, 0, 0, 0))})
        assert now.one("process.gpu.utilization", hw_gpu_task="sm") == 0.5
        assert not machine.unsupported("process.gpu.utilization")


def test_process_memory_is_reported_by_mig_instance(tmp_path: Path) -> None:
    users = {
        "gpu0.ComputeRunningProcesses": listed((ME, 30 * MIB, 5, 0)),
        "gpu0.mig3.ComputeRunningProcesses": listed((ME, 30 * MIB, 5, 0)),
        "gpu0.mig0.ComputeRunningProcesses": listed((SOMEBODY, 60 * MIB, 1, 0)),
    }
    with simulated_gpus(tmp_path, mig(h100(0), 0, {0: (1, 0), 3: (5, 0)}), lines=users) as machine:
        machine.tick(0)
        now = machine.tick(10)
        assert {dict(pairs)["hw.id"]: value for pairs, value in now.of("process.gpu.memory.usage").items()} == {
            "MIG-00000000-0000-5000-8000-000000000003": 30 * MIB
        }


@pytest.mark.parametrize(("version", "garbled"), [("535.43.02", True), ("535.86.10", True), ("535.98", False)])
def test_process_lists_of_535_43_to_535_86_are_not_read(tmp_path: Path, version: str, garbled: bool) -> None:
    users = {"DriverVersion": version, "gpu0.ComputeRunningProcesses": listed((ME, MIB))}
    with simulated_gpus(tmp_path, geforce(0), lines=users) as machine:
        now = machine.tick(0)
        assert bool(now.of("process.gpu.memory.usage")) is not garbled
        assert bool(machine.unsupported("535.98 and later are")) is garbled
        assert now.one("hw.power") == pytest.approx(287.45)


def test_impossible_pids_are_ignored(tmp_path: Path) -> None:
    nonsense = listed((0, MIB), (2**32 - 1, MIB), (2**31, 2**64 - 2), (ME, 5 * MIB), (ME, 5 * MIB))
    with simulated_gpus(tmp_path, h100(0), lines={"gpu0.ComputeRunningProcesses": nonsense}) as machine:
        assert machine.tick(0).one("process.gpu.memory.usage") == 5 * MIB
        assert machine.up()


def test_process_list_that_fails_is_missing_until_it_works(tmp_path: Path) -> None:
    with simulated_gpus(tmp_path, h100(0), lines={"gpu0.ComputeRunningProcesses": refused(999)}) as machine:
        machine.tick(0)
        assert machine.unsupported("process.gpu.memory.usage")
        now = machine.tick(10, {"gpu0.ComputeRunningProcesses": listed((ME, MIB))})
        assert now.one("process.gpu.memory.usage") == MIB
        assert not machine.unsupported("process.gpu.memory.usage")


def test_process_list_larger_than_the_first_buffer_is_read_completely(tmp_path: Path) -> None:
    many = listed(*((2**22 + 1 + number, MIB) for number in range(700)), (ME, 9 * MIB))
    with simulated_gpus(tmp_path, h100(0), lines={"gpu0.ComputeRunningProcesses": many}) as machine:
        assert machine.tick(0).one("process.gpu.memory.usage") == 9 * MIB
