"""File systems: apart from the host, because asking a dead server for its space can block for ever."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Point, SeriesCache, Unavailable
from opentelemetry.instrumentation.hardware.settings import PREFIX, Config
from opentelemetry.instrumentation.hardware.sources import Source
from opentelemetry.instrumentation.hardware.system.machine import machine

_LOG = logging.getLogger(__name__)

_SLOWER = 5
"""How much more seldom than others this source is sampled."""


class Filesystem(Source):
    """The stable mounts of real file systems, or those that ``DISK_PATHS`` names."""

    name = "filesystem"
    rows = ("system.filesystem.",)
    slow_interval = 60.0
    sample_before_collection = False

    @classmethod
    def interval(cls, config: Config) -> float:
        """Space changes slowly, and asking for it hands over the interpreter lock, which a busy program feels; so no
        collection has it read, either.
        """
        return _SLOWER * config.interval

    def open(self) -> None:
        """Find the mounts.

        Raises:
            Unavailable: where none of them is there.
        """
        self._machine = machine(self.context.drivers)
        named = self.context.config.disk_paths or []
        self._paths = self._answering(named)
        self._find()
        if not self._mounts:
            raise Unavailable(
                f"none of {', '.join(named)} can be read" if named else "no real file system is mounted",
                f"set {PREFIX}DISK_PATHS to paths that exist, such as /",
            )
        self._of = SeriesCache()
        self._full = self.context.config.names(c.SYSTEM_FILESYSTEM_UTILIZATION)

    def _find(self) -> None:
        """What is mounted now; ``id`` 0 of a mount stands for one that has not been read yet."""
        paths, named = self._paths, self.context.config.disk_paths
        mounts = {self._machine.mount(path) for path in paths} if named else self._machine.mounts()
        self._mounts = dict.fromkeys(sorted(mounts), 0)

    def _answering(self, paths: list[str]) -> list[str]:
        """The paths that can be read; the others cost a warning each."""
        found = []
        self._left_out = []
        for path in paths:
            try:
                self._machine.space(path)
            except OSError as error:
                self._left_out.append(f"{path}: {error.strerror or error}")
                _LOG.warning(
                    "%sDISK_PATHS: %s cannot be read (%s), left out; it takes absolute paths that exist, such as /",
                    PREFIX,
                    path,
                    error.strerror or error,
                )
            else:
                found.append(path)
        return found

    def read(self) -> Iterator[Point]:
        """One statvfs for each mount; one that this user may not enter, or that broke, costs its own numbers.

        Raises:
            OSError: where none of them answers.
        """
        errors: dict[str, OSError] = {}
        for mount, known in self._mounts.items():
            try:
                space = self._machine.space(mount.path)
            except OSError as error:
                errors[_shown(mount.path)] = error
                continue
            if known and space.id != known:  # something else is mounted there now: whose numbers are these?
                self.close()
                self._machine = machine(self.context.drivers)  # one that knows of no mounts: this kernel may not tell
                self._find()
                return
            self._mounts[mount] = space.id
            if not space.total:
                continue
            device, path = _shown(mount.device), _shown(mount.path)
            which = (c.DEVICE, device, c.FILESYSTEM_TYPE, mount.type, c.FILESYSTEM_MOUNTPOINT, path)
            states = {
                "used": space.total - space.free,
                "free": space.available,
                "reserved": space.free - space.available,
            }
            for state, amount in states.items():
                one = (*which, c.FILESYSTEM_STATE, state)
                yield self._of[(c.SYSTEM_FILESYSTEM_USAGE, *one)](amount)
                if self._full or state == "used":
                    yield self._of[(c.SYSTEM_FILESYSTEM_UTILIZATION, *one)](amount / space.total)
            yield self._of[(c.SYSTEM_FILESYSTEM_LIMIT, *which)](space.total)
        self.unsupported = self._left_out + [f"{path}: {error.strerror or error}" for path, error in errors.items()]
        if errors and len(errors) == len(self._mounts):
            raise next(iter(errors.values()))

    def read_slow(self) -> tuple[()]:
        """Look for what was mounted meanwhile."""
        before = self._mounts
        self._find()
        self._mounts = {mount: before.get(mount, 0) for mount in self._mounts}
        return ()


def _shown(path: str) -> str:
    """A path as text that exporters take: one that is no UTF-8 would be lost, and the error said at each export."""
    return path.encode(errors="surrogateescape").decode(errors="backslashreplace")
