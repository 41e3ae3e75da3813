"""Session: what is open between ``instrument()`` and ``uninstrument()``."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from opentelemetry.instrumentation.hardware.catalog import CATALOG
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.model import Metric, Scope
from opentelemetry.instrumentation.hardware.pipeline import reporter as identity
from opentelemetry.instrumentation.hardware.pipeline.collector import Collector
from opentelemetry.instrumentation.hardware.pipeline.runner import SourceRunner
from opentelemetry.instrumentation.hardware.pipeline.schedule import CollectionSchedule
from opentelemetry.instrumentation.hardware.pipeline.thread import ReaderThread, read_all
from opentelemetry.instrumentation.hardware.settings import PREFIX, Config, export_interval
from opentelemetry.instrumentation.hardware.sources import Source, SourceContext, discover

_LOG = logging.getLogger(__name__)

_FAREWELL = 1.0
"""Seconds that closing waits for the threads; one that hangs in its driver ends by itself, later."""


class Session:
    """The sources of this process, the threads that read them, and their Collector.

    Args:
        config: the settings.
        pid: the observed process; by default this one.
        interval: seconds between collections, as long as none has come; by default what the environment says.
        drivers: makes the drivers of a source; by default those of this machine.
        environ: where the job's key is kept; what restricts a program's devices is always this process's own.
        clock: monotonic seconds.
        all_processes: no process is observed; per-process values are summed over all processes.
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
    ) -> None:
        self.config = config
        self.pid = os.getpid()
        self.clock = clock
        self._environ = os.environ if environ is None else environ
        self.is_reporter = not identity.is_member(self._environ, self.pid)
        self.schedule = CollectionSchedule(clock(), export_interval(self._environ) if interval is None else interval)
        observed = self.pid if pid is None else pid
        self._expected: set[str] = set()
        sources = self._sources(drivers is not None)
        rows: dict[Metric, None] = {}
        shared = Drivers()
        make_drivers = drivers or (lambda source: shared if sources[source].never_blocks else Drivers())
        # A context is made once, so its drivers still know which child could not be killed when a source is reopened.
        self.runners = [
            SourceRunner(
                partial(
                    make,
                    SourceContext(
                        config,
                        make_drivers(name),
                        observed,
                        self.is_reporter,
                        instance=instance,
                        all_processes=all_processes,
                    ),
                ),
                f"{name}:{instance}" if instance else name,
                make.interval(config),
                self.schedule,
                rows,
                config.counter_origin == "start",
                clock,
            )
            for name, make in sources.items()
            for instance in make.instances(config)
        ]
        self.collector = Collector(self.runners, rows, config, clock)
        prompt = {name for name, make in sources.items() if make.never_blocks or name not in self._expected}
        together = [runner for runner in self.runners if runner.name.partition(":")[0] in prompt]
        apart = [runner for runner in self.runners if runner not in together]
        self.threads = [ReaderThread(runner.name, [runner], self.after_reading, clock) for runner in apart]
        if together:
            self.threads.insert(0, ReaderThread("shared", together, self.after_reading, clock))
        self._rows = tuple(row for name in self._expected for row in sources[name].rows)
        self.notice: Callable[[], None] = lambda: None
        self._noticing = threading.Lock()
        self._news = False

    def after_reading(self) -> None:
        """What our threads do after their readings."""
        self.collector.watch()
        self._news = True
        while self._news and self._noticing.acquire(blocking=False):  # or who is at it looks once more
            try:
                self._news = False
                self.notice()
            except Exception:
                _LOG.debug("Looking round failed", exc_info=True)
            finally:
                self._noticing.release()

    def _sources(self, all_expected: bool) -> dict[str, type[Source]]:
        """The classes of the sources to read. One that cannot be loaded costs a warning and nothing else.

        Notes of which there is a sign on this machine; of another machine's drivers nothing is known beforehand.
        """
        from opentelemetry.instrumentation.hardware.system import linux, psutil_backend  # noqa: F401 - see Source.prepare

        known = discover()
        config = self.config
        for word in config.sources or ():
            if word.removeprefix("-") not in known and word != "auto":
                config = replace(config, sources=[other for other in config.sources or () if other != word])
                _LOG.warning(
                    "%sSOURCES: there is no source %s, left out; the sources are %s%s",
                    PREFIX,
                    word.removeprefix("-"),
                    ", ".join(known),
                    "" if config.sources else "; all of them are read",
                )
        found = {}
        for name, load in known.items():
            if config.selects(name):
                try:
                    source = load()
                    if not issubclass(source, Source):
                        raise TypeError(f"{source!r} is no source")
                    expected = source.prepare(config) or all_expected
                except Exception as error:
                    _LOG.warning("Source %s cannot be loaded: %s: %s", name, type(error).__name__, error)
                    continue
                if self.is_reporter or source.scope is Scope.PROCESS:
                    found[name] = source
                    if expected:
                        self._expected.add(name)
        return found

    def start(self) -> None:
        """Begin to sample. Where we report the host, our children are members of our job, and leave it to us."""
        said = (metric for metric in CATALOG if metric.name.startswith(self._rows) and self.config.wants(metric))
        if any(metric.scope is Scope.HOST for metric in said):
            identity.join(self._environ, self.pid)
        _prepare_to_end()
        for each in self.threads:
            each.start()

    def read_now(self, seconds: float) -> None:
        """Have every source read now, and wait for all of them together at most so long. Never called from a
        callback.
        """
        read_all(self.threads, seconds, self.clock)

    def close(self) -> None:
        """Let go of everything; waits for a second at most, and only for a driver that hangs."""
        identity.leave(self._environ, self.pid)
        for each in self.threads:
            each.stop()
        deadline = time.monotonic() + _FAREWELL
        for each in self.threads:
            if not each.join(deadline - time.monotonic()):
                _LOG.debug("Source %s hangs; its thread ends when its driver answers", each.name)

    def abandon(self) -> None:
        """In a forked child: close the descriptors that came with the fork. No lock, no thread, no wait."""
        for runner in self.runners:
            runner.abandon()


def _prepare_to_end() -> None:
    """Load what glibc ends a thread with.

    It does so when the first one is ended: those that are left at the program's end, by Python before 3.14. By then
    there may be no descriptor for it, or another root, and the program would be aborted.
    """
    if sys.platform.startswith("linux") and sys.version_info < (3, 14):
        with suppress(OSError):
            ctypes.CDLL("libgcc_s.so.1")
