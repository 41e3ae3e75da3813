"""Powercap: energy of processors and their memory, from the intel-rapl counters, which AMD's processors have as well.

See https://docs.kernel.org/power/powercap/powercap.html.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from glob import glob
from typing import NamedTuple

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Point, Series, Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import Reading, Source
from opentelemetry.instrumentation.hardware.system.files import names_or_empty, read_integer, read_text

_CLASS = "/sys/class/powercap"
_PREFIX = "intel-rapl:"

_MIRROR = 2.0  # joules by which two readings of one counter may differ. It is updated every millisecond.


class _Zone(NamedTuple):
    """A part of the machine with an energy counter."""

    folder: str
    series: Series
    range: int  # microjoules at which the counter wraps to 0; 0 if unknown


class Powercap(Source):
    """The zones that this user may read: package is a processor, dram its memory, psys the machine.

    core and uncore are parts of package and are left out.
    """

    name = "powercap"
    rows = ("hw.energy", "hw.host.energy")

    @classmethod
    def prepare(cls, config: Config) -> bool:
        del config
        return any(os.access(path, os.R_OK) for path in glob(f"{_CLASS}/{_PREFIX}*/energy_uj"))

    def open(self) -> None:
        self._files = self.context.drivers.files()
        self._counters: dict[str, tuple[int, int]] = {}
        names = sorted(name for name in names_or_empty(self._files, _CLASS) if name.startswith(_PREFIX))
        zones = [zone for zone in map(self._zone, names) if zone and self._joules(zone) is not None]
        self._zones = self._without_mirrors(zones)
        if not self._zones:
            raise Unavailable(
                f"no intel-rapl zone in {_CLASS} that this user may read",
                "the kernel lets only root read energy_uj; run as root or change its mode" if names else "",
            )

    def _zone(self, name: str) -> _Zone | None:
        folder = f"{_CLASS}/{name}"
        label = read_text(self._files, f"{folder}/name")
        kind, _, number = label.partition("-")
        if kind == "package":
            series = _package(number)
        elif kind == "dram":
            socket = name.split(":")[1]
            attributes = {c.HW_ID: f"dram-{socket}", c.HW_NAME: f"Memory {socket}", c.HW_TYPE: "memory"}
            series = Series(c.HW_ENERGY, attributes)
        elif kind == "psys":
            series = Series(c.HW_HOST_ENERGY, {c.HW_ID: label, c.HW_NAME: "machine"})
        else:
            return None
        return _Zone(folder, series, read_integer(self._files, f"{folder}/max_energy_range_uj") or 0)

    def _without_mirrors(self, zones: Sequence[_Zone]) -> list[_Zone]:
        """The zones, with one for each package of which all dies have the same counter.

        AMD's processors count for the whole package, but the kernel makes a zone for each die of Zen 1 and 2, and Linux
        6.9 and 6.10 for each CCD. Dies of Intel have counters of their own.
        """
        packages: dict[str, list[_Zone]] = {}
        for zone in zones:
            packages.setdefault(str(zone.series.attributes[c.HW_ID]).partition("-die-")[0], []).append(zone)
        kept = []
        for package, dies in packages.items():
            counts = [self._joules(die) or 0 for die in dies]
            is_one = len(dies) > 1 and 0 < max(counts) < min(counts) + _MIRROR
            kept += [dies[0]._replace(series=_package(package.partition("-")[2]))] if is_one else dies
        return kept

    def readings(self) -> Sequence[Reading]:
        return (*super().readings(), Reading(self.read, 0.1, for_spans=True))

    def read(self) -> Iterator[Point]:
        for zone in self._zones:
            joules = self._joules(zone)
            if joules is not None:
                yield zone.series, joules

    def _joules(self, zone: _Zone) -> float | None:
        """Return the energy in joules, including wraps since the first reading. Counters can wrap within minutes."""
        microjoules = read_integer(self._files, f"{zone.folder}/energy_uj")
        if microjoules is None:
            return None
        last, wrapped = self._counters.get(zone.folder, (microjoules, 0))
        if microjoules < last:
            wrapped += zone.range or last
        self._counters[zone.folder] = microjoules, wrapped
        return (microjoules + wrapped) / 1e6


def _package(number: str) -> Series:
    """The energy of a processor, or of a die of it."""
    return Series(c.HW_ENERGY, {c.HW_ID: f"package-{number}", c.HW_NAME: f"CPU {number}", c.HW_TYPE: "cpu"})
