"""Source, the base class of all sources, and :func:`discover`, which finds them.

A source is a module or a package in this folder. Other packages add theirs through the entry point group
``opentelemetry_hardware_source``: the entry's name is the name of the source, its object the class.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from math import inf
from types import MappingProxyType
from typing import ClassVar, NamedTuple

from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.model import Attributes, Event, Point, Scope
from opentelemetry.instrumentation.hardware.settings import SOURCE_GROUP, Config
from opentelemetry.instrumentation.hardware.settings.log import logger
from opentelemetry.instrumentation.hardware.settings.redaction import did_you_mean
from opentelemetry.instrumentation.hardware.system.holders import HeldDevice
from opentelemetry.instrumentation.hardware.system.tree import SharedWalk

_LOG = logger(__name__)

SLOW = 10.0  # seconds between two readings of what is expensive


class SourceContext(NamedTuple):
    """The context that a source is created with.

    Attributes:
        config: The settings.
        drivers: The ways to reach its driver.
        pid: The observed process.
        is_reporter: Whether this process reports the host and its devices; in a job, only one process does.
        claim: Returns those of the devices with these ids that no other process of the job reports, for ranks that are
            restricted to different devices; None if this process is in no job, or never reports devices.
        environ: The environment in which variables such as ``CUDA_VISIBLE_DEVICES`` restrict the devices.
        instance: Which of its instances the source is; see :meth:`Source.instances`.
        all_processes: Whether per-process values are summed over all processes, because no process is observed.
        walk: A walk over the tree of the observed process that is shared with other sources; None if there are none.
        held: The devices and who uses them, by source, for the source that reports it; None if there is none.
        labels: By ``hw.id``, attributes that all series of the device get, for the source that knows them.
        emit: Emits an event.
    """

    config: Config
    drivers: Drivers
    pid: int
    is_reporter: bool = True
    environ: Mapping[str, str] = os.environ
    instance: str = ""
    all_processes: bool = False
    claim: Callable[[Collection[str]], Collection[str]] | None = None
    walk: SharedWalk | None = None
    held: dict[str, Sequence[HeldDevice]] | None = None
    labels: dict[str, Attributes] | None = None
    emit: Callable[[Event], None] = lambda event: None


class Reading(NamedTuple):
    """What a source reads together, and how often.

    Attributes:
        read: Reads it. Any exception closes the source, which is opened again with backoff; if it is for spans, only
            spans miss it.
        every: Seconds between two; infinity if there are none but before collections.
        before_collection: Whether there is also one just before each collection.
        apart: Minimum seconds between two.
        for_spans: Whether only spans need it. It is read while there is a TracerProvider: once per second, or more
            often while a recorded span is open.
    """

    read: Callable[[], Iterable[Point]]
    every: float
    before_collection: bool = False
    apart: float = 0.0
    for_spans: bool = False


class Source(ABC):
    """A driver and what is read from it. One thread opens, reads and closes it.

    Attributes:
        name: One word; the name of the module, of the folder with its captures and in ``SOURCES``.
        scope: Whether it reports the host or a process. Only the reporter of a job reads sources of host scope. A
            source with both kinds of metrics has process scope, and checks :attr:`SourceContext.is_reporter` itself.
        used_devices: ``hw.id`` of the devices that the observed program has used so far.
        is_use_known: Whether it uses these; else they are those that it may use.
        used: ``hw.id`` of those that it uses now, as of the newest reading.
        updated: When the energy counters were updated, in seconds since the epoch by ``hw.id``; None if unknown.
        rows: Prefixes of the names of its metrics.
        of_all_processes: Whether it reports all processes, because the process observes no program.
        unsupported: What this machine does not report and why, a sentence each; shown by ``doctor``.
        errors: What was wrong with the newest reading though it has points, a sentence each. The source counts as down.
    """

    name: ClassVar[str]
    scope: ClassVar[Scope] = Scope.HOST
    used_devices: frozenset[str] = frozenset()
    is_use_known: bool = True
    used: frozenset[str] = frozenset()
    updated: Mapping[str, float | None] = MappingProxyType({})
    rows: ClassVar[tuple[str, ...]] = ("",)
    of_all_processes: ClassVar[bool] = False

    def __init__(self, context: SourceContext) -> None:
        self.context = context
        self.unsupported: list[str] = []
        self.errors: list[str] = []

    @classmethod
    def instances(cls, config: Config) -> Sequence[str]:
        """Return the names of parts with a thread each, so that a part that blocks does not delay the others.

        By default, there is one part with an empty name.
        """
        del config
        return ("",)

    @classmethod
    def prepare(cls, config: Config) -> bool:
        """Import the modules for reading. Called by the thread that instruments.

        Our own threads must not import: in a child that is forked during an import, the import lock is never released.

        Returns:
            Whether there is a sign of the device on this machine. Without one, :meth:`open` must not block.
        """
        del config
        return True

    @abstractmethod
    def open(self) -> None:
        """Find the devices.

        Raises:
            Unavailable: There are none on this machine.
        """

    def readings(self) -> Sequence[Reading]:
        """Return what is read, and how often. Called after each reading: the periods may change, the number may not.

        By default :meth:`read` once per sampling interval and before each collection, and :meth:`read_slow` every
        :data:`SLOW` seconds. The first one says whether the source is up. If none is for spans, they use the points of
        the first one.
        """
        return (
            Reading(self.read, self.context.config.interval or inf, before_collection=True),
            Reading(self.read_slow, SLOW),
        )

    @abstractmethod
    def read(self) -> Iterable[Point]:
        """Read the cheap values."""

    def read_slow(self) -> Iterable[Point]:
        """Read the expensive values."""
        return ()

    def read_all(self) -> Iterable[Point]:
        """Read everything once that is not for spans, for callers that keep no state."""
        for reading in self.readings():
            if not reading.for_spans:
                yield from reading.read()

    def close(self) -> None:
        """Release all resources. Also called if :meth:`open` has failed."""
        self.context.drivers.close()


@cache  # to look through all installed packages takes 5 to 20 ms, also in each forked child
def _of_other_packages() -> Sequence[EntryPoint]:
    return tuple(entry_points(group=SOURCE_GROUP))


def discover() -> dict[str, Callable[[], type[Source]]]:
    """Return a function that loads the class, for each source by name: first this folder's, then other packages'."""
    sources: dict[str, Callable[[], type[Source]]] = {}
    for module in pkgutil.iter_modules(__path__):
        sources[module.name] = partial(_load, module.name)
    for entry in _of_other_packages():
        if entry.name in sources:
            _LOG.warning("There already is a source named %s; %s is left out", entry.name, entry.value)
        else:
            sources[entry.name] = entry.load
    return sources


# The sources that a word for a kind of hardware, or for a driver, may mean.
_KINDS = {
    "intel": ("i915", "xe", "arc"),
    "nvidia, amd or intel": ("gpu", "gpus", "cuda", "rocm"),
    "nvidia": ("nvml", "dcgm"),
    "apple": ("mac", "metal", "mps"),
    "host": ("cpu", "memory", "disk", "network", "system"),
    "filesystem": ("disks", "mounts", "df"),
    "container": ("cgroup", "docker"),
    "hwmon": ("temperature", "sensors", "fan"),
    "powercap": ("rapl", "power", "energy"),
    "drm": ("npu", "ivpu", "amdxdna", "nouveau", "panfrost", "panthor", "v3d", "msm"),
    "gaudi": ("habana", "hpu", "hl-smi"),
    "tenstorrent": ("wormhole", "blackhole", "tt-kmd"),
    "graphcore": ("ipu",),
    "trainium": ("neuron", "inferentia"),
    "openmetrics": ("prometheus",),
}


def unknown_source(word: str, known: Iterable[str]) -> str:
    """Describe a word that is not the name of a source: what it may mean, else all names."""
    names = [*known]
    meant = next((name for name, words in _KINDS.items() if word.lower() in words), "")
    hint = f"did you mean {meant}?" if meant else did_you_mean(word, names, f"the sources are {', '.join(names)}")
    return f"there is no source {word}; {hint}"


def _load(name: str) -> type[Source]:
    module = importlib.import_module(f"{__name__}.{name}")
    source: type[Source] = getattr(module, name.capitalize())
    return source
