"""Readings: what the recorder of spans needs of the session of this process, or of its agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from opentelemetry.instrumentation.hardware.pipeline.runner import SourceRunner, State
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.pipeline.thread import ReaderThread
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.spans.ledger import Demand
from opentelemetry.instrumentation.hardware.spans.rows import ACCELERATOR, Rows


class Readings(Protocol):
    """What is read for spans.

    Attributes:
        config: The settings.
        demand: When spans need readings.
        serves_children: Whether it also has readings for forked children of this process.
        has_started: Whether it reads. A session does not before something can be exported.
        has_accelerators: Whether there are accelerators, as far as it is known.
        span_rows: The rows of the devices in use and of the process.
    """

    config: Config

    @property
    def demand(self) -> Demand | None: ...
    @property
    def serves_children(self) -> bool: ...
    @property
    def has_started(self) -> bool: ...
    @property
    def has_accelerators(self) -> bool: ...
    @property
    def span_rows(self) -> Sequence[Rows]: ...

    def start(self) -> None:
        """Begin to read, once."""

    def advance(self) -> None:
        """Take over what was read. Called by our threads after their readings."""

    def expect_spans(self) -> None:
        """Record that there is a TracerProvider: from now on, spans need readings. No lock, no wait."""

    def wake_for_spans(self) -> None:
        """Let the devices in use be read now. No lock, no wait."""


class SessionReadings:
    """The readings of a session of this process; see :class:`Readings`.

    Args:
        session: The session.

    Attributes:
        session: The session.
    """

    serves_children = False

    def __init__(self, session: Session) -> None:
        self.session = session
        self.config = session.config
        self.demand = session.demand
        self.has_accelerators = bool(session.accelerators)
        self.span_rows: tuple[Rows, ...] = ()
        self._read_for_each_span: tuple[ReaderThread, ...] = ()

    @property
    def has_started(self) -> bool:
        """Return whether the session reads."""
        return self.session.has_started

    def start(self) -> None:
        """Let the session read, once."""
        self.session.start()

    def advance(self) -> None:
        """Take over what was read. Called by our threads after their readings."""
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
        """Record that there is a TracerProvider: from now on, spans need readings. No lock, no wait."""
        if self.demand is not None and not self.demand.is_tracing:
            self.demand.is_tracing = True
            for thread in self.session.threads:
                thread.wake()

    def wake_for_spans(self) -> None:
        """Read the devices in use now. Called in the threads of the program: no lock, no wait."""
        for thread in self._read_for_each_span:
            thread.wake()


class NoReadings:
    """Nothing is read in this process; see :class:`Readings`. Its forked children have sessions of their own.

    Args:
        config: The settings.
    """

    serves_children = has_started = has_accelerators = False
    demand: Demand | None = None
    span_rows: tuple[Rows, ...] = ()

    def __init__(self, config: Config) -> None:
        self.config = config

    def start(self) -> None:
        """Do nothing."""

    def advance(self) -> None:
        """Do nothing."""

    def expect_spans(self) -> None:
        """Do nothing."""

    def wake_for_spans(self) -> None:
        """Do nothing."""
