"""Where neither metrics nor spans can be exported, no thread is started and no driver is opened, until they can."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from tests.support import children

BEGIN = """
import json, os, time
from opentelemetry import metrics, trace
from opentelemetry.instrumentation.hardware import HardwareInstrumentor, HardwareSpanProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.support.journal import flatten
from tests.support.relatives import children
from tests.support.traces import threads, until

reader, spans = InMemoryMetricReader(), InMemorySpanExporter()

def works():
    session = HardwareInstrumentor()._telemetry.session
    opened = [runner.name for runner in session.runners if runner.source is not None] if session else []
    return bool(threads() or opened or children())

def span(provider):
    with provider.get_tracer("test").start_as_current_span("work"):
        time.sleep(0.01)
    ended = spans.get_finished_spans()
    return bool(ended) and "process.cpu.time" in ended[-1].attributes

def names():
    until(lambda: "process.cpu.time" in {each.name for each in flatten(reader.get_metrics_data())}, "metric")
    return True

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
    program = "time.sleep(0.3); span(trace.get_tracer_provider()); print(json.dumps([works()]))"
    assert outcome(program, env, zero_code=True) == [False]


def test_spans_alone_are_measured() -> None:
    program = "print(json.dumps([works()]))"
    env = NONE | {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    assert outcome(program, env, zero_code=True) == [True]


START = "HardwareInstrumentor().instrument()"
STOP = "HardwareInstrumentor().uninstrument()"

# How a program begins, what it adds later, and whether that works.
LATER = {
    "global MeterProvider": ([START], ["metrics.set_meter_provider(MeterProvider([reader]))"], "names()"),
    "reader": (
        ["provider = MeterProvider()", "HardwareInstrumentor().instrument(meter_provider=provider)"],
        ["provider.add_metric_reader(reader)"],
        "names()",
    ),
    "reader of a global MeterProvider": (
        [START, "provider = MeterProvider()", "metrics.set_meter_provider(provider)"],
        ["provider.add_metric_reader(reader)"],
        "names()",
    ),
    "second MeterProvider": (
        ["HardwareInstrumentor().instrument(meter_provider=MeterProvider())"],
        ["HardwareInstrumentor().instrument(meter_provider=MeterProvider([reader]))"],
        "names()",
    ),
    "span processor": (
        ["provider = TracerProvider()", START, "span(provider)"],
        ["provider.add_span_processor(SimpleSpanProcessor(spans))"],
        "span(provider)",
    ),
    "span processor that no method has added": (
        ["provider = TracerProvider()", START],
        [
            "provider._active_span_processor._span_processors = (SimpleSpanProcessor(spans),)",
            "measured = span(provider)",
        ],
        "measured",
    ),
    "TracerProvider that was made before": (
        ["TracerProvider()", START],
        [STOP, "provider = TracerProvider()", "provider.add_span_processor(SimpleSpanProcessor(spans))", START],
        "span(provider)",
    ),
    "second start": (
        ["HardwareInstrumentor().instrument(meter_provider=MeterProvider())"],
        [STOP, "HardwareInstrumentor().instrument(meter_provider=MeterProvider([reader]))"],
        "names()",
    ),
}


@pytest.mark.parametrize(("first", "later", "check"), LATER.values(), ids=LATER)
def test_what_is_added_later_starts_it(first: list[str], later: list[str], check: str) -> None:
    if "provider.add_metric_reader(reader)" in later and not hasattr(MeterProvider, "add_metric_reader"):
        later, check = [], "works()"  # SDK 1.39 cannot add it
    program = [*first, "before = works()", *later, f"print(json.dumps([before, works(), {check}]))"]
    assert outcome("\n".join(program)) == [False, bool(later), bool(later)]


def test_a_forked_child_measures_spans_of_a_processor_that_it_adds() -> None:
    program = """
provider = TracerProvider()
HardwareInstrumentor().instrument()
span(provider)
before = works()
pid = os.fork()
if not pid:
    span(provider)
    idle = not threads()
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
before = bool(threads())
ours.shutdown()
HardwareInstrumentor().instrument()
span(provider)
print(json.dumps([before, works()]))
"""
    assert outcome(program, {"OTEL_SDK_DISABLED": "true"}) == [False, False]
    assert outcome(program) == [True, False]
