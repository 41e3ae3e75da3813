"""Compare two readers of the same GPU: our source and nvidia-smi.

The numbers of a reader are by ``hw.id`` and name of :data:`FIELDS`, in base units.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators import fields as f
from opentelemetry.instrumentation.hardware.model import Point, Series

Numbers: TypeAlias = "dict[str, dict[str, float]]"

_IDENTITY = (c.HW_ID, c.HW_NAME, c.HW_TYPE, c.HW_PARENT)

FIELDS: Mapping[str, f.Field] = {
    **{
        f"utilization.{task}": f.utilization(task)
        for task in ("general", "memory", "encoder", "decoder", "jpeg", "ofa")
    },
    "memory.total": f.memory_total(),
    "memory.used": f.memory_used(),
    **{f"temperature.{sensor}": f.temperature(sensor) for sensor in ("gpu", "memory")},
    "power": f.power(),
    **{f"power.limit.{limit}": f.power_limit(limit) for limit in ("enforced", "default", "max")},
    **{f"frequency.{domain}": f.frequency(domain) for domain in ("graphics", "sm", "memory", "video")},
    **{f"frequency.limit.{domain}": f.frequency_limit(domain) for domain in ("graphics", "sm", "memory")},
    "performance_state": f.Field(c.HW_GPU_PERFORMANCE_STATE),
    **{f"errors.{kind}": f.errors(kind) for kind in ("corrected", "uncorrected")},
}

_NAMES = {field.series: name for name, field in FIELDS.items()}


def numbers(points: Iterable[Point]) -> Numbers:
    """The values of points, without rates."""
    found: Numbers = {}
    for series, value in points:
        attributes = {name: word for name, word in series.attributes.items() if name not in _IDENTITY}
        quantity = _NAMES.get(Series(series.metric, attributes))
        if quantity is not None and isinstance(value, (int, float)):
            found.setdefault(str(series.attributes[c.HW_ID]), {})[quantity] = value
    return found


class Column(NamedTuple):
    """A field of ``--query-gpu``: our quantity, and the factor to base units."""

    quantity: str
    unit: float = 1.0


_MIB = 2.0**20

# Fields of ``--query-gpu``. ``nvidia-smi --help-query-gpu`` lists those that a version supports.
COLUMNS: Mapping[str, Column] = {
    "utilization.gpu": Column("utilization.general", 0.01),
    "utilization.memory": Column("utilization.memory", 0.01),
    "utilization.encoder": Column("utilization.encoder", 0.01),
    "utilization.decoder": Column("utilization.decoder", 0.01),
    "utilization.jpeg": Column("utilization.jpeg", 0.01),
    "utilization.ofa": Column("utilization.ofa", 0.01),
    "memory.total": Column("memory.total", _MIB),
    "memory.used": Column("memory.used", _MIB),
    "temperature.gpu": Column("temperature.gpu"),
    "temperature.memory": Column("temperature.memory"),
    "power.draw": Column("power"),
    "enforced.power.limit": Column("power.limit.enforced"),
    "power.default_limit": Column("power.limit.default"),
    "power.max_limit": Column("power.limit.max"),
    "clocks.current.graphics": Column("frequency.graphics", 1e6),
    "clocks.current.sm": Column("frequency.sm", 1e6),
    "clocks.current.memory": Column("frequency.memory", 1e6),
    "clocks.current.video": Column("frequency.video", 1e6),
    "clocks.max.graphics": Column("frequency.limit.graphics", 1e6),
    "clocks.max.sm": Column("frequency.limit.sm", 1e6),
    "clocks.max.memory": Column("frequency.limit.memory", 1e6),
    "pstate": Column("performance_state"),
    "ecc.errors.corrected.aggregate.dram": Column("errors.corrected"),
    "ecc.errors.uncorrected.aggregate.dram": Column("errors.uncorrected"),
}

# Quantities that change quickly, with the tolerance beyond our values before and after.
MOVING: Mapping[str, float] = {
    "utilization.general": 0.15,
    "utilization.memory": 0.15,
    "memory.used": 64 * _MIB,
    "temperature.gpu": 3,
    "temperature.memory": 3,
    "power": 40,
    "frequency.graphics": 150e6,
    "frequency.sm": 150e6,
    "frequency.video": 150e6,
}

# Resolution of the tool's output where it is coarser than the library's.
_COARSE: Mapping[str, float] = {
    "memory.used": _MIB,
    "memory.total": _MIB,
    "power": 0.01,
    "power.limit.enforced": 0.01,
    "power.limit.default": 0.01,
    "power.limit.max": 0.01,
}


_NUMBER = re.compile(r"P?(-?\d+(?:\.\d+)?)(?: (?:%|W|MiB|MHz))?")


def columns(help_text: str) -> list[str]:
    """Return the names in :data:`COLUMNS` that ``--help-query-gpu`` of this version lists."""
    known = set(re.findall(r'"([a-z0-9_.]+)"', help_text))
    return [name for name in COLUMNS if name in known]


def queried(names: Sequence[str], printed: str) -> Numbers:
    """Parse the output of ``--query-gpu=uuid,<names> --format=csv,noheader``. Only numbers are returned."""
    found: Numbers = {}
    for line in printed.splitlines():
        uuid, *cells = (cell.strip() for cell in line.split(","))
        if len(cells) != len(names):
            raise ValueError(f"expected {len(names)} fields: {line}")
        matches = {name: _NUMBER.fullmatch(cell) for name, cell in zip(names, cells)}
        found[uuid] = {
            COLUMNS[name].quantity: float(match[1]) * COLUMNS[name].unit for name, match in matches.items() if match
        }
    return found


class Difference(NamedTuple):
    """A number on which the two readers disagree.

    Attributes:
        device: ``hw.id``.
        quantity: The name of the number.
        ours: Our values before and after; None if missing.
        theirs: The other reader's value in between; None if missing.
    """

    device: str
    quantity: str
    ours: tuple[float, float] | None
    theirs: float | None


def differences(
    before: Mapping[str, Mapping[str, float]],
    theirs: Mapping[str, Mapping[str, float]],
    after: Mapping[str, Mapping[str, float]],
    quantities: Iterable[str],
) -> Iterator[Difference]:
    """Yield the quantities where the other reader's value lies outside our values before and after it.

    A quantity that only one of them has is a difference, too.
    """
    wanted = list(quantities)
    for device in sorted({*before, *theirs, *after}):
        other_values = theirs.get(device, {})
        for quantity in wanted:
            pair = [each[device][quantity] for each in (before, after) if quantity in each.get(device, {})]
            other = other_values.get(quantity)
            ours = (min(pair), max(pair)) if len(pair) == 2 else None
            if ours is None or other is None:
                if pair or other is not None:
                    yield Difference(device, quantity, ours, other)
                continue
            slack = MOVING.get(quantity, 0.0) + _COARSE.get(quantity, 0.0) + 1e-9 * abs(other)
            if not ours[0] - slack <= other <= ours[1] + slack:
                yield Difference(device, quantity, ours, other)
