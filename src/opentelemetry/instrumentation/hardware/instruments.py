"""Instruments: the instruments of one MeterProvider and their callbacks."""

from __future__ import annotations

import logging
import os
import re
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, partial, wraps
from typing import Any, TypeAlias

from opentelemetry.context import Context, set_value
from opentelemetry.metrics import MeterProvider, Observation, get_meter_provider

from opentelemetry.instrumentation.hardware.catalog import (
    HOLDER_STATE,
    HW_HOLDER_INFO,
    HW_HOLDER_MEMORY,
    HW_HOLDER_UTILIZATION,
    HW_ID,
    SCHEMA_URL,
    SCOPE,
)
from opentelemetry.instrumentation.hardware.model import Kind, Metric
from opentelemetry.instrumentation.hardware.pipeline.collector import Readers
from opentelemetry.instrumentation.hardware.pipeline.counters import CounterStore
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.sdk import (
    abandon_connections,
    behind,
    exporter_of,
    forget_series,
    has_exit_hook,
    has_reader,
    is_proxy,
    is_shut_down,
    readers,
    replace_locks,
    scopes,
    set_name,
    thread_of,
)
from opentelemetry.instrumentation.hardware.settings.log import logger
from opentelemetry.instrumentation.hardware.spans.operations import EnergyByOperation
from opentelemetry.instrumentation.hardware.version import __version__

_LOG = logger(__name__)

_REFUSED = r"[^A-Za-z0-9_.\-/]"  # characters that the SDK does not accept in the name of an instrument

# The context of every observation: without a span, since the span in which a collection happens to run is unrelated. It
# is not empty because the SDK would replace an empty one with the current context.
_CONTEXT = set_value("scope", SCOPE, Context())

# Metrics with series that end with a pod or a job.
_RENEWED = (HW_HOLDER_INFO.name, HW_HOLDER_MEMORY.name, HW_HOLDER_UTILIZATION.name)

# Scopes of metrics that the program would not export without us.
_NOT_THE_PROGRAMS = (SCOPE, "opentelemetry.sdk")

_Key: TypeAlias = "tuple[str, ...]"  # see :attr:`.model.Metric.key`


class Instruments:
    """The instruments of one MeterProvider. They cannot be unregistered, so they are created once and reused.

    The first callback of a collection computes the values of all metrics; each callback returns those of its metric.
    A callback that is called a second time begins the next collection. The SDK runs the collections of a provider one
    after the other, so this takes no lock. ``gone`` is called when the provider is gone, if this is still there.

    Attributes:
        counters: The counters that were exported to this provider.
        metrics: The metrics that were registered last.
        provider: Returns the provider, or None if it is gone.
    """

    def __init__(self, provider: MeterProvider, gone: Callable[[object], object] | None = None) -> None:
        self.counters = CounterStore()
        self.metrics: Collection[Metric] | None = None
        self.provider = weakref.ref(provider, gone)
        self._kept: MeterProvider | None = None  # while we report to it: the program may have no other reference
        self._meter = provider.get_meter(SCOPE, __version__, SCHEMA_URL)
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._served: Session | None = None
        self._readers = Readers()
        self._made: dict[_Key, object] = {}  # the instruments, once they have a name: logfire's end without a reference
        self._parts: dict[_Key, Sequence[Observation]] = {}
        self._names: dict[tuple[str, str], int] = {}
        self._failed = False
        self._watched: object = None

    @cached_property
    def span_energy(self) -> EnergyByOperation:
        """The energy of spans by operation. The SDK logs a warning about a second histogram of its name."""
        return EnergyByOperation(self._meter)

    def is_alive(self) -> bool:
        """Whether the provider is still in use. One that was shut down is not."""
        provider = self.provider()
        return provider is not None and not is_shut_down(provider)

    def has_reader(self) -> bool:
        """Whether the provider has a reader. It may have one if it is not the SDK's."""
        provider = self._real_provider()
        return provider is not None and has_reader(provider)

    def watch(self, found: Callable[[], None]) -> None:
        """Call back as soon as the provider has a reader: now, or in the thread that adds it.

        The SDK has no hook for this. The proxy tells our meter of the provider that is set.
        """
        provider = self._real_provider()
        owner: Any = self._meter if provider is None else provider
        name = "on_set_meter_provider" if provider is None else "add_metric_reader"  # SDK 1.39 does not have the latter
        if self.has_reader():
            found()
        elif owner is not self._watched and hasattr(owner, name):
            self._watched = owner
            method = getattr(owner, name)

            @wraps(method)
            def added(*args: Any, **kwargs: Any) -> None:
                method(*args, **kwargs)
                self.watch(found)

            setattr(owner, name, added)

    def flush(self) -> None:
        """Let the provider collect and export now, unless it was shut down: the SDK logs that."""
        if self.is_alive():
            with suppress(Exception):
                self.provider().force_flush()  # type: ignore[union-attr]

    def shut_down(self, seconds: float) -> None:
        """Shut the provider down at the exit of the program, within some seconds, if it has no metrics but ours.

        Without us, there would be nothing to export. With us and a Collector that does not respond, the exit hook of
        the SDK would wait for 10 s and more, and log each attempt.
        """
        provider = self._real_provider()
        if provider is None or not readers(provider) or not has_exit_hook(provider):
            return
        if all(scope.startswith(_NOT_THE_PROGRAMS) for scope in scopes(provider)):
            limit_messages(provider, 1)
            try:
                provider.shutdown(timeout_millis=1000 * max(0.0, seconds))  # type: ignore[attr-defined]
            finally:
                # The SDK's own exit hook runs nevertheless: after Ctrl-C, and since Python 3.14, where an exit hook
                # cannot be unregistered in another one.
                log = logging.getLogger(type(provider).__module__)
                log.addFilter(lambda record: _TWICE not in record.getMessage())

    def _real_provider(self) -> MeterProvider | None:
        """Return the provider, or the global one in place of its proxy; None if it is gone or not there yet."""
        provider = self.provider()
        if provider is not None and is_proxy(provider):
            provider = get_meter_provider()
        return None if provider is None or is_proxy(provider) else provider

    def open(self, session: Session) -> None:
        """Report the values of a session, beginning with the next collection."""
        self.counters = session.counters
        self._readers, self._failed = Readers(), False
        self._session, self._kept = session, self.provider()
        self.register(session.collector.metrics())

    def close(self) -> None:
        """Stop reporting."""
        self._session = self._kept = None

    def forked(self) -> None:
        """Stop reporting in a forked child, where nothing may wait for a lock that a thread of the parent holds."""
        self._lock = threading.Lock()
        self.close()
        provider = behind(self._real_provider())
        try:
            replace_locks(provider)
            for reader in readers(provider):
                abandon_connections(exporter_of(reader))
        except Exception:  # another version of the SDK or of urllib3
            _LOG.debug("The exporters could not be made ready after a fork", exc_info=True)

    # -- callbacks: no lock, no wait, no exception

    def _observe(self, key: _Key, _: object) -> Sequence[Observation]:
        """The callback of an instrument."""
        try:
            part = self._parts.pop(key)
        except KeyError:  # it was returned already
            self._collect()
            part = self._parts.pop(key, ())
        # A session that was opened during a collection is reported from the next one on.
        return part if self._current() is self._served else ()

    def _current(self) -> Session | None:
        """Return the session. In a forked child, that of the parent is not reported, also before our fork hook runs.

        The SDK starts the thread of its reader in a fork hook that runs before ours.
        """
        session = self._session
        return session if session is not None and session.pid == os.getpid() else None

    def _collect(self) -> None:
        """Begin a collection."""
        self._parts = dict.fromkeys(self._made, ())
        session = self._served = self._current()
        if session is None:
            return
        try:
            reader = self._readers.current()
            snapshot = session.collect(reader)
            self._readers.collected(reader)
            provider = self._real_provider()
            if provider is not None:
                forget_series(provider, _RENEWED)
            for metric, points in snapshot.values.items():
                if self._made.get(metric.key) is None:
                    continue
                keeps = session.config.exported(metric)
                labels = {} if HOLDER_STATE in metric.attributes else session.labels
                self._parts[metric.key] = [
                    Observation(
                        value,
                        {**labels.get(str(attributes.get(HW_ID)), {}), **attributes} if labels else attributes,
                        _CONTEXT,
                    )
                    for value, attributes in points
                    if keeps is None or keeps(attributes)
                ]
        except Exception:
            if not self._failed:
                self._failed = True
                _LOG.exception("Hardware telemetry could not collect its values; further failures are not logged")

    # -- registration

    def register(self, metrics: Collection[Metric]) -> None:
        """Create missing instruments. Must not be called from a callback, during which the SDK holds its lock."""
        if not self.is_alive():
            self._kept = None
        provider = self.provider()
        if provider is None or metrics is self.metrics:
            return
        with self._lock:
            # The instruments of scraped metrics get their names only from a real provider.
            waiting = is_proxy(provider) and is_proxy(get_meter_provider())
            for metric in metrics:
                if metric.key not in self._made and not (waiting and metric.endpoint):
                    try:
                        self._make(provider, metric)
                    except Exception as error:
                        _LOG.warning("%s cannot be reported: %s", metric.name, error)
            if not waiting:
                self.metrics = metrics

    def _make(self, provider: MeterProvider, metric: Metric) -> None:
        key = metric.key
        self._made[key] = None
        meter, name = self._meter, metric.name
        if metric.endpoint:  # two endpoints may have different metrics of one name
            meter = provider.get_meter(f"{SCOPE}.openmetrics.{metric.endpoint}", __version__)
            name = self._accepted_name(metric)
        make: dict[Kind, Callable[..., object]] = {
            Kind.COUNTER: meter.create_observable_counter,
            Kind.UPDOWN: meter.create_observable_up_down_counter,
            Kind.GAUGE: meter.create_observable_gauge,
        }
        callback = partial(self._observe, key)
        instrument = make[metric.kind](name, [callback], unit=metric.unit, description=metric.help)
        if metric.endpoint:
            set_name(instrument, metric.name)
        self._made[key] = instrument

    def _accepted_name(self, metric: Metric) -> str:
        """Return a name that the SDK accepts and that no other metric of the endpoint has."""
        begins_well = metric.name[:1].isascii() and metric.name[:1].isalpha()
        name = ("" if begins_well else "m") + re.sub(_REFUSED, "_", metric.name)[:200]
        key = metric.endpoint, name.lower()
        self._names[key] = number = self._names.get(key, 0) + 1
        return name if number == 1 else f"{name}.{number}"  # the SDK refuses more than 255 characters


_TWICE = "shutdown can only be called once"  # what the SDK logs at a second shutdown


def limit_messages(provider: MeterProvider, most: int) -> None:
    """Let the threads that export for a provider log so many warnings and errors more, each as one line.

    This is for the end of a program. The last export logs each attempt, and that it stops, which may be after the
    shutdown. So the limit is not removed. Messages of other threads are not changed.
    """
    for reader in readers(provider):
        thread = thread_of(reader)
        if thread is None:
            continue
        limit = partial(_is_logged, thread, iter(range(most)))
        classes = [*type(reader).__mro__, *type(exporter_of(reader)).__mro__]
        for name in {each.__module__ for each in classes}:  # their loggers have these names
            if name in logging.root.manager.loggerDict:
                logging.getLogger(name).addFilter(limit)


def _is_logged(thread: threading.Thread, left: Iterator[int], record: logging.LogRecord) -> bool:
    """Whether a record is logged: of the warnings and errors of a thread, as many as are left, each as one line."""
    if record.levelno < logging.WARNING or threading.current_thread() is not thread:
        return True
    if next(left, None) is None:
        return False
    if record.exc_info:  # the HTTP exporter of SDK 1.39 raises errors of connections
        record.msg, record.args = " ".join(f"{record.getMessage()}: {record.exc_info[1]}".split()), ()
        record.exc_info = None
    return True
