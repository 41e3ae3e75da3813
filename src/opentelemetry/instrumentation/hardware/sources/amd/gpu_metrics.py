"""``gpu_metrics``: the binary table of the GPU's firmware, in every revision since 1.1.

Only values that no text file has are read from it. A field of all ones is not available. The layouts are those of
``drivers/gpu/drm/amd/include/kgd_pp_interface.h`` in the Linux kernel.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware.accelerators.sysfs import PCIE_GENERATIONS
from opentelemetry.instrumentation.hardware.model import Number

_ENERGY_STEPS_PER_JOULE = 1 << 16
_XGMI_LINKS = 8
_ALL_ONES = (1 << 64) - 1

# Throttling reasons and their bits in ``indep_throttle_status``.
_THROTTLE_BITS: Final = {
    "power_cap": 0x00FF,  # PPT0 to SPPT_APU
    "current_cap": 0x00FF_0000,  # TDC and EDC
    "thermal_sw": 0x0FFF_0000_0000,  # temperature of the chip, its memory or its voltage regulators
    "thermal_hw": 0xF000_0000_0000,  # VRHOT and PROCHOT, which are external signals
}

# The firmware of RDNA 3 and 4 always sets the bit of the hotspot. Below this temperature it is not the reason: the
# limits are at 100 degrees and more.
_HOTSPOT_BIT = 1 << 36
_HOTSPOT_LEAST = 90

# Throttling reasons of the residency counters: PROCHOT, PPT, and the temperatures of socket, regulators and HBM.
_RESIDENCY_REASONS = ("thermal_hw", "power_cap", "thermal_sw", "thermal_sw", "thermal_sw")


class Layout(NamedTuple):
    """Byte offsets of the fields of a fixed revision; 0 for a field that the revision does not have.

    Attributes:
        sizes: Valid sizes of the table. Tables of one revision may differ behind the fields that are read here.
        video: Utilization of the video engines: offset and number of 16-bit values.
        jpeg: The same of the JPEG engines.
        energy: A 64-bit counter.
        hbm: Temperatures of four HBM stacks. Before revision 1.4 only boards with HBM have a 64-bit energy counter.
        status: ``indep_throttle_status``, 64 bits.
        hotspot: Temperature, 16 bits.
        residency: Six 32-bit counters: accumulated time, and the time for each of :data:`_RESIDENCY_REASONS`.
        xgmi: KiB read over each link, followed by KiB written.
        pcie: Lanes of the PCIe link, and its speed in 0.1 GT/s, 16 bits each.
        clock: Clock of the first video engine in MHz, 16 bits.
        voltages: Of SoC, GPU and memory in mV, 16 bits each.
        full: Value of a utilization of 100 %.
        xcp: Statistics of eight compute partitions: offset, and number of JPEG engines of a partition.
    """

    sizes: tuple[int, ...]
    video: tuple[int, int] = (0, 0)
    jpeg: tuple[int, int] = (0, 0)
    energy: int = 0
    hbm: int = 0
    status: int = 0
    hotspot: int = 0
    residency: int = 0
    xgmi: int = 0
    pcie: int = 0
    clock: int = 0
    voltages: int = 0
    full: int = 100
    xcp: tuple[int, int] = (0, 0)


# The fixed layouts by format and content revision.
#
# The utilizations of 2.1 to 2.3 and of 3.0 are left out: their unit differs between chips. For 3.0 the kernel documents
# percent, but ``smu_v14_0_0_ppt.c`` divides the same values by 100 elsewhere, some of them only with old firmware.
LAYOUTS: Final[Mapping[tuple[int, int], Layout]] = {
    (1, 1): Layout((96,), video=(20, 1), energy=24, pcie=74, clock=60, hbm=88),
    (1, 2): Layout((104,), video=(20, 1), energy=24, pcie=74, clock=60, hbm=88),
    (1, 3): Layout((120,), video=(20, 1), energy=24, pcie=74, clock=60, hbm=88, voltages=104, status=112, hotspot=6),
    (1, 4): Layout((288,), video=(16, 4), energy=24, xgmi=104, pcie=48, clock=264),
    (1, 5): Layout((360,), video=(16, 4), jpeg=(24, 32), energy=88, xgmi=176, pcie=112, clock=336),
    (1, 6): Layout((1664,), energy=16, residency=32, xgmi=128, pcie=60, clock=288, xcp=(312, 32)),
    (1, 7): Layout((2208,), energy=24, residency=40, xgmi=136, pcie=68, clock=320, xcp=(344, 32)),
    (1, 8): Layout((3360, 3872), energy=24, residency=40, xgmi=136, pcie=68, clock=320, xcp=(344, 40)),
    (2, 1): Layout((120,)),
    (2, 2): Layout((128,), status=120),
    (2, 3): Layout((152,), status=120),
    (2, 4): Layout((168,), video=(30, 1), status=120, full=10_000),
    (3, 0): Layout((264,)),
}

# The revision of MI300 since Linux 6.19: a list of attributes, each with its id, type and number of values.
SELF_DESCRIBING: Final = (1, 9)

_ATTRIBUTE_TYPES = "BbHhIiQq"
_ENERGY_ID = 7
_RESIDENCY_IDS = range(9, 15)  # in the order of the counters of the fixed layouts
_LANES_ID = 16
_SPEED_ID = 17
_XGMI_READ_ID = 29
_XGMI_WRITTEN_ID = 30
_CLOCK_ID = 35
_JPEG_ID = 41
_VIDEO_ID = 42

_PARTITIONS = 8
_XCCS = 8
_VIDEO_ENGINES = 4


class _Fields(NamedTuple):
    """The raw fields of a table of any revision. A field that the revision does not have is empty."""

    video: Sequence[int] = ()
    jpeg: Sequence[int] = ()
    full: int = 100
    hbm: Sequence[int] = ()
    energy: int = 0
    status: int | None = None
    residency: Sequence[int] = ()
    residency_masks: Sequence[int] = ()
    xgmi_read: Sequence[int] = ()
    xgmi_written: Sequence[int] = ()
    pcie: Sequence[int] = ()
    clock: Sequence[int] = ()
    voltages: Sequence[int] = ()


def revision(table: bytes) -> tuple[int, int]:
    """Format and content revision of a table.

    Raises:
        ValueError: The table is truncated or its layout is unknown.
    """
    if len(table) < 4:
        raise ValueError(f"gpu_metrics is {len(table)} bytes long")
    size, form, content = struct.unpack_from("<HBB", table)
    layout = LAYOUTS.get((form, content))
    if layout is None and (form, content) != SELF_DESCRIBING:
        raise ValueError(f"gpu_metrics has the unknown revision {form}.{content}")
    sizes = layout.sizes if layout else (size,)
    if size not in sizes or size > len(table):
        expected = " or ".join(map(str, sizes))
        raise ValueError(f"gpu_metrics {form}.{content} is {min(size, len(table))} bytes long, not {expected}")
    return form, content


class GpuMetrics:
    """Decodes the tables of one GPU, which are read one after another."""

    def __init__(self) -> None:
        self._residency: Sequence[int] = ()
        self._links: dict[str, dict[int, int]] = {}

    def decode(self, table: bytes) -> dict[str, Number]:
        """Decode a table. Returns values by the names in :data:`~.fields.GPU_METRICS`; ratios are 0 to 1.

        Raises:
            ValueError: The table is truncated or its layout is unknown.
        """
        layout = LAYOUTS.get(revision(table))
        fields = _fixed_fields(table, layout) if layout else _attribute_fields(table)
        values: dict[str, Number] = {}
        for task, engines in (("video", fields.video), ("jpeg", fields.jpeg)):
            active = [engine for engine in engines if engine <= fields.full]
            if active:
                values[task] = sum(active) / len(active) / fields.full
        values |= {f"hbm{stack}": float(celsius) for stack, celsius in enumerate(fields.hbm) if 0 < celsius <= 150}
        named = {
            "clock.video": fields.clock[:1],
            "voltage.soc": fields.voltages[:1],
            "voltage.memory": fields.voltages[2:],
        }
        values |= {name: found[0] for name, found in named.items() if found and 0 < found[0] < 0xFFFF}
        lanes, speed = [*fields.pcie, 0, 0][:2]
        if speed / 10 in PCIE_GENERATIONS and 0 < lanes <= 32:  # some old drivers have indices here
            values |= {"pcie.generation": PCIE_GENERATIONS[speed / 10], "pcie.width": lanes}
        if 0 < fields.energy < _ALL_ONES:
            values["energy"] = fields.energy / _ENERGY_STEPS_PER_JOULE
        for direction, links in (("receive", fields.xgmi_read), ("transmit", fields.xgmi_written)):
            counts = {number: kib for number, kib in enumerate(links) if 0 <= kib < 1 << 52}
            known = self._links[direction] = {**self._links.get(direction, {}), **counts}
            if counts:  # a link that is not available keeps its count: the sum must not fall
                values[f"xgmi.{direction}"] = sum(known.values()) << 10
        return {**values, **self._throttling(fields)}

    def _throttling(self, fields: _Fields) -> Mapping[str, float]:
        """By reason, the share of the time since the previous table in which clocks were throttled."""
        if fields.status is not None:
            if fields.status == _ALL_ONES:
                return {}
            return {reason: float(bool(fields.status & bits)) for reason, bits in _THROTTLE_BITS.items()}
        now, masks = fields.residency, fields.residency_masks
        before, self._residency = self._residency, now
        if not (before and now):
            return {}
        elapsed, *throttled = ((new - old) & mask for new, old, mask in zip(now, before, masks))
        shares: dict[str, float] = {}
        for reason, time, counter, mask in zip(_RESIDENCY_REASONS, throttled, now[1:], masks[1:]):
            # The firmware of some MI300X has the accumulated time in place of a counter.
            if counter not in (mask, now[0]) and time <= elapsed and 0 < elapsed < 1 << 31:
                shares[reason] = max(shares.get(reason, 0.0), time / elapsed)
        return shares


def _fixed_fields(table: bytes, layout: Layout) -> _Fields:
    def values(code: str, offset: int, count: int) -> Sequence[int]:
        return struct.unpack_from(f"<{count}{code}", table, offset) if offset else ()

    video, jpeg = values("H", *layout.video), values("H", *layout.jpeg)
    if layout.xcp[0]:
        video, jpeg = _partition_engines(table, *layout.xcp)
    hbm = values("H", layout.hbm, 4)
    has_hbm = any(celsius != 0xFFFF for celsius in hbm)
    has_energy = layout.energy and (has_hbm or not hbm)
    if has_hbm:  # MI200 does not measure it, and its driver reports 0 before Linux 6.14
        video = ()
    status = values("Q", layout.status, 1)[0] if layout.status else None
    if status is not None and status != _ALL_ONES and 0 < sum(values("H", layout.hotspot, 1)) < _HOTSPOT_LEAST:
        status &= ~_HOTSPOT_BIT
    return _Fields(
        video,
        jpeg,
        layout.full,
        hbm,
        values("Q", layout.energy, 1)[0] if has_energy else 0,
        status,
        values("I", layout.residency, len(_RESIDENCY_IDS)),
        (0xFFFF_FFFF,) * len(_RESIDENCY_IDS),
        values("Q", layout.xgmi, _XGMI_LINKS),
        values("Q", layout.xgmi and layout.xgmi + 8 * _XGMI_LINKS, _XGMI_LINKS),
        values("H", layout.pcie, 2),
        values("H", layout.clock, 1),
        values("H", layout.voltages, 3),
    )


def _partition_engines(table: bytes, offset: int, count: int) -> tuple[Sequence[int], Sequence[int]]:
    """Utilization of the video and JPEG engines of all partitions.

    The statistics of a partition begin with the utilization of its compute dies, 32 bits each, of its JPEG engines and
    of its video engines. The table ends with a counter of 32 bits, padded to 64.
    """
    (end,) = struct.unpack_from("<H", table)
    size = (end - offset - 8) // _PARTITIONS
    video: list[int] = []
    jpeg: list[int] = []
    for begin in range(offset + 4 * _XCCS, offset + _PARTITIONS * size, size):
        jpeg += struct.unpack_from(f"<{count}H", table, begin)
        video += struct.unpack_from(f"<{_VIDEO_ENGINES}H", table, begin + 2 * count)
    return video, jpeg


def _attribute_fields(table: bytes) -> _Fields:
    """The fields of revision 1.9. Each attribute is a 64-bit code (unit, type, id, number of values) and its values."""
    values: dict[int, Sequence[int]] = {}
    masks: dict[int, int] = {}
    try:
        (count,) = struct.unpack_from("<i", table, 4)
        offset = 8
        for _ in range(count):
            (code,) = struct.unpack_from("<Q", table, offset)
            number, attribute, kind = code & 0x3FF, code >> 10 & 0x3FF, _ATTRIBUTE_TYPES[code >> 20 & 0xF]
            values[attribute] = struct.unpack_from(f"<{number}{kind}", table, offset + 8)
            masks[attribute] = (1 << 8 * struct.calcsize(f"<{kind}")) - 1
            offset += 8 + struct.calcsize(f"<{number}{kind}")
    except (struct.error, IndexError):
        raise ValueError("gpu_metrics 1.9 has an attribute that is truncated or of an unknown type") from None
    has_residency = all(values.get(attribute) for attribute in _RESIDENCY_IDS)
    return _Fields(
        video=values.get(_VIDEO_ID, ()),
        jpeg=values.get(_JPEG_ID, ()),
        energy=next(iter(values.get(_ENERGY_ID, ())), 0),
        residency=[values[attribute][0] for attribute in _RESIDENCY_IDS] if has_residency else (),
        residency_masks=[masks[attribute] for attribute in _RESIDENCY_IDS] if has_residency else (),
        xgmi_read=values.get(_XGMI_READ_ID, ()),
        xgmi_written=values.get(_XGMI_WRITTEN_ID, ()),
        pcie=[*values.get(_LANES_ID, ()), *values.get(_SPEED_ID, ())],
        clock=values.get(_CLOCK_ID, ()),
    )
