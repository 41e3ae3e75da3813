"""``otel-hardware free``: GPUs that nobody uses, as a shell hands them to a program."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.children import environment, run
from tests.tools import fake_nvml, need
from tests.tools.nvml import HANG, MIB, FakeNvml, Gpu, Value, geforce, h100, mig, refused, unified

from opentelemetry.instrumentation.hardware.cli import main
from opentelemetry.instrumentation.hardware.cli.free import Limit, _memory, _percent

DOCUMENTS = Path(__file__).parent / "sources" / "nvidia" / "smi"
FIRST, SECOND, THIRD = (str(h100(index)["UUID"]) for index in range(3))


def using(gpu: Mapping[str, Value], mib: int = 0, percent: int = 0) -> Gpu:
    """The GPU, with so much of its 80 GiB and of its time in use."""
    return {
        **gpu,
        "UtilizationRates": (percent, 0),
        "MemoryInfo": (81_920 * MIB, 512 * MIB, (81_408 - mib) * MIB, mib * MIB),
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    need(fake_nvml)
    return tmp_path


def free(
    machine: FakeNvml | None, *arguments: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The command in this process, which is quicker: a shell and real children have tests of their own."""
    everything = environment({**(machine.environment if machine else {}), **(env or {})})
    out, err = StringIO(), StringIO()
    with patch.dict(os.environ, everything, clear=True), redirect_stdout(out), redirect_stderr(err):
        try:
            status = main(["free", *arguments])
        except SystemExit as end:
            status = int(end.code or 0)
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())


def printed(machine: FakeNvml | None, *arguments: str, env: Mapping[str, str] | None = None) -> list[str]:
    """What is printed, where there are enough."""
    answer = free(machine, *arguments, env=env)
    assert (answer.returncode, answer.stderr) == (0, "")
    (line,) = answer.stdout.splitlines()
    return line.split(",")


def told(machine: FakeNvml | None, *arguments: str, env: Mapping[str, str] | None = None) -> str:
    """The sentence, where there are not."""
    answer = free(machine, *arguments, env=env)
    assert (answer.returncode, answer.stdout) == (1, "")
    (line,) = answer.stderr.splitlines()
    return line.removeprefix("otel-hardware: ")


# -- which are free


def test_the_least_used_comes_first(folder: Path) -> None:
    machine = FakeNvml(folder, using(h100(0), 900), using(h100(1), 300, 4), using(h100(2), 300, 1))
    assert printed(machine) == [THIRD]
    assert printed(machine, "2") == [THIRD, SECOND]
    assert printed(machine, "3") == [THIRD, SECOND, FIRST]


def test_what_is_in_use_is_not_free(folder: Path) -> None:
    machine = FakeNvml(folder, using(h100(0), 5000), using(h100(1), 0, 97), using(h100(2)))
    assert printed(machine, "1") == [THIRD]
    why = told(machine, "2")
    assert why == "2 GPUs wanted, 1 GPU free: GPU 0 has 4.88 GiB in use, GPU 1 is 97% busy"


def test_the_limits_are_the_users(folder: Path) -> None:
    machine = FakeNvml(folder, using(h100(0), 5000), using(h100(1), 0, 60), using(h100(2), 900))
    assert printed(machine, "2", "--max-memory", "10%") == [THIRD, FIRST]
    assert printed(machine, "2", "--max-memory", "5000MiB") == [THIRD, FIRST]
    assert printed(machine, "2", "--max-utilization", "60") == [SECOND, THIRD]
    assert told(machine, "1", "--max-memory", "800M").startswith("1 GPU wanted, none free: ")
    assert printed(machine, "3", "--max-memory", "100%", "--max-utilization", "100%") == [SECOND, THIRD, FIRST]


def test_a_failed_one_is_never_free(folder: Path) -> None:
    lost = {call: refused(15) for call in h100(0)}
    machine = FakeNvml(folder, lost, {**using(h100(1)), "MemoryInfo": refused(15)}, using(h100(2)))
    generous = ("--max-memory", "100%", "--max-utilization", "100")
    assert printed(machine, "1", *generous) == [THIRD]
    assert "1 GPU free: GPU 0 does not answer, GPU 1 does not answer" in told(machine, "2", *generous)


def test_one_that_does_not_say_what_is_in_use_is_not_free(folder: Path) -> None:
    machine = FakeNvml(folder, unified(0))
    assert "GPU 0 does not say how much of its memory is in use" in told(machine)


def test_more_than_there_are_is_said(folder: Path) -> None:
    machine = FakeNvml(folder, using(h100(0)))
    assert told(machine, "2") == "2 GPUs wanted, 1 GPU free: there are no more"


def test_a_machine_without_gpus_has_none(folder: Path) -> None:
    assert told(FakeNvml(folder)) == "there is no GPU"


def test_of_many_that_are_in_use_some_are_named(folder: Path) -> None:
    why = told(FakeNvml(folder, *(using(h100(index), 9000) for index in range(12))))
    assert why.count("in use") == 9
    assert why.endswith("GPU 7 has 8.79 GiB in use, 4 more are in use too")


# -- MIG


def test_of_a_divided_gpu_the_instances_are_free(folder: Path) -> None:
    slots = {0: (7, 0), 2: (9, 0)}
    machine = FakeNvml(folder, using(h100(0), 9000), mig(h100(1), 1, slots))
    machine.say({"gpu1.mig2.MemoryInfo": (9_984 * MIB, 16 * MIB, 9_968 * MIB, 0)})
    assert printed(machine) == ["MIG-00000000-0000-5000-8000-000001000002"]
    assert "MIG 1/0 has 1 GiB in use" in told(machine, "2")


def test_whole_gpus_and_instances_are_not_mixed(folder: Path) -> None:
    machine = FakeNvml(folder, using(h100(0), 100), mig(h100(1), 1, {0: (7, 0), 1: (8, 0)}))
    empty = (9_984 * MIB, 16 * MIB, 9_968 * MIB, 0)
    machine.say({"gpu1.mig0.MemoryInfo": empty})
    assert printed(machine, "1") == [FIRST]
    assert told(machine, "2").startswith("2 GPUs wanted, 1 GPU and 1 MIG instance free: ")
    machine.say({"gpu1.mig1.MemoryInfo": empty})
    assert printed(machine, "2") == [f"MIG-00000000-0000-5000-8000-000001{slot:06x}" for slot in (0, 1)]


def test_a_divided_gpu_without_instances_is_of_no_use(folder: Path) -> None:
    machine = FakeNvml(folder, using(mig(h100(0), 0, {})))
    assert "GPU 0 is divided and has no MIG instance" in told(machine)


# -- where the choice is restricted already


@pytest.mark.parametrize(
    ("env", "uuids"),
    [
        ({"CUDA_VISIBLE_DEVICES": "1"}, [SECOND]),
        ({"CUDA_VISIBLE_DEVICES": f"{THIRD},{SECOND}"}, [SECOND, THIRD]),
        ({"NVIDIA_VISIBLE_DEVICES": THIRD}, [THIRD]),
        ({"OTEL_PYTHON_HARDWARE_DEVICES": "0,2"}, [FIRST, THIRD]),
        ({"OTEL_PYTHON_HARDWARE_DEVICES": "0,2", "CUDA_VISIBLE_DEVICES": "2,1"}, [THIRD]),
        ({"OTEL_PYTHON_HARDWARE_DEVICES": "process"}, [FIRST, SECOND, THIRD]),
    ],
)
def test_the_free_ones_are_some_of_those_that_are_allowed(
    folder: Path, env: Mapping[str, str], uuids: list[str]
) -> None:
    machine = FakeNvml(folder, *(using(h100(index), 10 * index) for index in range(3)))
    assert printed(machine, str(len(uuids)), env=env) == uuids
    assert told(machine, str(len(uuids) + 1), env=env).endswith("there are no more")


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"CUDA_VISIBLE_DEVICES": ""}, "CUDA_VISIBLE_DEVICES= leaves no GPU"),
        ({"NVIDIA_VISIBLE_DEVICES": "none"}, "NVIDIA_VISIBLE_DEVICES=none leaves no GPU"),
        ({"CUDA_VISIBLE_DEVICES": "1"}, "CUDA_VISIBLE_DEVICES=1: the GPUs are of different models"),
    ],
)
def test_where_none_is_allowed_or_it_is_not_known_which_nothing_is_printed(
    folder: Path, env: Mapping[str, str], words: str
) -> None:
    assert words in told(FakeNvml(folder, using(h100(0)), using(geforce(1))), env=env)


def test_a_word_that_means_no_gpu_is_said_beside(folder: Path) -> None:
    machine = FakeNvml(folder, using(h100(0)))
    answer = free(machine, env={"OTEL_PYTHON_HARDWARE_DEVICES": "0,7"})
    assert (answer.returncode, answer.stdout) == (0, f"{FIRST}\n")
    assert "OTEL_PYTHON_HARDWARE_DEVICES: there is no NVIDIA GPU 7" in answer.stderr


# -- how it is used


def test_a_shell_hands_them_to_a_program(folder: Path) -> None:
    machine = FakeNvml(folder, using(h100(0), 9000), using(h100(1)), using(h100(2)))
    program = "python -c 'import os; print(os.environ[\"CUDA_VISIBLE_DEVICES\"])'"
    line = f"CUDA_VISIBLE_DEVICES=$(otel-hardware free 2) {program}"
    answer = run(["sh", "-c", line], machine.environment)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, f"{SECOND},{THIRD}\n", "")


def test_a_shell_can_tell_that_there_are_not_enough(folder: Path) -> None:
    machine = FakeNvml(folder, using(h100(0), 9000))
    line = 'gpus=$(otel-hardware free 2) && CUDA_VISIBLE_DEVICES=$gpus echo started; echo "then $? with <$gpus>"'
    answer = run(["sh", "-c", line], machine.environment)
    assert answer.stdout == "then 1 with <>\n"
    assert len(answer.stderr.splitlines()) == 1


def test_without_a_driver_a_program_is_not_started() -> None:
    env = {"OTEL_PYTHON_HARDWARE_NVML": "off", "OTEL_PYTHON_HARDWARE_NVIDIA_SMI": "off"}
    answer = run(["sh", "-c", "gpus=$(otel-hardware free) && echo started $gpus"], env)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert re.match(
        "otel-hardware: (no NVIDIA driver is loaded|NVML and nvidia-smi are both switched off)", answer.stderr
    )


def test_the_tool_is_asked_by_a_real_command(tmp_path: Path) -> None:
    answer = run(["otel-hardware", "free"], smi(tmp_path, "v11-a100x2.xml"))
    assert (answer.returncode, answer.stdout) == (0, "GPU-66666666-7777-8888-9999-aaaaaaaaaaaa\n")


def test_what_is_printed_chooses_the_same_gpus(folder: Path) -> None:
    machine = FakeNvml(folder, using(h100(0), 9000), using(h100(1)), using(h100(2)))
    (uuid,) = printed(machine)
    assert uuid == SECOND
    assert printed(machine, env={"CUDA_VISIBLE_DEVICES": uuid}) == [SECOND]


# -- without the library


def smi(folder: Path, document: str) -> dict[str, str]:
    """An nvidia-smi that prints a document, and no library."""
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\nexec cat {DOCUMENTS / document}\n")
    tool.chmod(0o755)
    return {"OTEL_PYTHON_HARDWARE_NVML": "off", "OTEL_PYTHON_HARDWARE_NVIDIA_SMI": str(tool)}


def test_the_tool_is_asked_where_the_library_is_not(tmp_path: Path) -> None:
    env = smi(tmp_path, "v11-a100x2.xml")
    assert printed(None, env=env) == ["GPU-66666666-7777-8888-9999-aaaaaaaaaaaa"]
    assert "GPU 0 has 77.1 GiB in use" in told(None, "2", env=env)


def test_an_instance_without_a_uuid_has_the_name_that_older_drivers_know(tmp_path: Path) -> None:
    env = smi(tmp_path, "v11-a100-mig.xml")
    assert printed(None, env=env) == ["MIG-GPU-11111111-2222-3333-4444-555555555555/5/0"]
    why = told(None, "2", env=env)
    assert "MIG 0/2 does not say how much of its memory is in use" in why


def test_one_that_the_tool_calls_lost_is_not_free(tmp_path: Path) -> None:
    env = smi(tmp_path, "v12-lost.xml")
    assert printed(None, env=env) == ["GPU-abadcafe-0000-0000-0000-000000000000"]
    assert "GPU 1 does not answer" in told(None, "3", env=env)


# -- where it cannot be known


def test_without_a_driver_it_is_said_what_to_do(tmp_path: Path) -> None:
    why = told(
        None, env={"OTEL_PYTHON_HARDWARE_NVML": str(tmp_path / "none.so"), "OTEL_PYTHON_HARDWARE_NVIDIA_SMI": "off"}
    )
    assert why.startswith("NVML: ")
    assert "install NVIDIA's driver" in why


@pytest.mark.parametrize(
    ("code", "reason"),
    [(9, "Driver Not Loaded: modprobe nvidia"), (18, "mismatch: the driver was exchanged"), (999, "Error (999)")],
)
def test_a_driver_that_refuses_is_said(folder: Path, code: int, reason: str) -> None:
    machine = FakeNvml(folder)
    machine.say({"Init": refused(code)})
    assert reason in told(machine, env={"OTEL_PYTHON_HARDWARE_NVIDIA_SMI": "off"})


def test_a_driver_that_hangs_is_left_behind(folder: Path) -> None:
    machine = FakeNvml(folder, {**h100(0), "UtilizationRates": HANG})
    code = "from opentelemetry.instrumentation.hardware.cli import free, main; free._PATIENCE = 1; exit(main(['free']))"
    answer = run([sys.executable, "-c", code], machine.environment)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr == "otel-hardware: NVIDIA's driver has not answered for 1 s\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["0"],
        ["-1"],
        ["two"],
        ["1", "2"],
        ["1", "--max-memory", "much"],
        ["1", "--max-memory", "101%"],
        ["1", "--max-memory", "-5"],
        ["1", "--max-utilization", "101"],
        ["1", "--max-utilization", "nan"],
    ],
)
def test_a_mistake_in_the_arguments_prints_nothing(arguments: list[str]) -> None:
    answer = free(None, *arguments)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith("usage: otel-hardware ")


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("0", Limit(0, False)),
        ("1048576", Limit(1 << 20, False)),
        ("500M", Limit(500 << 20, False)),
        ("1.5GiB", Limit(1.5 * (1 << 30), False)),
        ("2gb", Limit(2e9, False)),
        ("7 B", Limit(7, False)),
        ("12.5%", Limit(0.125, True)),
        ("100 %", Limit(1, True)),
    ],
)
def test_a_size_is_understood(text: str, limit: Limit) -> None:
    assert _memory(text) == limit


def test_a_share_of_what_is_not_known_allows_nothing() -> None:
    assert not Limit(1, True).allows(0, None)
    assert Limit(0, True).allows(0, 100)
    assert _percent("12.5%") == 0.125
