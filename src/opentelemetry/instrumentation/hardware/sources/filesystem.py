"""File systems: apart from the host, because asking a dead server for its space can block for ever."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from opentelemetry.instrumentation.hardware import vocabulary as v
from opentelemetry.instrumentation.hardware.config import PREFIX
from opentelemetry.instrumentation.hardware.machine import Mount, machine
from opentelemetry.instrumentation.hardware.model import Kept, Point, Unavailable
from opentelemetry.instrumentation.hardware.sources import Source

_LOG = logging.getLogger(__name__)


class Filesystem(Source):
    """The stable mounts of real file systems, or those that ``DISK_PATHS`` names."""

    name = "filesystem"

    def open(self) -> None:
        """Find the mounts.

        Raises:
            Unavailable: where none of them is there.
        """
        self._machine = machine(self.site.drivers)
        paths = [path for path in self.site.config.disk_paths or () if path != "auto"]
        self._mounts = self._named(paths) if paths else list(self._machine.mounts())
        if not self._mounts:
            raise Unavailable(
                f"none of {', '.join(paths)} can be read" if paths else "no real file system is mounted",
                f"set {PREFIX}DISK_PATHS to paths that exist, such as /",
            )
        self._of = Kept()
        self._full = self.site.config.names(v.SYSTEM_FILESYSTEM_UTILIZATION)

    def _named(self, paths: list[str]) -> list[Mount]:
        found: dict[str, Mount] = {}
        self.missing = []
        for path in paths:
            try:
                self._machine.space(path)
                mount = self._machine.mount(path)
            except OSError as error:
                self.missing.append(f"{path}: {error.strerror or error}")
                _LOG.warning(
                    "%sDISK_PATHS: %s cannot be read (%s), left out; it takes absolute paths that exist: /,/data",
                    PREFIX,
                    path,
                    error.strerror or error,
                )
            else:
                found[mount.path] = mount
        return list(found.values())

    def read(self) -> Iterator[Point]:
        """One statvfs for each mount."""
        for mount in self._mounts:
            space = self._machine.space(mount.path)
            if not space.total:
                continue
            which = (v.DEVICE, mount.device, v.FILESYSTEM_TYPE, mount.type, v.FILESYSTEM_MOUNTPOINT, mount.path)
            states = {
                "used": space.total - space.free,
                "free": space.available,
                "reserved": space.free - space.available,
            }
            for state, amount in states.items():
                one = (*which, v.FILESYSTEM_STATE, state)
                yield self._of[(v.SYSTEM_FILESYSTEM_USAGE, *one)](amount)
                if self._full or state == "used":
                    yield self._of[(v.SYSTEM_FILESYSTEM_UTILIZATION, *one)](amount / space.total)
            yield self._of[(v.SYSTEM_FILESYSTEM_LIMIT, *which)](space.total)
