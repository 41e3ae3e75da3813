"""Session: everything that lives between ``instrument()`` and ``uninstrument()``."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Collection, Sequence

from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.model import Attributes, Event, Scope, Snapshot
from opentelemetry.instrumentation.hardware.pipeline.clock import RunningClock
from opentelemetry.instrumentation.hardware.pipeline.collector import Collector, Reader
from opentelemetry.instrumentation.hardware.pipeline.counters import CounterStore
from opentelemetry.instrumentation.hardware.pipeline.found import FoundSource, any_host_metric, drivers_of, find_sources
from opentelemetry.instrumentation.hardware.pipeline.reporter import Reporter
from opentelemetry.instrumentation.hardware.pipeline.role import Role
from opentelemetry.instrumentation.hardware.pipeline.runner import SourceRunner
from opentelemetry.instrumentation.hardware.pipeline.schedule import CollectionSchedule
from opentelemetry.instrumentation.hardware.pipeline.thread import FormerThreads, ReaderThread, read_all, start_all
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.settings.log import logger
from opentelemetry.instrumentation.hardware.sources import Source, SourceContext
from opentelemetry.instrumentation.hardware.spans.demand import Demand
from opentelemetry.instrumentation.hardware.spans.ledger import METRICS
from opentelemetry.instrumentation.hardware.system.holders import HeldDevice
from opentelemetry.instrumentation.hardware.system.tree import SharedWalk

_LOG = logger(__name__)

# Seconds for which the sources wait to know whether this process reports the host, which takes milliseconds.
_ROLE_WAIT = 1.0

# Seconds to wait for the threads when closing. A thread that hangs in its driver ends when the driver returns.
_LONGEST_JOIN = 1.0

# Seconds between the first two readings. NVML compares samples of GPM that are at least a tenth of a second apart.
_PAUSE = 0.1


class Session:
    """The sources of this process, the threads that read them, and the collected values.

    Args:
        config: The settings.
        pid: The observed process; this one by default.
        interval: The expected seconds between collections.
        drivers: Makes the drivers of a source; by default those of this machine.
        clock: Monotonic seconds. The session leaves out those in which the process was stopped.
        all_processes: No process is observed; per-process values are summed over all processes.
        counters: The counters of earlier sessions, which are continued.
        reporter: Decides whether this process reports the host; without it, it does.
        demand: When spans need readings, of this process or of another one; None if no spans are measured.
        only_spans: Whether the session is for spans only, and reports nothing.
        former: The threads of earlier sessions that may hang.

    Attributes:
        is_reporter: Whether this process reports the host now.
        runners: Its sources.
        threads: The threads that read them.
        labels: By ``hw.id``, attributes that all series of the device get. Our threads change it.
        held: By source, the devices and who uses them; None if a program is observed. Our threads change it.
        on_reading: Called by our threads after their readings.
        on_event: Called by them for each event of a device.
        has_started: Whether it reads.
        has_reader: Whether a reader may collect from us. A process that exports nothing does not become reporter.
        demand: When spans need readings.
        accelerators: The sources of accelerators that this machine seems to have.
    """

    def __init__(
        self,
        config: Config,
        pid: int | None = None,
        interval: float = 60.0,
        drivers: Callable[[str], Drivers] | None = None,
        clock: Callable[[], float] = time.monotonic,
        all_processes: bool = False,
        counters: CounterStore | None = None,
        reporter: Reporter | None = None,
        demand: Demand | None = None,
        only_spans: bool = False,
        former: FormerThreads | None = None,
    ) -> None:
        self.config = config
        self.pid = os.getpid()
        self.threads: list[ReaderThread] = []
        self.clock = clock = RunningClock(
            lambda: min((thread.wakes_at for thread in self.threads), default=math.inf), clock
        )
        self.counters = CounterStore() if counters is None else counters
        self.is_reporter = not only_spans and (reporter is None or reporter.holds or reporter.mode == "always")
        self.schedule = CollectionSchedule(clock(), interval)
        self.on_reading: Callable[[], None] = lambda: None
        self.on_event: Callable[[Event], None] = lambda event: None
        self.has_reader: Callable[[], bool] = lambda: True
        self._drivers = drivers
        self._observed = self.pid if pid is None else pid
        self._all_processes = all_processes
        self._reporter = reporter
        self._former = FormerThreads() if former is None else former
        self._walk = SharedWalk() if drivers is None else None
        self.held: dict[str, Sequence[HeldDevice]] | None = {} if all_processes else None
        self.labels: dict[str, Attributes] = {}
        self._devices: list[Reporter] = []
        self._can_report = self.is_reporter or (reporter is not None and reporter.mode != "never")
        self.demand = demand
        self._only_spans = only_spans
        self._sources = find_sources(config, self._can_report or only_spans, all_expected=drivers is not None)
        if not all_processes:
            self._sources = [found for found in self._sources if not found.make.of_all_processes]
        if only_spans:
            self._sources = [found for found in self._sources if found.has_any(METRICS)]
        self.accelerators = {found.name for found in self._sources if found.expected and found.has_devices}
        self._role: Role | None = None
        if reporter is not None and self._can_report and any_host_metric(self._sources, config):
            self._role = Role(reporter, self.schedule, self._set_role, clock)
        roles = [self._role] if self._role else []
        self._role_thread = ReaderThread("reporter", roles, clock=clock)
        self._lock = threading.Lock()
        self.has_started = self._is_closed = False
        self.runners: list[SourceRunner] = []
        self.collector = Collector((), config, self.counters, clock, roles)
        has_host = self.is_reporter or only_spans
        self._add([found for found in self._sources if has_host or found.make.scope is Scope.PROCESS])

    def _add(self, sources: Sequence[FoundSource]) -> list[ReaderThread]:
        """Add sources, and return their threads, which are not started yet."""
        runners = [(self._runner(found, instance), found) for found in sources for instance in found.instances]
        groups = {runner.name: [runner] for runner, found in runners if found.expected}
        groups["unexpected"] = [runner for runner, found in runners if not found.expected]
        threads = [ReaderThread(*group, self.after_reading, self.clock) for group in groups.items() if group[1]]
        self._replace([*self.runners, *(runner for runner, _ in runners)], [*self.threads, *threads])
        return threads

    def _replace(self, runners: list[SourceRunner], threads: list[ReaderThread]) -> None:
        """Use other lists, which other threads may iterate over. If two sources report a series, the first is used."""
        order = [found.name for found in self._sources]
        self.runners = sorted(runners, key=lambda runner: order.index(runner.name.partition(":")[0]))
        self.threads = threads
        self.collector.replace(self.runners)

    def _runner(self, found: FoundSource, instance: str) -> SourceRunner:
        # Created once: the drivers keep track of children that cannot be killed, even if a source is reopened.
        drivers = drivers_of(self.config, self._observed) if self._drivers is None else self._drivers(found.name)
        claim: Callable[[Collection[str]], Collection[str]] | None = None
        if self._reporter is not None and self._can_report and found.has_devices:
            locks = self._reporter.of_devices(found.name)
            self._devices.append(locks)

            def claim(ids: Collection[str]) -> Collection[str]:
                """Lock the devices to report. A process without a reader leaves them to others."""
                return locks.claim(ids if self.has_reader() and not self._is_closed else ())

        def make() -> Source:
            """Create the source, in its own thread. It is not opened twice because the role is not known yet."""
            if self._role is not None and self.has_started:
                self._role.decided.wait(_ROLE_WAIT)
            runner.is_outdated = False
            self._former.wait_for(runner.name)
            return found.make(
                SourceContext(
                    self.config,
                    drivers,
                    self._observed,
                    self.is_reporter,
                    instance=instance,
                    all_processes=self._all_processes,
                    claim=claim,
                    walk=self._walk,
                    held=self.held,
                    labels=self.labels,
                    emit=self.on_event,
                )
            )

        runner = SourceRunner(
            make,
            f"{found.name}:{instance}" if instance else found.name,
            self.schedule,
            self.counters,
            self.config.counter_origin == "start",
            self.clock,
            self.demand,
            self._only_spans,
        )
        return runner

    def _set_role(self, is_reporter: bool) -> None:
        """Begin or end to report the host. Called by our threads."""
        with self._lock:
            if is_reporter == self.is_reporter or self._is_closed:
                return
            self.is_reporter = is_reporter
            host = {found.name for found in self._sources if found.make.scope is Scope.HOST}
            both = {found.name for found in self._sources if found.reports_host} - host
            if is_reporter:
                start_all(self._add([found for found in self._sources if found.name in host]))
            else:
                own = [runner for runner in self.runners if runner.name.partition(":")[0] not in host]
                ended = [thread for thread in self.threads if not {*thread.runners} & {*own}]
                self._replace(own, [thread for thread in self.threads if thread not in ended])
                for thread in ended:
                    thread.stop()
                    self._former.add(thread)
            for runner in self.runners:
                if runner.name in both:
                    runner.is_outdated = True
            for thread in self.threads:
                thread.wake()

    def start(self) -> None:
        """Begin to read the sources, once.

        Raises:
            RuntimeError: If the process may have no more threads.
        """
        with self._lock:
            if self.has_started or self._is_closed:
                return
            self.has_started = True
        threads = self.threads  # without those that the role adds
        if self._role is not None:
            self._role.has_reader = self.has_reader
            self._role_thread.start()
        for thread in threads:
            thread.start()

    def after_reading(self) -> None:
        """Warn about hanging sources, and call ``on_reading``. Our threads call it after their readings."""
        now = self.clock()
        for runner in self.runners:
            runner.warn_if_hanging(now)
        if self._role is not None:
            self._role.check(now)
        for event in self.collector.events():
            self.on_event(event)
        try:
            self.on_reading()
        except Exception:
            _LOG.debug("The callback after a reading failed", exc_info=True)

    def collect(self, reader: Reader) -> Snapshot:
        """Return the values since the last collection of a reader. Called in callbacks of the SDK: no lock, no wait."""
        snapshot = self.collector.collect(reader.marks)
        self.note_collection(reader)
        return snapshot

    def note_collection(self, reader: Reader) -> None:
        """Record a collection of a reader, to predict the next one. Paused sampling resumes."""
        now = self.clock()
        self.schedule.note(reader, reader.last, now)
        reader.last = now
        for thread in self.threads:
            thread.wake()

    def read_now(self, seconds: float, is_last: bool = False) -> None:
        """Read every source now, and wait for them for some seconds in total. Must not be called from a callback.

        If the process ends, it is the last reading, and it does not become the reporter of the host any more.
        """
        if not self.has_started:
            return
        self.collector.is_last = is_last
        deadline = time.monotonic() + seconds
        if self._role is not None and not (is_last and self._role.decided.is_set()):
            read_all([self._role_thread], seconds)
        read_all(self.threads, deadline - time.monotonic())

    def read_due(self, seconds: float) -> None:
        """Read what is due, and wait for it for some seconds in total. Must not be called from a callback.

        At the time at which a collection is expected, that is what its thread has had no time to read before.
        """
        if self.has_started:
            read_all(self.threads, seconds, everything=False)

    def read_first(self, seconds: float) -> None:
        """Read every source twice: a mean since the previous reading is known from the second one on.

        Waits so many seconds for each of the readings.
        """
        self.read_now(seconds)
        time.sleep(_PAUSE)
        self.read_now(seconds)

    def close(self) -> None:
        """Close all sources. Waits at most a second, and only for drivers that hang."""
        with self._lock:
            self._is_closed = True
            threads = [self._role_thread, *self.threads]
        for thread in threads:
            thread.stop()
        deadline = time.monotonic() + _LONGEST_JOIN
        for thread in threads:
            if not thread.join(deadline - time.monotonic()):
                _LOG.debug("Source %s hangs; its thread ends when its driver returns", thread.name)
                self._former.add(thread)
        self._release()

    def abandon(self) -> None:
        """Close the inherited descriptors in a forked child, without locks, threads or waiting."""
        for runner in self.runners:
            runner.abandon()
        self._release()

    def _release(self) -> None:
        for each in (self._reporter, *self._devices):
            if each is not None:
                each.release()
