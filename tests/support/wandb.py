"""Rows of W&B's keys: of a session with the drivers of a machine, and of points that a test makes up."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from opentelemetry.instrumentation.hardware import wandb
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.model import Point, Series, Snapshot, Values
from opentelemetry.instrumentation.hardware.pipeline import session as session_module
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.pipeline.view import View, Viewer
from opentelemetry.instrumentation.hardware.settings import Config


class Watched:
    """A session of some sources; each call of :meth:`row` collects.

    Attributes:
        viewer: Collects.
        missing: What the last row lacks and why.
    """

    def __init__(self, session: Session, pid: int) -> None:
        self.viewer = Viewer(session)
        self._points = wandb.Points(self.viewer.first, time.time(), session.config, pid)
        self.missing: list[str] = []

    def row(self) -> dict[str, float]:
        """The keys of now, without time stamps."""
        view = self.viewer.collect()
        self.missing = [*view.unsupported]
        return {key: value for key, value in self._points.row(view).items() if not key.startswith("_")}


@contextmanager
def watched(sources: str, pid: int, drivers: Drivers | None = None, **settings: object) -> Iterator[Watched]:
    """A session of sources with the drivers of a machine; by default of this one.

    Simulated drivers need no time between the first two readings.
    """
    config = wandb.needs(Config.read({"sources": sources, **settings}, {}))
    make = None if drivers is None else lambda name: drivers
    pause = session_module._PAUSE if drivers is None else 0.001
    session = Session(config, pid, 1.0, make)
    session.start()
    try:
        with patch.object(session_module, "_PAUSE", pause):
            watching = Watched(session, pid)
        yield watching
    finally:
        session.close()


def row(sources: str, pid: int, drivers: Drivers | None = None, **settings: object) -> dict[str, float]:
    """The keys of one row."""
    with watched(sources, pid, drivers, **settings) as watching:
        return watching.row()


def keys(
    *now: Point,
    first: Iterable[Point] = (),
    used: Iterable[str] = (),
    rates: Mapping[Series, float] | None = None,
    paths: Sequence[str] = ("/",),
) -> dict[str, float]:
    """The keys of points that a test makes up, without time stamps."""
    snapshots = []
    for listed in (now, first):
        values: Values = {}
        for series, value in listed:
            assert isinstance(value, (int, float))
            values.setdefault(series.metric, []).append((value, series.attributes))
        snapshots.append(Snapshot(values))
    points = wandb.Points(snapshots[1], 0.0, Config(), os.getpid())
    points.paths = [*paths]
    view = View(0.0, 1.0, snapshots[0], rates or {}, (), None, {}, frozenset(used))
    return {key: value for key, value in points.row(view).items() if not key.startswith("_")}
