"""Powercap: the energy of processors and their memory, by the counters that the kernel calls intel-rapl, AMD's too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Point, Series, Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import Source

_CLASS = "/sys/class/powercap"
_PREFIX = "intel-rapl:"


class _Zone(NamedTuple):
    """A part of the machine that counts its energy."""

    folder: str
    series: Series
    most: int
    """Microjoules at which its counter begins anew."""


class Powercap(Source):
    """Zones whose energy this user may read: package is the processor, dram its memory, psys the machine. core and
    uncore lie inside package.
    """

    name = "powercap"
    rows = ("hw.energy", "hw.host.energy")

    @classmethod
    def prepare(cls, config: Config) -> bool:
        """Whether there is a zone that can be read."""
        del config
        with suppress(OSError):
            zones = [name for name in os.listdir(_CLASS) if name.startswith(_PREFIX)]
            return any(os.access(f"{_CLASS}/{name}/energy_uj", os.R_OK) for name in zones)
        return False

    def open(self) -> None:
        """Find the zones.

        Raises:
            Unavailable: where there is none that this user may read.
        """
        self._kernel = self.context.drivers.files()
        self._energy: dict[str, tuple[int, int]] = {}
        names: list[str] = []
        with suppress(OSError):
            names = sorted(name for name in self._kernel.names(_CLASS) if name.startswith(_PREFIX))
        self._zones = [zone for zone in map(self._zone, names) if zone and self._joules(zone) is not None]
        if not self._zones:
            raise Unavailable(
                f"no intel-rapl zone in {_CLASS} that this user may read",
                "the kernel lets only root read energy_uj; run as root or change its mode" if names else "",
            )

    def _zone(self, name: str) -> _Zone | None:
        folder = f"{_CLASS}/{name}"
        label = self._said(f"{folder}/name")
        kind, _, number = label.partition("-")
        if kind == "package":
            series = Series(c.HW_ENERGY, {c.HW_ID: label, c.HW_NAME: f"CPU {number}", c.HW_TYPE: "cpu"})
        elif kind == "dram":
            socket = name.split(":")[1]
            which = {c.HW_ID: f"dram-{socket}", c.HW_NAME: f"Memory {socket}", c.HW_TYPE: "memory"}
            series = Series(c.HW_ENERGY, which)
        elif kind == "psys":
            series = Series(c.HW_HOST_ENERGY, {c.HW_ID: label, c.HW_NAME: "machine"})
        else:
            return None
        most = self._said(f"{folder}/max_energy_range_uj")
        return _Zone(folder, series, int(most) if most.isdigit() else 0)

    def read(self) -> Iterator[Point]:
        """A file for each zone."""
        for zone in self._zones:
            joules = self._joules(zone)
            if joules is not None:
                yield zone.series, joules

    def _joules(self, zone: _Zone) -> float | None:
        """Energy since boot or since it was first read; the counter wraps within minutes on a large machine."""
        said = self._said(f"{zone.folder}/energy_uj")
        if not said.isdigit():
            return None
        micro = int(said)
        last, wrapped = self._energy.get(zone.folder, (micro, 0))
        if micro < last:
            wrapped += zone.most or last
        self._energy[zone.folder] = micro, wrapped
        return (micro + wrapped) / 1e6

    def _said(self, path: str) -> str:
        """A file; nothing where there is none that can be read."""
        with suppress(OSError, UnicodeDecodeError):
            return self._kernel.read(path).decode().strip()
        return ""
