"""Pace: when each reading of a source is due, and when it expires."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf

from opentelemetry.instrumentation.hardware.pipeline.aggregate import Aggregator
from opentelemetry.instrumentation.hardware.pipeline.schedule import CollectionSchedule
from opentelemetry.instrumentation.hardware.sources import SLOW, Reading
from opentelemetry.instrumentation.hardware.spans.demand import INTERVAL, Demand

# Number of its periods after which a reading expires, and after which a source that is being read counts as hung.
PERIODS = 3

# Seconds. For expiry, a shorter period counts as this: a busy machine delays threads by tenths of a second.
SHORTEST_PERIOD = 1.0

# Seconds between readings while no reader has collected for a long time, so that a scrape now and then is complete.
IDLE_PERIOD = 30.0

# CPU seconds of each of two consecutive readings after which the source rests. A single one may contain a garbage
# collection of the program.
_LONG = 0.05

_REST = 60  # length of the rest, as a multiple of the CPU seconds: a source that floods takes 1.7 % of a core

_SHORTEST = 0.01  # least seconds between two readings of the same

_EARLY = 0.1  # what is due within this share of its period is read along with what is due now


class Part:
    """One of the readings of a source, and what was read so far.

    Attributes:
        reading: As of the last reading. Other threads use it while the source may be closed.
        values: Its values; not used if it is for spans.
        last: When it was last read.
        due: When it is next due.
        errors: Errors in its points.
    """

    def __init__(self, reading: Reading, values: Aggregator) -> None:
        self.reading = reading
        self.values = values
        self.last = self.due = -inf
        self.errors: list[str] = []


class Pace:
    """When the readings of one source are due.

    A reading is due when its interval has passed, just before a collection, or when spans need it. If no reader
    collects, or if only spans need readings, the interval is longer. Without a demand, spans need none of this source.

    Attributes:
        parts: The readings.
        duration: Seconds that the newest reading took.
        span_duration: Seconds that the newest one for spans took.
        rests_until: When the source may be read again.
    """

    def __init__(
        self,
        new_values: Callable[[], Aggregator],
        schedule: CollectionSchedule,
        clock: Callable[[], float],
        demand: Demand | None,
        only_spans: bool,
    ) -> None:
        self.parts: tuple[Part, ...] = ()
        self.duration: float | None = None
        self.span_duration = 0.0
        self.rests_until = -inf
        self._last_cpu_time = 0.0
        self._new_values = new_values
        self._schedule = schedule
        self._clock = clock
        self._demand = demand
        self._only_spans = only_spans

    def learn(self, readings: Iterable[Reading]) -> None:
        """Copy what a source reads and how often. Invalid values raise here, in the thread of the source."""
        parts = []
        for number, (read, every, before_collection, apart, for_spans) in enumerate(readings):
            reading = Reading(read, max(float(every), _SHORTEST), before_collection, float(apart), for_spans)
            if number < len(self.parts):
                parts.append(self.parts[number])
                parts[-1].reading = reading
            else:
                parts.append(Part(reading, self._new_values()))
        self.parts = tuple(parts)

    @property
    def exported(self) -> list[Part]:
        """The readings that are not only for spans."""
        return [part for part in self.parts if not part.reading.for_spans]

    @property
    def follows_spans(self) -> bool:
        """Whether a reading is made while a span is open, more often than otherwise."""
        return self._demand is not None and any(
            part.reading.for_spans and part.reading.every <= INTERVAL for part in self.parts
        )

    def next(self, now: float) -> float:
        """Return when the next reading is due, and keep when each is."""
        for part in self.parts:
            due = max(self._due(part, now), self.rests_until)
            part.due = max(due, min(now, part.due))  # a thread that is woken early is not late
        return min((part.due for part in self.parts), default=now)

    def due(self, now: float, everything: bool) -> list[Part]:
        """Return what is due, or will be so soon that one reading does for both; or everything that may be read."""
        due = [
            part
            for part in self.parts
            if self._due(part, now) - now <= (0.0 if part.reading.apart else _EARLY * min(1.0, self.period(part)))
            or (everything and (not part.reading.for_spans or (self._only_spans and self._due(part, now) < inf)))
        ]
        if self.parts and self.parts[0] in due:
            # Along with a sample, because a collection is expected before the next two. It may come earlier than
            # expected, for example if the export before it took less time.
            lead, soon = 2 * self._lead(), 2 * self.period(self.parts[0])
            before = [part for part in self.parts if part not in due and part.reading.before_collection]
            due += [part for part in before if self._schedule.due(part.last + lead) - now <= soon]
        return due

    def rest_after(self, cpu_time: float) -> None:
        """Rest if this reading and the one before took much CPU time."""
        if min(cpu_time, self._last_cpu_time) > _LONG:
            self.rests_until = self._clock() + _REST * cpu_time
        self._last_cpu_time = cpu_time

    def _due(self, part: Part, now: float) -> float:
        """Return when a part is due, however late that is."""
        last, reading = part.last, part.reading
        if reading.for_spans:
            return inf if self._demand is None else self._demand.due(reading.every, last, self.span_duration)
        if part.values.published is None:
            return now
        if self._schedule.quiet(now):
            return last + max(self.period(part), IDLE_PERIOD)
        if self._only_spans:
            return last + max(self.period(part), SLOW)
        due = last + reading.every
        if reading.before_collection:
            lead = self._lead()
            due = min(due, self._schedule.due(last + 2 * lead) - lead)  # what is so new is new enough for a collection
        return max(last + IDLE_PERIOD if due == inf else due, last + reading.apart)

    def _lead(self) -> float:
        """Return the seconds between a reading and its collection: short, but enough to complete it."""
        return min(0.05 + 3 * (self.duration or 0.0), 0.25 * self._schedule.shortest(self._clock()))

    def period(self, part: Part) -> float:
        """Return the seconds between two readings of a part."""
        every = part.reading.every
        return max(self._schedule.shortest(self._clock()) if every == inf else every, part.reading.apart)

    def patience(self) -> float:
        """Return the seconds after which a reading that has not ended counts as hung."""
        return PERIODS * max(SHORTEST_PERIOD, min((self.period(part) for part in self.exported), default=0.0))

    def is_expired(self, part: Part, now: float) -> bool:
        """Whether a reading is older than three of its periods, and the next one is late by two."""
        published, period = part.values.published, max(self.period(part), SHORTEST_PERIOD)
        return published is not None and now > max(published.time + PERIODS * period, part.due + (PERIODS - 1) * period)
