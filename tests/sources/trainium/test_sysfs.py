"""The files of the Neuron driver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.sources.machines import STRANGER
from tests.sources.npus import (
    HOST,
    TRN1,
    lines,
    moved_files,
    npu_host,
    old_files,
    open_trainium,
    program,
    report,
    reports_of,
    runtime,
)
from tests.sources.reading import all_of, by_id, often, series_of
from tests.support.children import PROGRAMS

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.sources.trainium.sysfs import Sysfs

linux = pytest.mark.skipif(sys.platform != "linux", reason="the Neuron driver is for Linux")

LONG = 60.0


def test_single_moved_sysfs_file_is_found_but_no_namesake() -> None:
    old, moved = "neuron0/neuron_core0/stats/memory_usage/device_mem", "neuron0/neuron_core0/memory/device_mem"
    power = "neuron0/stats/power/utilization"
    files = {path.replace(old, moved): content for path, content in old_files(1, 1, 1).items()}
    assert any(moved in path for path in files)
    for path in [path for path in files if path.endswith(power)]:
        files[path.replace(power, "neuron0/stats/utilization")] = "POWER_STATUS_VALID,1701,1.00,99.00,99.00"
        files[path.replace(power, "neuron0/deeper/still/power/utilization")] = (
            "POWER_STATUS_VALID,1701,1.00,99.00,99.00"
        )
        files[path.replace(power, "neuron0/deeper/power/utilization")] = files.pop(path)
    sysfs = Sysfs(npu_host(files, None).files())
    assert sysfs.memory_used(0) == 1_000_000 + 1_000_000 + 4096
    assert sysfs.power_percent(0) == 21.5


def test_device_memory_is_dropped_when_one_core_is_unknown() -> None:
    files = old_files(1, 2, 1)
    del files["/sys/devices/virtual/neuron_device/neuron0/neuron_core1/stats/memory_usage/device_mem/total"]
    assert Sysfs(npu_host(files, None).files()).memory_used(0) is None
    points = all_of(open_trainium(npu_host(HOST | files | program(), reports_of(runtime(STRANGER, (0,), 1)))))
    sizes = runtime(STRANGER, (0,), 1)["report"]["memory_used"]["neuron_runtime_used_bytes"]
    assert [*series_of(points, c.HW_NPU_MEMORY_USAGE).values()] == [sizes["neuron_device"]], "as the runtimes report it"


@pytest.mark.parametrize(
    ("environ", "cores"),
    [
        ({}, 8),
        ({"NEURON_LOGICAL_NC_CONFIG": "1"}, 16),
        ({"NEURON_LOGICAL_NC_CONFIG": "x"}, 8),
        ({"NEURON_RT_VISIBLE_CORES": "4-7"}, 4),
    ],
)
def test_cores_of_trainium2_are_logical_without_the_tool(environ: dict[str, str], cores: int) -> None:
    """By default, programs see two physical cores as one, and number these."""
    names = {f"/sys/devices/virtual/neuron_device/neuron{number}/info/architecture/device_name" for number in range(2)}
    files = HOST | old_files(2, 8, 1) | dict.fromkeys(names, "Trainium2\n") | program()
    points = all_of(open_trainium(npu_host(files, None), environ=environ, settings={"devices": "visible"}))
    sizes = series_of(points, c.AWS_NEURON_NEURONCORE_MEMORY_USAGE)
    code = {
        series.attributes[c.HW_ID]: (series.attributes[c.HW_PARENT], size)
        for series, size in sizes.items()
        if series.attributes[c.NEURON_MEMORY_CATEGORY] == "model_code"
    }
    assert len(code) == cores
    if cores != 16:
        assert code["neuroncore5"] == ("neuron1", 3_000_000 + 4_000_000)
    assert by_id(points, c.HW_NPU_MEMORY_USAGE).keys() == ({"neuron1"} if cores == 4 else {"neuron0", "neuron1"})


def test_memory_limit_below_usage_is_dropped() -> None:
    for size, ratio in ((1 << 30, True), (1 << 20, False)):
        hardware = {**TRN1, "neuron_device_memory_size": size}
        drivers = npu_host(HOST | old_files(1, 2, 1) | program(), lines(report([], 1, 1, hardware)))
        points = all_of(open_trainium(drivers))
        assert series_of(points, c.HW_NPU_MEMORY_USAGE)
        assert bool(series_of(points, c.HW_NPU_MEMORY_LIMIT)) is ratio
        assert bool(series_of(points, c.HW_NPU_MEMORY_UTILIZATION)) is ratio


def test_ecc_errors_fall_back_to_neuron_monitor() -> None:
    denied = PermissionError(13, "denied")
    files = {path: denied if "_ecc_" in path else content for path, content in old_files(1, 2, 1).items()}
    points = all_of(open_trainium(npu_host(HOST | files | program(), reports_of())))
    errors = {series.attributes[c.ERROR_TYPE]: number for series, number in series_of(points, c.HW_ERRORS).items()}
    assert errors == {"corrected": 8, "uncorrected": 0, "sram_corrected": 0, "sram_uncorrected": 0}


def test_unloaded_and_reloaded_neuron_driver() -> None:
    here = HOST | old_files(2, 2, 1) | program()
    drivers = npu_host(here, None)
    source = open_trainium(drivers)
    assert len(series_of(all_of(source), c.HW_NPU_INFO)) == 2
    drivers.become(npu_host(HOST | program(), None))
    all_of(source)
    assert all_of(source) == {}
    assert source.errors == ["the Neuron driver has been unloaded"]
    drivers.become(npu_host(HOST | moved_files(1, 2, 2) | program(), None))
    all_of(source)
    points = all_of(source)
    assert len(series_of(points, c.HW_NPU_INFO)) == len(series_of(points, c.HW_NPU_MEMORY_USAGE)) == 1
    assert source.errors == []


def test_memory_sample_reads_one_file_per_core() -> None:
    drivers = npu_host(HOST | old_files(16, 8, 1) | program(), reports_of(devices=16))
    source = open_trainium(drivers)
    all_of(source)
    drivers.tree.asked.clear()
    assert len(series_of(often(source), c.HW_NPU_MEMORY_USAGE)) == 16
    assert len(drivers.tree.asked) == 16 * 8


@pytest.mark.parametrize("made", [old_files, moved_files])
def test_sysfs_search_skips_unneeded_files(made: Any) -> None:
    drivers = npu_host(made(1, 2, 0), None)
    Sysfs(drivers.files())
    assert not [path for path in drivers.tree.asked if path.endswith(("reset", "success/total"))]


@pytest.mark.parametrize(
    "text", ["0.00,0.00,0.00", "POWER_STATUS_INVALID,17,1.0,2.0,3.0", "", "POWER_STATUS_VALID,1,0,0,0.00"]
)
def test_invalid_power_status_is_dropped(text: str) -> None:
    files = old_files(1, 1, 0)
    files["/sys/devices/virtual/neuron_device/neuron0/stats/power/utilization"] = text
    assert Sysfs(npu_host(files, None).files()).power_percent(0) is None


def test_broken_neuron_sysfs_gives_no_values() -> None:
    files = {path: PermissionError(13, "denied") if "stats" in path else "\x00?" for path in old_files(1, 2, 1)}
    source = open_trainium(npu_host(HOST | files | program(), None))
    assert {series.metric for series in all_of(source)} == {c.HW_NPU_INFO}


@pytest.mark.whole
@linux
def test_neuron_sysfs_files_are_never_opened_for_writing(tmp_path: Path) -> None:
    """The source reads a real tree, mounted in the driver's place, under strace."""
    trace = tmp_path / "trace"
    script = PROGRAMS / "tools/neuron_files.py"
    try:
        line: list[str | Path] = ["strace", "-f", "-o", trace, "-e", "trace=open,openat,creat", "unshare", "-rm"]
        line += [sys.executable, script, tmp_path]
        done = subprocess.run(line, capture_output=True, text=True, timeout=LONG, check=False)
    except FileNotFoundError:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("there is no strace: apt-get install strace")
    if "not permitted" in done.stderr:
        pytest.skip(f"no namespaces of our own: {done.stderr.strip()[-100:]}")
    assert "Inferentia2" in done.stdout, done.stderr
    lines_ = trace.read_text(errors="replace").splitlines()
    opens = [line for line in lines_ if "/sys/devices/virtual/neuron_device" in line]
    reading = opens[next(number for number, line in enumerate(opens) if "core_count" in line and "O_RDONLY" in line) :]
    assert len(reading) > 5
    assert not [line for line in reading if "O_WRONLY" in line or "O_RDWR" in line or "creat(" in line]
