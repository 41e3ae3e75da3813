"""The table of figures, the notes below it, and the JSON file that a later run compares with."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import textwrap
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.slow.benchmarks.figure import Figure
from tests.slow.benchmarks.steady import ENOUGH, MOST_NOISE

WIDTH = 100
_COLUMNS = {"what": 28, "ours": 16, "beside": 27, "bound": 7, "holds": 6, "change": 6}
_PACKAGES = (
    *("opentelemetry-sdk", "opentelemetry-instrumentation-system-metrics", "psutil", "nvidia-ml-py", "nvitop"),
    "openlit",
)

Earlier = Mapping[tuple[str, str, str], Figure]  # the figures of an earlier run, by part and key


# -- the table


def heading(compared: bool) -> str:
    return _line(*(name for name in _COLUMNS if compared or name != "change"))


def row(figure: Figure, change: str = "") -> str:
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
        change,
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


def notes(figures: list[Figure], earlier: Mapping[str, Any] | None = None) -> Iterator[str]:
    """Return the notes below the table."""
    missing = Counter(figure.alternative for figure in figures if figure.alternative and figure.beside is None)
    for alternative, count in missing.items():
        yield f"{alternative} is not installed: {count} figures are without it."
    if any(figure.noisy for figure in figures):
        yield (
            f"~ noisy: the bound is in the 95 % interval of the median, or this is wider than {MOST_NOISE:.0%} of a "
            f"figure without one, or there were fewer than {ENOUGH} rounds. A bound missed in noise does not count."
        )
    if earlier is not None:
        yield (
            f"change: since {earlier['date']}; of the ratio to the alternative where there is one, else of ours. "
            "~ noisy in one of the two runs."
        )
        here = {"machine": machine(), "versions": versions()}
        for part, now in here.items():
            then = earlier[part]
            for name in sorted({*now, *then}):
                if now.get(name) != then.get(name):
                    yield f"Different {part}: {name} was {then.get(name, 'absent')}, is {now.get(name, 'absent')}."
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
    """What `--json` writes and `--compare` reads."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "machine": machine(),
        "versions": versions(),
        "seconds": seconds,
        "parts": {part: [figure.document() for figure in figures] for part, figures in parts.items()},
    }


def read(file: Path) -> tuple[dict[str, Any], Earlier]:
    """An earlier run: the document, and its figures.

    Raises:
        ValueError: The file is not what `--json` writes.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        figures = {}
        for part, rows in found["parts"].items():
            for values in rows:
                figure = Figure(**{field: values[field] for field in Figure._fields if field in values})
                change(figure, figure)
                figures[(part, *figure.key)] = figure
        found["date"], found["machine"].items(), found["versions"].items()
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{file} was not written by --json: {error!r}") from None
    return found, figures


def change(now: Figure, then: Figure | None) -> str:
    """How much the ratio grew, or the number where there is no alternative to make a ratio with."""
    if then is None or then.unit != now.unit:
        return "new"
    if now.ratio is not None and then.ratio is not None and now.alternative == then.alternative:
        value, before = now.ratio, then.ratio
    else:
        value, before = now.ours, then.ours
    if not before:
        percent = "+0%" if not value else ">999%"
    else:
        grown = value / before - 1
        percent = f"{grown:+.0%}" if grown < 10 else ">999%"
    return percent + ("~" if now.noisy or then.noisy else "")
