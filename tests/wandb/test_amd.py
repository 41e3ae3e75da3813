"""W&B's keys of AMD GPUs, from the files of amdgpu and from AMD's tools."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.sources.machines import STRANGER
from tests.sources.radeons import Equipped, by_amd_smi, rocm
from tests.support import children
from tests.support.samples import samples
from tests.support.wandb import row
from tests.tools import amdsysfs, need, program
from tests.tools.amdsysfs import Gpu

from opentelemetry.instrumentation.hardware import cli
from opentelemetry.instrumentation.hardware.drivers import Drivers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="amdgpu is a driver of Linux")


def keys(drivers: Drivers, **settings: str) -> dict[str, float]:
    """W&B's keys of the GPUs."""
    return row("amd", STRANGER, drivers, devices="all", **settings)


def keys_of_rocm_smi(printed: bytes) -> dict[str, float]:
    """W&B's keys of the GPUs in an output of rocm-smi."""
    drivers = Equipped(amdsysfs.module(), {"rocm-smi": {"-a": printed}})
    return keys(drivers, amdgpu="off", amd_smi="off")


def expected(**by_key: float) -> dict[str, float]:
    return {f"gpu.{key[1:].replace('_', '.', 1)}": value for key, value in by_key.items()}


def test_wandb_keys_of_sysfs() -> None:
    gpu = Gpu()
    files = amdsysfs.machine([gpu]) | {f"{gpu.folder}/pp_mclk_od": "5\n"}
    assert keys(Equipped(files)) == expected(
        g0_gpu=42.0,
        g0_memoryAllocated=15.9541,
        g0_memoryReadWriteActivity=12.0,
        g0_memoryOverDrive=5,
        g0_temp=46.0,
        g0_powerWatts=41.0,
        g0_powerPercent=13.6667,
    )


def test_suspended_gpu_has_no_wandb_keys() -> None:
    assert keys(Equipped(amdsysfs.machine([Gpu(asleep=True)]))) == {}


def test_wandb_keys_of_rocm_5() -> None:
    assert keys_of_rocm_smi(json.dumps(rocm("5.7", 0)).encode()) == expected(
        g0_gpu=10.0,
        g0_memoryAllocated=0.016,  # W&B prints the activity, 0
        g0_memoryReadWriteActivity=0.0,
        g0_temp=43.0,
        g0_powerWatts=89.0,
        g0_powerPercent=15.8929,
        g1_gpu=0.0,
        g1_memoryAllocated=0.0,
        g1_memoryReadWriteActivity=0.0,
        g1_temp=43.0,
    ), "a second die has no power and no limit"


def test_wandb_keys_of_rocm_6() -> None:
    assert keys_of_rocm_smi(json.dumps(rocm("6.1", 0)).encode()) == expected(
        g0_gpu=10.0,
        g0_memoryAllocated=0.016,  # W&B prints rocm-smi's percent, 15, which this document made up
        g0_memoryReadWriteActivity=12.0,
        g0_temp=43.0,
        g0_powerWatts=141.0,
        g0_powerPercent=25.1786,
        g1_gpu=0.0,
        g1_memoryAllocated=12.0,
        g1_memoryReadWriteActivity=12.0,
        g1_temp=43.0,
    )


@pytest.mark.parametrize("text", ["N/A", "", "-5", "nan", "inf", "1e3", "0x10", "12 MHz", "1" * 40])
def test_wandb_keys_without_a_number_are_dropped(text: str) -> None:
    names = (
        "GPU use (%)",
        "GPU memory use (%)",
        "GPU Memory OverDrive value (%)",
        "Temperature (Sensor memory) (C)",
        "Average Graphics Package Power (W)",
    )
    assert keys_of_rocm_smi(json.dumps({"card0": dict.fromkeys(names, text)}).encode()) == {}


# W&B's keys of recorded output; the first three files are of real machines.
#
# ``memoryAllocated`` is the quotient of the sizes where the tool prints them; W&B takes the tool's whole percent, which
# is that of the activity in ROCm 5.
RECORDED: dict[str, dict[str, float]] = {
    "rocm-smi_telegraf_mi100_rocm571.json": {
        **{f"gpu.{card}.gpu": 0 for card in range(6)},
        **{f"gpu.{card}.memoryAllocated": 0.0198 for card in range(6)},
        **{f"gpu.{card}.memoryOverDrive": 0 for card in range(6)},
        "gpu.0.temp": 30,
        "gpu.1.temp": 38,
        "gpu.2.temp": 31,
        "gpu.0.powerWatts": 39,
        "gpu.0.powerPercent": 13.4483,
    },
    "rocm-smi_telegraf_rx6700xt_rocm612.json": {
        "gpu.0.gpu": 0,
        "gpu.0.memoryAllocated": 12.222,
        "gpu.0.memoryReadWriteActivity": 0,
        "gpu.0.memoryOverDrive": 0,
        "gpu.0.temp": 46,
        "gpu.0.powerWatts": 6,
        "gpu.0.powerPercent": 2.8436,
    },
    "rocm-smi_rocm5_mi250_2cards.json": {
        "gpu.0.gpu": 10,
        "gpu.1.gpu": 20,
        "gpu.0.memoryAllocated": 0,
        "gpu.0.memoryOverDrive": 0,
        "gpu.0.temp": 43,
        "gpu.0.powerWatts": 89,
        "gpu.0.powerPercent": 15.8929,
    },
    "rocm-smi_rocm6_mi300x_minimal.json": {
        "gpu.0.gpu": 10,
        "gpu.0.memoryAllocated": 20,
        "gpu.0.temp": 43,
        "gpu.0.powerWatts": 89,
        "gpu.0.powerPercent": 15.8929,
    },
    "rocm-smi_6.1.2_fakesysfs_2gpu_a.json": {
        "gpu.0.gpu": 42,
        "gpu.1.gpu": 100,
        "gpu.0.memoryAllocated": 0,
        "gpu.1.memoryAllocated": 98,
        "gpu.1.memoryReadWriteActivity": 12,
        "gpu.0.powerPercent": 13.6667,
    },
    "rocm-smi_6.1.2_fakesysfs_card1_broken.json": {
        "gpu.0.gpu": 42,
        "gpu.0.powerWatts": 41,
        "gpu.1.memoryAllocated": 12.0,
        "gpu.1.temp": 46,
    },
    "rocm-smi_no-amd-gpus-specified.stdout.txt": {},
}


@pytest.mark.parametrize("path", samples(*(f"amd/{name}" for name in RECORDED)))
def test_wandb_keys_of_recorded_rocm_smi_output(path: Path) -> None:
    found, expected = keys_of_rocm_smi(path.read_bytes()), RECORDED[path.name]
    assert {key: found.get(key) for key in expected} == expected
    if "minimal" in path.name or "no-amd" in path.name:
        assert found == expected
    if "broken" in path.name:
        assert "gpu.1.powerWatts" not in found
        assert "gpu.1.gpu" not in found


# -- the command


Snapshot = Callable[..., "tuple[dict[str, float], str]"]


@pytest.fixture
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Snapshot:
    """Runs ``otel-hardware snapshot --format wandb`` with a tool that is a shell script: keys of GPUs, and stderr."""

    def taken(tool: str, body: str, **settings: str) -> tuple[dict[str, float], str]:
        path = tmp_path / tool
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        for name, value in {"AMDGPU": "off", tool.upper().replace("-", "_"): str(path), **settings}.items():
            monkeypatch.setenv(f"OTEL_PYTHON_HARDWARE_{name}", value)
        assert cli.main(["snapshot", "--format", "wandb", "--window", "0.1", "--sources=-nvidia"]) == 0
        out, err = capsys.readouterr()
        row = json.loads(out)
        assert "proc.memory.rssMB" in row
        return {key: value for key, value in row.items() if key.startswith("gpu.")}, err

    return taken


def test_snapshot_prints_wandb_keys_of_rocm_smi(tmp_path: Path, snapshot: Snapshot) -> None:
    (tmp_path / "document").write_text("WARNING: something\n" + json.dumps(rocm("5.7", 0)))
    found, complaint = snapshot("rocm-smi", f"cat {tmp_path}/document")
    assert found == keys_of_rocm_smi(json.dumps(rocm("5.7", 0)).encode())
    assert complaint == ""


def test_snapshot_falls_back_to_amd_smi(tmp_path: Path, snapshot: Snapshot) -> None:
    tools = by_amd_smi(7)(0).tools["amd-smi"].outputs
    for argument in ("static", "metric"):
        (tmp_path / argument).write_bytes(tools[argument])
    found, _ = snapshot("amd-smi", f"cat {tmp_path}/$1", ROCM_SMI="off")
    assert {key: found[key] for key in found if key.startswith("gpu.0.")} == pytest.approx(
        {
            "gpu.0.gpu": 88,
            "gpu.0.memoryAllocated": 284 / 196_592 * 100,
            "gpu.0.memoryReadWriteActivity": 20,
            "gpu.0.temp": 54,
            "gpu.0.powerWatts": 411,
            "gpu.0.powerPercent": 411 / 700 * 100,
        },
        abs=1e-3,
    )


def test_failing_rocm_smi_is_reported_once(snapshot: Snapshot) -> None:
    found, complaint = snapshot("rocm-smi", "exit 3")
    assert found == {}
    assert complaint.count("otel-hardware: amd: ") == 1
    assert "rocm-smi exited with 3: it printed nothing" in complaint


def test_wandb_keys_of_sysfs_and_rocm_smi_agree() -> None:
    need(lambda: program("rocm-smi"))
    keys = children.scene("machines/radeon_machine", "keys")
    tool = {key: value for key, value in keys["tool"].items() if "Allocated" not in key}  # activity in ROCm 5
    assert len(tool) >= 10
    assert {key: keys["files"].get(key) for key in tool} == tool
