"""Infiniband: traffic and errors of InfiniBand and RoCE ports, from sysfs.

Separate from the host, because the kernel queries the adapter when one of these files is read. See
https://docs.kernel.org/admin-guide/abi-stable.html (sysfs-class-infiniband).
"""

from __future__ import annotations

from collections.abc import Iterator
from errno import ENODEV
from glob import glob
from math import inf

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Point, SeriesCache, Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import SLOW, Reading, Source
from opentelemetry.instrumentation.hardware.system.files import names_or_empty, read_integer, read_text

_CLASS = "/sys/class/infiniband"

_ERRORS = {
    "symbol_error": "symbol",
    "link_error_recovery": "link_recovery",
    "link_downed": "link_downed",
    "port_rcv_errors": "receive",
    "port_xmit_discards": "transmit_discard",
    "local_link_integrity_errors": "link_integrity",
}

# Counters of bytes by ``network.io.direction``, each with the bytes of one count. EFA and bnxt_re have the second ones.
_BYTES = {
    "transmit": (("counters/port_xmit_data", 4), ("hw_counters/tx_bytes", 1)),
    "receive": (("counters/port_rcv_data", 4), ("hw_counters/rx_bytes", 1)),
}


class Infiniband(Source):
    """The ports of all adapters. If a port cannot be read, only its own points are missing."""

    name = "infiniband"
    rows = ("hw.network.", "hw.errors")

    @classmethod
    def prepare(cls, config: Config) -> bool:
        del config
        return bool(glob(f"{_CLASS}/*"))

    def open(self) -> None:
        self._files = self.context.drivers.files()
        if not names_or_empty(self._files, _CLASS):
            raise Unavailable(f"no adapter in {_CLASS}", "if there is one, load its driver, such as mlx5_ib")
        self._series = SeriesCache()

    def readings(self) -> tuple[Reading]:
        """Return one before collections: there are only counters, and these files are slow."""
        return (Reading(self.read, inf, before_collection=True, apart=SLOW),)

    def read(self) -> Iterator[Point]:
        self.unsupported, is_readable = [], False
        for adapter in names_or_empty(self._files, _CLASS):
            for port in names_or_empty(self._files, f"{_CLASS}/{adapter}/ports"):
                points = list(self._port(f"{adapter}/{port}", f"{_CLASS}/{adapter}/ports/{port}"))
                is_readable = is_readable or bool(points)
                if not points:
                    self.unsupported.append(f"{adapter}/{port}: none of its files can be read")
                yield from points
        if not is_readable:
            raise OSError(ENODEV, "no port can be read", _CLASS)

    def _port(self, name: str, folder: str) -> Iterator[Point]:
        which = (c.HW_ID, name, c.HW_NAME, name)
        state = read_text(self._files, f"{folder}/state")
        if state:
            yield self._series[(c.HW_NETWORK_UP, *which)](int(state.startswith("4")))  # "4: ACTIVE"
        for file, error in _ERRORS.items():
            count = read_integer(self._files, f"{folder}/counters/{file}")
            if count is not None:
                yield self._series[(c.HW_ERRORS, *which, c.HW_TYPE, "network", c.ERROR_TYPE, error)](count)
        for direction, counters in _BYTES.items():
            for file, size in counters:
                count = read_integer(self._files, f"{folder}/{file}")
                if count is not None:
                    yield self._series[(c.HW_NETWORK_IO, *which, c.NETWORK_DIRECTION, direction)](count * size)
                    break
