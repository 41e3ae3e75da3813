"""Filesystem: space by file system. Separate from the host, because statvfs(3) hangs while a file server is down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Point, SeriesCache, Unavailable
from opentelemetry.instrumentation.hardware.settings.log import logger
from opentelemetry.instrumentation.hardware.settings.redaction import redacted
from opentelemetry.instrumentation.hardware.sources import Reading, Source
from opentelemetry.instrumentation.hardware.system.files import utf8
from opentelemetry.instrumentation.hardware.system.machine import Mount

_LOG = logger(__name__)

_SLOWER = 5  # number of sampling intervals between two readings

_UNLIMITED = 2**63 - 2**16  # a size that stands for no limit: gVisor reports all blocks that fit in int64


class Filesystem(Source):
    """Mounts of real file systems, not of containers and images; or the mounts that ``DISK_PATHS`` names."""

    name = "filesystem"
    rows = ("system.filesystem.",)

    def open(self) -> None:
        self._machine = self.context.drivers.machine()
        self._setting = self.context.config.name_of("disk_paths")
        if not self._machine.mounts() and not self.context.config.disk_paths:
            raise Unavailable(
                "no file system on a disk is mounted", f"set {self._setting} to paths that exist, such as /"
            )
        self._unreadable: list[str] = []
        self._warned: set[str] = set()
        self._series = SeriesCache()
        self._exports_all_states = self.context.config.names(c.SYSTEM_FILESYSTEM_UTILIZATION)

    def _mounts(self) -> Sequence[Mount]:
        """Return the mounts to read. A named path that cannot be read now may be mounted later."""
        named = self.context.config.disk_paths
        if not named:
            return self._machine.mounts()
        mounts, reasons = set(), {}
        for path in named:
            try:
                self._machine.space(path)  # the table has a mount for a path that does not exist, too
                mounts.add(self._machine.mount(path))
            except OSError as error:
                reasons[redacted(path)] = error.strerror or error
        self._unreadable = [f"{path}: {reason}" for path, reason in reasons.items()]
        if not mounts:
            raise Unavailable(f"{self._setting}: {'; '.join(self._unreadable)}")
        for path, reason in reasons.items():
            if path not in self._warned:
                _LOG.warning(
                    "%s: %s cannot be read (%s) and is left out until it can; use absolute paths that exist, such as /",
                    self._setting,
                    path,
                    reason,
                )
        self._warned |= reasons.keys()
        return sorted(mounts)

    def readings(self) -> tuple[Reading]:
        """Return one every five sampling intervals, because space changes slowly."""
        interval = self.context.config.interval
        return (Reading(self.read, _SLOWER * interval or inf, before_collection=not interval),)

    def read(self) -> Iterator[Point]:
        """Read the space of each mount. If one cannot be read, only its own points are missing."""
        errors: dict[str, OSError] = {}
        mounts = self._mounts()
        for mount in mounts:
            try:
                space = self._machine.space(mount.path)
            except OSError as error:
                errors[utf8(mount.path)] = error
                continue
            if not 0 < space.total < _UNLIMITED:
                continue
            device, path = utf8(mount.device), utf8(mount.path)
            which = (c.DEVICE, device, c.FILESYSTEM_TYPE, mount.type, c.FILESYSTEM_MOUNTPOINT, path)
            states = {
                "used": space.total - space.free,
                "free": space.available,
                "reserved": space.free - space.available,
            }
            for state, size in states.items():
                attributes = (*which, c.FILESYSTEM_STATE, state)
                yield self._series[(c.SYSTEM_FILESYSTEM_USAGE, *attributes)](size)
                if self._exports_all_states or state == "used":
                    yield self._series[(c.SYSTEM_FILESYSTEM_UTILIZATION, *attributes)](size / space.total)
            yield self._series[(c.SYSTEM_FILESYSTEM_LIMIT, *which)](space.total)
        self.unsupported = self._unreadable + [f"{path}: {error.strerror or error}" for path, error in errors.items()]
        if errors and len(errors) == len(mounts):
            raise next(iter(errors.values()))
