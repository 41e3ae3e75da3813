"""InfiniBand and RoCE adapters: apart from the host, because for these files the kernel asks the adapter."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from errno import ENODEV

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Point, SeriesCache, Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import Source

_CLASS = "/sys/class/infiniband"

_ERRORS = {
    "symbol_error": "symbol",
    "link_error_recovery": "link_recovery",
    "link_downed": "link_downed",
    "port_rcv_errors": "receive",
    "port_xmit_discards": "transmit_discard",
    "local_link_integrity_errors": "link_integrity",
}

_WORD = 4
"""Bytes that the counters of data count as one."""


class Infiniband(Source):
    """The ports of the adapters, by the kernel's files; one that does not answer costs these numbers alone."""

    name = "infiniband"
    rows = ("hw.network.", "hw.errors")

    @classmethod
    def interval(cls, config: Config) -> float:
        """A counter loses nothing between two collections: there is nothing to sample."""
        del config
        return 0.0

    @classmethod
    def prepare(cls, config: Config) -> bool:
        """Whether there is an adapter."""
        del config
        return bool(_entries(os.listdir, _CLASS))

    def open(self) -> None:
        """Find the adapters.

        Raises:
            Unavailable: where there is none.
        """
        self._kernel = self.context.drivers.files()
        if not _entries(self._kernel.names, _CLASS):
            raise Unavailable(f"no adapter in {_CLASS}", "if there is one, load its driver, such as mlx5_ib")
        self._of = SeriesCache()

    def read(self) -> tuple[()]:
        """Nothing that is cheap."""
        return ()

    def read_slow(self) -> Iterator[Point]:
        """Some ten files of each port; one that says nothing costs its own numbers.

        Raises:
            OSError: where none says anything.
        """
        self.unsupported, answered = [], False
        for adapter in _entries(self._kernel.names, _CLASS):
            for port in _entries(self._kernel.names, f"{_CLASS}/{adapter}/ports"):
                found = list(self._port(f"{adapter}/{port}", f"{_CLASS}/{adapter}/ports/{port}"))
                answered = answered or bool(found)
                if not found:
                    self.unsupported.append(f"{adapter}/{port}: none of its files can be read")
                yield from found
        if not answered:
            raise OSError(ENODEV, "no port says anything", _CLASS)

    def _port(self, name: str, folder: str) -> Iterator[Point]:
        which = (c.HW_ID, name, c.HW_NAME, name)
        state = self._said(f"{folder}/state")
        if state:
            yield self._of[(c.HW_NETWORK_UP, *which)](int(state.startswith(b"4")))
        for file, kind in _ERRORS.items():
            count = self._said(f"{folder}/counters/{file}")
            if count.isdigit():
                yield self._of[(c.HW_ERRORS, *which, c.HW_TYPE, "network", c.ERROR_TYPE, kind)](int(count))
        for file, way in (("port_xmit_data", "transmit"), ("port_rcv_data", "receive")):
            count = self._said(f"{folder}/counters/{file}")
            if count.isdigit():
                yield self._of[(c.HW_NETWORK_IO, *which, c.NETWORK_DIRECTION, way)](int(count) * _WORD)

    def _said(self, path: str) -> bytes:
        """A file; nothing where this adapter has none, or none that can be read."""
        with suppress(OSError):
            return self._kernel.read(path).strip()
        return b""


def _entries(names: Callable[[str], Sequence[str]], path: str) -> Sequence[str]:
    with suppress(OSError):
        return names(path)
    return ()
