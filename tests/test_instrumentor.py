"""HardwareInstrumentor called by code: repeatedly, with one or several providers and any settings."""

from __future__ import annotations

import gc
import json
import logging
import math
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import psutil
import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    InMemoryMetricReader,
    PeriodicExportingMetricReader,
)
from tests.support import children, traces
from tests.support.journal import OURS, Arrived, Journal, exports, flatten, repeated
from tests.support.stage import Clock, fail
from tests.support.waiting import wait_for

from opentelemetry.instrumentation.hardware import HardwareInstrumentor
from opentelemetry.instrumentation.hardware.catalog import SCHEMA_URL, SYSTEM_CPU_TIME
from opentelemetry.instrumentation.hardware.model import Kind, Metric, Point
from opentelemetry.instrumentation.hardware.pipeline import found, pace, session
from opentelemetry.instrumentation.hardware.pipeline.thread import ReaderThread
from opentelemetry.instrumentation.hardware.settings import JOB, Config
from opentelemetry.instrumentation.hardware.sources import Source, discover
from opentelemetry.instrumentation.hardware.version import __version__


@pytest.fixture
def instrumentor() -> Iterator[HardwareInstrumentor]:
    made = HardwareInstrumentor()
    assert not made.is_instrumented_by_opentelemetry, "an earlier test left it instrumented"
    yield made
    if made.is_instrumented_by_opentelemetry:
        made.uninstrument()


Left = tuple[list[str], list[str]]


def left() -> Left:
    """Return the names of our threads, and the kernel's files that are open."""
    return traces.threads(), traces.descriptors()


@pytest.fixture
def before() -> Left:
    """The threads and open files that earlier tests left. A thread may end after the test that stopped it."""
    wait_for(lambda: not traces.threads(), 60, "the end of the threads of earlier tests")
    return left()


class Application:
    """A provider with a reader and the application's counter."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader], shutdown_on_exit=False)
        self.provider.get_meter("application").create_counter("application.steps").add(1)

    def points(self) -> list[Arrived]:
        """What is exported after a new reading; the application's own metric is always there."""
        opened = HardwareInstrumentor()._telemetry.session
        if opened is not None:
            opened.read_now(10)
        points = list(flatten(self.reader.get_metrics_data()))
        assert [point.value for point in points if point.scope == "application"] == [1]
        assert repeated(points) == []
        return [point for point in points if point.scope == OURS]

    def names(self) -> set[str]:
        return {point.name for point in self.points()}


@pytest.fixture
def application() -> Iterator[Application]:
    made = Application()
    yield made
    made.provider.shutdown()


def test_uninstrument_leaves_no_thread_descriptor_child_or_variable(
    instrumentor: HardwareInstrumentor, application: Application, before: Left
) -> None:
    def cycle() -> None:
        instrumentor.instrument(meter_provider=application.provider, detail=["cpu", "connections", "processes"])
        assert application.points()
        assert len(traces.threads()) >= 2
        wait_for(lambda: traces.descriptors() == before[1], 10, "files that are open during a reading only")
        assert JOB in os.environ
        instrumentor.uninstrument()

    cycle()  # the first one also opens what the process keeps, such as libraries
    descriptors = len(os.listdir("/proc/self/fd"))
    cycle()
    assert left() == before
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert psutil.Process().children() == []
    assert JOB not in os.environ


def test_two_meter_providers_share_one_session(
    instrumentor: HardwareInstrumentor, application: Application, caplog: pytest.LogCaptureFixture
) -> None:
    other = Application()
    instrumentor.instrument(meter_provider=application.provider)
    instrumentor.instrument(meter_provider=other.provider)
    assert caplog.records == []
    assert application.names() >= {"system.cpu.time", "process.cpu.time"} <= other.names()
    threads = traces.threads()
    assert len(threads) == len(set(threads)), "the second provider has threads of its own"
    instrumentor.uninstrument()
    assert application.points() == other.points() == []
    instrumentor.instrument(meter_provider=other.provider)
    assert other.points()
    assert application.points() == [], "it reports to the provider of an earlier session"
    instrumentor.instrument(meter_provider=application.provider)
    assert application.points()
    other.provider.shutdown()


def test_second_meter_provider_has_instruments_before_the_next_reading(
    instrumentor: HardwareInstrumentor, application: Application
) -> None:
    instrumentor.instrument(meter_provider=application.provider, sources=["process"])
    assert "process.uptime" in application.names()
    session_ = instrumentor._telemetry.session
    assert session_ is not None
    session_.on_reading = lambda: None  # readings register no rows from now on
    other = Application()
    instrumentor.instrument(meter_provider=other.provider)
    assert "process.uptime" in {point.name for point in flatten(other.reader.get_metrics_data())}
    other.provider.shutdown()


def test_same_meter_provider_twice_reports_once(
    instrumentor: HardwareInstrumentor, application: Application, caplog: pytest.LogCaptureFixture
) -> None:
    instrumentor.instrument(meter_provider=application.provider)
    instrumentor.instrument(meter_provider=application.provider)
    instrumentor.instrument()
    assert caplog.messages == ["Attempting to instrument while already instrumented"] * 2
    assert application.points()  # fails for duplicate series


def test_other_settings_of_a_second_call_are_ignored_with_a_warning(
    instrumentor: HardwareInstrumentor, application: Application, caplog: pytest.LogCaptureFixture
) -> None:
    """As in a program that opentelemetry-instrument has started."""
    instrumentor.instrument(meter_provider=application.provider, sources=["process"], exit_timeout=2)
    settings: dict[str, Any] = {"sources": ["host"], "exit_timeout": "2", "sample_interval": 0.5, "preset": None}
    text = (
        "Hardware telemetry runs already, with other sources, sample_interval; call uninstrument() first, or set "
        "OTEL_PYTHON_HARDWARE_SOURCES"
    )
    other = Application()
    instrumentor.instrument(meter_provider=other.provider, **settings)
    assert caplog.messages == [text]
    with HardwareInstrumentor(**settings):
        assert caplog.messages[1:] == [text, "Attempting to instrument while already instrumented"]
        assert "process.uptime" in other.names()
    other.provider.shutdown()


def test_settings_of_the_constructor_are_used_once(
    instrumentor: HardwareInstrumentor, caplog: pytest.LogCaptureFixture
) -> None:
    ours = HardwareInstrumentor(sources=["process"])
    ours.instrument()
    with ours:
        assert [each for each in caplog.messages if "runs already" in each] == []


def test_end_of_a_block_exports_nothing_to_a_provider_that_was_shut_down(
    instrumentor: HardwareInstrumentor, caplog: pytest.LogCaptureFixture
) -> None:
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(), math.inf)
    provider = MeterProvider([reader], shutdown_on_exit=False)
    provider.get_meter("application").create_counter("application.steps").add(1)
    instrumentor.instrument(meter_provider=provider)
    instrumentor.uninstrument()
    provider.shutdown()
    with HardwareInstrumentor(sources=["process"]):
        pass
    assert caplog.messages == []


def test_concurrent_instrument_starts_one_session(
    instrumentor: HardwareInstrumentor, application: Application, before: Left
) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(5):
            gate = threading.Barrier(2)

            def instrument(gate: threading.Barrier = gate) -> None:
                gate.wait(10)
                HardwareInstrumentor().instrument(meter_provider=application.provider)

            both = [threading.Thread(target=instrument) for _ in range(2)]
            for thread in both:
                thread.start()
            for thread in both:
                thread.join(30)
            instrumentor.uninstrument()
            wait_for(lambda: left()[0] == before[0], 30, "end of all threads; none belongs to a second session")
    finally:
        sys.setswitchinterval(interval)


def test_meter_provider_is_released_after_uninstrument(instrumentor: HardwareInstrumentor) -> None:
    providers = []
    for _ in range(3):
        provider = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
        instrumentor.instrument(meter_provider=provider, sources=["process"])
        instrumentor.uninstrument()
        provider.shutdown()
        providers.append(weakref.ref(provider))
        del provider
    gc.collect()
    assert [provider() for provider in providers] == [None, None, None]


def test_meter_provider_that_only_we_hold_is_reported_to(instrumentor: HardwareInstrumentor) -> None:
    """Without the SDK's exit hook, nothing else refers to it."""
    reader = InMemoryMetricReader()
    instrumentor.instrument(meter_provider=MeterProvider([reader], shutdown_on_exit=False), sample_interval=0.1)
    gc.collect()
    wait_for(lambda: len({point.name for point in flatten(reader.get_metrics_data())}) > 20, 30, "metrics of the host")


@pytest.mark.parametrize(
    ("settings", "reports"),
    [({}, True), ({"reporter": "never"}, False), ({"reporter": "always"}, True), ({"sources": ["process"]}, None)],
)
def test_host_is_reported_unless_a_setting_forbids_it(
    instrumentor: HardwareInstrumentor, application: Application, settings: dict[str, Any], reports: bool | None
) -> None:
    instrumentor.instrument(meter_provider=application.provider, **settings)
    assert ("system.cpu.time" in application.names()) is bool(reports)
    assert ("otel-hardware-reporter" in traces.threads()) is bool(reports), "nothing to decide"
    assert JOB in os.environ, "child processes are of the same job"


@pytest.mark.parametrize("kind", ["no reader", "no provider", "disabled"])
def test_process_that_exports_nothing_does_not_report_the_host(
    instrumentor: HardwareInstrumentor, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if kind == "disabled":
        monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    readers = [] if kind == "no reader" else [InMemoryMetricReader()]
    provider = NoOpMeterProvider() if kind == "no provider" else MeterProvider(readers, shutdown_on_exit=False)
    instrumentor.instrument(meter_provider=provider)
    opened = instrumentor._telemetry.session
    assert opened is not None
    opened.read_now(10)
    assert not opened.is_reporter
    assert not any(thread.name == "host" for thread in opened.threads)
    provider = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
    instrumentor.instrument(meter_provider=provider)
    if kind != "disabled":
        opened.read_now(10)
        assert opened.is_reporter


@pytest.mark.parametrize("is_set", [False, True])
def test_start_without_a_provider_is_one_line_in_the_log(is_set: bool) -> None:
    program = (
        "import logging; logging.basicConfig(level=logging.INFO)\n"
        "from opentelemetry import metrics\n"
        "from opentelemetry.instrumentation.hardware import HardwareInstrumentor\n"
    )
    program += "metrics.set_meter_provider(metrics.NoOpMeterProvider())\n" if is_set else ""
    outcome = children.succeed([sys.executable, "-c", f"{program}HardwareInstrumentor().instrument()"])
    found = [line for line in outcome.stderr.splitlines() if "No MeterProvider is set yet" in line]
    assert len(found) == (0 if is_set else 1), outcome.stderr


@pytest.mark.parametrize("providers", ["explicit", "late"])
def test_export_at_exit_has_final_cpu_time(tmp_path: Path, providers: str) -> None:
    journals = [tmp_path / "first", tmp_path / "second"][: 2 if providers == "explicit" else 1]
    before = children.ended_cpu_time()
    outcome = children.succeed(children.command("processes/ending", providers, *journals))
    whole = children.ended_cpu_time() - before
    for journal in journals:
        (export,) = exports(journal)
        assert float(outcome.stdout) - 0.05 <= sum(export.values("process.cpu.time")) <= whole + 0.05


LAST_READING = """
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.instrumentation.hardware import HardwareInstrumentor
from opentelemetry.instrumentation.hardware.pipeline.session import Session
Session.read_now = lambda session, seconds, is_last: print("last reading", seconds, flush=True)
for _ in range(3):
    HardwareInstrumentor().instrument(meter_provider=MeterProvider(), sources=["process"])
"""


def test_exit_waits_once_and_at_most_100_ms_for_any_number_of_providers() -> None:
    outcome = children.run([sys.executable, "-c", LAST_READING])
    assert (outcome.returncode, outcome.stdout) == (0, "last reading 0.1\n"), outcome.stderr


class Hanging(Source):
    """A source whose readings do not return until the test ends."""

    name = "hanging"
    released = threading.Event()

    def open(self) -> None:
        pass

    def read(self) -> Iterator[Point]:
        self.released.wait(200)
        yield from ()


def test_uninstrument_waits_at_most_1_s_for_all_hanging_sources_together(
    instrumentor: HardwareInstrumentor, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Hanging, "released", threading.Event())
    monkeypatch.setattr(found, "discover", lambda: {name: lambda: Hanging for name in ("first", "second", "third")})
    waited: list[float] = []
    clock = Clock()

    me = threading.get_ident()

    def join(thread: ReaderThread, seconds: float) -> bool:
        if threading.get_ident() == me:  # the new threads wait for those of an earlier test that hang
            waited.append(seconds)
            clock.now += max(0.0, seconds)
        return False

    instrumentor.instrument(meter_provider=application.provider, reporter="always")
    opened = instrumentor._telemetry.session
    assert opened is not None
    assert len(opened.threads) == 3
    try:
        with monkeypatch.context() as patch:
            patch.setattr(ReaderThread, "join", join)
            patch.setattr(session, "time", SimpleNamespace(monotonic=clock))
            instrumentor.uninstrument()
    finally:
        Hanging.released.set()
    assert waited == [pytest.approx(1.0), *[pytest.approx(0.0)] * 3]  # and the thread of the reporter
    assert [each for each in opened.threads if not each.join(60)] == []


def test_tracer_and_logger_providers_are_accepted(
    instrumentor: HardwareInstrumentor, application: Application, caplog: pytest.LogCaptureFixture
) -> None:
    instrumentor.instrument(
        meter_provider=application.provider, tracer_provider=object(), logger_provider=object(), sources=["process"]
    )
    assert caplog.messages == []
    assert "process.cpu.time" in application.names()


def test_global_provider_that_is_set_later_is_used() -> None:
    report = children.scene("applications/late_provider")
    there = report["set later"]
    assert there["metrics"] > 10
    assert there["most"] == 1
    assert report == {
        "set later": there,
        "uninstrumented": {"metrics": 0, "most": 0},
        "again": there,
        "explicit too": there,
        "explicit alone": there,
    }


def test_two_periodic_readers_of_different_intervals(
    instrumentor: HardwareInstrumentor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "PERIODS", 1000.0)  # on a slow machine no reading is too old
    quick, slow = tmp_path / "quick", tmp_path / "slow"
    readers = [
        PeriodicExportingMetricReader(Journal(path), export_interval_millis=step)
        for path, step in ((quick, 40), (slow, 150))
    ]
    provider = MeterProvider(readers, shutdown_on_exit=False)

    def uptimes(path: Path) -> list[float]:
        return [each.values("process.uptime")[0] for each in exports(path) if each.values("process.uptime")]

    instrumentor.instrument(meter_provider=provider, sample_interval=0.1)
    try:
        for path in (slow, quick):
            third = partial(lambda path: len({*uptimes(path)}) >= 3, path)
            wait_for(third, children.PATIENCE, "third reading in exports")
    finally:
        instrumentor.uninstrument()
        provider.shutdown()
    for path in (quick, slow):
        ours = [each for each in exports(path) if each.names()]
        assert [repeated(each.points) for each in ours if repeated(each.points)] == []
        first, *rest = [each.names() for each in ours if "system.cpu.utilization" in each.names()]
        assert rest
        assert [first - names for names in rest if first - names] == [], "a metric disappeared"
        assert uptimes(path) == sorted(uptimes(path))


def test_settings_may_change_between_sessions(instrumentor: HardwareInstrumentor, application: Application) -> None:
    instrumentor.instrument(meter_provider=application.provider, sources="host", sample_interval=0.5)
    plain = application.names()
    assert {name for name in plain if name.startswith(("process.", "container."))} == set()
    instrumentor.uninstrument()
    instrumentor.instrument(
        meter_provider=application.provider,
        sources=["host", "process"],
        detail="processes,cpu",
        exclude_metrics=["system.network.*"],
    )
    more = application.points()
    names = {point.name for point in more}
    assert {"system.process.count", "process.cpu.time"} <= names - plain
    assert {name for name in names if name.startswith("system.network")} == set()
    cpus = {point.attributes.get("cpu.logical_number") for point in more if point.name == "system.cpu.time"}
    assert cpus == set(range(os.cpu_count() or 0))
    instrumentor.uninstrument()
    instrumentor.instrument(meter_provider=application.provider, sources="host")
    # A utilization needs two readings; there may be only one.
    assert {name for name in application.names() ^ plain if "utilization" not in name} == set()


def test_scope_has_version_and_schema_url(instrumentor: HardwareInstrumentor, application: Application) -> None:
    instrumentor.instrument(meter_provider=application.provider)
    application.points()
    data = application.reader.get_metrics_data()
    assert data
    (ours,) = [part for batch in data.resource_metrics for part in batch.scope_metrics if part.scope.name == OURS]
    assert (ours.scope.version, ours.scope.schema_url) == (__version__, SCHEMA_URL)
    assert __version__
    (time,) = [metric for metric in ours.metrics if metric.name == SYSTEM_CPU_TIME.name]
    assert (time.unit, time.description) == (SYSTEM_CPU_TIME.unit, SYSTEM_CPU_TIME.help)


@pytest.mark.parametrize("provider", ["rubbish", object(), 5])
def test_invalid_meter_provider_logs_error_and_does_not_raise(
    instrumentor: HardwareInstrumentor,
    application: Application,
    before: Left,
    caplog: pytest.LogCaptureFixture,
    provider: object,
) -> None:
    instrumentor.instrument(meter_provider=provider)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert left() == before
    instrumentor.uninstrument()
    instrumentor.instrument(meter_provider=application.provider)
    instrumentor.instrument(meter_provider=provider)  # beside a valid one
    assert application.points()


def test_failing_discovery_logs_error_and_can_be_repeated(
    instrumentor: HardwareInstrumentor,
    application: Application,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken() -> None:
        raise RuntimeError("no metadata")

    with monkeypatch.context() as patch:
        patch.setattr(found, "discover", broken)
        instrumentor.instrument(meter_provider=application.provider)
    assert "the program continues" in caplog.text
    assert application.points() == []
    assert JOB not in os.environ, "child processes would not report the host"
    instrumentor.uninstrument()
    instrumentor.instrument(meter_provider=application.provider)
    assert application.points()


class Vendor(Source):
    """A third-party source, which makes its metric when it is opened."""

    name = "vendor"

    def open(self) -> None:
        self.row = Metric(Kind.UPDOWN, "vendor.cards", "{card}", (), "Cards.")

    def read(self) -> Iterator[Point]:
        yield self.row(4)


class Turning(Vendor):
    """A counter of one part: a, then b, then a again."""

    parts_: ClassVar[Iterator[str]] = cycle("aba")

    def open(self) -> None:
        self.row = Metric(Kind.COUNTER, "vendor.turns", "{turn}", ("part",), "Turns.")
        self.part, self.turns = next(self.parts_), 0

    def read(self) -> Iterator[Point]:
        self.turns += 5
        yield self.row(self.turns, {"part": self.part})


def test_counter_continues_after_a_session_without_it(
    instrumentor: HardwareInstrumentor, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(found, "discover", lambda: {"vendor": lambda: Turning})
    seen: dict[object, list[float]] = {"a": [], "b": []}
    for _ in range(3):
        instrumentor.instrument(meter_provider=application.provider, counter_origin="start")
        for _ in range(2):
            for point in application.points():
                if point.name == "vendor.turns":
                    seen[point.attributes["part"]].append(point.value)
        instrumentor.uninstrument()
    assert len(seen["a"]) == 4
    assert seen["a"] == sorted(seen["a"])


class Learning(Vendor):
    """A source with one more metric at each reading; the SDK refuses the unit of the first, which is scraped."""

    def open(self) -> None:
        self.rows_ = [Metric(Kind.UPDOWN, "vendor:heat", "°C", (), "Heat.", endpoint="page")]

    def read(self) -> Iterator[Point]:
        yield from [row(4) for row in self.rows_]
        self.rows_.append(Metric(Kind.UPDOWN, f"vendor.cards.{len(self.rows_)}", "{card}", (), "Cards."))


def test_later_metrics_get_instruments_and_refused_metric_is_logged_once(
    instrumentor: HardwareInstrumentor,
    application: Application,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(found, "discover", lambda: {"vendor": lambda: Learning})
    instrumentor.instrument(meter_provider=application.provider)
    for _ in range(3):
        application.points()
    assert {"vendor.cards.1", "vendor.cards.2"} <= application.names()
    assert [word for word in caplog.messages if "vendor:heat cannot be reported" in word] == caplog.messages
    assert len(caplog.messages) == 1


def test_fork_hook_is_registered_once(
    instrumentor: HardwareInstrumentor, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks: list[dict[str, Callable[[], object]]] = []
    monkeypatch.setattr(instrumentor, "_has_fork_hook", False)  # a test before this one registered it
    monkeypatch.setattr(os, "register_at_fork", lambda **hook: hooks.append(hook))
    for _ in range(3):
        instrumentor.instrument(meter_provider=application.provider, sources=["process"])
        instrumentor.uninstrument()
    assert hooks == [{"after_in_child": instrumentor._forked}]


def test_uninstrument_waits_for_concurrent_instrument(
    instrumentor: HardwareInstrumentor, application: Application, before: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, released = threading.Event(), threading.Event()

    def slow() -> dict[str, object]:
        begun.set()
        assert released.wait(60)
        return {}

    monkeypatch.setattr(found, "discover", slow)
    one = threading.Thread(target=instrumentor.instrument, kwargs={"meter_provider": application.provider})
    other = threading.Thread(target=instrumentor.uninstrument)

    def waits() -> bool:
        frame = sys._current_frames().get(other.ident or 0)
        return not other.is_alive() or (frame is not None and frame.f_code.co_name == "uninstrument")

    one.start()
    assert begun.wait(60)
    other.start()
    wait_for(waits, 30, "one that waits")
    released.set()
    for thread in (one, other):
        thread.join(30)
    assert not instrumentor.is_instrumented_by_opentelemetry
    assert left() == before


class Halves(Vendor):
    """A source with two instances, which records the threads that use its drivers."""

    users: ClassVar[dict[int, set[str]]] = {}

    @classmethod
    def instances(cls, config: Config) -> list[str]:
        return ["left", "right"]

    def read(self) -> Iterator[Point]:
        self.users.setdefault(id(self.context.drivers), set()).add(threading.current_thread().name)
        yield from ()


def test_each_drivers_object_is_used_by_one_thread(
    instrumentor: HardwareInstrumentor, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(found, "discover", lambda: {**discover(), "vendor": lambda: Halves})
    instrumentor.instrument(meter_provider=application.provider)
    application.points()
    assert Halves.users
    assert all(len(threads) == 1 for threads in Halves.users.values()), Halves.users


def test_machine_without_proc_and_sys_keeps_application_metrics() -> None:
    outcome = children.succeed(children.command("machines/without_proc"))
    report = json.loads(outcome.stdout)
    assert report["application"] == [1]
    assert "otel_hardware.source.up" in report["ours"]
    lines = [line for line in outcome.stderr.splitlines() if line.startswith("Source ")]
    assert len(lines) == len({line.split()[1] for line in lines}), f"more than one line for a source:\n{outcome.stderr}"
    assert "Traceback" not in outcome.stderr


@pytest.mark.parametrize("reason", ["can't start new thread", "daemon threads are disabled in this (sub)interpreter"])
@pytest.mark.parametrize("mode", ["process", "agent"])
def test_thread_start_failure_is_logged_and_leaves_nothing(
    instrumentor: HardwareInstrumentor,
    before: Left,
    mode: str,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError(reason)

    provider = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", refuse)
        instrumentor.instrument(meter_provider=provider, mode=mode)
    assert reason in caplog.text
    assert "Traceback" not in caplog.text, "one sentence"
    assert left() == before
    assert JOB not in os.environ, "child processes would not report the host"


def test_sources_that_cannot_have_a_thread_are_logged_once(
    instrumentor: HardwareInstrumentor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The process becomes the reporter after its start, in a thread that has been started."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name in ("otel-hardware-host", "otel-hardware-container"):
            raise RuntimeError("can't start new thread")
        start(thread)

    provider = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", refuse)
        instrumentor.instrument(meter_provider=provider, reporter="auto")
        wait_for(lambda: caplog.records, children.PATIENCE, "warning")
    (record,) = caplog.records
    assert record.getMessage().startswith("Sources that cannot be read (can't start new thread): ")
    assert "host" in record.getMessage()


FORKED = """
import json, os, sys, time
from opentelemetry.sdk.metrics import MeterProvider, ObservableCounter
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader
from tests.support.journal import flatten
from opentelemetry.instrumentation.hardware import HardwareInstrumentor

origin, provider_of = sys.argv[1:]

def program():
    reader = InMemoryMetricReader({ObservableCounter: AggregationTemporality.DELTA})
    return reader, MeterProvider([reader], shutdown_on_exit=False)

def collected(reader, provider, seconds):
    instrumentor = HardwareInstrumentor()
    instrumentor.instrument(meter_provider=provider, counter_origin=origin, sources=["process"])
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass
    instrumentor._telemetry.session.read_now(60)
    points = [p for p in flatten(reader.get_metrics_data()) if p.name in ("process.cpu.time", "process.paging.faults")]
    return {f"{point.name}{point.attributes}": point.value for point in points}

reader, provider = program()
collected(reader, provider, 0.5)
if not os.fork():
    reader, provider = (reader, provider) if provider_of == "parent" else program()
    print(json.dumps(collected(reader, provider, 0.05)), flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.parametrize("provider", ["parent", "child"])
@pytest.mark.parametrize("origin", ["boot", "start"])
def test_counters_of_forked_child_are_its_own_and_never_negative(origin: str, provider: str) -> None:
    deltas: dict[str, float] = json.loads(children.succeed([sys.executable, "-c", FORKED, origin, provider]).stdout)
    assert [name for name, value in deltas.items() if value < 0] == []
    used = sum(value for name, value in deltas.items() if name.startswith("process.cpu.time"))
    assert used <= 0.4, "the child reports the CPU time of its parent"
    assert used > 0 or origin == "start"


def test_new_meter_provider_does_not_get_counts_of_earlier_sessions(
    instrumentor: HardwareInstrumentor, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(found, "discover", lambda: {"vendor": lambda: Turning})
    monkeypatch.setattr(Turning, "parts_", cycle("a"))
    for _ in range(2):
        other = Application()
        instrumentor.instrument(meter_provider=other.provider, counter_origin="start")
        values = [point.value for _ in range(3) for point in other.points() if point.name == "vendor.turns"]
        assert values[0] <= 10
        assert values[-1] > values[0]
        instrumentor.uninstrument()
        other.provider.shutdown()


def broken(method: str) -> type[Source]:
    return type("Broken", (Vendor,), {method: staticmethod(fail(KeyError("a mistake")))})


@pytest.mark.parametrize(
    "load",
    [
        fail(ImportError("a mistake")),
        fail(SystemExit("a mistake")),
        lambda: broken("instances"),
        lambda: broken("prepare"),
    ],
    ids=["import", "exit", "instances", "prepare"],
)
def test_only_source_that_cannot_be_loaded_or_prepared_is_left_out(
    instrumentor: HardwareInstrumentor,
    application: Application,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    load: Callable[[], type[Source]],
) -> None:
    monkeypatch.setattr(found, "discover", lambda: {**discover(), "vendor": load})
    instrumentor.instrument(meter_provider=application.provider)
    (message,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "vendor" in message
    assert "a mistake" in message
    assert {"system.cpu.time", "process.cpu.time"} <= application.names()


def test_meter_providers_that_come_and_go_are_dropped(
    instrumentor: HardwareInstrumentor, application: Application
) -> None:
    def kept() -> int:
        gc.collect()
        return len(instrumentor._telemetry.instruments)

    instrumentor.instrument(meter_provider=application.provider, sources=["process"])
    before = kept()  # with those that other tests have left, such as that of the proxy
    for _ in range(5):
        provider = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
        instrumentor.instrument(meter_provider=provider)
        provider.shutdown()
        del provider
        wait_for(lambda: kept() <= before, 30, "end of the provider, which a thread of ours may be using")
    assert len(instrumentor._telemetry.attached) <= 2


@pytest.mark.skipif(sys.platform == "win32", reason="has no FIFO")
def test_hanging_source_keeps_one_thread_however_often_the_program_instruments(
    instrumentor: HardwareInstrumentor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading the token from a FIFO does not return. When it does, the next session reads the source again."""
    monkeypatch.setattr(session, "_LONGEST_JOIN", 0.1)
    fifo = tmp_path / "token"
    os.mkfifo(fifo)
    endpoint = {"url": "http://127.0.0.1:9/metrics", "bearer_token_file": str(fifo)}
    settings: dict[str, Any] = {"sources": ["openmetrics"], "openmetrics": {"dead": endpoint}, "reporter": "always"}

    def problem() -> str:
        assert instrumentor._telemetry.session is not None
        (runner,) = instrumentor._telemetry.session.runners
        source = runner.source
        return runner.problem.reason if runner.problem else ", ".join(source.errors) if source else ""

    def is_reading() -> bool:
        assert instrumentor._telemetry.session is not None
        return instrumentor._telemetry.session.runners[0].busy_since is not None

    provider = MeterProvider([InMemoryMetricReader()])
    instrumentor.instrument(meter_provider=provider, **settings)
    wait_for(is_reading, 60, "reading that hangs")
    for _ in range(5):
        instrumentor.uninstrument()
        assert traces.threads() == ["otel-hardware-openmetrics:dead"]
        instrumentor.instrument(meter_provider=provider, **settings)
        wait_for(problem, 60, "report that the source hangs")
        assert problem() == "TimeoutError: it has not responded since an earlier session"
    instrumentor.uninstrument()
    fifo.write_text("secret")
    wait_for(lambda: not traces.threads(), 60, "end of the thread")
    instrumentor.instrument(meter_provider=provider, **settings)
    wait_for(is_reading, 60, "new reading")
    fifo.write_text("secret")
    instrumentor.uninstrument()
    wait_for(lambda: not traces.threads(), 60, "end of the thread")
