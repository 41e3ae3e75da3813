"""Intel's GPUs: what is derived from the files of i915 and xe, and what an independent reader says."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.sources.cards import DRM, arc, integrated, old_kernel
from tests.sources.machines import STRANGER
from tests.sources.reading import all_of, opened, series_of, value
from tests.sources.tree import Tree
from tests.support.children import succeed
from tests.tools import glances

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources.intel import Intel

ARC = {c.HW_ID: "0000:03:00.0", c.HW_NAME: "GPU 0"}
CARD = f"{DRM}/card1/device"


def test_power_is_the_growth_of_the_energy_of_the_card() -> None:
    drivers = arc(0)
    with opened("intel", drivers, STRANGER) as source:
        first = all_of(source)
        assert series_of(first, c.HW_POWER) == {}
        drivers.become(arc(1))
        found = all_of(source)
        card = {**ARC, c.HW_TYPE: "gpu"}
        assert value(found, c.HW_POWER, card) == 150
        assert value(found, c.HW_ENERGY, card) - value(first, c.HW_ENERGY, card) == 1500
        drivers.tree.up += 0.001
        assert value(all_of(source), c.HW_POWER, card) == 150, (
            "a reading that follows at once has no step of the counter"
        )


def test_power_is_unknown_if_the_second_reading_follows_at_once() -> None:
    """The counter grows in steps, so over a millisecond it may have grown by nothing, or by much too much."""
    drivers = arc(0)
    with opened("intel", drivers, STRANGER) as source:
        all_of(source)
        up = drivers.tree.up
        drivers.become(arc(1))
        drivers.tree.up = up + 0.001
        assert series_of(all_of(source), c.HW_POWER) == {}
        drivers.tree.up = up + 10.0
        assert value(all_of(source), c.HW_POWER, {**ARC, c.HW_TYPE: "gpu"}) == 150


@pytest.mark.parametrize(
    ("changes", "watts"),
    [
        pytest.param({}, 190, id="sustained"),
        pytest.param({"power1_max": ""}, 230, id="only that for bursts, as a B60 has it"),
        pytest.param({"power1_max": "0\n"}, 230, id="sustained is off"),
        pytest.param({"power1_max": "", "power1_cap": "0\n"}, None, id="none"),
    ],
)
def test_power_limit_is_the_sustained_one_or_else_that_for_bursts(changes: dict[str, str], watts: int | None) -> None:
    drivers = arc(0)
    drivers.tree.files |= {f"{CARD}/hwmon/hwmon5/{name}": text for name, text in changes.items()}
    with opened("intel", drivers, STRANGER) as source:
        limits = {
            series.attributes[c.HW_LIMIT_TYPE]: each
            for series, each in series_of(all_of(source), c.HW_POWER_LIMIT).items()
        }
    assert limits == ({} if watts is None else {"enforced": watts})


@pytest.mark.parametrize("text", ["", "-1\n", "n/a\n", "9" * 40, "\udcff"])
def test_garbage_of_a_counter_is_no_utilization(text: str) -> None:
    drivers = arc(0)
    with opened("intel", drivers, STRANGER) as source:
        all_of(source)
        drivers.become(arc(1))
        drivers.tree.files[f"{CARD}/tile0/gt0/gtidle/idle_residency_ms"] = text.encode("utf-8", "surrogateescape")
        tasks = {series.attributes[c.GPU_TASK] for series in series_of(all_of(source), c.HW_GPU_UTILIZATION)}
        assert tasks == {"video"}


def test_reasons_are_not_read_while_nothing_throttles() -> None:
    drivers = arc(0)
    tree = drivers.tree
    with opened("intel", drivers, STRANGER) as source:
        found = series_of(all_of(source), c.HW_GPU_THROTTLE_TIME)
        assert len(found) == 4
        assert [path for path in tree.asked if path.endswith("reason_pl1")] == []


def test_suspended_card_is_found_but_not_read() -> None:
    drivers = integrated(0)
    tree = drivers.tree
    with opened("intel", drivers, STRANGER) as source:
        all_of(source)
        touched = {path for path in tree.asked if path.startswith(f"{CARD}/")}
        assert touched == {f"{CARD}/uevent", f"{CARD}/power/runtime_status"}


def test_idle_card_is_left_alone_longer_than_its_autosuspend_delay() -> None:
    drivers = old_kernel(0)
    tree = drivers.tree
    folder = f"{DRM}/card0/device"
    tree.files |= {f"{folder}/power/control": "auto\n", f"{folder}/power/autosuspend_delay_ms": "10000\n"}
    with opened("intel", drivers, STRANGER) as source:
        all_of(source)
        tree.up += 10
        tree.files[f"{DRM}/card0/power/rc6_residency_ms"] = "17000\n"
        limits = series_of(all_of(source), c.HW_POWER_LIMIT)
        assert source.readings()[0].apart == 11.0
        tree.asked.clear()
        assert series_of(dict(source.read_slow()), c.HW_POWER_LIMIT) == limits
        assert [path for path in tree.asked if "hwmon" in path] == []


def test_host_without_a_gpu_of_intel_has_no_sign() -> None:
    tree = Tree({f"{DRM}/card0/device/uevent": "DRIVER=nvidia\n"})
    assert Intel.has_sign(Config(), {}, tree) is False
    assert Intel.has_sign(Config(), {}, None) is False
    assert Intel.has_sign(Config(), {}, arc(0).tree) is True


GLANCES = """
import json, sys
from glances.plugins.gpu.cards.intel import IntelGPU
print(json.dumps(IntelGPU(sys.argv[1]).get_device_stats()))
"""


@pytest.mark.whole
def test_glances_reads_the_same_frequency(tmp_path: Path) -> None:
    """glances shows the frequency as a share of the highest one that was set."""
    glances()
    drivers = old_kernel(0)
    for path, text in drivers.tree.files.items():
        if path.startswith(DRM):
            file = tmp_path / path[1:]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(str(text))
    (tmp_path / DRM[1:] / "card0" / "gt_max_freq_mhz").write_text("2400\n")
    child = succeed([sys.executable, "-c", GLANCES, str(tmp_path / DRM[1:])], {"HOME": str(tmp_path)})
    shares = {each["gpu_id"]: each["proc"] for each in json.loads(child.stdout)}
    with opened("intel", drivers, STRANGER) as source:
        found = all_of(source)
    clock = {**ARC, c.FREQUENCY_DOMAIN: "graphics"}
    share = value(found, c.HW_GPU_FREQUENCY, clock) / value(found, c.HW_GPU_FREQUENCY_LIMIT, clock)
    assert share * 100 in shares.values()
