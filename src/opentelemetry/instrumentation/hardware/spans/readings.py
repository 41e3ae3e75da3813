"""Readings: what the recorder of spans needs of the session of this process, or of its agent."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.instrumentation.hardware.pipeline.runner import SourceRunner, State
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.pipeline.thread import ReaderThread
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.spans.demand import Demand
from opentelemetry.instrumentation.hardware.spans.rows import ACCELERATOR, Rows


class Readings:
    """What is read for spans: in this class nothing, for a process with forked children that have their own sessions.

    Attributes:
        config: The settings.
        demand: When spans need readings.
        serves_children: Whether it also has readings for forked children of this process.
        has_started: Whether it reads. A session does not before something can be exported.
        has_accelerators: Whether there are accelerators, as far as it is known.
        span_rows: The rows of the devices in use and of the process.
    """

    serves_children = False
    has_started = False
    has_accelerators = False
    span_rows: Sequence[Rows] = ()

    def __init__(self, config: Config, demand: Demand | None = None) -> None:
        self.config = config
        self.demand = Demand() if demand is None else demand

    def start(self) -> None:
        """Begin to read, once."""

    def advance(self) -> None:
        """Take over what was read. Called by our threads after their readings."""

    def expect_spans(self) -> None:
        """Record that there is a TracerProvider: from now on, spans need readings. No lock, no wait."""
        self.demand.is_tracing = True

    def wake_for_spans(self) -> None:
        """Let the devices in use be read now. Called in the threads of the program: no lock, no wait."""


class SessionReadings(Readings):
    """The readings of a session of this process.

    Args:
        session: The session.

    Attributes:
        session: The session.
    """

    def __init__(self, session: Session) -> None:
        super().__init__(session.config, session.demand)
        self.session = session
        self.has_accelerators = bool(session.accelerators)
        self._read_for_each_span: tuple[ReaderThread, ...] = ()

    @property
    def has_started(self) -> bool:  # type: ignore[override]
        return self.session.has_started

    def start(self) -> None:
        self.session.start()

    def advance(self) -> None:
        session = self.session
        rows = [rows for each in session.runners if each.ledger for rows in each.ledger.rows]
        self.span_rows = tuple(each for each in rows if each.use or each.kind != ACCELERATOR)
        self.has_accelerators = any(each.kind == ACCELERATOR for each in rows) or any(
            runner.state is State.STARTING and runner.name in session.accelerators for runner in session.runners
        )
        self._read_for_each_span = tuple(
            thread
            for thread in session.threads
            if any(isinstance(each, SourceRunner) and each.reads_for_each_span for each in thread.runners)
        )

    def expect_spans(self) -> None:
        if not self.demand.is_tracing:
            super().expect_spans()
            for thread in self.session.threads:
                thread.wake()

    def wake_for_spans(self) -> None:
        for thread in self._read_for_each_span:
            thread.wake()
