"""GlobalTracerProvider: adds a HardwareSpanProcessor to the global TracerProvider, which may be set later."""

from __future__ import annotations

import logging
from functools import wraps
from typing import TYPE_CHECKING, Any

from opentelemetry import trace

if TYPE_CHECKING:
    from opentelemetry.instrumentation.hardware.spans import HardwareSpanProcessor, Measurements

_LOG = logging.getLogger(__name__)


class GlobalTracerProvider:
    """The global TracerProvider and its processor, which cannot be removed again and so is reused by later sessions.

    :func:`opentelemetry.trace.set_tracer_provider` is replaced while a session is open, so that no span is missed.
    Programs that have imported the function itself are noticed at the next reading of a source; see :meth:`check`.
    """

    def __init__(self) -> None:
        self._session: Measurements | None = None
        self._processor: HardwareSpanProcessor | None = None
        self._provider: object = None
        self._resource: object = None
        self._replaced: Any = None
        self._failed = False

    def open(self, session: Measurements) -> None:
        """Measure spans with a session, or with the ledgers of an agent."""
        self._session, self._failed = session, False
        if self._replaced is None:
            self._replaced = original = trace.set_tracer_provider

            @wraps(original)
            def set_tracer_provider(tracer_provider: trace.TracerProvider) -> None:
                original(tracer_provider)
                self.check()

            self._replacement = trace.set_tracer_provider = set_tracer_provider
        if self._processor is not None:
            self._processor.session = session
        self.check()

    def check(self) -> None:
        """Add the processor if another provider has been set. Never raises: programs call it by setting a provider.

        The provider of logfire is a shell, in which each ``logfire.configure()`` sets another provider of the SDK. Then
        the resource is another object.
        """
        try:
            self._check()
        except Exception as error:
            if not self._failed:
                self._failed = True
                _LOG.error("Spans are not measured: %s: %s", type(error).__name__, error)

    def _check(self) -> None:
        provider: Any = trace.get_tracer_provider()
        if self._session is None or not hasattr(provider, "add_span_processor"):
            return
        # It imports the SDK. Meanwhile other threads come here, or the session is closed, so all else comes after it.
        from opentelemetry.sdk.trace import TracerProvider

        from opentelemetry.instrumentation.hardware.spans import HardwareSpanProcessor

        session, resource = self._session, getattr(provider, "resource", None)
        if resource is not getattr(provider, "resource", None):
            resource = None  # a new object at each call, also of the same provider
        if session is None or (provider is self._provider and resource is self._resource):
            return
        self._provider, self._resource = provider, resource
        if self._processor is None:
            self._processor = HardwareSpanProcessor(session)
            self._processor.session = self._session
        # Phoenix overrides it: the first processor that is added there replaces and shuts down its exporter.
        TracerProvider.add_span_processor(provider, self._processor)

    def close(self) -> None:
        """Measure no more spans."""
        self._session = None
        if self._processor is not None:
            self._processor.session = None
        if self._replaced is not None and trace.set_tracer_provider is self._replacement:
            trace.set_tracer_provider, self._replaced = self._replaced, None
