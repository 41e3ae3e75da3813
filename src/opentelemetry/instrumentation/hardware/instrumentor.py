"""HardwareInstrumentor: hardware telemetry as OpenTelemetry instruments. The only file that makes instruments."""

from __future__ import annotations

import atexit
import logging
import os
import re
import sys
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, TypeAlias

from opentelemetry.context import Context, set_value
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]
from opentelemetry.metrics import Meter, MeterProvider, Observation, get_meter_provider

from opentelemetry.instrumentation.hardware.catalog import SCHEMA_URL
from opentelemetry.instrumentation.hardware.model import Attributes, Kind, Metric, Number, Snapshot, Values
from opentelemetry.instrumentation.hardware.pipeline.cycle import Cycle
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.version import __version__

_LOG = logging.getLogger(__name__)

SCOPE = "opentelemetry.instrumentation.hardware"

_LAST_CALL = 0.1
"""Seconds that the end of the program waits for a last reading."""

_REFUSED = r"[^A-Za-z0-9_.\-/]"
"""What the SDK takes in no instrument's name."""

_PEER = "opentelemetry.instrumentation.system_metrics"


class HardwareInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Reports the host, its file systems, its container and this process.

    ``instrument()`` takes ``meter_provider`` (the global one by default, also before it is set) and every setting of
    :class:`~opentelemetry.instrumentation.hardware.Config` as an argument, in the words of
    ``OTEL_PYTHON_HARDWARE_<NAME>``; arguments win. Called again with another provider it reports there too. It never
    raises. After ``uninstrument()`` nothing is exported, and no thread, descriptor or child process of ours is left.
    A ``session`` that the caller made is used instead of one of our own; so the agent observes another process.
    """

    configuration: ClassVar[type[Config]] = Config
    """Makes declarative configuration (``instrumentation/development: python: hardware:``) typed."""

    _lock: threading.RLock
    _session: Session | None
    _meters: weakref.WeakKeyDictionary[MeterProvider, _Instruments]
    _attached: list[_Instruments]
    _hooked: bool
    _waiting: bool
    _warned: bool

    def __new__(cls, *args: Any, **kwargs: Any) -> HardwareInstrumentor:
        """There is one instrumentor in a process; what it holds survives being constructed again, also by two threads
        at once.
        """
        self: HardwareInstrumentor = super().__new__(cls, *args, **kwargs)
        begin = self.__dict__.setdefault
        begin("_lock", threading.RLock())
        begin("_session", None)
        begin("_meters", weakref.WeakKeyDictionary())
        begin("_attached", [])
        begin("_hooked", False)
        begin("_waiting", False)
        begin("_warned", False)
        return self

    def instrumentation_dependencies(self) -> Collection[str]:
        """Nothing: what a machine has is found at run time."""
        return ()

    def instrument(self, **kwargs: Any) -> None:
        """See the class; another provider may be added while the first is reported to."""
        provider = kwargs.get("meter_provider")
        with self._lock:
            try:
                if self._session is not None and provider is not None and not self._reports_to(provider):
                    self._attach(provider)
                    return
            except Exception:
                _LOG.exception("Hardware telemetry cannot be reported to %r", provider)
                return
            super().instrument(**kwargs)

    def uninstrument(self, **kwargs: Any) -> None:
        """See the class."""
        with self._lock:
            super().uninstrument(**kwargs)

    def _reports_to(self, provider: MeterProvider) -> bool:
        return self._instruments_of(provider) in self._attached

    def _instrument(self, **kwargs: Any) -> None:
        try:
            provider = kwargs.pop("meter_provider", None)
            kwargs.pop("tracer_provider", None)
            kwargs.pop("logger_provider", None)
            session = kwargs.pop("session", None) or Session(Config.read(kwargs))
            session.notice = self._look_round
            self._session, self._warned = session, False
            self._attach(get_meter_provider() if provider is None else provider)
            self._hook()
            session.start()
        except Exception:
            _LOG.exception("Hardware telemetry could not start; the program goes on without it")
            with suppress(Exception):
                self._uninstrument()

    def _attach(self, provider: MeterProvider) -> None:
        session = self._session
        if session is not None:
            instruments = self._instruments_of(provider)
            instruments.begin(session.config.counter_origin == "start")
            instruments.register(session.collector.metrics())
            instruments.cycle.open(session.collector, session.schedule)
            self._attached.append(instruments)
            self._waiting = self._waiting or _is_proxy(provider)
            self._come_last()

    def _instruments_of(self, provider: MeterProvider) -> _Instruments:
        """The instruments of a provider. They cannot be unregistered, so they are made once and found again.

        Those made before any provider was set became the global provider's when it was.
        """
        found = self._meters.get(provider)
        if found is None and provider is get_meter_provider():
            found = next((each for key, each in self._meters.items() if _is_proxy(key)), None)
        if found is None:
            found = self._meters[provider] = _Instruments(provider)
        return found

    def _hook(self) -> None:
        """Be told of forks; once, since it cannot be taken back."""
        if not self._hooked:
            self._hooked = True
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=self._forked)

    def _come_last(self) -> None:
        """Register our exit hook behind the provider's own, so that it runs before that."""
        atexit.unregister(self._last_call)
        atexit.register(self._last_call)

    def _look_round(self) -> None:
        """Notice what came after ``instrument()``: a provider, another instrumentor, rows. Our threads call it."""
        session = self._session
        if session is not None:
            rows = session.collector.metrics()
            for instruments in [*self._attached]:
                if instruments.rows is not rows:
                    instruments.register(rows)
        if self._waiting and not _is_proxy(get_meter_provider()):
            self._waiting = False
            self._come_last()
        if not self._warned and _is_peer_active():
            self._warned = True
            _LOG.warning(
                "opentelemetry-instrumentation-system-metrics is active and reports some of the same metrics a second "
                "time; switch it off with OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=system_metrics"
            )

    def _last_call(self) -> None:
        """One more reading before the provider's own exit hook makes the last collection."""
        session = self._session
        if session is not None and session.pid == os.getpid():
            session.read_now(_LAST_CALL)

    def _forked(self) -> None:
        """In a child: nothing of the parent's is used, and ``instrument()`` begins anew."""
        self._lock = threading.RLock()  # of the other, a thread that did not come along may have hold
        session = self._let_go()
        self._is_instrumented_by_opentelemetry = False
        for instruments in self._meters.values():
            instruments.lock = threading.Lock()
        if session is not None:
            session.abandon()

    def _uninstrument(self, **kwargs: Any) -> None:
        session = self._let_go()
        if session is not None:
            session.close()

    def _let_go(self) -> Session | None:
        """The session, which from now on nobody reports."""
        session, self._session = self._session, None
        for instruments in self._attached:
            instruments.cycle.close()
        self._attached.clear()
        return session


class _Pair(NamedTuple):
    """What a value and its attributes are called in an Observation."""

    value: Number
    attributes: Attributes


class _Observed(tuple[Number, Attributes], Observation):
    """An Observation of a pair, which is made and read without a function of Python's: there are many."""

    __slots__ = ()
    __init__ = object.__init__
    value = _Pair.value
    attributes = _Pair.attributes
    context = set_value("scope", SCOPE, Context())
    """One without a span: the span that is current where a collection runs has nothing to do with the hardware. Not an
    empty one, for which the SDK would take the current one.
    """


_Points: TypeAlias = "Iterable[tuple[Number, Attributes]]"

_Line: TypeAlias = "tuple[Metric, frozenset[tuple[str, str | int]]]"


def _line(metric: Metric, attributes: Attributes) -> _Line:
    return metric, frozenset(attributes.items())


class _Instruments:
    """The instruments of one MeterProvider, and its Cycle."""

    def __init__(self, provider: MeterProvider) -> None:
        self.cycle = Cycle(self._observations)
        self.lock = threading.Lock()
        self.rows: Sequence[Metric] | None = None
        self._provider = weakref.ref(provider)  # which is forgotten once nobody else has it
        self._meter: Meter = provider.get_meter(SCOPE, __version__, SCHEMA_URL)
        self._firsts: dict[tuple[object, ...], Metric] = {}
        self._carried: dict[Metric, Metric] = {}
        self._names: set[tuple[str, str]] = set()
        self._floors: dict[_Line, Number] = {}
        self._shifts: dict[_Line, Number] = {}

    def begin(self, from_start: bool) -> None:
        """A session begins, in this process or in a forked child.

        Counters that count from its start are at 0 again. The SDK goes on from what it had, also in the child, and
        would make a negative delta of it; so they go on as well. Others are the totals that they are.
        """
        floors = {
            _line(metric, attributes): value
            for metric, points in self._carried_by(self.cycle.newest())
            if metric.kind is Kind.COUNTER
            for value, attributes in self._continued(metric, points)
        }
        self._floors = {**self._floors, **floors} if from_start else {}
        self._shifts = {}
        self._carried = {}

    def _observations(self, snapshot: Snapshot) -> dict[Metric, list[Observation]]:
        """The values of a collection as the SDK wants them."""
        rows: Iterable[tuple[Metric, _Points]] = snapshot.values.items()
        if self._carried:
            rows = self._carried_by(snapshot.values)
        if self._floors:
            rows = [(row, self._continued(row, points) if row.kind is Kind.COUNTER else points) for row, points in rows]
        return {metric: [*map(_Observed, points)] for metric, points in rows}

    def _continued(self, metric: Metric, points: _Points) -> _Points:
        """The points of a counter, each going on from where the sessions before left it: a counter never falls."""
        found = []
        for value, attributes in points:
            line = _line(metric, attributes)
            if line not in self._shifts:
                floor = self._floors.get(line, 0)
                self._shifts[line] = floor if value < floor else 0
            found.append((value + self._shifts[line], attributes))
        return found

    def register(self, rows: Sequence[Metric]) -> None:
        """Make the instruments of rows that have none yet; never called from a callback, which holds the SDK's lock.

        Only rows that have been read have one: those that never say anything would cost each collection of theirs.
        """
        provider = self._provider()
        if provider is None:
            return
        with self.lock:
            # Before any provider is set, the instruments of scraped rows would have other names.
            named = not (_is_proxy(provider) and _is_proxy(get_meter_provider()))
            for row in rows:
                try:
                    if row not in self.cycle and row not in self._carried and (named or not row.endpoint):
                        self._give(provider, row)
                except Exception as error:
                    self._carried[row] = row  # by no instrument; it is said once
                    _LOG.warning("%s cannot be reported: %s", row.name, error)
            if named:
                self.rows = rows

    def _make(self, meter: Meter, name: str, metric: Metric) -> object:
        make: dict[Kind, Callable[..., object]] = {
            Kind.COUNTER: meter.create_observable_counter,
            Kind.UPDOWN: meter.create_observable_up_down_counter,
            Kind.GAUGE: meter.create_observable_gauge,
        }
        return make[metric.kind](name, [self.cycle.callback(metric)], unit=metric.unit, description=metric.help)

    def _give(self, provider: MeterProvider, row: Metric) -> None:
        """Make the instrument of a row; one that its source makes anew when it opens again has that of the first."""
        key = (row.endpoint, row.name, row.kind, row.unit, row.help)
        if key in self._firsts:
            self._carried[row] = self._firsts[key]
        elif row.endpoint:
            self._carried[row] = self._firsts[key] = self._scraped(provider, row)
        else:
            self._make(self._meter, row.name, row)
            self._firsts[key] = row

    def _scraped(self, provider: MeterProvider, row: Metric) -> Metric:
        """Make the instrument of a scraped row, in a scope of its endpoint: two endpoints may differ about a name.

        The SDK refuses names that OTLP has nothing against (``vllm:num_requests_running``), and writes all of them in
        lower case. So the instrument is made under a name that it takes, and has its own before the first collection
        that shows it; where it cannot be given that, it is exported under the other.

        Returns:
            What carries the row: the row is not handed out before its instrument has its name.
        """
        carrier = replace(row)
        name = "m" * (not row.name[:1].isascii() or not row.name[:1].isalpha()) + re.sub(_REFUSED, "_", row.name)[:200]
        while (row.endpoint, name.lower()) in self._names:
            name += "_"
        self._names.add((row.endpoint, name.lower()))
        meter = provider.get_meter(f"{SCOPE}.openmetrics.{row.endpoint}", __version__)
        instrument = self._make(meter, name, carrier)
        with suppress(AttributeError):
            instrument.name = row.name  # type: ignore[attr-defined]
        return carrier

    def _carried_by(self, values: Values) -> Iterator[tuple[Metric, _Points]]:
        """The rows, each as the one that has the instrument."""
        return ((self._carried.get(metric, metric), points) for metric, points in values.items())


def _is_proxy(provider: MeterProvider) -> bool:
    return type(provider).__name__ == "_ProxyMeterProvider"


def _is_peer_active() -> bool:
    """Whether opentelemetry-instrumentation-system-metrics, with metrics of the same names, instruments as well."""
    peer = getattr(sys.modules.get(_PEER), "SystemMetricsInstrumentor", None)
    return bool(getattr(getattr(peer, "_instance", None), "is_instrumented_by_opentelemetry", False))
