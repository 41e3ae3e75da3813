"""``gpu_metrics``: the table that the firmware of an AMD GPU keeps, in every fixed layout that the kernel has given it.

What other files say as well is not taken from here. A field whose bits are all ones is not known to the firmware. The
layouts are the kernel's, ``drivers/gpu/drm/amd/include/kgd_pp_interface.h``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware.accelerators.fields import Reading
from opentelemetry.instrumentation.hardware.model import Number, Rate

_JOULE = 1 << 16
"""Steps of the energy counter in a joule, on the boards that say it."""

_XGMI = 8
"""Links."""

_BITS: Final = {
    "power_cap": 0x00FF,  # PPT0 to SPPT_APU
    "current_cap": 0x00FF_0000,  # TDC and EDC
    "thermal_sw": 0x0FFF_0000_0000,  # a temperature, of the chip, its memory or its voltage regulators
    "thermal_hw": 0xF000_0000_0000,  # VRHOT and PROCHOT, from outside
}
"""What holds the clocks down, in the status that is the same for every board."""


class _Layout(NamedTuple):
    """Where the fields of a revision are, in bytes; 0 for one that it does not have.

    Attributes:
        size: of the table; of one revision there are tables of several, which differ behind what is read here.
        video: the activity of the video engines, as many 16-bit numbers.
        jpeg: the same of the JPEG engines.
        energy: a 64-bit counter.
        hbm: degrees of four HBM stacks; before 1.4 only boards that have them count energy in 64 bits.
        status: the 64 bits of what holds the clocks down.
        residency: six 32-bit counters: of time, and of the time that each reason held.
        xgmi: bytes read over each link, in KiB, and after them those that were written.
        scale: what 100 % is of an activity.
    """

    size: tuple[int, ...]
    video: tuple[int, int] = (0, 0)
    jpeg: tuple[int, int] = (0, 0)
    energy: int = 0
    hbm: int = 0
    status: int = 0
    residency: int = 0
    xgmi: int = 0
    scale: int = 100


LAYOUTS: Final[Mapping[tuple[int, int], _Layout]] = {
    (1, 1): _Layout((96,), video=(20, 1), energy=24, hbm=88),
    (1, 2): _Layout((104,), video=(20, 1), energy=24, hbm=88),
    (1, 3): _Layout((120,), video=(20, 1), energy=24, hbm=88, status=112),
    (1, 4): _Layout((288,), video=(16, 4), energy=24, xgmi=104),
    (1, 5): _Layout((360,), video=(16, 4), jpeg=(24, 32), energy=88, xgmi=176),
    (1, 6): _Layout((1664,), energy=16, residency=32, xgmi=128),
    (1, 7): _Layout((2208,), energy=24, residency=40, xgmi=136),
    (1, 8): _Layout((3360, 3872), energy=24, residency=40, xgmi=136),
    (2, 1): _Layout((120,)),
    (2, 2): _Layout((128,), status=120),
    (2, 3): _Layout((152,), status=120),
    (2, 4): _Layout((168,), video=(30, 1), status=120, scale=10_000),
    (3, 0): _Layout((264,), video=(44, 1)),
}
"""By format and content revision; a table of any other, or of another size, is not believed.

Not taken: the activities of 2.1 to 2.3, whose unit differs between chips.
"""

_REASONS = ("thermal_hw", "power_cap", "thermal_sw", "thermal_sw", "thermal_sw")
"""What the counters after the first one stand for: PROCHOT, PPT, and the temperatures of socket, regulators, HBM."""


def revision(table: bytes) -> tuple[int, int]:
    """Format and content revision.

    Raises:
        ValueError: it is no table, or none of a known layout.
    """
    if len(table) < 4:
        raise ValueError(f"gpu_metrics is {len(table)} bytes long")
    size, form, content = struct.unpack_from("<HBB", table)
    layout = LAYOUTS.get((form, content))
    if layout is None:
        raise ValueError(f"gpu_metrics has the unknown revision {form}.{content}")
    if size not in layout.size or size > len(table):
        sizes = " or ".join(map(str, layout.size))
        raise ValueError(f"gpu_metrics {form}.{content} is {min(size, len(table))} bytes long, not {sizes}")
    return form, content


class Metrics:
    """The tables of one GPU, one after the other."""

    def __init__(self) -> None:
        self._residencies: tuple[int, ...] | None = None

    def read(self, table: bytes) -> Reading:
        """What a table says.

        Raises:
            ValueError: it is none of a known layout.
        """
        layout = LAYOUTS[revision(table)]
        found: dict[str, Number | Rate] = {}
        for task, (offset, count) in (("video", layout.video), ("jpeg", layout.jpeg)):
            known = [value for value in _shorts(table, offset, count) if value <= layout.scale]
            if known:
                found[f"utilization.{task}"] = sum(known) / len(known) / layout.scale
        for stack, celsius in enumerate(_shorts(table, layout.hbm, 4 if layout.hbm else 0)):
            if 0 < celsius <= 150:
                found[f"temperature.hbm{stack}"] = float(celsius)
        energy = _energy(table, layout)
        if energy is not None:
            found["energy"] = energy
        for way, offset in (("receive", layout.xgmi), ("transmit", layout.xgmi + 8 * _XGMI)):
            links = [kib for kib in _longs(table, offset, _XGMI if layout.xgmi else 0) if kib < 1 << 52]
            if links:
                found[f"io.xgmi.{way}"] = sum(links) << 10
        found |= {f"throttle.{reason}": Rate(share) for reason, share in self._held(table, layout).items()}
        return found

    def _held(self, table: bytes, layout: _Layout) -> Mapping[str, float]:
        """By reason, whether it holds; or for what share of the time since the table before it held."""
        if layout.status:
            (status,) = struct.unpack_from("<Q", table, layout.status)
            return {} if status == (1 << 64) - 1 else {name: float(bool(status & bits)) for name, bits in _BITS.items()}
        if not layout.residency:
            return {}
        now = struct.unpack_from("<6I", table, layout.residency)
        before, self._residencies = self._residencies, now
        if before is None:
            return {}
        grown = [(new - old) % (1 << 32) for new, old in zip(now, before)]
        shares: dict[str, float] = {}
        for reason, each, last in zip(_REASONS, grown[1:], now[1:]):
            if last != (1 << 32) - 1 and 0 < grown[0] < 1 << 31 and each <= grown[0]:
                shares[reason] = max(shares.get(reason, 0.0), each / grown[0])
        return shares


def _energy(table: bytes, layout: _Layout) -> float | None:
    """Joules since the driver was loaded."""
    if not layout.energy or (layout.hbm and all(each == 0xFFFF for each in _shorts(table, layout.hbm, 4))):
        return None  # before 1.4 the boards without HBM count in 32 bits and in a unit of their own
    (steps,) = struct.unpack_from("<Q", table, layout.energy)
    return steps / _JOULE if 0 < steps < (1 << 64) - 1 else None


def _shorts(table: bytes, offset: int, count: int) -> Iterator[int]:
    return iter(struct.unpack_from(f"<{count}H", table, offset))


def _longs(table: bytes, offset: int, count: int) -> Iterator[int]:
    return iter(struct.unpack_from(f"<{count}Q", table, offset))
