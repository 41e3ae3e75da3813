"""GPUs and NPUs of the kernel's drivers: what is added up, what is left alone, and what an independent reader says."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from tests.sources.cards import ACCEL, DRM, at, board, desktop, fdinfo, laptop, opened, raspberry, ryzen
from tests.sources.machines import STRANGER
from tests.sources.npus import HOST
from tests.sources.reading import all_of, series_of, value
from tests.sources.reading import opened as opened_source
from tests.sources.tree import Fabricated, Tree
from tests.support.children import succeed
from tests.tools import glances

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.fdinfo import parse
from opentelemetry.instrumentation.hardware.accelerators.source import AcceleratorSource
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import Source, SourceContext
from opentelemetry.instrumentation.hardware.sources.drm import Drm


def agent(drivers: Drivers) -> Drm:
    """The source of an agent that observes no program, open."""
    source = Drm(SourceContext(Config(), drivers, STRANGER, all_processes=True, held={}))
    source.open()
    return source


def general(source: Source, metric: Any, place: str, name: str, task: Any) -> float | None:
    found = series_of(all_of(source), metric)
    shares = {series.attributes[task]: share for series, share in found.items()}
    assert all(series.attributes[c.HW_ID] == place for series in found), name
    share = shares.get("general")
    assert share is None or isinstance(share, float)
    return share


@pytest.mark.parametrize(
    ("story", "metric", "task", "place", "share"),
    [
        (board, c.HW_GPU_UTILIZATION, c.GPU_TASK, "fb000000.gpu", 0.75),
        (ryzen, c.HW_NPU_UTILIZATION, c.NPU_TASK, "0000:c4:00.1", 0.25),
    ],
)
def test_utilization_is_the_sum_of_all_processes(story: Any, metric: Any, task: Any, place: str, share: float) -> None:
    drivers = story(0)
    source = agent(drivers)
    assert general(source, metric, place, "first", task) is None
    assert "known from the second reading on" in source.unsupported[0]
    drivers.become(story(1))
    assert general(source, metric, place, "second", task) == share
    assert source.unsupported == []


@pytest.mark.parametrize(
    ("profiling", "reason"),
    [
        ("0\n", f"after you write 2 to {DRM}/card1/device/profiling"),
        ("1\n", "after you write 2 to"),  # cycles only
        ("3\n", "second reading"),
        (None, "second reading"),  # older kernels always count
    ],
)
def test_counters_that_are_off_by_default_are_the_reason(profiling: str | None, reason: str) -> None:
    drivers = board(0)
    if profiling is not None:
        drivers.tree.files[f"{DRM}/card1/device/profiling"] = profiling
    source = agent(drivers)
    all_of(source)
    assert reason in source.unsupported[0]


def test_v3d_counts_the_time_of_its_queues() -> None:
    """The file is readable by everyone, also for a program that sees its own processes only."""

    def counted(tick: int) -> Fabricated:
        busy = {"bin": 1, "render": 4, "tfu": 9, "csd": 2, "cache_clean": 0, "cpu": 0}
        rows = [
            f"{queue}\t{(7 + 10 * tick) * 10**9}\t{tick}\t{5 + tick * each * 10**9}" for queue, each in busy.items()
        ]
        drivers = raspberry(tick)
        text = "\n".join(["queue\ttimestamp\tjobs\truntime", *rows, ""])
        drivers.tree.files[f"{DRM}/card0/device/gpu_stats"] = text
        return drivers

    drivers = counted(0)
    with opened_source("drm", drivers, STRANGER) as source:
        assert series_of(all_of(source), c.HW_GPU_UTILIZATION) == {}
        drivers.become(counted(1))
        (share,) = series_of(all_of(source), c.HW_GPU_UTILIZATION).values()
        assert share == pytest.approx(0.4), "render is busy for 4 of 10 s"
        assert [reason for reason in source.unsupported if "utilization" in reason] == []
        drivers.tree.files[f"{DRM}/card0/device/gpu_stats"] = "queue\ttimestamp\nrender\t1\tN/A\n"
        drivers.tree.up += 10
        assert series_of(all_of(source), c.HW_GPU_UTILIZATION) == {}


def test_unused_gpu_has_a_utilization_of_zero() -> None:
    drivers = board(0)
    tree = drivers.tree
    tree.files = {path: text for path, text in tree.files.items() if "/fd" not in path} | {"/proc/1/fd/0": "/dev/null"}
    source = agent(drivers)
    all_of(source)
    tree.up += 10
    assert general(source, c.HW_GPU_UTILIZATION, "fb000000.gpu", "", c.GPU_TASK) == 0.0


@pytest.mark.parametrize("namespace", ["pid:[4026533001]", "pid:[4026531836]"])
def test_sum_of_some_processes_is_no_utilization(namespace: str) -> None:
    """In a container, or if the open files of a process are hidden."""
    drivers = board(0)
    tree = drivers.tree
    tree.files["/proc/{pid}/ns/pid"] = namespace
    on_host = namespace.endswith("836]")
    names = tree.names
    if on_host:
        tree.files["/proc/1/fd/0"] = "/dev/null"

        def guarded(path: str) -> Any:
            if path == "/proc/1/fd":
                raise PermissionError(13, "Permission denied")
            return names(path)

        tree.names = guarded  # type: ignore[method-assign]
    source = agent(drivers)
    all_of(source)
    drivers.become(board(1))
    tree.files["/proc/{pid}/ns/pid"] = namespace
    if on_host:
        tree.files["/proc/1/fd/0"] = "/dev/null"
    assert general(source, c.HW_GPU_UTILIZATION, "fb000000.gpu", "", c.GPU_TASK) is None
    assert ("and 1 cannot be examined; run as root" in source.unsupported[0]) is on_host


def test_holders_are_the_processes_with_open_device_files() -> None:
    source = agent(board(1))
    all_of(source)
    assert source.context.held is not None
    (device,) = source.context.held["drm"]
    assert {(user.pid, user.memory) for user in device.users or ()} == {
        (STRANGER, 4097 << 10),
        (STRANGER + 1, 1 << 20),
        (4242, 7 << 20),
    }


def test_suspended_gpu_is_left_alone_and_read_again_later() -> None:
    drivers = desktop(1)
    tree = drivers.tree
    with opened_source("drm", drivers, STRANGER) as source:
        tree.asked.clear()
        assert all_of(source) == {}
        assert [path for path in tree.asked if "hwmon" in path or "drm" in path.rpartition("/")[2]] == []
        drivers.become(desktop(0))
        assert value(all_of(source), c.HW_TEMPERATURE, {**GPU, c.HW_SENSOR_LOCATION: "gpu"}) == 41


GPU = {c.HW_ID: "0000:01:00.0", c.HW_NAME: "GPU 0", c.HW_TYPE: "gpu"}


def test_gpu_that_comes_back_under_another_number_is_the_same_device() -> None:
    drivers = desktop(0)
    tree = drivers.tree
    with opened_source("drm", drivers, STRANGER) as source:
        all_of(source)
        tree.files = {path.replace("/card0/device", "/card1/device"): text for path, text in tree.files.items()}
        all_of(source)
        found = all_of(source)
        assert value(found, c.HW_TEMPERATURE, {**GPU, c.HW_SENSOR_LOCATION: "gpu"}) == 41
        assert isinstance(source, AcceleratorSource)
        assert [device.id for device in source.devices] == ["0000:01:00.0"]


def test_gpu_that_is_plugged_in_later_is_reported() -> None:
    drivers = laptop(0)
    with opened_source("drm", drivers, STRANGER) as source:
        all_of(source)
        drivers.tree.files |= desktop(0).tree.files
        all_of(source)
        assert value(all_of(source), c.HW_TEMPERATURE, {**GPU, c.HW_SENSOR_LOCATION: "gpu"}) == 41


def test_utilization_of_an_npu_after_a_suspend_does_not_include_it() -> None:
    drivers = laptop(0)
    tree = drivers.tree
    folder = f"{ACCEL}/accel0/device"
    with opened_source("drm", drivers, STRANGER) as source:
        all_of(source)
        for status, busy, share in (
            ("suspended", 5, None),
            ("active", 6, None),
            ("active", 11, 0.5),
        ):
            tree.up += 10
            tree.files[f"{folder}/power/runtime_status"] = f"{status}\n"
            tree.files[f"{folder}/npu_busy_time_us"] = f"{busy}000000\n"
            found = series_of(all_of(source), c.HW_NPU_UTILIZATION)
            assert [*found.values()] == ([] if share is None else [share])


def test_idle_npu_may_suspend() -> None:
    drivers = laptop(0)
    tree = drivers.tree
    folder = f"{ACCEL}/accel0/device"
    tree.files |= {f"{folder}/power/control": "auto\n", f"{folder}/power/autosuspend_delay_ms": "5000\n"}
    with opened_source("drm", drivers, STRANGER) as source:
        all_of(source)
        assert source.readings()[0].apart == 0.0
        tree.up += 10
        all_of(source)
        assert source.readings()[0].apart == 6.0


def test_host_without_such_devices_reads_two_folders_and_the_drivers_of_its_cards() -> None:
    tree = Tree({**HOST, **{f"{DRM}/card{n}/device/uevent": "DRIVER=amdgpu\n" for n in range(8)}})
    assert Drm.has_sign(Config(), {}, tree) is False
    assert len(tree.asked) == 8


# -- an independent reader

GLANCES = """
import json, sys
from glances.plugins.gpu.cards.arm import parse_fdinfo
from glances.plugins.npu.cards.intel import IntelNPU
print(json.dumps([[parse_fdinfo(text) for text in json.loads(sys.argv[1])], IntelNPU(sys.argv[2]).get_device_stats()]))
"""


@pytest.mark.whole
def test_glances_reads_the_same_numbers(tmp_path: Any) -> None:
    glances()
    engines = {"engine_fragment": "5000000 ns", "engine_vertex-tiler": "3000000 ns"}
    texts = [
        fdinfo("panthor", 1, engine_panthor="7000 ns", resident_memory="3 MiB", total_memory="9 MiB"),
        fdinfo("panfrost", 2, **engines, cycles_fragment=9, resident_memory="12 KiB"),
        fdinfo("v3d", 3, engine_render="8 ns", engine_bin="9 ns", resident_memory="0 KiB"),
    ]
    tree = laptop(1).tree
    for path, text in tree.files.items():
        if path.startswith(ACCEL):
            file = tmp_path / path[1:]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(str(text))
    child = succeed([sys.executable, "-c", GLANCES, json.dumps(texts), str(tmp_path)], {"HOME": str(tmp_path)})
    theirs, npu = json.loads(child.stdout)
    for text, other in zip(texts, theirs):
        ours = parse(text.encode())
        assert ours is not None
        assert sum(engine.busy for engine in ours.engines.values()) == other["engine_total_ns"]
        assert ours.memory == other["mem_used_bytes"]
    with opened_source("drm", at(1, {path: str(text) for path, text in tree.files.items()}), STRANGER) as source:
        found = {
            series.metric: number for series, number in all_of(source).items() if series.metric is not c.HW_NPU_INFO
        }
    assert found[c.HW_NPU_FREQUENCY] == npu["freq_current"]
    assert (found[c.HW_TEMPERATURE], found[c.HW_POWER]) == (npu["temperature"], npu["power"])


def test_open_file_of_another_driver_is_ignored() -> None:
    drivers = board(0)
    drivers.tree.files |= opened(STRANGER, 11, "/dev/dri/renderD129", fdinfo("amdgpu", 1, "0000:03:00.0"))
    with opened_source("drm", drivers, STRANGER) as source:
        assert [*series_of(all_of(source), c.PROCESS_GPU_MEMORY_USAGE).values()] == [5 << 20]
