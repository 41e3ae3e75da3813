"""W&B's keys of AMD GPUs, from the files of amdgpu and from AMD's tools."""

from __future__ import annotations

import json
import sys

import pytest
from tests.sources.machines import STRANGER
from tests.sources.radeons import Equipped, rocm
from tests.support.wandb import row
from tests.tools import amdsysfs
from tests.tools.amdsysfs import Gpu

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
    found = keys(Equipped(files))
    assert found.pop("gpu.0.energyJoules") > 0, "of the power, since the first sample"
    assert found == expected(
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
        g0_energyJoules=960231690.5447,
        g0_powerWatts=89.0,
        g0_powerPercent=15.8929,
        g1_gpu=0.0,
        g1_memoryAllocated=0.0,
        g1_memoryReadWriteActivity=0.0,
        g1_temp=43.0,
    ), "a second die has no power and no limit"


def test_wandb_keys_of_rocm_6() -> None:
    found = keys_of_rocm_smi(json.dumps(rocm("6.1", 0)).encode())
    assert found.pop("gpu.0.energyJoules") > 0, "of the power, since the first sample"
    assert found == expected(
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


# -- the command
