"""W&B's key of AMD's GPUs that no capture has."""

from __future__ import annotations

from tests.sources.machines import STRANGER
from tests.sources.radeons import radeon_host
from tests.support.wandb import row
from tests.tools import amdsysfs
from tests.tools.amdsysfs import Gpu


def test_overdrive_of_the_memory_clock_is_that_of_sysfs() -> None:
    gpu = Gpu()
    files = amdsysfs.machine([gpu]) | {f"{gpu.folder}/pp_mclk_od": "5\n"}
    assert row("amd", STRANGER, radeon_host(files), devices="all")["gpu.0.memoryOverDrive"] == 5
