"""Where neither metrics nor spans can be exported, no thread is started and no driver is opened, until they can."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

import pytest
from tests.support import children

BEGIN = """
import json, os, threading, time
from opentelemetry import metrics, trace
from opentelemetry.instrumentation.hardware import HardwareInstrumentor, HardwareSpanProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

reader, spans = InMemoryMetricReader(), InMemorySpanExporter()

def works():
    ours = [thread.name for thread in threading.enumerate() if thread.name.startswith("otel-hardware")]
    session = HardwareInstrumentor()._telemetry.session
    opened = [runner.name for runner in session.runners if runner.source is not None] if session else []
    children = open(f"/proc/self/task/{os.getpid()}/children").read().split()
    return bool(ours or opened or children)

def span(provider):
    with provider.get_tracer("test").start_as_current_span("work"):
        time.sleep(0.01)
    ended = spans.get_finished_spans()
    return bool(ended) and "process.cpu.time" in ended[-1].attributes

def names():
    end = time.monotonic() + 60
    found = set()
    while "process.cpu.time" not in found and time.monotonic() < end:
        time.sleep(0.05)
        data = reader.get_metrics_data()
        found = {m.name for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics} if data else set()
    return "process.cpu.time" in found

"""


def outcome(program: str, env: Mapping[str, str] | None = None, *, zero_code: bool = False) -> list[bool]:
    """Run a program that prints a list."""
    line = [*(["opentelemetry-instrument"] if zero_code else []), sys.executable, "-c", BEGIN + program]
    off = {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": children.PEERS}
    ended = children.run(line, off | {**(env or {})})
    assert (ended.returncode, ended.stderr) == (0, "")
    answer: list[bool] = json.loads(ended.stdout)
    return answer


NONE = {f"OTEL_{signal}_EXPORTER": "none" for signal in ("METRICS", "TRACES", "LOGS")}
AGENT = {"OTEL_PYTHON_HARDWARE_MODE": "agent"}


@pytest.mark.parametrize(
    "env",
    [{"OTEL_SDK_DISABLED": "true"}, NONE, {"OTEL_SDK_DISABLED": "TRUE"} | AGENT, NONE | AGENT],
    ids=["disabled", "none", "disabled agent", "none agent"],
)
def test_nothing_is_started_where_nothing_can_be_exported(env: dict[str, str]) -> None:
    program = """
time.sleep(0.3)
span(trace.get_tracer_provider())
print(json.dumps([works()]))
"""
    assert outcome(program, env, zero_code=True) == [False]


def test_spans_alone_are_measured() -> None:
    program = "print(json.dumps([works()]))"
    env = NONE | {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    assert outcome(program, env, zero_code=True) == [True]


LATER = {
    "global MeterProvider": """
HardwareInstrumentor().instrument()
before = works()
metrics.set_meter_provider(MeterProvider([reader]))
print(json.dumps([before, works(), names()]))
""",
    "reader": """
provider = MeterProvider()
HardwareInstrumentor().instrument(meter_provider=provider)
before = works()
if not hasattr(provider, "add_metric_reader"):  # SDK 1.39
    print(json.dumps([before, True, True]))
    raise SystemExit
provider.add_metric_reader(reader)
print(json.dumps([before, works(), names()]))
""",
    "reader of a global MeterProvider": """
HardwareInstrumentor().instrument()
provider = MeterProvider()
metrics.set_meter_provider(provider)
before = works()
if not hasattr(provider, "add_metric_reader"):  # SDK 1.39
    print(json.dumps([before, True, True]))
    raise SystemExit
provider.add_metric_reader(reader)
print(json.dumps([before, works(), names()]))
""",
    "second MeterProvider": """
HardwareInstrumentor().instrument(meter_provider=MeterProvider())
before = works()
HardwareInstrumentor().instrument(meter_provider=MeterProvider([reader]))
print(json.dumps([before, works(), names()]))
""",
    "span processor": """
provider = TracerProvider()
HardwareInstrumentor().instrument()
span(provider)
before = works()
provider.add_span_processor(SimpleSpanProcessor(spans))
print(json.dumps([before, works(), span(provider)]))
""",
    "span processor that no method has added": """
provider = TracerProvider()
HardwareInstrumentor().instrument()
before = works()
provider._active_span_processor._span_processors = (SimpleSpanProcessor(spans),)
measured = span(provider)
print(json.dumps([before, works(), measured]))
""",
    "TracerProvider that was made before": """
TracerProvider()
HardwareInstrumentor().instrument()
before = works()
HardwareInstrumentor().uninstrument()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
HardwareInstrumentor().instrument()
print(json.dumps([before, works(), span(provider)]))
""",
    "second start": """
HardwareInstrumentor().instrument(meter_provider=MeterProvider())
before = works()
HardwareInstrumentor().uninstrument()
HardwareInstrumentor().instrument(meter_provider=MeterProvider([reader]))
print(json.dumps([before, works(), names()]))
""",
}


@pytest.mark.parametrize("program", LATER.values(), ids=LATER)
def test_what_is_added_later_starts_it(program: str) -> None:
    assert outcome(program) == [False, True, True]


def test_a_forked_child_measures_spans_of_a_processor_that_it_adds() -> None:
    program = """
provider = TracerProvider()
HardwareInstrumentor().instrument()
span(provider)
before = works()
pid = os.fork()
if not pid:
    span(provider)
    idle = not any(thread.name.startswith("otel-hardware") for thread in threading.enumerate())
    provider.add_span_processor(SimpleSpanProcessor(spans))
    os._exit(0 if span(provider) and idle else 1)
status = os.waitpid(pid, 0)[1]
print(json.dumps([before, works(), status == 0]))
"""
    assert outcome(program) == [False, False, True]


def test_a_processor_of_ours_exports_nothing() -> None:
    program = """
ours = HardwareSpanProcessor()
provider = TracerProvider()
provider.add_span_processor(ours)
trace.set_tracer_provider(provider)
before = any(thread.name.startswith("otel-hardware") for thread in threading.enumerate())
ours.shutdown()
HardwareInstrumentor().instrument()
span(provider)
print(json.dumps([before, works()]))
"""
    assert outcome(program, {"OTEL_SDK_DISABLED": "true"}) == [False, False]
    assert outcome(program) == [True, False]
