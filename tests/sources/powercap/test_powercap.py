"""Energy of processors: wraparound, and zones that cannot be read."""

from __future__ import annotations

from errno import EACCES
from pathlib import Path

import pytest
from tests.sources.machines import metal, old
from tests.sources.reading import often, opened, value
from tests.sources.tree import Fabricated, Tree

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import powercap

PACKAGES = [{c.HW_ID: f"package-{each}", c.HW_NAME: f"CPU {each}", c.HW_TYPE: "cpu"} for each in (0, 1)]
FOLDER = "/sys/class/powercap"


def test_energy_counter_of_a_zone_without_its_range_never_falls() -> None:
    machine = metal(0)
    files = machine.tree.files
    del files[f"{FOLDER}/intel-rapl:0/max_energy_range_uj"]
    with opened("powercap", machine) as source:
        files[f"{FOLDER}/intel-rapl:0/energy_uj"] = "5000000\n"
        first = value(often(source), c.HW_ENERGY, PACKAGES[0])
        files[f"{FOLDER}/intel-rapl:0/energy_uj"] = "2000000\n"
        assert value(often(source), c.HW_ENERGY, PACKAGES[0]) == pytest.approx(first + 2)


def test_unreadable_zone_loses_only_its_metrics() -> None:
    machine = metal(0)
    machine.tree.files[f"{FOLDER}/intel-rapl:0/energy_uj"] = PermissionError(EACCES, "Permission denied")
    with opened("powercap", machine) as source:
        found = {series.attributes[c.HW_ID] for series in often(source)}
    assert found == {"package-1", "dram-0", "dram-1", "psys"}


def test_prepare_needs_a_readable_rapl_zone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(powercap, "_CLASS", str(tmp_path / "powercap"))
    assert not powercap.Powercap.prepare(Config())
    (tmp_path / "powercap" / "intel-rapl:0").mkdir(parents=True)
    other = tmp_path / "powercap" / "other:0"
    other.mkdir()
    (other / "energy_uj").write_text("5\n")
    assert not powercap.Powercap.prepare(Config()), "no intel-rapl zone has a counter"
    (tmp_path / "powercap" / "intel-rapl:0" / "energy_uj").write_text("5\n")
    assert powercap.Powercap.prepare(Config())


@pytest.mark.parametrize(
    ("energies", "expected"),
    [
        pytest.param((41_234_567_890, 41_234_631_002), {"package-1": 41_234.56789}, id="one counter, of AMD"),
        pytest.param(
            (41_234_567_890, 39_000_000_000),
            {"package-1-die-0": 41_234.56789, "package-1-die-1": 39_000.0},
            id="two counters, of Intel",
        ),
        pytest.param((0, 0), {"package-1-die-0": 0.0, "package-1-die-1": 0.0}, id="not known yet"),
    ],
)
def test_dies_with_the_counter_of_their_package_are_counted_once(
    energies: tuple[int, int], expected: dict[str, float]
) -> None:
    machine = Fabricated(Tree())
    for die, energy in enumerate(energies):
        zone = f"{FOLDER}/intel-rapl:{die}"
        machine.tree.files[zone + "/name"] = f"package-1-die-{die}\n"
        machine.tree.files[zone + "/energy_uj"] = f"{energy}\n"
    with opened("powercap", machine) as source:
        found = {series.attributes[c.HW_ID]: energy for series, energy in often(source).items()}
    assert found == expected


def test_zones_for_root_only_are_unavailable_with_a_fix() -> None:
    machine = metal(0)
    for path in machine.tree.files:
        if path.endswith("/energy_uj"):
            machine.tree.files[path] = PermissionError(EACCES, "Permission denied")
    with pytest.raises(Unavailable, match="that this user may read") as refused, opened("powercap", machine):
        pass
    assert "only root" in refused.value.fix
    with pytest.raises(Unavailable) as nothing, opened("powercap", old(0)):
        pass
    assert not nothing.value.fix, "no fix is known"
