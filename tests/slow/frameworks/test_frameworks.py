"""The verdict of `python -m tests.slow.frameworks`, on made-up spans, and its receiver. No framework is installed."""

from __future__ import annotations

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from tests.slow.frameworks.cases import CASES
from tests.slow.frameworks.receiver import Receiver, Span
from tests.slow.frameworks.report import Row, line, page
from tests.slow.frameworks.verdict import LOAD, Counted, Run, judge
from tests.support.children import ROOT

from opentelemetry import trace

BEGIN = 1_800_000_000.0


def exact(seconds: float) -> float:
    """The joules of a span."""
    return LOAD.joules(BEGIN, BEGIN + seconds)


def span(name: str, parent: str = "", seconds: float = 1.0, error: float = 0.0) -> Span:
    """A span with the values that it must have, and an error of its energy in joules."""
    numbers = {"hw.energy": exact(seconds) + error, "hw.uncertainty.energy": 25.0}
    numbers |= {} if parent else {"process.cpu.time": 0.5}
    return Span(name, parent, BEGIN, seconds, not parent, numbers)


def plain(*spans: Span) -> Run:
    """The same spans without values."""
    return Run([Span(each.name, each.parent, each.begin, each.seconds, each.is_local_root) for each in spans])


AGENT, CHAT, CACHE = span("agent"), span("chat", "agent", 0.5), Span("cache", "agent", BEGIN, 0.01, False)


def test_equal_spans_with_values_are_right() -> None:
    verdict = judge(plain(AGENT, CHAT, CHAT, CACHE), Run([AGENT, CHAT, CHAT, CACHE]))
    assert verdict.problems == ()
    assert (verdict.energy, verdict.cpu_time) == (Counted(3, 3), Counted(1, 1))


def test_lost_span_is_reported() -> None:
    verdict = judge(plain(AGENT, CHAT, CHAT, CACHE), Run([AGENT, CHAT]))
    assert verdict.problems == ("lost: 1 x chat in agent, 1 x cache in agent",)


def test_lost_parent_is_reported() -> None:
    orphan = Span("chat", "?", BEGIN, 0.5, False, CHAT.numbers)
    verdict = judge(plain(AGENT, CHAT), Run([orphan]))
    assert verdict.problems == ("lost: 1 x agent, 1 x chat in agent", "added: 1 x chat in ?")


def test_missing_values_are_reported() -> None:
    verdict = judge(plain(AGENT, CHAT, CACHE), plain(AGENT, CHAT, CACHE))
    assert verdict.problems == ("no hw.energy: 1 x agent, 1 x chat", "no process.cpu.time: 1 x agent")
    assert (str(verdict.energy), str(verdict.cpu_time)) == ("0 of 2", "0 of 1")


@pytest.mark.parametrize("seconds", [0.3, 1.0])
def test_wrong_energy_is_reported(seconds: float) -> None:
    found = [span("agent", seconds=seconds, error=joules) for joules in (-40, 40, 80)]
    (problem,) = judge(plain(*found), Run(found)).problems
    assert problem == f"hw.energy of agent is {exact(seconds) + 80:.0f} J instead of {exact(seconds):.0f} J"


def test_short_local_root_must_have_cpu_time_and_no_energy() -> None:
    short = Span("cache", "", BEGIN, 0.01, True)
    verdict = judge(plain(short), Run([short]))
    assert (verdict.energy, verdict.cpu_time) == (Counted(0, 0), Counted(0, 1))


def test_program_that_fails_is_reported() -> None:
    assert judge(plain(AGENT), Run([AGENT], "exit status 1: no")).problems == ("with this package: exit status 1: no",)
    assert judge(Run([], "exit status 2: x"), Run()).problems == ("without this package: exit status 2: x",)
    assert judge(Run(), Run()).problems == ("without this package, no span arrives",)


def test_table_shows_verdict_and_counts() -> None:
    runs = plain(AGENT, CHAT), Run([AGENT])
    row = Row(CASES[0], "1.2", runs, judge(*runs))
    assert row.fails
    assert line(row, 3.2).split(maxsplit=9)[1:] == (
        ["1.2", "2", "/", "1", "1", "of", "1", "1", "of 1    3  FAILS: lost: 1 x chat in agent"]
    )
    assert "| 1.2 | " in page([row])
    assert "| 2 / 1 | 1 of 1 | 1 of 1 | FAILS: lost: 1 x chat in agent |" in page([row])
    skipped = Row(CASES[0], missing="no Python")
    assert not skipped.fails
    assert page([skipped]).endswith("| not run: no Python |\n")


def test_page_has_all_cases() -> None:
    text = (ROOT / "docs" / "frameworks.md").read_text(encoding="utf-8")
    rows = [row.split(" (")[0] for row in text.split("|---|---|---|---|---|---|---|\n")[1].split("\n| ")]
    assert [row.removeprefix("| ") for row in rows] == [case.name for case in CASES]


def test_receiver_has_names_parents_and_numbers() -> None:
    with Receiver() as receiver:
        exporter = OTLPSpanExporter(f"{receiver.endpoint}/v1/traces")
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        tracer = provider.get_tracer("tests")
        with tracer.start_as_current_span("root") as root:
            root.set_attributes({"hw.energy": 2.5, "count": 3, "word": "x", "words": ["x"]})
            tracer.start_span("child").end()
        context = trace.SpanContext(
            root.get_span_context().trace_id, 7, True, trace.TraceFlags(trace.TraceFlags.SAMPLED)
        )
        tracer.start_span("served", trace.set_span_in_context(trace.NonRecordingSpan(context))).end()
        provider.shutdown()
        child, first, served = receiver.spans()
    assert (child.name, child.parent, child.is_local_root) == ("child", "root", False)
    assert (first.name, first.parent, first.is_local_root) == ("root", "", True)
    assert first.numbers == {"hw.energy": 2.5, "count": 3}
    assert (served.name, served.parent, served.is_local_root) == ("served", "?", True)
