"""A fabricated /sys of real files: what the source reads there, what rocm-smi prints, and that both agree."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from tests.support import children
from tests.tools import program

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="amdgpu is a driver of Linux")

FIRST, SECOND = "43cc8cc8af246700", "43cc8cc8af246701"


def scene(name: str) -> Any:
    """The output of a scene of `programs/machines/radeon_machine.py`."""
    program("rocm-smi")
    return children.scene("machines/radeon_machine", name)


def value(points: dict[str, Any], metric: str, device: str, **attributes: str) -> Any:
    """The value of the one series of a device with these attribute values, or None."""
    wanted = [f"('hw.id', '{device}')", *(f"'{word}')" for word in attributes.values())]
    found = [each for name, each in points.items() if name.startswith(f"{metric}[") and all(w in name for w in wanted)]
    assert len(found) <= 1, (metric, device, attributes, found)
    return found[0] if found else None


# Key of rocm-smi, metric, attributes, and factor from the tool's unit to ours. ROCm 6 renamed some keys.
COMPARED: list[tuple[str, str, dict[str, str], float]] = [
    ("GPU use (%)", "hw.gpu.utilization", {"task": "general"}, 0.01),
    ("GPU memory use (%)", "hw.gpu.utilization", {"task": "memory"}, 0.01),
    ("Temperature (Sensor edge) (C)", "hw.temperature", {"at": "edge"}, 1),
    ("Temperature (Sensor junction) (C)", "hw.temperature", {"at": "junction"}, 1),
    ("Temperature (Sensor memory) (C)", "hw.temperature", {"at": "memory"}, 1),
    *((f"Temperature (Sensor HBM {n}) (C)", "hw.temperature", {"at": f"hbm{n}"}, 1.0) for n in range(4)),
    ("Average Graphics Package Power (W)", "hw.power", {}, 1),
    ("Max Graphics Package Power (W)", "hw.power.limit", {"limit": "enforced"}, 1),
    ("Voltage (mV)", "hw.voltage", {"at": "gpu"}, 1e-3),
    ("PCIe Replay Count", "hw.errors", {"type": "pcie_replay"}, 1),
    ("VRAM Total Memory (B)", "hw.gpu.memory.limit", {}, 1),
    ("VRAM Total Used Memory (B)", "hw.gpu.memory.usage", {}, 1),
    ("Energy counter", "hw.energy", {}, 2**-16),
]


@pytest.fixture(scope="module")
def agreed() -> Any:
    return scene("agree")


@pytest.mark.parametrize("driver", ["files", "tool"])
@pytest.mark.parametrize(("device", "card"), [(FIRST, "0000:63:00.0"), (SECOND, "0000:C9:00.0")])
def test_metrics_agree_with_rocm_smi(agreed: Any, driver: str, device: str, card: str) -> None:
    theirs = next(each for each in agreed["printed"].values() if each.get("PCI Bus") == card)
    compared = 0
    for key, metric, attributes, unit in COMPARED:
        if key in theirs:
            ours = value(agreed[driver]["points"], metric, device, **attributes)
            if driver == "tool" and ours is None and key == "Energy counter":
                continue  # the unit depends on the board, which rocm-smi does not print
            assert ours == pytest.approx(float(theirs[key]) * unit), key
            compared += 1
    assert compared >= 10, theirs
    clock = theirs["sclk clock speed:"]
    assert value(agreed[driver]["points"], "hw.gpu.frequency", device, domain="graphics") == int(clock[1:-4]) * 10**6


def test_sysfs_and_rocm_smi_readings_agree(agreed: Any) -> None:
    files, tool = agreed["files"]["points"], agreed["tool"]["points"]
    shared = {name for name in files if name in tool and "hw.gpu.info" not in name}
    assert len(shared) > 40
    for name in shared:
        assert tool[name] == pytest.approx(files[name], abs=0.003 if "ratio" in name else 1e-9), name
    only = {name.split("[")[0] for name in tool if name not in files}
    assert only <= {"hw.gpu.info"}, "the tool reports nothing that the files do not have"


def test_sysfs_and_rocm_smi_readings_identify_cards_alike(agreed: Any) -> None:
    for driver in ("files", "tool"):
        for device, words in (
            (FIRST, ("'GPU 0'", "'0000:63:00.0'", "'692139000110'", "'hw.gpu.index', 0")),
            (SECOND, ("'GPU 1'", "'0000:c9:00.0'", "'692139000111'", "'hw.gpu.index', 1")),
        ):
            (info,) = (name for name in agreed[driver]["points"] if "hw.gpu.info" in name and device in name)
            assert all(word in info for word in (*words, "'AMD'", "'113-D67301-063'")), info


def test_unreadable_sysfs_files_drop_only_their_metrics() -> None:
    found = scene("unreadable")
    for driver in ("files", "tool"):
        points = found[driver]["points"]
        assert value(points, "hw.gpu.memory.usage", SECOND) is None, "the tool prints 0 for what it cannot read"
        assert value(points, "hw.gpu.utilization", SECOND, task="general") is None
        assert value(points, "hw.power", SECOND) is None
        assert value(points, "hw.temperature", SECOND, at="edge") is None
        assert value(points, "hw.temperature", SECOND, at="junction") == 88
        assert value(points, "hw.gpu.utilization", SECOND, task="memory") == 0.57
        assert value(points, "hw.gpu.memory.usage", FIRST) == 10_960_896_000
        assert value(points, "hw.power", FIRST) == 41


def test_removed_card_has_status_failed_until_it_returns() -> None:
    found = scene("vanishing")
    for moment, state in (("before", "ok"), ("gone", "failed"), ("back", "ok")):
        points = found[moment]["points"]
        assert value(points, "hw.status", SECOND, state=state) == 1
        assert value(points, "hw.status", FIRST, state="ok") == 1
        assert value(points, "hw.power", FIRST) == 41
        assert value(points, "hw.power", SECOND) == (None if moment == "gone" else 287)
    assert any("GPU 1 does not respond" in sentence for sentence in found["gone"]["missing"])
    assert found["before"]["missing"] == found["back"]["missing"] == []


def test_no_file_of_a_suspended_card_is_opened() -> None:
    found = scene("asleep")
    assert not [name for name in found["asleep"]["points"] if "GPU 1" in name]
    assert value(found["asleep"]["points"], "hw.power", FIRST) == 41
    assert found["asleep"]["missing"] == ["GPU 1 is suspended, and is not woken to be read"]
    assert value(found["awake"]["points"], "hw.power", SECOND) == 287


def test_aborting_rocm_smi_does_not_affect_sysfs() -> None:
    found = scene("aborting")
    assert value(found["files"]["points"], "hw.power", FIRST) == 41
    assert found["error"] is not None
    assert "rocm-smi" in found["error"]


def test_missing_amdgpu_driver_gives_one_error_and_no_thread() -> None:
    found = scene("absent")
    assert found["error"].startswith("Unavailable: no AMD driver is loaded")
    assert found["threads"] == 1


def test_snapshot_reports_only_visible_devices() -> None:
    printed = scene("chosen")
    assert SECOND in printed["json"]
    assert FIRST not in printed["json"]
    assert '"gpu.1.gpu"' in printed["wandb"]
    assert '"gpu.0.gpu"' not in printed["wandb"]
