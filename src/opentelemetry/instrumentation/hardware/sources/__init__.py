"""Source: a driver and the reads to make of it; and :func:`discover`, which finds them.

A source is one file in this folder. Third parties add theirs through the entry point group
``opentelemetry_hardware_source``: the name is the source's name, the object its class.
"""

from __future__ import annotations

import importlib
import logging
import os
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import ClassVar, NamedTuple

from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.model import Point, Scope
from opentelemetry.instrumentation.hardware.settings import SOURCE_GROUP, Config

_LOG = logging.getLogger(__name__)


class SourceContext(NamedTuple):
    """Where a source works: the settings, its way to the drivers, and the process whose numbers are wanted."""

    config: Config
    drivers: Drivers
    pid: int
    is_reporter: bool = True
    """Whether this process reports the host and its devices; another process of the job does otherwise."""
    environ: Mapping[str, str] = os.environ
    """What tells which devices the program may use."""
    instance: str = ""
    """Which of its instances the source is; see :meth:`Source.instances`."""
    all_processes: bool = False
    """Whether no process is observed: per-process values are summed over all processes."""


class Source(ABC):
    """A driver and the reads to make of it. One thread opens it, reads it and closes it.

    Attributes:
        name: one word: file, capture folder, switch and health label.
        scope: whose numbers these are; members of a job read the sources of process scope only. One that has both
            kinds is of process scope, and leaves the host's rows out where its site says so.
        seldom: seconds between two :meth:`read_slow`, at least.
        pace: seconds between two :meth:`read`, at least; a source that opened a slow way raises its own.
        punctual: whether it is read once more just before each collection; of others the newest sample serves.
        prompt: whether reading it never waits for anything: it shares a thread with its like.
        rows: what the names of its rows of the vocabulary begin with.
        missing: what this machine does not say, each with the reason; ``doctor`` lists it.
        wrong: what went wrong with the newest reading, a sentence each, though it has points: the source is ill.
    """

    name: ClassVar[str]
    scope: ClassVar[Scope] = Scope.HOST
    slow_interval: ClassVar[float] = 10.0
    min_interval: float = 0.0
    sample_before_collection: ClassVar[bool] = True
    never_blocks: ClassVar[bool] = False
    rows: ClassVar[tuple[str, ...]] = ("",)

    def __init__(self, site: SourceContext) -> None:
        self.context = site
        self.unsupported: list[str] = []
        self.errors: list[str] = []

    @classmethod
    def instances(cls, config: Config) -> Sequence[str]:
        """What has a thread of its own each where the source is not prompt, so that none waits for another; most
        sources are one.
        """
        del config
        return ("",)

    @classmethod
    def interval(cls, config: Config) -> float:
        """Seconds between two readings, beside those just before a collection; 0: there are no others."""
        return config.interval

    @classmethod
    def prepare(cls, config: Config) -> bool:
        """Import what reading needs: called by the thread that instruments, because ours must not import.

        A child that is forked while a thread of ours imports would wait for ever for that import.

        Returns:
            Whether there is any sign of it here. Where there is none, opening it says at once that it is unavailable.
        """
        del config
        return True

    @abstractmethod
    def open(self) -> None:
        """Find the devices.

        Raises:
            Unavailable: where there is nothing to read here.
        """

    @abstractmethod
    def read(self) -> Iterable[Point]:
        """Read what is cheap, counters included; at every sampling interval.

        Raises:
            Exception: anything but success closes the source; it is opened again after a pause.
        """

    def read_slow(self) -> Iterable[Point]:
        """Read what is dear; when a collection is due, and no more often than every :attr:`seldom` seconds."""
        return ()

    def close(self) -> None:
        """Let go of everything."""
        self.context.drivers.close()


def discover() -> dict[str, Callable[[], type[Source]]]:
    """Every source by name, with what loads its class: the modules of this folder, then other packages'."""
    found: dict[str, Callable[[], type[Source]]] = {}
    for module in pkgutil.iter_modules(__path__):
        found[module.name] = lambda name=module.name: _of(name)  # type: ignore[misc]
    for entry in entry_points(group=SOURCE_GROUP):
        if entry.name in found:
            _LOG.warning("A source named %s exists already; %s is left out", entry.name, entry.value)
        else:
            found[entry.name] = entry.load
    return found


def _of(name: str) -> type[Source]:
    module = importlib.import_module(f"{__name__}.{name}")
    source: type[Source] = getattr(module, name.capitalize())
    return source
