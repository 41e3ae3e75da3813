"""Presets and conditions: which series are exported, and how many."""

from __future__ import annotations

import logging
import re
from collections import Counter
from dataclasses import replace

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.support.children import PATIENCE, ROOT
from tests.support.commands import otel_hardware
from tests.support.journal import flatten
from tests.tools.daemon import wait

from opentelemetry.instrumentation.hardware import HardwareInstrumentor
from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.catalog.presets import MINIMAL, NOT_STANDARD, PRESETS, presets_of
from opentelemetry.instrumentation.hardware.pipeline.collector import Reader
from opentelemetry.instrumentation.hardware.settings import Config

ROWS = {row.name: row for row in c.CATALOG}

# Most series of a GPU, and of a host with one disk and one interface.
LIMITS = {"minimal": (12, 20), "standard": (40, 60), "all": (90, 80)}

# Attributes that tell disks, interfaces and file systems apart.
EACH = (c.DEVICE, c.INTERFACE, c.FILESYSTEM_MOUNTPOINT, c.FILESYSTEM_TYPE)


def series(**settings: object) -> list[tuple[str, dict[str, object]]]:
    """The name and attributes of each series of an export of a host with two simulated GPUs."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    instrumentor = HardwareInstrumentor()
    instrumentor.instrument(meter_provider=provider, simulate="2xH100:training", reporter="always", **settings)
    try:
        session = instrumentor._telemetry.session
        assert session is not None

        def are_rates_known() -> bool:
            """Whether there were two readings of the host, and of each GPU two of GPM a tenth of a second apart."""
            session.read_now(10.0)
            values = session.collect(Reader()).values
            tasks = Counter(attributes[c.GPU_TASK] for _, attributes in values.get(c.HW_GPU_UTILIZATION, ()))
            return tasks["tensor"] == 2 and c.SYSTEM_CPU_UTILIZATION in values

        wait(are_rates_known, PATIENCE, "the utilization of the tensor cores of both GPUs")
        return [(point.name, dict(point.attributes)) for point in flatten(reader.get_metrics_data())]
    finally:
        instrumentor.uninstrument()
        provider.shutdown()


@pytest.mark.parametrize("preset", PRESETS)
def test_preset_exports_at_most_so_many_series(preset: str) -> None:
    found = series(preset=preset)
    gpus = Counter(attributes[c.HW_ID] for _, attributes in found if c.HW_ID in attributes)
    host = {
        (name, frozenset((key, value) for key, value in attributes.items() if key not in EACH))
        for name, attributes in found
        if c.HW_ID not in attributes and not name.startswith("container.")
    }
    of_gpu, of_host = LIMITS[preset]
    assert len(gpus) == 2
    assert max(gpus.values()) <= of_gpu
    assert len(host) <= of_host
    names = {name for name, _ in found}
    assert {c.HW_ENERGY.name, c.HW_POWER.name, c.HW_GPU_INFO.name, c.HW_STATUS.name} <= names
    assert {name for name in names if ROWS[name].opt_in} == set()


def test_every_pattern_of_a_preset_is_of_a_metric() -> None:
    for pattern in (*MINIMAL, *NOT_STANDARD):
        assert any(pattern.is_of(row) for row in c.CATALOG), pattern
    assert {"minimal", "standard", "all"} == {name for row in c.CATALOG for name in presets_of(row)}


def test_everything_in_minimal_is_in_standard() -> None:
    kept = {(name, frozenset(attributes.items())) for name, attributes in series(preset="minimal")}
    assert kept <= {(name, frozenset(attributes.items())) for name, attributes in series()}


def tasks(**settings: object) -> set[object]:
    return {attributes[c.GPU_TASK] for name, attributes in series(**settings) if name == c.HW_GPU_UTILIZATION.name}


def test_condition_adds_and_leaves_out_series() -> None:
    assert tasks(preset="minimal") == {"general", "tensor"}
    assert tasks(preset="minimal", include_metrics="hw.gpu.utilization{hw.gpu.task=FP16}") == {
        *("general", "tensor", "fp16")
    }
    without = "hw.gpu.utilization{hw.gpu.task=fp*},hw.gpu.utilization{hw.gpu.task=tensor}"
    assert not tasks(preset="all", exclude_metrics=without) & {"tensor", "fp16", "fp32", "fp64"}


def test_condition_does_not_change_what_is_read() -> None:
    config = Config.read({"exclude_metrics": "hw.gpu.utilization{hw.gpu.task=fp*}", "preset": "minimal"}, {})
    assert config.wants(c.HW_GPU_UTILIZATION)
    assert config.wants(c.HW_GPU_TIME)


@pytest.mark.parametrize("wrong", ["hw.gpu.utilization{hw.type=gpu}", "hw.gpu.nonsense{hw.id=0}"])
def test_condition_that_no_metric_has_is_one_warning(wrong: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        config = Config.read({"exclude_metrics": wrong}, {})
    assert config.exclude_metrics is None
    (record,) = caplog.records
    assert "no metric matches" in record.getMessage()


def test_opt_in_metrics_and_those_of_endpoints_are_in_no_preset() -> None:
    config = Config.read({"preset": "minimal"}, {})
    opt_in = [row for row in c.CATALOG if row.opt_in]
    assert opt_in
    assert {config.exported(row) for row in opt_in} == {None}
    assert config.exported(replace(c.HW_POWER_PEAK, endpoint="vllm")) is None


def test_command_counts_the_series_of_each_preset() -> None:
    answer = otel_hardware("metrics", "--preset", "minimal", env={"OTEL_PYTHON_HARDWARE_SIMULATE": "8xH100"})
    assert answer.status == 0
    assert re.search(r"^hw\.power +8$", answer.out, re.MULTILINE)
    assert "hw.gpu.time" not in answer.out
    (counts,) = re.findall(r"by preset: minimal (\d+), standard (\d+), all (\d+)\.", answer.out)
    minimal, standard, everything = map(int, counts)
    assert 8 * 12 < minimal < standard < everything
    assert re.search(r"with minimal has \d+ sets of attributes", answer.out)


def test_page_has_the_limits() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    for preset, (of_gpu, of_host) in LIMITS.items():
        (row,) = re.findall(rf"^\| `{preset}`[^|]*\| (\d+) \| (\d+) \| (\d+) \|", page, re.MULTILINE)
        gpu, host, whole = map(int, row)
        assert (gpu, host) == (of_gpu, of_host)
        assert whole == 8 * gpu + host
