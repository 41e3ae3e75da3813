"""Every way to read a source goes through one session: NVML is initialised once, whatever is printed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.support.children import succeed
from tests.tools.nvml import FakeNvml, h100

_FUNCTION = "from opentelemetry.instrumentation.hardware import snapshot; snapshot(0.1, sources=['nvidia'])"

_INSTRUMENTS = (
    "from opentelemetry.sdk.metrics import MeterProvider\n"
    "from opentelemetry.sdk.metrics.export import InMemoryMetricReader\n"
    "from opentelemetry.instrumentation.hardware import HardwareInstrumentor\n"
    "reader = InMemoryMetricReader(); instrumentor = HardwareInstrumentor()\n"
    "instrumentor.instrument(meter_provider=MeterProvider([reader]), sources=['nvidia'])\n"
    "instrumentor._telemetry.session.read_now(60); data = reader.get_metrics_data(); instrumentor.uninstrument()\n"
    "assert data.resource_metrics\n"
)

_TOP = (
    "from opentelemetry.instrumentation.hardware.cli.top.feed import Feed\n"
    "from opentelemetry.instrumentation.hardware.pipeline.session import Session\n"
    "from opentelemetry.instrumentation.hardware.settings import Config\n"
    "config = Config.read({'sources': ['nvidia', 'host'], 'detail': ['cpu']})\n"
    "session = Session(config, all_processes=True); session.start()\n"
    "assert Feed(session, None).collect().devices; session.close()\n"
)

_SNAPSHOT = ["otel-hardware", "snapshot", "--sources", "nvidia", "--window", "0.1", "--format"]

WAYS = {
    **{f"snapshot {form}": [*_SNAPSHOT, form] for form in ("table", "json", "csv", "wandb", "otlp-json")},
    "free": ["otel-hardware", "free", "--max-memory", "100%", "--max-utilization", "100"],
    "record": ["otel-hardware", "record", "nvidia", "--ticks", "2", "--interval", "0.1"],
    "snapshot()": [sys.executable, "-c", _FUNCTION],
    "instruments": [sys.executable, "-c", _INSTRUMENTS],
    "top": [sys.executable, "-c", _TOP],
}


@pytest.mark.parametrize("way", WAYS)
def test_nvml_is_initialised_once(way: str, tmp_path: Path) -> None:
    machine = FakeNvml(tmp_path, h100(0))
    succeed(WAYS[way], machine.environment)
    calls = machine.calls()
    assert (calls["Init"], calls["Shutdown"]) == (1, 1)
