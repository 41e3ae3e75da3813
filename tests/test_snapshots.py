"""snapshot(), the instrumentor as a context manager, and the page about notebooks in a real kernel."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import KernelManager
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.support.children import PATIENCE, environment

from opentelemetry.instrumentation.hardware import HardwareInstrumentor, HardwareSnapshot, snapshot

PAGE = Path(__file__).parents[1] / "docs" / "notebooks.md"


@pytest.fixture(scope="module")
def simulated() -> HardwareSnapshot:
    return snapshot(0.3, simulate="2xH100", sources=["nvidia", "host", "process"])


def test_devices_have_their_names_facts_and_values(simulated: HardwareSnapshot) -> None:
    first, second = (device for device in simulated.devices if device.type == "gpu")
    assert (first.name, second.name) == ("GPU 0 simulated", "GPU 1 simulated")
    assert first.model == "NVIDIA H100 80GB HBM3"
    power, limit = first.value("hw.power"), first.value("hw.power.limit", limit_type="enforced")
    assert power is not None
    assert 70.0 <= power <= 700.0
    assert limit == 700.0
    assert first.value("hw.gpu.utilization", task="tensor") != first.value("hw.gpu.utilization", task="general")


def test_snapshot_is_shown_in_a_line(simulated: HardwareSnapshot) -> None:
    first = next(device for device in simulated.devices if device.type == "gpu")
    assert repr(first) == f"Device(name='GPU 0 simulated', type='gpu', values={len(first.values)})"
    shown = repr(simulated)
    assert shown.startswith(
        f"HardwareSnapshot(devices={len(simulated.devices)}, values={len(simulated.values)}, missing="
    )
    assert "\n" not in shown


def test_unknown_value_is_none_and_its_reason_is_given(simulated: HardwareSnapshot) -> None:
    gpu = simulated.devices[0]
    assert gpu.value("hw.gpu.fan") is None
    assert gpu.value("hw.gpu.utilization", task="dreaming") is None
    missing = snapshot(0.0, sources=["nvidia"], nvml="/nowhere/libnvml.so", nvidia_smi="off").missing
    assert [sentence for sentence in missing if sentence.startswith("nvidia: ")]


@pytest.mark.parametrize("window", ["abc", "1", None, -1.0, float("nan"), float("inf")])
def test_invalid_window_is_named(window: Any) -> None:
    with pytest.raises(ValueError, match=f"window: {window!r} is not a number of seconds"):
        snapshot(window)


def test_counters_have_rates_and_other_metrics_have_none(simulated: HardwareSnapshot) -> None:
    energy, power = (simulated.devices[0].value(name) for name in ("hw.energy", "hw.power"))
    assert energy is not None
    assert power is not None
    (rate,) = (each.rate for each in simulated.devices[0].values if each.name == "hw.energy")
    assert rate == pytest.approx(power, rel=0.5)
    assert [each.rate for each in simulated.values if each.name == "hw.power"] == [None, None]


def test_rows_and_dict_have_every_value_and_can_be_json(simulated: HardwareSnapshot) -> None:
    everything = json.loads(json.dumps(simulated.to_dict()))
    assert len(everything["values"]) == len(simulated.rows()) == len(simulated.values)
    assert [device["name"] for device in everything["devices"]] == [device.name for device in simulated.devices]
    (row,) = (row for row in simulated.rows() if row["name"] == "system.memory.limit")
    assert (row["unit"], row["time"]) == ("By", simulated.time)


def test_context_manager_starts_and_ends_the_instrumentation() -> None:
    reader = InMemoryMetricReader()
    instrumentor = HardwareInstrumentor()
    instrumentor.instrument(meter_provider=MeterProvider([reader]), sources=["host"], reporter="always")
    with instrumentor as same:
        assert same is instrumentor
        assert same.is_instrumented_by_opentelemetry
        data = reader.get_metrics_data()
        assert data is not None
        assert data.resource_metrics
    assert not instrumentor.is_instrumented_by_opentelemetry


def test_context_manager_takes_settings() -> None:
    provider = MeterProvider([InMemoryMetricReader()])
    with HardwareInstrumentor(meter_provider=provider, sources=["nvidia"], simulate="2xH100") as same:
        assert same._telemetry.session is not None
        assert [runner.name for runner in same._telemetry.session.runners] == ["nvidia"]
    HardwareInstrumentor().instrument(meter_provider=MeterProvider([InMemoryMetricReader()]), sources=["process"])
    assert same._telemetry.session is not None
    assert [runner.name for runner in same._telemetry.session.runners] == ["process"], (
        "the former settings are forgotten"
    )
    same.uninstrument()


def test_page_about_notebooks_runs_in_a_kernel() -> None:
    cells = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(cells) >= 5
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(env=environment())
    client = manager.client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=PATIENCE)
        for cell in cells:
            printed: list[str] = []
            reply = client.execute_interactive(
                cell, timeout=PATIENCE, output_hook=lambda message, out=printed: out.append(str(message["content"]))
            )
            assert reply["content"]["status"] == "ok", (cell, reply["content"], printed)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
