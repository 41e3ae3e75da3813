"""Pages of the profiler and lines of libtpu's SDK."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.samples import samples

from opentelemetry.instrumentation.hardware.sources.tpu import profiler, sdk
from opentelemetry.instrumentation.hardware.sources.tpu.fields import BUSY, MATRIX

LIGHT = """\
Timestamp: 11:22:33
TPU type: TPU v3
Utilization of TPU Matrix Units (higher is better): 42.25%
"""


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (LIGHT, ("TPU v3", {MATRIX: 42.25})),
        (LIGHT + "TPU idle time (lower is better): 5.5%\n", ("TPU v3", {MATRIX: 42.25, BUSY: 94.5})),
        ("Utilization of TPU Matrix Units (higher is better): 0.000%", ("", {MATRIX: 0.0})),
        ("Utilization of TPU Matrix Units (higher is better): 142.0%", ("", {})),
        ("Utilization of TPU Matrix Units (higher is better): -1.0%", ("", {})),
        ("Utilization of TPU Matrix Units (higher is better): nan%", ("", {})),
        ("Utilization of TPU Matrix Units (higher is better):", ("", {})),
        ("", ("", {})),
    ],
)
def test_profiler_page_of_both_levels_is_parsed(page: str, expected: object) -> None:
    assert profiler.parse(page) == expected


@pytest.mark.parametrize("path", samples("tpu/tpu_profiler_client_monitor_level2.txt"))
def test_recorded_profiler_page_is_parsed(path: Path) -> None:
    page = path.read_text()
    assert profiler.parse(page) == ("TPU v2", {MATRIX: 10.1, BUSY: 100 - 36.9})


LINE = {
    "tensorcore_util": ["12.50", "0.00"],
    "ici_link_health": ["tray1.chip3.ici0.int: 0"],
    "tpu_throttle_score": ["0-0", "1-10"],
}


def test_libtpu_sdk_line_is_parsed() -> None:
    assert sdk.parse(json.dumps(LINE).encode()) == ((12.5, 0.0), {"tray1.chip3.ici0.int": 0}, {0: 0, 1: 10})
    odd = {
        "tensorcore_util": ["nan", "101", "", 5],
        "ici_link_health": ["a: 11", "b", ": 1", "Größe: 1"],
        "tpu_throttle_score": ["0-11", "x-1", "1"],
    }
    assert sdk.parse(json.dumps(odd).encode()) == ((None, None, None), {}, {})


@pytest.mark.parametrize("line", [b"[]", b"1"])
def test_invalid_libtpu_sdk_line_is_an_error(line: bytes) -> None:
    with pytest.raises(ValueError, match="invalid line"):
        sdk.parse(line)
