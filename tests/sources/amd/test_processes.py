"""Usage of AMD GPUs by the observed program: KFD's files, and fdinfo of open files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.sources.amd.test_device import integrated
from tests.sources.machines import STRANGER
from tests.sources.radeons import by_amd_smi, mi300x, radeon_host
from tests.sources.reading import all_of, by_id, opened, series_of
from tests.tools import amdsysfs
from tests.tools.amdsysfs import KFD, Gpu, number_of

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import SourceContext
from opentelemetry.instrumentation.hardware.sources.amd import Amd
from opentelemetry.instrumentation.hardware.system.holders import HeldDevice


def memory_of(drivers: Any) -> dict[str, float]:
    with opened("amd", drivers, STRANGER) as source:
        return by_id(all_of(source), c.PROCESS_GPU_MEMORY_USAGE)


def test_job_member_reports_only_process_memory() -> None:
    drivers = mi300x(0)
    with opened("amd", drivers, STRANGER) as source:
        source.context = source.context._replace(is_reporter=False)
        rows = {series.metric for series in all_of(source)}
    assert rows == {c.PROCESS_GPU_MEMORY_USAGE}


def test_gpu_of_rocm_without_an_address_in_the_tool_has_no_holders() -> None:
    gpu = Gpu()
    files = amdsysfs.machine([gpu]) | {f"{KFD}/proc/{STRANGER}/vram_{number_of(gpu)}": "500\n"}
    outputs = {**by_amd_smi(6)(0).tools["amd-smi"].prints, "static --json": b"ERROR"}
    held: dict[str, Sequence[HeldDevice]] = {}
    site = SourceContext(
        Config(amdgpu="off"), radeon_host(files, {"amd-smi": outputs}), STRANGER, all_processes=True, held=held
    )
    source = Amd(site)
    source.open()
    assert series_of(all_of(source), c.HW_POWER)
    assert [device.users for device in held["amd"]] == [None, None]


@pytest.mark.parametrize(
    ("lines", "memory"),
    [
        ("drm-memory-vram:\t12 KiB\n", 12 << 10),
        ("drm-resident-vram:\t3 MiB\ndrm-memory-vram:\t12 KiB\n", 3 << 20),
        ("drm-resident-vram:\t0\ndrm-total-vram:\t12 KiB\n", 0),
        ("drm-memory-vram:\t4096\n", 4096),
        ("drm-memory-vram:\t12 KB\n", None),
        ("drm-total-vram:\t12 KiB\n", None),
    ],
)
def test_fdinfo_memory_is_read_from_old_and_new_keys(lines: str, memory: int | None) -> None:
    head = "drm-driver:\tamdgpu\ndrm-client-id:\t4\ndrm-pdev:\t0000:63:00.0\n"
    opens = {f"/proc/{STRANGER}/fd/7": "/dev/dri/renderD128", f"/proc/{STRANGER}/fdinfo/7": head + lines}
    assert memory_of(radeon_host(amdsysfs.machine([Gpu(unique=None)]) | opens)) == (
        {} if memory is None else {"0000:63:00.0": memory}
    )


@pytest.mark.parametrize(("allocated", "memory"), [("0\n", 25_005 << 20), (f"{30_000 << 20}\n", 30_000 << 20)])
def test_memory_of_the_host_counts_on_an_integrated_gpu(allocated: str, memory: int) -> None:
    """A model is in GTT. KFD may count it as memory of the GPU, so it is not added twice."""
    gpu = integrated(unique=None)
    lines = "drm-memory-vram:\t5120 KiB\ndrm-memory-gtt:\t25600000 KiB\ndrm-memory-cpu:\t8 KiB\n"
    head = f"drm-driver:\tamdgpu\ndrm-client-id:\t4\ndrm-pdev:\t{gpu.bdf}\n"
    opens = {f"/proc/{STRANGER}/fd/7": "/dev/dri/renderD128", f"/proc/{STRANGER}/fdinfo/7": head + lines}
    opens |= {f"{KFD}/proc/{STRANGER}/vram_{number_of(gpu)}": allocated}
    assert memory_of(radeon_host(amdsysfs.machine([gpu]) | opens)) == {gpu.bdf: memory}
