"""Telemetry: a session or an agent, instruments and spans, between ``instrument()`` and ``uninstrument()``."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from opentelemetry.metrics import MeterProvider, get_meter_provider

from opentelemetry.instrumentation.hardware.agent import Agent, obstacle
from opentelemetry.instrumentation.hardware.catalog import SPAN_ENERGY_BY_OPERATION
from opentelemetry.instrumentation.hardware.drivers.spawn import above_standard_streams
from opentelemetry.instrumentation.hardware.instruments import Instruments
from opentelemetry.instrumentation.hardware.pipeline.reporter import Reporter
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.pipeline.thread import FormerThreads
from opentelemetry.instrumentation.hardware.sdk import (
    event_emitter,
    exports_any_spans,
    is_proxy,
    resource_of,
    restart_readers,
    system_metrics,
    tracer_provider,
)
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.settings.log import logger
from opentelemetry.instrumentation.hardware.settings.sdk_variables import export_interval, exports_metrics
from opentelemetry.instrumentation.hardware.spans.demand import Demand
from opentelemetry.instrumentation.hardware.system.interpreter import is_main
from opentelemetry.instrumentation.hardware.system.limits import is_limit

if TYPE_CHECKING:
    from opentelemetry.instrumentation.hardware.spans.readings import Readings
    from opentelemetry.instrumentation.hardware.spans.recorder import SpanRecorder
    from opentelemetry.instrumentation.hardware.spans.shares import Shares

_LOG = logger(__name__)

_EXIT_WAIT = 0.1  # seconds that the exit of the program waits for a last reading


class Telemetry:
    """The telemetry of this process. It may start again after it has stopped.

    Args:
        has_failed: Called after it could not start.

    Attributes:
        lock: Held while it starts or stops.
        session: What is read in this process; None with an agent, or before the start.
        agent: The process that reads instead.
        recorder: Measures spans, from the first start on.
        instruments: The instruments of each provider that lives, by its ID: those of logfire have no hash.
        attached: Those that report now.
        waits_for_provider: Whether the global provider is not set yet.
    """

    def __init__(self, has_failed: Callable[[], None]) -> None:
        self.lock = threading.RLock()
        self.session: Session | None = None
        self.agent: Agent | None = None
        self.recorder: SpanRecorder | None = None
        self.instruments: dict[int, Instruments] = {}
        self.attached: list[Instruments] = []
        self.waits_for_provider = False
        self._has_failed = has_failed
        self._reporter: Reporter | None = None
        self._former = FormerThreads()
        self._has_warned = False
        self._exit_seconds = 0.0

    @property
    def is_running(self) -> bool:
        """Return whether there is a session or an agent."""
        return self.session is not None or self.agent is not None

    def join(self, config: Config) -> None:
        """Join the job: one of its processes reports the host."""
        self._reporter = Reporter(os.environ, config.reporter or "auto")
        self._reporter.join()

    def start(self, provider: MeterProvider, config: Config, options: Mapping[str, object]) -> None:
        """Report to a provider, from this process or from an agent. The options are the settings given in code."""
        self._exit_seconds = config.exit_seconds
        is_agent = config.mode == "agent"
        if is_agent and not exports_metrics(os.environ):  # then an agent serves spans only
            is_agent = config.spans != "off" and exports_any_spans()
        if not (is_agent and self._start_agent(provider, config, options)):
            self._start_session(provider, config)

    def fail(self, error: Exception) -> None:
        """Log why it could not start, and leave nothing behind."""
        is_expected = isinstance(error, OSError) or is_limit(error)
        text = "Hardware telemetry could not start: %s; the program continues without it"
        _LOG.error(text, str(error) or type(error).__name__, exc_info=not is_expected)
        with suppress(Exception):
            self.stop()
        self._has_failed()

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

            session.collector.shares = self.record_spans(SessionReadings(session), provider)
        self.report(provider, session)

    def report(self, provider: MeterProvider, session: Session, start: Callable[[], None] | None = None) -> None:
        """Report a session to a provider.

        ``start`` is called as soon as something can be exported. By default, it logs why the session cannot start.
        """
        self.session, self._has_warned = session, False
        session.has_reader = lambda: any(instruments.has_reader() for instruments in self.attached)
        session.on_reading = self._after_reading
        if session.accelerators:
            session.on_event = event_emitter()
        self.attach(provider, session, start)
        if not session.has_started and session.demand is not None and exports_any_spans():
            session.start()

    def _reader_found(self) -> None:
        """Begin to read: something can be exported. The recorder does so for spans."""
        session = self.session
        try:
            if session is not None and session.pid == os.getpid():
                session.start()
        except Exception as error:
            self.fail(error)

    def record_spans(self, readings: Readings, provider: MeterProvider) -> Shares | None:
        """Measure the spans of this process. Returns their shares."""
        from opentelemetry.instrumentation.hardware.spans.recorder import SpanRecorder  # it imports the SDK

        if self.recorder is None:  # it is reused: what another package wraps around it cannot be removed
            self.recorder = SpanRecorder()
        try:
            wanted = readings.config.wants(SPAN_ENERGY_BY_OPERATION)
            self.recorder.open(readings, self._instruments_of(provider).span_energy if wanted else None)
            self.recorder.watch()
        except Exception:  # such as a MeterProvider that is not the SDK's; the metrics are reported nevertheless
            _LOG.exception("Spans are not measured")
            self.recorder.close()
        return self.recorder.shares

    def _start_agent(self, provider: MeterProvider, config: Config, options: Mapping[str, object]) -> bool:
        """Start an agent, which reports instead of this process. Returns False if no agent can."""
        if (reason := obstacle()) is not None:
            _LOG.warning("%s; this process reports instead", reason)
            return False

        def resource() -> Mapping[str, object]:
            """Return that of the application, from the first of its providers that is the SDK's."""
            return next(filter(None, map(resource_of, (provider, get_meter_provider(), tracer_provider()))), {})

        def give_up() -> None:
            with self.lock:
                if self.agent is agent:
                    self.agent = None
                    try:
                        self._start_session(provider, config)
                    except Exception as error:
                        self.fail(error)

        ledgers = self._share_ledgers(config, provider) if config.spans != "off" else None
        check: Callable[[], None] = self.recorder.advance if self.recorder is not None else lambda: None
        agent = self.agent = Agent(options, resource, give_up, check, ledgers)
        agent.start()
        self._register_exit_hook()
        return True

    def _share_ledgers(self, config: Config, provider: MeterProvider) -> int | None:
        """Create the memory in which an agent keeps the readings for spans, and measure spans with it."""
        from opentelemetry.instrumentation.hardware.spans import shared  # not on Windows

        descriptor = None
        try:
            descriptor = above_standard_streams(shared.create())
            self.record_spans(shared.AgentReadings(descriptor, config), provider)
        except OSError as error:
            _LOG.info("Spans are not measured beside an agent: %s", error)
            if descriptor is not None:
                os.close(descriptor)
            return None
        return descriptor

    def attach(self, provider: MeterProvider, session: Session, start: Callable[[], None] | None = None) -> None:
        """Report the session to one more provider; see :meth:`report`."""
        instruments = self._instruments_of(provider)
        instruments.open(session)
        self.attached = [*(each for each in self.attached if each.is_alive()), instruments]
        if is_proxy(provider):
            self.waits_for_provider = True
            _LOG.info("No MeterProvider is set yet: metrics are exported once there is one")
        self._register_exit_hook()
        instruments.watch(start or self._reader_found)

    def reports_to(self, provider: MeterProvider) -> bool:
        """Whether it reports to a provider."""
        return self._instruments_of(provider) in self.attached

    def _instruments_of(self, provider: MeterProvider) -> Instruments:
        """Return the instruments of a provider. Those of the proxy became the global provider's when it was set."""
        instruments = self.instruments.get(id(provider))
        if instruments is None and provider is get_meter_provider():
            instruments = next((each for each in [*self.instruments.values()] if is_proxy(each.provider())), None)
        if instruments is None:
            if not hasattr(provider, "get_meter"):
                raise TypeError(f"meter_provider={provider!r} is not a MeterProvider")
            key, known = id(provider), self.instruments
            # Not weakref.finalize(): its exit hook, which is that of the whole program, would run after the provider's.
            instruments = known[key] = Instruments(provider, gone=lambda _: known.pop(key, None))
        return instruments

    def _register_exit_hook(self) -> None:
        """Register our exit hook after the provider's. Hooks run in reverse order, so ours runs before it."""
        atexit.unregister(self._at_exit)
        atexit.register(self._at_exit)

    def _after_reading(self) -> None:
        """Create instruments for metrics that were read for the first time, and detect a new provider or peer.

        Our own threads call it after their readings.
        """
        session = self.session
        if session is not None:
            metrics = session.collector.metrics()
            for instruments in [*self.attached]:
                instruments.register(metrics)
            if self.recorder is not None:
                self.recorder.advance()
            twice = system_metrics()
            if twice and not self._has_warned and session.has_reader() and any(each.name in twice for each in metrics):
                self._has_warned = True
                _LOG.warning(
                    "opentelemetry-instrumentation-system-metrics is active and reports some of the same metrics a "
                    "second time; switch it off with OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=system_metrics"
                )
        if self.waits_for_provider and not is_proxy(get_meter_provider()):
            self.waits_for_provider = False
            self._register_exit_hook()

    def _at_exit(self) -> None:
        """Let the agent export once more, or read all sources before the provider's exit hook collects them."""
        agent, session = self.agent, self.session
        try:
            if agent is not None and agent.pid == os.getpid():
                if agent.is_ready:  # a container or a batch job may end all at once
                    agent.stop(self._exit_seconds)
                else:
                    _LOG.warning("The program ends before its agent has answered: its hardware may be missing")
            if session is not None and session.pid == os.getpid():
                deadline = time.monotonic() + session.config.exit_seconds
                session.read_now(_EXIT_WAIT, is_last=True)
                for instruments in [*self.attached]:
                    instruments.shut_down(deadline - time.monotonic())
        except (Exception, KeyboardInterrupt):  # the user does not want to wait, and Python would print a traceback
            _LOG.debug("The last values could not be read", exc_info=True)
        if not is_main() and os.getpid() == getattr(agent or session, "pid", None):
            for instruments in [*self.attached]:
                instruments.flush()
            self.stop()  # Python aborts the process at the end of another interpreter that has threads

    def forked(self) -> None:
        """Drop the session of the parent in a forked child, without waiting for a lock."""
        self.lock = threading.RLock()  # a thread of the parent may hold the other
        session, self.session = self.session, None
        agent, self.agent = self.agent, None
        self._reporter = None
        self.attached = []
        for instruments in self.instruments.values():
            instruments.forked()
        if agent is not None:
            agent.abandon()
        if session is not None:
            session.abandon()

    def restart_readers(self, provider: MeterProvider) -> None:
        """Let the readers of a provider export in the child of a fork that ran no fork hooks, as those would."""
        try:
            restart_readers(get_meter_provider() if is_proxy(provider) else provider)
        except Exception:
            _LOG.debug("The MeterProvider could not be restarted after a fork", exc_info=True)

    def stop(self) -> None:
        """Stop. Nothing is exported afterwards."""
        session, self.session = self.session, None
        agent, self.agent = self.agent, None
        reporter, self._reporter = self._reporter, None
        attached, self.attached = self.attached, []
        if self.recorder is not None:
            self.recorder.close()
        for instruments in attached:
            instruments.close()
        if session is not None:
            session.close()
        if agent is not None:
            agent.stop()
        if reporter is not None:
            reporter.leave()
