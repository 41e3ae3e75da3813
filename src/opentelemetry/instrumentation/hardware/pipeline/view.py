"""View: the values at one moment, with rates of counters and reasons for missing metrics."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from opentelemetry.instrumentation.hardware.bottlenecks.signals import device_names
from opentelemetry.instrumentation.hardware.catalog import (
    CATALOG,
    CONTAINER_PRESSURE_TIME,
    HW_GPU_THROTTLE_TIME,
    HW_ID,
    SYSTEM_PRESSURE_TIME,
)
from opentelemetry.instrumentation.hardware.model import Attributes, Metric, Number, Series, Snapshot, rates
from opentelemetry.instrumentation.hardware.pipeline.collector import Reader
from opentelemetry.instrumentation.hardware.pipeline.runner import State
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.settings.redaction import redacted

_SHARES = (CONTAINER_PRESSURE_TIME, SYSTEM_PRESSURE_TIME, HW_GPU_THROTTLE_TIME)

# Seconds to wait for the first and each further reading. A source that takes longer is shown as hung.
_FIRST, _NEXT = 2.0, 0.5


class View(NamedTuple):
    """The values of one moment.

    Attributes:
        time: Unix seconds.
        window: Seconds that means and rates cover.
        snapshot: The values.
        rates: The increase per second of each counter that increased.
        unsupported: A sentence for each missing metric, with the reason.
        pid: The observed process; None if it is this command.
        names: The name of each device by its ``hw.id``.
        used: ``hw.id`` of the devices that the observed process and its descendants use, as far as that is known.
        absent: The sources of hardware that this machine lacks and no setting names. ``unsupported`` has the reasons.
    """

    time: float
    window: float
    snapshot: Snapshot
    rates: Mapping[Series, float]
    unsupported: tuple[str, ...]
    pid: int | None
    names: Mapping[str, str]
    used: frozenset[str] = frozenset()
    absent: tuple[str, ...] = ()

    def points(self, metric: Metric) -> Sequence[tuple[Number, Attributes]]:
        """The series of a metric."""
        return self.snapshot.values.get(metric, ())

    def rows(self) -> list[tuple[Metric, list[tuple[Number, Attributes]]]]:
        """The metrics in the order of the catalog, scraped ones last."""
        order = {metric: at for at, metric in enumerate(CATALOG)}
        return sorted(self.snapshot.values.items(), key=lambda row: order.get(row[0], len(order)))

    def of_process(self) -> View:
        """Return the view with the metrics of the process only."""
        kept = {metric: points for metric, points in self.snapshot.values.items() if _is_of_process(metric)}
        missing = tuple(sentence for sentence in self.unsupported if sentence.startswith("process"))
        return self._replace(snapshot=Snapshot(kept), unsupported=missing)

    def of_host(self) -> View:
        """Return the view without the metrics of the process, but with process metrics of devices."""
        values = self.snapshot.values.items()
        kept = {metric: points for metric, points in values if not _is_of_process(metric) or HW_ID in metric.attributes}
        return self._replace(snapshot=self.snapshot._replace(values=kept))


def _is_of_process(metric: Metric) -> bool:
    return metric.name.startswith("process.")


class Viewer:
    """Collects the values of a started session. Each collection covers the time since the one before.

    Other readers are not affected. The PID is that of the observed process; None if it is this command.

    Attributes:
        first: The values at the beginning.
    """

    def __init__(self, session: Session, pid: int | None = None) -> None:
        self._session = session
        self._pid = pid
        self._reader = Reader()
        session.read_first(_FIRST)
        self.first = session.collect(self._reader)
        self._read, self._counters = self.first.read, self.first.counters()

    def collect(self, is_expected: bool = False) -> View:
        """Read the sources and return the values.

        A collection is expected if it comes as long after the previous one as that one after the one before. The
        session has read the sources just before then, and they are not read again.
        """
        if is_expected:
            self._session.read_due(_NEXT)
        else:
            self._session.read_now(_NEXT)
        snapshot = self._session.collect(self._reader)
        elapsed = [
            snapshot.read[name] - start
            for name, start in self._read.items()
            if start and snapshot.read.get(name, 0.0) > start
        ]
        counters = snapshot.counters()
        increases = rates(self._counters, counters)
        self._read, self._counters = snapshot.read, counters
        absent = (runner.name for runner in self._session.runners if runner.state is State.ABSENT)
        return View(
            time.time(),
            sum(elapsed) / len(elapsed) if elapsed else 0.0,
            snapshot,
            # Kernel and driver add the time of a while at once: that is at most 100 %.
            {series: min(rate, 1.0) if series.metric in _SHARES else rate for series, rate in increases.items()},
            _missing(self._session),
            self._pid,
            device_names(snapshot.values),
            frozenset(name for runner in self._session.runners if runner.source for name in runner.source.used),
            tuple(name for name in absent if name not in (self._session.config.sources or ())),
        )

    def keep_sampling(self) -> None:
        """Announce the next collection, so that the sources keep sampling until then."""
        self._session.note_collection(self._reader)


def _missing(session: Session) -> tuple[str, ...]:
    found = []
    for runner in session.runners:
        problem, source = runner.health(session.clock()), runner.source
        if problem is not None:
            found.append(str(problem))
        elif runner.state is State.STARTING:
            found.append(f"{runner.name}: no reading yet")
        if source is not None:
            found += map(redacted, source.unsupported)
    return tuple(found)
