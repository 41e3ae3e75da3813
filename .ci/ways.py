"""Which metrics each vendor's source exports, by the way in which it reads them: docs/dev/coverage.md.

The tables are made from the expected output of the captures in ``tests/sources``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware import catalog as c

CAPTURES: Final = Path(__file__).resolve().parents[1] / "tests" / "sources"


class Way(NamedTuple):
    """A way in which a source reads its values.

    Attributes:
        name: Its name in the table.
        driver: The driver that answers in its captures; "" for files.
        captures: A pattern of their names.
    """

    name: str
    driver: str
    captures: str


# The ways of each vendor, in the order in which the source tries them. ``*`` matches what no other pattern does.
WAYS: Final[Mapping[str, tuple[Way, ...]]] = {
    "nvidia": (Way("NVML", "nvml", "*"), Way("nvidia-smi", "nvidia-smi", "smi-*")),
    "amd": (
        Way("driver files", "", "*"),
        Way("amd-smi", "amd-smi", "amd-smi-*"),
        Way("rocm-smi", "rocm-smi", "rocm-smi-*"),
    ),
    "apple": (
        Way("apple_gpu_stats", "apple_gpu_stats", "stats-*"),
        Way("macmon", "macmon", "macmon-[0-9]*"),
        Way("ioreg", "ioreg", "*"),
    ),
    "intel": (Way("driver files", "", "*"),),
    "drm": (Way("driver files", "", "*"),),
    "graphcore": (Way("gcipuinfo", "gcipuinfo", "*"),),
    "gaudi": (Way("hl-smi", "hl-smi", "*"),),
    "tenstorrent": (Way("driver files", "", "*"),),
    "tpu": (Way("runtime", "tpu", "*"), Way("profiler", "tpu", "node"), Way("libtpu", "libtpu", "driver")),
    "trainium": (Way("neuron-monitor", "neuron-monitor", "*"), Way("driver files", "", "files")),
}

_HEADINGS: Final = {
    "nvidia": "NVIDIA",
    "amd": "AMD",
    "apple": "Apple",
    "intel": "Intel",
    "drm": "Other GPUs and NPUs of the Linux kernel",
    "graphcore": "Graphcore",
    "gaudi": "Intel Gaudi",
    "tenstorrent": "Tenstorrent",
    "tpu": "Google TPU",
    "trainium": "AWS Trainium and Inferentia",
}

# Vendors of the same kind of device. A table has the rows of all of them, so that it shows what is missing.
_KINDS: Final = (("nvidia", "amd", "apple", "intel", "drm"), ("graphcore", "gaudi", "tenstorrent", "tpu", "trainium"))

# Attributes whose values are listed; for a metric without them, the types of the components.
_PARTS: Final = (
    c.GPU_TASK,
    c.NPU_TASK,
    c.GPU_LINK,
    c.FREQUENCY_DOMAIN,
    c.HW_SENSOR_LOCATION,
    c.HW_LIMIT_TYPE,
    c.THROTTLE_REASON,
    c.ERROR_TYPE,
)

_SHARED: Final = ("hw.", "process.")  # the beginnings of metrics that are not of one vendor

_Exported = dict[str, set[str]]


def way(source: str, capture: str) -> Way:
    """Return the way of a capture."""
    found = [each for each in WAYS[source] if fnmatch(capture, each.captures)]
    return min(found, key=lambda each: each.captures == "*")


def tables() -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Yield heading, head and rows of each table."""
    exported = {source: _by_way(source) for source in WAYS}
    for source, columns in exported.items():
        names = set().union(*columns.values())
        for like in next(kind for kind in _KINDS if source in kind):
            names |= {name for column in exported[like].values() for name in column if name.startswith(_SHARED)}
        rows = [
            [f"`{row.name}`", *(_cell(column.get(row.name)) for column in columns.values())]
            for row in c.CATALOG
            if row.name in names
        ]
        yield _HEADINGS[source], ["metric", *columns], rows


def _by_way(source: str) -> dict[str, _Exported]:
    """Return, by way, the exported metrics with the values of the attributes in ``_PARTS``."""
    found: dict[str, _Exported] = {each.name: {} for each in WAYS[source]}
    for path in sorted((CAPTURES / source).glob("*.expected")):
        column = found[way(source, path.stem).name]
        for line in path.read_text(encoding="utf-8").splitlines():
            name, brace, rest = line.partition("{")
            if brace and re.fullmatch(r"[a-z][\w.]*", name) and not name.startswith("otel_hardware."):
                attributes = dict(re.findall(r"(?:^|,)([a-z_]+\.[a-z_.]+)=(.*?)(?=,[a-z_]+\.[a-z_.]+=|} |$)", rest))
                parts = [attributes[part] for part in _PARTS if part in attributes]
                column.setdefault(name, set()).add(" ".join(parts) or attributes.get(c.HW_TYPE, ""))
    return found


def _cell(parts: set[str] | None) -> str:
    if parts is None:
        return "-"
    return ", ".join(sorted(parts - {""})) or "yes"
