"""The table of the frameworks, on a terminal and as a page of the documentation."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass

from tests.slow.frameworks.cases import Case
from tests.slow.frameworks.verdict import Run, Verdict


@dataclass(frozen=True)
class Row:
    """A case with its result.

    Attributes:
        case: The case.
        version: The version of its first package.
        runs: The run without this package and the one with it.
        verdict: The verdict, or None if it was not run.
        missing: Why it was not run.
    """

    case: Case
    version: str = ""
    runs: tuple[Run, ...] = ()
    verdict: Verdict | None = None
    missing: str = ""

    @property
    def fails(self) -> bool:
        return self.verdict is not None and bool(self.verdict.problems)

    @property
    def words(self) -> str:
        """The verdict in words."""
        if self.verdict is None:
            return f"not run: {self.missing}"
        return f"FAILS: {'; '.join(self.verdict.problems)}" if self.verdict.problems else "right"

    @property
    def counts(self) -> tuple[str, str, str]:
        """Spans that arrive without and with this package, those with energy, and those with CPU time."""
        if self.verdict is None:
            return "", "", ""
        arrived = " / ".join(str(len(run.spans)) for run in self.runs)
        return arrived, str(self.verdict.energy), str(self.verdict.cpu_time)


_LINE = "{:20} {:10} {:>10} {:>10} {:>10} {:>4}  {}"

HEAD = _LINE.format("case", "version", "spans", "energy", "CPU time", "s", "verdict")


def line(row: Row, seconds: float) -> str:
    """Return the line of a case for a terminal."""
    return _LINE.format(row.case.name, row.version, *row.counts, f"{seconds:.0f}", row.words)


_PAGE = """# Frameworks

<!-- Written by `python -m tests.slow.frameworks --write`. -->

Each program ran twice, without this package and with it, and sent its spans to an OTLP receiver. The GPU was simulated,
with a power of 300 to 700 W. `right` means that the same spans arrived, that local roots and all spans of at least
0.3 s had the energy of their time, and that local roots had CPU time. A local root is a span without a parent in its
process.
Versions: {versions}.

| framework | version | start | spans without / with it | `hw.energy` | `process.cpu.time` | verdict |
|---|---|---|---|---|---|---|
"""


def page(rows: Sequence[Row]) -> str:
    """Return the page of the documentation."""
    lines = []
    for row in rows:
        cells = (f"{row.case.name} (`{row.case.packages[0]}`)", row.version, row.case.start, *row.counts, row.words)
        texts = (" ".join(cell.split()).replace("|", "\\|").replace("<", "&lt;") for cell in cells)
        lines.append(f"| {' | '.join(texts)} |\n")
    return _PAGE.format(versions=f"Python {platform.python_version()}, Linux") + "".join(lines)
