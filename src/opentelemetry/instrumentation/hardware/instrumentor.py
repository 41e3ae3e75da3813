"""HardwareInstrumentor: start and stop hardware telemetry, and handle fork and exit."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]
from opentelemetry.metrics import MeterProvider, get_meter_provider
from opentelemetry.trace import get_tracer_provider

from opentelemetry.instrumentation.hardware.agent import Agent, obstacle
from opentelemetry.instrumentation.hardware.drivers.spawn import above_standard_streams
from opentelemetry.instrumentation.hardware.instruments import Instruments
from opentelemetry.instrumentation.hardware.pipeline.reporter import Reporter
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.pipeline.thread import FormerThreads
from opentelemetry.instrumentation.hardware.sdk import (
    event_emitter,
    exports_any_spans,
    import_early,
    is_instrumented,
    is_proxy,
    resource_of,
)
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.settings.sdk_variables import export_interval, exports_metrics
from opentelemetry.instrumentation.hardware.spans.ledger import Demand
from opentelemetry.instrumentation.hardware.system import uwsgi
from opentelemetry.instrumentation.hardware.system.interpreter import is_helper
from opentelemetry.instrumentation.hardware.system.limits import memory_left

if TYPE_CHECKING:
    from opentelemetry.instrumentation.hardware.spans.readings import Readings
    from opentelemetry.instrumentation.hardware.spans.recorder import SpanRecorder
    from opentelemetry.instrumentation.hardware.spans.shares import Shares

_LOG = logging.getLogger(__name__)

_EXIT_WAIT = 0.1  # seconds that the exit of the program waits for a last reading

# Bytes that the limits of memory must leave: 56 MiB for the stacks of our threads, 10 MiB for modules, and some for the
# program. In a process without memory, a new thread lets Thread.start() wait forever, and the C library may crash.
_LEAST_MEMORY = 96 << 20

_PEER = "opentelemetry.instrumentation.system_metrics"


class HardwareInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Reports the host, its devices, its container and this process.

    ``instrument()`` takes ``meter_provider`` (by default the global one, which may be set later) and every setting of
    :class:`~opentelemetry.instrumentation.hardware.Config`, named as in ``OTEL_PYTHON_HARDWARE_<NAME>``; arguments take
    precedence. A second call with another provider reports to both. It never raises. After ``uninstrument()`` nothing
    is exported, and no thread, descriptor or child process is left. With ``session``, it reports a session that the
    caller has made; the agent observes another process in this way.
    """

    # The type of declarative configuration (``instrumentation/development: python: hardware:``).
    configuration: ClassVar[type[Config]] = Config

    _lock: threading.RLock
    _session: Session | None = None
    _agent: Agent | None = None
    _reporter: Reporter | None = None
    _former: FormerThreads
    _recorder: SpanRecorder | None = None
    _instruments: weakref.WeakKeyDictionary[MeterProvider, Instruments]
    _attached: list[Instruments]
    _deferred: list[Callable[[], None]]
    _pid: int
    _has_fork_hook = False
    _waits_for_provider = False
    _has_warned = False
    _defaults: Mapping[str, Any] = MappingProxyType({})

    def __new__(cls, **kwargs: Any) -> HardwareInstrumentor:
        """Return the only instrumentor of the process. Constructing it again, in any thread, has no effect.

        Args:
            kwargs: Defaults of ``instrument()``, for ``with HardwareInstrumentor(...):``.
        """
        self: HardwareInstrumentor = super().__new__(cls)
        if kwargs:
            self._defaults = kwargs
        begin = self.__dict__.setdefault
        begin("_lock", threading.RLock())
        begin("_former", FormerThreads())
        begin("_instruments", weakref.WeakKeyDictionary())
        begin("_attached", [])
        begin("_deferred", [])
        begin("_pid", os.getpid())
        return self

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return nothing: the hardware is detected at run time."""
        return ()

    def instrument(self, **kwargs: Any) -> None:
        """Start, or report to another provider; see the class."""
        kwargs = {**self._defaults, **kwargs}
        provider = kwargs.get("meter_provider")
        if self._has_fork_hook and self._pid != os.getpid():  # the fork was made in C, and ran no fork hooks
            self._forked()
            try:
                self._instruments_of(provider or get_meter_provider()).restart()
            except Exception:
                _LOG.debug("The MeterProvider could not be restarted after a fork", exc_info=True)
        # Before the lock, which the child could not get. A hook cannot be unregistered.
        if not self._has_fork_hook and hasattr(os, "register_at_fork"):
            import_early()
            self._pid = os.getpid()
            os.register_at_fork(after_in_child=self._forked)
            self._has_fork_hook = True
        with self._lock:
            try:
                session = self._session
                if session and provider is not None and self._instruments_of(provider) not in self._attached:
                    self._attach(provider, session)
                    return
            except Exception:
                _LOG.exception("Hardware telemetry cannot be reported to %r", provider)
                return
            super().instrument(**kwargs)
            if self._session is None and self._agent is None:  # it could not start: allow another attempt
                self._is_instrumented_by_opentelemetry = False

    def uninstrument(self, **kwargs: Any) -> None:
        """Stop; see the class."""
        with self._lock:
            self._defaults = {}
            if self._deferred:
                self._deferred = []
                self._uninstrument()
                return
            super().uninstrument(**kwargs)

    def __enter__(self) -> HardwareInstrumentor:
        """Start, unless ``instrument()`` was called."""
        if not self.is_instrumented_by_opentelemetry:
            self.instrument()
        return self

    def __exit__(self, *exception: object) -> None:
        """Read and collect once more, and stop."""
        for provider in [*self._instruments]:
            with suppress(Exception):
                provider.force_flush()  # type: ignore[attr-defined]
        self.uninstrument()

    def _instrument(self, **kwargs: Any) -> None:
        if is_helper():
            return
        again = partial(self.instrument, **kwargs)
        try:
            if memory_left() < _LEAST_MEMORY:
                raise MemoryError("the limits of memory (RLIMIT_AS, RLIMIT_DATA) leave less than 96 MiB")
            provider = kwargs.pop("meter_provider", None)
            if provider is None:
                provider = get_meter_provider()
            kwargs.pop("tracer_provider", None)
            kwargs.pop("logger_provider", None)
            session = kwargs.pop("session", None)
            config = Config.read(kwargs) if session is None else session.config
            if session is None:
                self._reporter = Reporter(os.environ, config.reporter or "auto")
                self._reporter.join()
                if uwsgi.forks_later():
                    self._deferred.append(again)  # it starts after the fork, in each worker
                    if len(self._deferred) == 1:
                        uwsgi.call_in_workers(self._start_deferred)
                    return
                if config.mode == "agent" and _needs_agent(config) and self._start_agent(provider, config, kwargs):
                    return
                self._start_session(provider, config)
            else:
                self._start(provider, session)
                session.start()  # its caller may show what it reads
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Log why it could not start, leave nothing behind, and allow another attempt."""
        is_limit = isinstance(error, (OSError, MemoryError)) or "can't start new thread" in str(error)
        text = "Hardware telemetry could not start: %s; the program continues without it"
        _LOG.error(text, str(error) or type(error).__name__, exc_info=not is_limit)
        with suppress(Exception):
            self._uninstrument()
        self._is_instrumented_by_opentelemetry = False

    def _start_deferred(self) -> None:
        deferred, self._deferred = self._deferred, []
        if deferred and not uwsgi.has_threads():
            _LOG.warning("uWSGI runs no Python threads; hardware telemetry needs its option --enable-threads")
            return
        for start in deferred:
            start()

    def _start_session(self, provider: MeterProvider, config: Config) -> None:
        """Report from this process, not from an agent."""
        demand = None if config.spans == "off" else Demand()
        counters = self._instruments_of(provider).counters
        session = Session(
            config,
            interval=export_interval(),
            counters=counters,
            reporter=self._reporter,
            demand=demand,
            former=self._former,
        )
        if demand is not None:
            from opentelemetry.instrumentation.hardware.spans.readings import SessionReadings

            session.collector.shares = self._record_spans(SessionReadings(session), provider)
        self._start(provider, session)

    def _start(self, provider: MeterProvider, session: Session) -> None:
        self._session, self._has_warned = session, False
        session.has_reader = lambda: any(instruments.has_reader() for instruments in self._attached)
        session.on_reading = self._after_reading
        if session.accelerators:
            session.on_event = event_emitter()
        self._attach(provider, session)
        if not session.has_started and self._recorder is not None and self._recorder.is_exported():
            session.start()

    def _reader_found(self) -> None:
        """Begin to read: something can be exported. The recorder does so for spans."""
        session = self._session
        try:
            if session is not None and session.pid == os.getpid():
                session.start()
        except Exception as error:
            self._fail(error)

    def _record_spans(self, readings: Readings, provider: MeterProvider) -> Shares | None:
        """Measure the spans of this process. Returns their shares."""
        from opentelemetry.instrumentation.hardware.spans.processor import spans_only  # it imports the SDK
        from opentelemetry.instrumentation.hardware.spans.recorder import SpanRecorder

        if self._recorder is None:  # it is reused: what another package wraps around it cannot be removed
            self._recorder = SpanRecorder(spans_only)
        try:
            self._recorder.open(readings, provider)
            self._recorder.watch()
        except Exception:  # such as a MeterProvider that is not the SDK's; the metrics are reported nevertheless
            _LOG.exception("Spans are not measured")
            self._recorder.close()
        return self._recorder.shares

    def _start_agent(self, provider: MeterProvider, config: Config, options: Mapping[str, object]) -> bool:
        """Start an agent, which reports instead of this process. Returns False if no agent can."""
        if (reason := obstacle()) is not None:
            _LOG.warning("%s; this process reports instead", reason)
            return False

        def give_up() -> None:
            with self._lock:
                if self._agent is agent:
                    self._agent = None
                    try:
                        self._start_session(provider, config)
                    except Exception as error:
                        self._fail(error)

        ledgers = self._share_ledgers(config, provider) if config.spans != "off" else None
        resource = partial(_resource_attributes, provider)
        check: Callable[[], None] = self._recorder.advance if self._recorder is not None else lambda: None
        agent = self._agent = Agent(options, resource, give_up, check, ledgers)
        agent.start()
        self._register_exit_hook()
        return True

    def _share_ledgers(self, config: Config, provider: MeterProvider) -> int | None:
        """Create the memory in which an agent keeps the readings for spans, and measure spans with it."""
        from opentelemetry.instrumentation.hardware.spans import shared  # not on Windows

        descriptor = None
        try:
            descriptor = above_standard_streams(shared.create())
            self._record_spans(shared.AgentReadings(descriptor, config), provider)
        except (AttributeError, OSError) as error:
            _LOG.info("Spans are not measured beside an agent: %s", error)
            if descriptor is not None:
                os.close(descriptor)
            return None
        return descriptor

    def _attach(self, provider: MeterProvider, session: Session) -> None:
        instruments = self._instruments_of(provider)
        instruments.open(session)
        self._attached = [*(each for each in self._attached if each.is_alive()), instruments]
        if is_proxy(provider):
            self._waits_for_provider = True
            _LOG.info("No MeterProvider is set yet: metrics are exported once there is one")
        self._register_exit_hook()
        instruments.watch(self._reader_found)

    def _instruments_of(self, provider: MeterProvider) -> Instruments:
        """Return the instruments of a provider. Those of the proxy became the global provider's when it was set."""
        instruments = self._instruments.get(provider)
        if instruments is None and provider is get_meter_provider():
            instruments = next((each for key, each in self._instruments.items() if is_proxy(key)), None)
        if instruments is None:
            if not hasattr(provider, "get_meter"):
                raise TypeError(f"meter_provider={provider!r} is not a MeterProvider")
            instruments = self._instruments[provider] = Instruments(provider)
        return instruments

    def _register_exit_hook(self) -> None:
        """Register our exit hook after the provider's. Hooks run in reverse order, so ours runs before it."""
        atexit.unregister(self._at_exit)
        atexit.register(self._at_exit)

    def _after_reading(self) -> None:
        """Create instruments for metrics that were read for the first time, and detect a new provider or peer.

        Our own threads call it after their readings.
        """
        session = self._session
        if session is not None:
            metrics = session.collector.metrics()
            for instruments in [*self._attached]:
                instruments.register(metrics)
            if self._recorder is not None:
                self._recorder.advance()
        if self._waits_for_provider and not is_proxy(get_meter_provider()):
            self._waits_for_provider = False
            self._register_exit_hook()
        # opentelemetry-instrumentation-system-metrics has metrics of the same names.
        peer = getattr(sys.modules.get(_PEER), "SystemMetricsInstrumentor", None)
        if not self._has_warned and is_instrumented(peer):
            self._has_warned = True
            _LOG.warning(
                "opentelemetry-instrumentation-system-metrics is active and reports some of the same metrics a second "
                "time; switch it off with OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=system_metrics"
            )

    def _at_exit(self) -> None:
        """Read all sources once more before the provider's exit hook makes the last collection."""
        agent = self._agent
        if agent is not None and not agent.is_ready:
            _LOG.warning("The program ends before its agent has started: its hardware is not reported")
        session = self._session
        if session is None or session.pid != os.getpid():
            return
        try:
            deadline = time.monotonic() + session.config.exit_seconds
            session.read_now(_EXIT_WAIT, is_last=True)
            for instruments in [*self._attached]:
                instruments.shut_down(deadline - time.monotonic())
        except Exception:
            _LOG.debug("The last values could not be read", exc_info=True)

    def _forked(self) -> None:
        """Drop the session of the parent in a forked child, where ``instrument()`` starts a new one."""
        self._pid = os.getpid()
        self._lock = threading.RLock()  # a thread of the parent may hold the other
        self._is_instrumented_by_opentelemetry = False
        session, self._session = self._session, None
        agent, self._agent = self._agent, None
        self._reporter = None
        self._attached = []
        for instruments in self._instruments.values():
            instruments.forked()
        if agent is not None:
            agent.abandon()
        if session is not None:
            session.abandon()

    def _uninstrument(self, **kwargs: Any) -> None:
        session, self._session = self._session, None
        agent, self._agent = self._agent, None
        reporter, self._reporter = self._reporter, None
        attached, self._attached = self._attached, []
        if self._recorder is not None:
            self._recorder.close()
        for instruments in attached:
            instruments.close()
        if session is not None:
            session.close()
        if agent is not None:
            agent.stop()
        if reporter is not None:
            reporter.leave()


def _resource_attributes(provider: MeterProvider) -> Mapping[str, object]:
    """Return the resource attributes of the application, from the first of its providers that is the SDK's."""
    return next(filter(None, map(resource_of, (provider, get_meter_provider(), get_tracer_provider()))), {})


def _needs_agent(config: Config) -> bool:
    """Whether an agent would have anything to export, or to read for spans."""
    if exports_metrics(os.environ) or config.spans == "off":
        return exports_metrics(os.environ)
    return exports_any_spans()
