"""Facts about the installed SDK that this package depends on, each with a test that the package handles it.

If one of these tests fails after an update of the SDK, the package works around behaviour that has changed.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.instrumentation.auto_instrumentation import _load
from opentelemetry.instrumentation.distro import DefaultDistro  # type: ignore[attr-defined]
from opentelemetry.instrumentation.utils import is_instrumentation_enabled
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider, ObservableCounter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    InMemoryMetricReader,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.metrics.view import DropAggregation, View
from opentelemetry.sdk.trace import TracerProvider
from packaging.version import Version
from tests.support import children
from tests.support.journal import OURS, Arrived, Journal, exports, flatten, repeated
from tests.support.sink import Sink
from tests.support.waiting import wait_for

from opentelemetry.instrumentation.hardware import HardwareInstrumentor
from opentelemetry.instrumentation.hardware.catalog import CATALOG, SYSTEM_NETWORK_ERRORS, SYSTEM_UPTIME
from opentelemetry.instrumentation.hardware.model import NONE, Attributes, Kind, Metric, Point, Series
from opentelemetry.instrumentation.hardware.pipeline import found
from opentelemetry.instrumentation.hardware.sources import Source

SDK = Version(version("opentelemetry-sdk"))
CONTRIB = Version(version("opentelemetry-instrumentation"))

Callback = Callable[[CallbackOptions], Iterable[Observation]]


class Bench:
    """A provider with one reader, for experiments."""

    def __init__(self, *views: View, deltas: bool = False) -> None:
        temporality: dict[type, AggregationTemporality] = (
            {ObservableCounter: AggregationTemporality.DELTA} if deltas else {}
        )
        self.reader = InMemoryMetricReader(preferred_temporality=temporality)
        self.provider = MeterProvider([self.reader], views=views, shutdown_on_exit=False)
        self.meter = self.provider.get_meter("bench")

    def collect(self) -> MetricsData | None:
        data = self.reader.get_metrics_data()
        return data if isinstance(data, MetricsData) else None

    def values(self, name: str) -> list[Any]:
        return [point.value for point in flatten(self.collect()) if point.name == name]

    def ours(self) -> list[Arrived]:
        """What the package exports, of a reading that is made now."""
        opened = HardwareInstrumentor()._telemetry.session
        assert opened is not None
        opened.read_now(10)
        return [point for point in flatten(self.collect()) if point.scope == OURS]

    def instruments(self) -> int:
        return len(self.provider._measurement_consumer._async_instruments)


@pytest.fixture
def bench() -> Iterator[Bench]:
    yield from _bench()


@pytest.fixture
def deltas() -> Iterator[Bench]:
    yield from _bench(deltas=True)


def _bench(**options: Any) -> Iterator[Bench]:
    made = Bench(**options)
    yield made
    made.provider.shutdown()


@pytest.fixture
def instrument(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Return a function that calls ``instrument()`` with the bench's provider or another and only these sources."""

    def start(*sources: type[Source], **options: Any) -> None:
        if sources:
            known = {source.name: lambda source=source: source for source in sources}
            monkeypatch.setattr(found, "discover", lambda: known)
        HardwareInstrumentor().instrument(
            **{"meter_provider": bench.provider, "sample_interval": 0, "reporter": "always", **options}
        )

    yield start
    if HardwareInstrumentor().is_instrumented_by_opentelemetry:
        HardwareInstrumentor().uninstrument()


def source(called: str, *readings: Iterable[tuple[Metric, Any, Attributes]]) -> type[Source]:
    """Return a source with these readings. The last one is repeated."""
    left = list(readings)

    class Made(Source):
        name = called

        def open(self) -> None:
            pass

        def read(self) -> Iterator[Point]:
            for metric, value, attributes in left.pop(0) if len(left) > 1 else left[0]:
                yield Series(metric, attributes)(value)

    return Made


def gauge(value: Any) -> Callback:
    return lambda options: [Observation(value)]


# -- A second instrument of the same name silently loses its callback.


def test_second_instrument_of_same_name_loses_its_callback(bench: Bench, instrument: Callable[..., None]) -> None:
    called = []
    for owner in ("first", "second"):

        def callback(options: CallbackOptions, owner: str = owner) -> list[Observation]:
            called.append(owner)
            return [Observation(1)]

        bench.meter.create_observable_gauge("twice", [callback])
    bench.collect()
    assert called == ["first"]

    instrument()
    assert bench.ours()
    HardwareInstrumentor().uninstrument()
    instrument()
    assert "system.uptime" in {point.name for point in bench.ours()}, "the second session has no callbacks"


# -- The same attribute set twice in one collection is added for counters; the last one wins for gauges.


def test_duplicate_attribute_set_is_added_for_counters(bench: Bench, instrument: Callable[..., None]) -> None:
    def twice(options: CallbackOptions) -> list[Observation]:
        return [Observation(5, {"a": 1}), Observation(7, {"a": 1})]

    bench.meter.create_observable_counter("counter", [twice])
    bench.meter.create_observable_gauge("gauge", [twice])
    assert (bench.values("counter"), bench.values("gauge")) == ([12], [7])

    way = {"network.interface.name": "eth0", "network.io.direction": "receive"}
    one = source("one", [(SYSTEM_NETWORK_ERRORS, 5, way), (SYSTEM_NETWORK_ERRORS, 6, dict(reversed(way.items())))])
    instrument(one, source("two", [(SYSTEM_NETWORK_ERRORS, 3, way)]))  # less: it may be read first
    ours = bench.ours()
    assert [point.value for point in ours if point.name == "system.network.errors"] == [5]
    assert repeated(ours) == []


# -- One lock that is not re-entrant is held over all callbacks of all libraries.


def test_creating_instrument_during_callbacks_blocks(bench: Bench, instrument: Callable[..., None]) -> None:
    inside, made, waited = threading.Event(), threading.Event(), []

    def register() -> None:
        inside.wait(10)
        bench.meter.create_observable_gauge("late", [gauge(1)])
        made.set()

    def callback(options: CallbackOptions) -> list[Observation]:
        if not made.is_set():
            inside.set()
            waited.append(not made.wait(0.2))  # in this thread it would be for ever
        return []

    bench.meter.create_observable_gauge("early", [callback])
    thread = threading.Thread(target=register)
    thread.start()
    bench.collect()
    thread.join(10)
    assert waited == [True]
    assert made.is_set()

    points: list[tuple[Metric, Any, Attributes]] = [(SYSTEM_UPTIME, 1.0, NONE)]
    instrument(source("late", points))
    assert bench.ours()
    opened = HardwareInstrumentor()._telemetry.session
    assert opened is not None
    opened.on_reading = lambda: None  # our own thread, which creates the instruments, is late
    points.append((SYSTEM_NETWORK_ERRORS, 5, NONE))
    before = bench.instruments()
    opened.read_now(60)
    collecting = threading.Thread(target=bench.collect, daemon=True)
    collecting.start()
    collecting.join(60)
    assert not collecting.is_alive(), "a callback waits for the SDK's lock"
    assert bench.instruments() == before, "a callback created an instrument"


# -- A slow callback followed by another loses the whole collection.


def test_slow_callback_loses_whole_collection(bench: Bench, instrument: Callable[..., None]) -> None:
    received = []
    slow = Bench()
    slow.meter.create_observable_gauge("slow", [lambda options: [Observation(threading.Event().wait(0.1) or 1)]])
    slow.meter.create_observable_gauge("other", [gauge(1)])
    slow.meter.create_counter("application").add(1)
    slow.reader._receive_metrics = lambda data, *args, **more: received.append(data)  # type: ignore[method-assign]
    with pytest.raises(Exception, match="Timed out"):
        slow.reader.collect(timeout_millis=50)
    assert received == []
    slow.provider.shutdown()

    answer = threading.Event()

    class Hanging(source("hanging", [])):  # type: ignore[misc]
        def read(self) -> Iterator[Point]:
            answer.wait(120)
            return iter(())

    bench.meter.create_counter("application").add(1)
    instrument(Hanging, source("well", [(SYSTEM_UPTIME, 5.0, NONE)]))
    try:
        opened = HardwareInstrumentor()._telemetry.session
        assert opened is not None
        states = {runner.name: runner for runner in opened.runners}
        wait_for(lambda: states["hanging"].busy_since is not None, 30, "reading that hangs")
        wait_for(lambda: "system.uptime" in {point.name for point in flatten(bench.collect())}, 30, "the other source")
        bench.reader.collect(timeout_millis=30_000)  # the reading that hangs takes longer
        values = {point.name: point.value for point in flatten(bench.collect())}
        assert (values["application"], values["system.uptime"]) == (1, 5.0)
    finally:
        answer.set()


# -- An unsafe value fails the whole export batch, or kills the reader's thread.


def test_unsafe_value_fails_whole_export(bench: Bench, instrument: Callable[..., None]) -> None:
    for bad in (2**63, True):
        broken = Bench()
        broken.meter.create_counter("application").add(1)
        broken.meter.create_observable_gauge("bad", [gauge(bad)])
        data = broken.collect()
        assert data
        with pytest.raises(Exception, match=r"bad|out of range|bool"):
            encode_metrics(data)
        broken.provider.shutdown()
    mixed = Bench()
    mixed.meter.create_observable_counter("mixed", [lambda options: [Observation(1.5), Observation(Decimal(2))]])  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        mixed.collect()
    mixed.provider.shutdown()
    lost = Bench()
    lost.meter.create_observable_gauge("nan", [gauge(float("nan"))])
    assert bool(lost.values("nan")) == (Version("1.44") > SDK), "not a number: dropped from 1.44 on, exported before"
    lost.provider.shutdown()

    bad_values: list[Any] = [2**63, -(2**63) - 1, True, Decimal(1), float("nan"), float("inf"), "5", None, [1]]
    rows = [(SYSTEM_NETWORK_ERRORS, bad, {"network.interface.name": f"i{i}"}) for i, bad in enumerate(bad_values)]
    edge = [(SYSTEM_NETWORK_ERRORS, 2**63 - 1, {"network.interface.name": "edge"}), (SYSTEM_UPTIME, 1.5, NONE)]
    instrument(source("odd", [*rows, *edge]))
    ours = bench.ours()
    assert [point.value for point in ours if point.name == "system.network.errors"] == [2**63 - 1]
    assert [point.value for point in ours if point.name == "system.uptime"] == [1.5]
    data = bench.collect()
    assert data
    assert encode_metrics(data).SerializeToString()


# -- Instruments cannot be unregistered.


def test_instruments_cannot_be_unregistered(bench: Bench, instrument: Callable[..., None]) -> None:
    made = bench.meter.create_observable_gauge("stays", [gauge(1)])
    assert [name for name in dir(made) + dir(bench.meter) if "unregister" in name or name in ("close", "remove")] == []
    del made
    assert bench.values("stays") == [1]

    instrument()
    assert bench.ours()
    before = bench.instruments()
    HardwareInstrumentor().uninstrument()
    assert bench.instruments() == before
    assert [point for point in flatten(bench.collect()) if point.scope == OURS] == []
    instrument()
    assert bench.ours()
    assert bench.instruments() == before, "the second session created instruments"


# -- At most 2000 attribute sets per instrument over the life of the process.


def test_cardinality_limit_counts_series_over_process_life(bench: Bench, instrument: Callable[..., None]) -> None:
    churning = Bench()
    turns = iter(range(0, 3600, 1200))

    def churn(options: CallbackOptions) -> list[Observation]:
        first = next(turns)
        return [Observation(1, {"pid": number}) for number in range(first, first + 1200)]

    churning.meter.create_observable_gauge("churn", [churn])
    full = []
    for _ in range(3):
        full.append(any("otel.metric.overflow" in point.attributes for point in flatten(churning.collect())))
    assert full == [False, *[Version("1.45.2") <= SDK] * 2]
    churning.provider.shutdown()

    instrument(detail=["cpu", "connections", "processes"], include_metrics="*")
    code = "import socket; print(socket.create_server(('127.0.0.1', 0)).getsockname()[1], flush=True); input()"
    for _ in range(3):
        with children.started([sys.executable, "-S", "-c", code]) as child:
            churned = {str(child.pid), child.stdout.readline().strip()}
            ours = bench.ours()
            exported = {str(value) for point in ours for value in point.attributes.values()}
            assert {"process.tree.count", "system.network.connection.count"} <= {point.name for point in ours}
            assert exported & churned == set(), "an attribute has a pid or a port"


# -- The callback of a dropped stream still runs.


def test_callback_of_dropped_view_still_runs(instrument: Callable[..., None]) -> None:
    asked = []

    def callback(options: CallbackOptions) -> list[Observation]:
        asked.append(1)
        return [Observation(1)]

    dropped = Bench(View(instrument_name="*", aggregation=DropAggregation()))
    dropped.meter.create_observable_gauge("dropped", [callback])
    assert (dropped.values("dropped"), asked) == ([], [1])
    dropped.provider.shutdown()

    part, whole = Bench(), Bench()
    instrument(meter_provider=whole.provider)
    assert whole.ours()
    HardwareInstrumentor().uninstrument()
    instrument(meter_provider=part.provider, exclude_metrics="system.*")
    assert part.ours()
    assert 0 < part.instruments() < whole.instruments(), "excluded metrics have instruments"
    for each in (part, whole):
        each.provider.shutdown()


# -- An exception out of ``_instrument`` aborts every instrumentation not yet run.


class _Entry:
    group, dist = "opentelemetry_instrumentor", None

    def __init__(self, name: str, done: list[str]) -> None:
        self.name = self.value = name
        self._done = done

    def load(self) -> Callable[[], Any]:
        entry = self

        class Instrumentor:
            def instrument(self, **options: object) -> None:
                if entry.name == "bad":
                    raise RuntimeError("this machine is odd")
                entry._done.append(entry.name)

        return Instrumentor


def test_exception_from_instrument_aborts_other_instrumentations(
    instrument: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []

    def points(group: str) -> list[_Entry]:
        return [_Entry(name, done) for name in ("good", "bad", "late")] if group == _Entry.group else []

    monkeypatch.setattr(_load, "entry_points", points)
    monkeypatch.setattr(_load, "get_dist_dependency_conflicts", lambda dist: None)
    with pytest.raises(RuntimeError, match="odd"):
        _load._load_instrumentors(DefaultDistro())  # type: ignore[no-untyped-call]
    assert done == ["good"]

    def broken() -> None:
        raise RuntimeError("this machine is odd")

    monkeypatch.setattr(found, "discover", broken)
    instrument()
    assert "this machine is odd" in caplog.text


# -- Child interpreters and forked children are instrumented too.


def test_child_interpreter_is_instrumented() -> None:
    ask = "from opentelemetry.metrics import get_meter_provider as get; print(type(get()).__name__, flush=True)"
    code = f"import subprocess, sys; {ask}; subprocess.run([sys.executable, '-c', {ask!r}], check=True)"
    with Sink() as sink:
        line = ["opentelemetry-instrument", sys.executable, "-c", code]
        outcome = children.run(line, sink.environment())
    parent, child = outcome.stdout.split()
    assert (parent, child == "MeterProvider") == ("MeterProvider", Version("0.63b0") <= CONTRIB)
    hosts = {export.pid for export in sink.exports if "system.uptime" in export.names()}
    assert len(hosts) == 1, "the child reports the host as well"


FORK = """
import os, sys
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from tests.support.journal import Journal, exports
from tests.support.traces import until

reader = PeriodicExportingMetricReader(Journal(sys.argv[1]), export_interval_millis=3_600_000)
MeterProvider([reader], shutdown_on_exit=False).get_meter("bench").create_counter("steps").add(1)
reader._export_interval_millis = 10  # that of the thread which the SDK starts in the child
child = os.fork()
if not child:
    until(lambda: len(exports(sys.argv[1])) >= 3, "exports of the child")
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_forked_child_exports(tmp_path: Path) -> None:
    """That the child exports nothing of ours is tested in test_processes.py."""
    children.succeed([sys.executable, "-c", FORK, str(tmp_path / "journal")])
    assert [point.value for point in exports(tmp_path / "journal")[2].points] == [1]


# -- The SDK does not suppress instrumentation inside callbacks.


class _Witness(Journal):
    """An exporter that records whether instrumentation was suppressed while it exported."""

    def __init__(self) -> None:
        super().__init__(os.devnull)
        self.enabled: list[bool] = []

    def export(self, metrics_data: MetricsData, timeout_millis: float = 0, **kwargs: Any) -> MetricExportResult:
        self.enabled.append(is_instrumentation_enabled())
        return MetricExportResult.SUCCESS


def test_callbacks_run_without_suppressed_instrumentation(bench: Bench, instrument: Callable[..., None]) -> None:
    inside: list[bool] = []

    def callback(options: CallbackOptions) -> list[Observation]:
        inside.append(is_instrumentation_enabled())
        return [Observation(1)]

    witness = _Witness()
    provider = MeterProvider(
        [PeriodicExportingMetricReader(witness, export_interval_millis=3_600_000)], shutdown_on_exit=False
    )
    provider.get_meter("bench").create_observable_gauge("seen", [callback])
    provider.force_flush()
    provider.shutdown()
    assert (inside[0], witness.enabled[0]) == (True, False)

    # So our callbacks call nothing that could be instrumented: no sockets, no child processes.
    instrument()
    seen: list[str] = []

    def audit(event: str, args: object) -> None:
        if watching and event.startswith(("socket.", "subprocess.", "os.posix_spawn", "os.fork", "os.exec", "urllib.")):
            seen.append(event)

    watching = True
    sys.addaudithook(audit)  # cannot be removed
    try:
        assert bench.ours()
    finally:
        watching = False
    assert seen == []
    assert psutil.Process().children() == []


# -- Names are lower-cased on export; some are refused.


def test_instrument_names_are_lowercased_or_refused(
    bench: Bench, instrument: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    bench.meter.create_observable_gauge("DCGM_Upper", [gauge(1)])
    assert (bench.values("dcgm_upper"), bench.values("DCGM_Upper")) == ([1], [])
    for name in ("_leading", "job:rate", "9th", "a b", "50%"):
        with pytest.raises(Exception, match="Expected ASCII"):
            bench.meter.create_observable_gauge(name, [gauge(1)])
    with pytest.raises(Exception, match="Expected ASCII"):
        bench.meter.create_observable_gauge("unit", [gauge(1)], unit="°C")

    for row in CATALOG:
        made = bench.meter.create_observable_gauge(row.name, [gauge(1)], unit=row.unit)
        assert (made.name, row.name) == (row.name, row.name.lower())  # type: ignore[attr-defined]

    refused, taken = (Metric(Kind.GAUGE, name, "W", (), "Power of a pump.") for name in ("pump:power", "pump.power"))
    instrument(source("pump", [(refused, 1.0, NONE), (taken, 2.0, NONE)]))
    for _ in range(3):
        assert [point.value for point in bench.ours() if point.name.startswith("pump")] == [2.0]
    (warning,) = [each.getMessage() for each in caplog.records if each.name.endswith(".hardware.instruments")]
    assert warning.startswith("pump:power cannot be reported: Expected ASCII")


# -- The cost of a collection grows with observations and attributes.


def test_observations_have_few_and_short_attributes(bench: Bench, instrument: Callable[..., None]) -> None:
    # A device has its id, name, type and parent, and two attributes of the metric; the rest is on its info metric.
    facts = (".info", "hw.holder.memory.usage", "hw.holder.utilization")
    assert max(len(row.attributes) for row in CATALOG if not row.name.endswith(facts)) <= 6
    instrument()
    ours = bench.ours()
    assert max(len(point.attributes) for point in ours) <= 4
    spoken = [value for point in ours for value in point.attributes.values() if isinstance(value, str)]
    assert max(map(len, spoken)) <= 64


# -- An instrument without observations has a cost too.


def test_instrument_is_created_with_its_first_observation(bench: Bench, instrument: Callable[..., None]) -> None:
    points: list[tuple[Metric, Any, Attributes]] = [(SYSTEM_UPTIME, 1.0, NONE)]
    instrument(source("late", points))
    for rows in ({"system.uptime"}, {"system.uptime", "system.network.errors"}):
        names = {point.name for point in bench.ours()}
        assert {name for name in names if name.startswith("system.")} == rows
        assert bench.instruments() == len(names)
        points.append((SYSTEM_NETWORK_ERRORS, 5, NONE))


# -- The span that is current during a collection becomes an exemplar of the observations.


def test_observations_have_no_exemplars(bench: Bench, instrument: Callable[..., None]) -> None:
    def exemplars() -> dict[str, int]:
        data = bench.collect()
        assert data
        return {
            metric.name: sum(len(point.exemplars) for point in metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    bench.meter.create_observable_gauge("another", [gauge(1)])
    instrument()
    assert bench.ours()
    with TracerProvider().get_tracer("application").start_as_current_span("handler of a scrape"):
        found = exemplars()
    assert len(found) > 20
    assert {name for name, count in found.items() if count} == {"another"}


# -- With delta temporality the first point is the total since boot, and a reset is a negative delta.


def test_first_delta_is_total_and_reset_is_negative(deltas: Bench, instrument: Callable[..., None]) -> None:
    totals = iter((1000, 1010, 5))
    deltas.meter.create_observable_counter("raw", [lambda options: [Observation(next(totals))]])
    assert [deltas.values("raw")[0] for _ in range(3)] == [1000, 10, -1005]

    way = {"network.interface.name": "eth0"}
    readings = [[(SYSTEM_NETWORK_ERRORS, total, way)] for total in (1000, 1010, 5, 7)]
    instrument(source("odd", *readings), meter_provider=deltas.provider, counter_origin="start")
    seen = [point.value for _ in range(4) for point in deltas.ours() if point.name == "system.network.errors"]
    assert min(seen) >= 0
    assert sum(seen) == 10 + 5 + 2, "the deltas do not count from the start, or not after the reset"


def test_counter_origin_follows_delta_temporality_preference(
    deltas: Bench, instrument: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta")
    instrument(source("odd", [(SYSTEM_NETWORK_ERRORS, 1000, NONE)]), meter_provider=deltas.provider)
    assert [point.value for point in deltas.ours() if point.name == "system.network.errors"] == [0]


# -- The start time of a counter is its first collection, although the value is a total since boot: docs/metrics.md.


def test_counter_starts_at_its_first_collection(bench: Bench) -> None:
    bench.meter.create_observable_counter("total", [lambda options: [Observation(7)]])
    created = time.time_ns()

    def start() -> int:
        data = bench.collect()
        assert data is not None
        (metric,) = data.resource_metrics[0].scope_metrics[0].metrics
        return int(metric.data.data_points[0].start_time_unix_nano)

    first = start()
    assert created <= first
    assert start() == first
