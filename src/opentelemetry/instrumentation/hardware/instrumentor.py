"""HardwareInstrumentor: OpenTelemetry's interface to start and stop hardware telemetry."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]
from opentelemetry.metrics import MeterProvider, get_meter_provider

from opentelemetry.instrumentation.hardware.agent import obstacle
from opentelemetry.instrumentation.hardware.sdk import import_early
from opentelemetry.instrumentation.hardware.settings import PREFIX, Config
from opentelemetry.instrumentation.hardware.settings.log import logger
from opentelemetry.instrumentation.hardware.system import uwsgi
from opentelemetry.instrumentation.hardware.system.interpreter import FORK_SERVER, helper
from opentelemetry.instrumentation.hardware.system.limits import shortage
from opentelemetry.instrumentation.hardware.telemetry import Telemetry

_LOG = logger(__name__)


class HardwareInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Reports the host, its devices, its container and this process.

    ``instrument()`` takes ``meter_provider`` (by default the global one, which may be set later) and every setting of
    :class:`~opentelemetry.instrumentation.hardware.Config`, named as in ``OTEL_PYTHON_HARDWARE_<NAME>``; arguments take
    precedence. A second call with another provider reports to both. It never raises. After ``uninstrument()`` nothing
    is exported, and no thread, descriptor or child process is left. With ``session``, it reports a session that the
    caller has made, and raises if that cannot start; the agent observes another process in this way.
    """

    # The type of declarative configuration (``instrumentation/development: python: hardware:``).
    configuration: ClassVar[type[Config]] = Config

    _telemetry: Telemetry
    _deferred: list[Callable[[], None]]
    _pid: int
    _config: Config | None = None  # with which it started
    _has_fork_hook = False
    _defaults: Mapping[str, Any] = MappingProxyType({})

    def __new__(cls, **kwargs: Any) -> HardwareInstrumentor:
        """Return the only instrumentor of the process. Constructing it again, in any thread, has no effect.

        Arguments are defaults of ``instrument()``, for ``with HardwareInstrumentor(...):``.
        """
        self: HardwareInstrumentor = super().__new__(cls)
        if kwargs:
            self._defaults = kwargs
        begin = self.__dict__.setdefault
        begin("_telemetry", Telemetry(self._allow_another_attempt))
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
        telemetry = self._telemetry
        if self._has_fork_hook and self._pid != os.getpid():  # the fork was made in C, and ran no fork hooks
            self._forked()
            telemetry.restart_readers(provider or get_meter_provider())
        # Before the lock, which the child could not get. A hook cannot be unregistered.
        if not self._has_fork_hook and hasattr(os, "register_at_fork"):
            import_early()
            self._pid = os.getpid()
            os.register_at_fork(after_in_child=self._forked)
            self._has_fork_hook = True
        with telemetry.lock:
            try:
                if telemetry.is_running and self._config is not None:
                    given = {row.name: kwargs[row.name] for row in fields(Config) if kwargs.get(row.name) is not None}
                    wanted = Config.read(given, {})
                    ignored = [name for name in given if getattr(wanted, name) != getattr(self._config, name)]
                    if ignored:
                        text = "Hardware telemetry runs already, with other %s; call uninstrument() first, or set %s%s"
                        _LOG.warning(text, ", ".join(ignored), PREFIX, ignored[0].upper())
                session = telemetry.session
                if session is not None and provider is not None and not telemetry.reports_to(provider):
                    telemetry.attach(provider, session)
                    return
            except Exception:
                _LOG.exception("Hardware telemetry cannot be reported to %r", provider)
                return
            super().instrument(**kwargs)
            if telemetry.is_running:
                self._defaults = {}
            else:  # it could not start
                self._allow_another_attempt()

    def _allow_another_attempt(self) -> None:
        self._is_instrumented_by_opentelemetry = False

    def uninstrument(self, **kwargs: Any) -> None:
        """Stop; see the class."""
        with self._telemetry.lock:
            self._defaults = {}
            if self._deferred:
                self._deferred = []
                self._uninstrument()
                return
            super().uninstrument(**kwargs)

    def __enter__(self) -> HardwareInstrumentor:
        """Start, unless ``instrument()`` was called before."""
        if self._defaults or not self.is_instrumented_by_opentelemetry:
            self.instrument()
        return self

    def __exit__(self, *exception: object) -> None:
        """Read and collect once more, and stop."""
        for instruments in [*self._telemetry.instruments.values()]:
            instruments.flush()
        self.uninstrument()

    def _instrument(self, **kwargs: Any) -> None:
        served, again, telemetry = helper(), partial(self.instrument, **kwargs), self._telemetry
        session = kwargs.pop("session", None)
        try:
            provider = kwargs.pop("meter_provider", None)
            if provider is None:
                provider = get_meter_provider()
            if served == FORK_SERVER:
                self._serve_children(provider, Config.read(kwargs))
            if served:
                return
            if (reason := shortage()) is not None:
                raise MemoryError(reason)
            kwargs.pop("tracer_provider", None)
            kwargs.pop("logger_provider", None)
            if session is not None:
                telemetry.report(provider, session, session.start)
                session.start()  # its caller may show what it reads
                return
            config = self._config = Config.read(kwargs)
            telemetry.join(config)
            if uwsgi.forks_later():
                self._deferred.append(again)  # it starts after the fork, in each worker
                if len(self._deferred) == 1:
                    uwsgi.call_in_workers(self._start_deferred)
            else:
                telemetry.start(provider, config, kwargs)
        except Exception as error:
            if session is not None:
                telemetry.stop()
                raise
            telemetry.fail(error)

    def _serve_children(self, provider: MeterProvider, config: Config) -> None:
        """Measure the spans of the children of a fork server, where nothing is read and no thread of ours runs."""
        if config.spans == "off":
            return
        from opentelemetry.instrumentation.hardware.spans.readings import Readings

        if config.mode == "agent" and obstacle() is None:
            from opentelemetry.instrumentation.hardware.spans import shared  # not on Windows

            try:
                readings: Readings = shared.of_parent(config)
            except OSError as error:
                _LOG.info("Spans of the children of this fork server are not measured: %s", error)
                return
        else:
            from opentelemetry.instrumentation.hardware.pipeline.found import find_sources

            readings = Readings(config)  # each child has a session of its own
            find_sources(config, True, False)  # imports what else each child would import at its first span
        self._telemetry.record_spans(readings, provider)

    def _start_deferred(self) -> None:
        deferred, self._deferred = self._deferred, []
        if deferred and not uwsgi.has_threads():
            _LOG.warning("uWSGI runs no Python threads; hardware telemetry needs its option --enable-threads")
            return
        for start in deferred:
            start()

    def _forked(self) -> None:
        """Drop the session of the parent in a forked child, where ``instrument()`` starts a new one."""
        self._pid = os.getpid()
        self._allow_another_attempt()
        self._telemetry.forked()

    def _uninstrument(self, **kwargs: Any) -> None:
        del kwargs
        self._telemetry.stop()
