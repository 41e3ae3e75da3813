"""Session: everything that lives between ``instrument()`` and ``uninstrument()``."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from opentelemetry.instrumentation.hardware.catalog import CATALOG
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.model import Scope, Snapshot
from opentelemetry.instrumentation.hardware.pipeline import reporter
from opentelemetry.instrumentation.hardware.pipeline.collector import Collector, Reader
from opentelemetry.instrumentation.hardware.pipeline.counters import CounterStore
from opentelemetry.instrumentation.hardware.pipeline.runner import SourceRunner
from opentelemetry.instrumentation.hardware.pipeline.schedule import CollectionSchedule
from opentelemetry.instrumentation.hardware.pipeline.thread import ReaderThread, read_all
from opentelemetry.instrumentation.hardware.redaction import redacted
from opentelemetry.instrumentation.hardware.settings import PREFIX, Config, export_interval
from opentelemetry.instrumentation.hardware.sources import Source, SourceContext, discover

_LOG = logging.getLogger(__name__)

_LONGEST_JOIN = 1.0
"""Seconds to wait for the threads when closing. A thread that hangs in its driver ends when the driver returns."""


class _Found(NamedTuple):
    """A source to be read.

    Attributes:
        instances: See :meth:`Source.instances`.
        interval: Seconds between two readings.
        expected: Whether there is a sign of it on this machine.
    """

    name: str
    make: type[Source]
    instances: Sequence[str]
    interval: float
    expected: bool


class Session:
    """The sources of this process, the threads that read them, and the collected values.

    Args:
        config: The settings.
        pid: The observed process; this one by default.
        interval: The expected seconds between collections; by default from the environment.
        drivers: Makes the drivers of a source; by default those of this machine.
        environ: Where the key of the job is kept. Which devices the program may use is always read from this process's
            own environment.
        clock: Monotonic seconds.
        all_processes: No process is observed; per-process values are summed over all processes.
        counters: The counters of earlier sessions, which are continued.

    Attributes:
        on_reading: Called by our threads after their readings; see :meth:`start`.
    """

    def __init__(
        self,
        config: Config,
        pid: int | None = None,
        interval: float | None = None,
        drivers: Callable[[str], Drivers] | None = None,
        environ: MutableMapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        all_processes: bool = False,
        counters: CounterStore | None = None,
    ) -> None:
        self.config = config
        self.pid = os.getpid()
        self.clock = clock
        self.counters = CounterStore() if counters is None else counters
        self._environ = os.environ if environ is None else environ
        self.is_reporter = not reporter.is_member(self._environ, self.pid)
        self.schedule = CollectionSchedule(clock(), export_interval(self._environ) if interval is None else interval)
        self.on_reading: Callable[[], None] = lambda: None
        self._sources = self._find_sources(all_expected=drivers is not None)
        self.runners: list[SourceRunner] = []
        self.threads: list[ReaderThread] = []
        observed = self.pid if pid is None else pid
        unexpected = []
        for found in self._sources:
            for instance in found.instances:
                # Created once: the drivers keep track of children that cannot be killed, even if a source is reopened.
                context = SourceContext(
                    config,
                    Drivers() if drivers is None else drivers(found.name),
                    observed,
                    self.is_reporter,
                    instance=instance,
                    all_processes=all_processes,
                )
                runner = SourceRunner(
                    partial(found.make, context),
                    f"{found.name}:{instance}" if instance else found.name,
                    found.interval,
                    self.schedule,
                    self.counters,
                    config.counter_origin == "start",
                    clock,
                )
                self.runners.append(runner)
                if found.expected:
                    self.threads.append(ReaderThread(runner.name, [runner], self.after_reading, clock))
                else:
                    unexpected.append(runner)
        if unexpected:
            self.threads.append(ReaderThread("unexpected", unexpected, self.after_reading, clock))
        self.collector = Collector(self.runners, config, self.counters, clock)

    def _find_sources(self, all_expected: bool) -> list[_Found]:
        """Return the sources to read. A source that cannot be loaded is left out with a warning.

        Args:
            all_expected: The drivers are those of another machine, so nothing is known about presence.
        """
        from opentelemetry.instrumentation.hardware.system import linux, psutil_backend  # noqa: F401 - see Source.prepare

        known = discover()
        config = _without_unknown_sources(self.config, known)
        sources = []
        for name, load in known.items():
            if not config.selects(name):
                continue
            try:
                make = load()
                if not issubclass(make, Source):
                    raise TypeError(f"{make!r} is not a Source")
                if self.is_reporter or make.scope is Scope.PROCESS:
                    expected = make.prepare(config) or all_expected
                    sources.append(
                        _Found(name, make, [*make.instances(config)], float(make.interval(config)), expected)
                    )
            except Exception as error:
                _LOG.warning("Source %s cannot be loaded: %s: %s", name, type(error).__name__, error)
        return sources

    def start(self, on_reading: Callable[[], None] = lambda: None) -> None:
        """Begin to read the sources. If this process reports the host, its child processes do not.

        Args:
            on_reading: Called by our threads after their readings.
        """
        self.on_reading = on_reading
        prefixes = tuple(prefix for found in self._sources if found.expected for prefix in found.make.rows)
        reported = (metric for metric in CATALOG if metric.name.startswith(prefixes) and self.config.wants(metric))
        if any(metric.scope is Scope.HOST for metric in reported):
            reporter.join(self._environ, self.pid)
        _load_libgcc()
        for thread in self.threads:
            thread.start()

    def after_reading(self) -> None:
        """Warn about hanging sources, and call ``on_reading``. Our threads call it after their readings."""
        now = self.clock()
        for runner in self.runners:
            runner.warn_if_hanging(now)
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

    def read_now(self, seconds: float) -> None:
        """Read every source now, and wait for them for some seconds in total. Must not be called from a callback."""
        read_all(self.threads, seconds)

    def close(self) -> None:
        """Close all sources. Waits at most a second, and only for drivers that hang."""
        reporter.leave(self._environ, self.pid)
        for thread in self.threads:
            thread.stop()
        deadline = time.monotonic() + _LONGEST_JOIN
        for thread in self.threads:
            if not thread.join(deadline - time.monotonic()):
                _LOG.debug("Source %s hangs; its thread ends when its driver returns", thread.name)

    def abandon(self) -> None:
        """Close the inherited descriptors in a forked child, without locks, threads or waiting."""
        for runner in self.runners:
            runner.abandon()


def _without_unknown_sources(config: Config, known: Iterable[str]) -> Config:
    """Return the settings without unknown names in ``SOURCES``, and log a warning for each of them."""
    for word in config.sources or ():
        if word.removeprefix("-") not in known and word != "auto":
            config = replace(config, sources=[other for other in config.sources or () if other != word])
            _LOG.warning(
                "%sSOURCES: there is no source %s, left out; the sources are %s%s",
                PREFIX,
                redacted(word.removeprefix("-")),
                ", ".join(known),
                "" if config.sources else "; all of them are read",
            )
    return config


def _load_libgcc() -> None:
    """Load the library that glibc needs to end a thread.

    Before 3.14, Python ends the remaining threads at exit, and glibc loads the library when the first one ends. By then
    the process may have no free descriptor or another root, and would be aborted.
    """
    if sys.platform.startswith("linux") and sys.version_info < (3, 14):
        with suppress(OSError):
            ctypes.CDLL("libgcc_s.so.1")
