"""Beside opentelemetry-instrumentation-system-metrics, which reports some of the same metrics, and New Relic."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.support import children
from tests.support.journal import OURS, exports, repeated
from tests.support.sink import Sink

THEIRS = "opentelemetry.instrumentation.system_metrics"
SWITCH = "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=system_metrics"


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_system_metrics_beside_hardware_reports_both_and_warns_once(tmp_path: Path, first: str) -> None:
    outcome = children.succeed(children.command("applications/peer", tmp_path / "journal", first))
    report = [line for line in outcome.stderr.splitlines() if "system_metrics" in line or "system-metrics" in line]
    assert len(report) == 1, outcome.stderr
    assert SWITCH in report[0]
    # The same names in two scopes: a backend that drops the scope shows one series over the other.
    both = {"system.cpu.time", "system.memory.usage", "process.cpu.time"}
    *_, last = (each for each in exports(tmp_path / "journal") if both <= each.names(OURS) & each.names(THEIRS))
    assert repeated(last.points) == []
    assert last.values("application.steps") == [1]
    ours, theirs = (
        sum(point.value for point in last.points if point.name == "process.cpu.time" and point.scope == scope)
        for scope in (OURS, THEIRS)
    )
    assert 0 < theirs <= ours + 0.5, "the CPU times do not agree"


def test_auto_instrumentation_with_system_metrics_warns_once() -> None:
    """The tests in test_zero_code.py set the variable that the warning names, and get only our scope."""
    with Sink() as sink:
        env = sink.environment()
        disabled = env.pop("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS").split(",")
        assert SWITCH.partition("=")[2] in disabled
        outcome = children.run(children.instrumented("applications/configured"), env)
    assert outcome.returncode == 0
    assert outcome.stderr.count(SWITCH) == 1, outcome.stderr
    assert {scope.name for scope in sink.scopes} == {OURS, THEIRS}


_CONFIGURED = """\
import sys, time
from opentelemetry.instrumentation.system_metrics import SystemMetricsInstrumentor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.instrumentation.hardware import HardwareInstrumentor

spans = TracerProvider()  # the hardware is read for spans, also if no metric is exported
spans.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
names, readers = sys.argv[1].split(), [InMemoryMetricReader()] * (sys.argv[2] == "exported")
provider = MeterProvider(readers)
SystemMetricsInstrumentor(config=dict.fromkeys(names)).instrument(meter_provider=provider)
HardwareInstrumentor().instrument(meter_provider=provider)
HardwareInstrumentor()._telemetry.session.read_now(60)
time.sleep(0.5)
"""


@pytest.mark.parametrize(
    ("names", "readers", "warnings"),
    [
        ("process.memory.usage", "exported", 1),
        ("process.memory.usage", "not exported", 0),
        ("process.runtime.memory cpython.gc.collections", "exported", 0),  # what Elastic's distribution leaves on
    ],
)
def test_warns_only_of_metrics_that_are_exported_twice(names: str, readers: str, warnings: int) -> None:
    outcome = children.succeed([sys.executable, "-c", _CONFIGURED, names, readers])
    assert outcome.stderr.count(SWITCH) == warnings, outcome.stderr


_NEW_RELIC = """\
import time
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.instrumentation.hardware import HardwareInstrumentor

reader = InMemoryMetricReader()
HardwareInstrumentor().instrument(meter_provider=MeterProvider([reader]))
while not reader.get_metrics_data():
    time.sleep(0.1)

import newrelic.agent

assert not newrelic.agent.application().active
time.sleep(1)
assert not newrelic.agent.application().active
newrelic.agent.register_application(timeout=10)
assert newrelic.agent.application().active
"""


@pytest.mark.skipif(sys.version_info >= (3, 15), reason="New Relic has no wheel for Python 3.15")
def test_new_relic_is_not_registered_before_the_program_does() -> None:
    """In a server that loads its application and forks then, New Relic would report nothing of the workers."""
    settings = {"NEW_RELIC_DEVELOPER_MODE": "true", "NEW_RELIC_LICENSE_KEY": "0" * 40, "NEW_RELIC_LOG": "stderr"}
    children.succeed(["newrelic-admin", "run-program", sys.executable, "-c", _NEW_RELIC], settings)
