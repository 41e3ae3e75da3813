"""The dashboards and rules are made of metrics of the catalog, and the files are up to date."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from tests.alerts.stored import ALERTS, DASHBOARDS
from tests.support.children import ROOT

from opentelemetry.instrumentation.hardware.catalog import CATALOG

sys.path.append(str(ROOT / ".ci"))
from prometheus_names import label, series, series_of

BOARDS = ("fleet", "node", "job", "device", "spans")
FILES = [*sorted(ALERTS.glob("*.yml")), *sorted(DASHBOARDS.rglob("*.json"))]


@pytest.mark.parametrize("name", BOARDS)
def test_dashboard_is_up_to_date(name: str) -> None:
    pytest.importorskip("grafana_foundation_sdk")
    from dashboards import VMUI, board, vmui

    assert (DASHBOARDS / f"{name}.json").read_text() == board(name), "run: python .ci/dashboards.py"
    assert (VMUI / f"{name}.json").read_text() == vmui(name), "run: python .ci/dashboards.py"


def test_there_are_no_other_dashboards() -> None:
    for folder in (DASHBOARDS, DASHBOARDS / "vmui"):
        assert sorted(path.stem for path in folder.glob("*.json")) == sorted(BOARDS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_names_are_those_of_the_catalog(path: Path) -> None:
    names = {series(metric) for metric in CATALOG}
    names |= {name.replace("_gpu_", "_(gpu|npu)_") for name in names}
    labels = {label(attribute) for metric in CATALOG for attribute in metric.attributes}
    text = re.sub(r"(?m)^ *#.*", "", path.read_text())
    text = text.replace("(_ratio)?", "_ratio").replace("hw_status_ratio", "hw_status")
    words = set(re.findall(r"\b(?:hw|system|otel_hardware|process)_[\w()|]*\w", text))
    unknown = words - names - labels - {"otel_hardware_spans_energy_joules_total"}  # of joules.yaml
    assert not unknown


@pytest.mark.parametrize(
    ("name", "unit", "is_counter", "is_gauge", "expected"),
    [
        ("hw.energy", "J", True, False, "hw_energy_joules_total"),
        ("hw.gpu.utilization", "1", False, True, "hw_gpu_utilization_ratio"),
        ("hw.status", "1", False, False, "hw_status"),
        ("hw.errors", "{error}", True, False, "hw_errors_total"),
        ("system.uptime", "s", False, True, "system_uptime_seconds"),
        ("hw.fan.speed_ratio", "1", False, True, "hw_fan_speed_ratio"),
        ("hw.npu.link.speed", "{transfer}/s", False, True, "hw_npu_link_speed_per_second"),
    ],
)
def test_names_in_prometheus(name: str, unit: str, is_counter: bool, is_gauge: bool, expected: str) -> None:
    """The same names as those of a real Collector, whose page docs/fleet.md and its tests have."""
    assert series_of(name, unit, is_counter, is_gauge) == expected


@pytest.mark.parametrize("name", BOARDS)
def test_panels_are_in_rows_without_overlap(name: str) -> None:
    board = json.loads((DASHBOARDS / f"{name}.json").read_text())
    cells = [
        (x, y)
        for place in (each["gridPos"] for each in board["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
