"""The table of figures, the notes below it, and the JSON file."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import textwrap
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.slow.benchmarks.figure import Figure
from tests.slow.benchmarks.steady import ENOUGH, MOST_NOISE

WIDTH = 100
_COLUMNS = {"what": 28, "ours": 16, "beside": 27, "bound": 7, "holds": 6}
_PACKAGES = (
    *("opentelemetry-sdk", "opentelemetry-instrumentation-system-metrics", "psutil", "nvidia-ml-py", "nvitop"),
    "openlit",
)

# -- the table


def row(figure: Figure) -> str:
    """The line of a figure."""
    beside = ""
    if figure.beside is not None:
        ratio = "" if figure.ratio is None else _ratio(figure.ratio)
        beside = f"{ratio:>6} {figure.alternative} {_number(figure.beside)}"
    elif figure.least is not None and figure.most is not None:
        beside = f"{_number(figure.least):>6} to {_number(figure.most)}"
    bound = "" if figure.bound is None else _ratio(figure.bound) if figure.relative else _number(figure.bound)
    holds = {True: "yes", False: "no" if figure.noisy else "MISSED", None: ""}[figure.holds]
    return _line(
        f"  {figure.name}",
        f"{_number(figure.ours):>6} {figure.unit}",
        beside,
        f"{'≥' if figure.minimum else ' '}{bound:>6}",
        f"{holds} ~".strip() if figure.noisy else holds,
    )


def _line(*cells: str) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, _COLUMNS.values())).rstrip()


def _number(value: float) -> str:
    """About three digits, in at most five characters."""
    if value >= 1000:
        return f"{_number(value / 1000)}k"
    if 0 < value < 0.001:
        return "<.001"
    decimals = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3
    number = f"{value:.{decimals}f}"
    return number.rstrip("0").rstrip(".") if decimals else number


def _ratio(value: float) -> str:
    """A multiple of the alternative's number, in six characters."""
    number = f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
    return f"{number if value < 999.5 else '>999':>4} x"


HEADING: Final = _line(*_COLUMNS)


def notes(figures: list[Figure]) -> Iterator[str]:
    """Return the notes below the table."""
    missing = Counter(figure.alternative for figure in figures if figure.alternative and figure.beside is None)
    for alternative, count in missing.items():
        yield f"{alternative} is not installed: {count} figures are without it."
    if any(figure.noisy for figure in figures):
        yield (
            f"~ noisy: the bound is in the 95 % interval of the median, or this is wider than {MOST_NOISE:.0%} of a "
            f"figure without one, or there were fewer than {ENOUGH} rounds. A bound missed in noise does not count."
        )
    missed = [figure.name for figure in figures if figure.missed]
    bounds = sum(figure.holds is not None for figure in figures)
    clear = sum(figure.holds is not None and not figure.noisy for figure in figures)
    if missed:
        yield f"{len(missed)} of {clear} clear bounds missed: {', '.join(missed)}; {bounds} bounds in all."
    else:
        yield f"No bound missed; {clear} of {bounds} bounds are clear."


def filled(text: str) -> str:
    """A paragraph within the width."""
    return textwrap.fill(text, WIDTH, subsequent_indent="  ")


# -- the file


def machine() -> dict[str, str]:
    """What the figures depend on, other than versions."""
    model = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return {
        "processor": model[1] if model else platform.machine(),
        "CPUs": str(len(os.sched_getaffinity(0))),
        "system": f"{platform.system()} {platform.release()}",
    }


def versions() -> dict[str, str]:
    """Of Python and of the packages that are measured or compared with; without those that are not installed."""
    found = {"Python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def document(parts: Mapping[str, list[Figure]], seconds: float) -> dict[str, Any]:
    """What `--json` writes."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "machine": machine(),
        "versions": versions(),
        "seconds": seconds,
        "parts": {part: [figure.document() for figure in figures] for part, figures in parts.items()},
    }
