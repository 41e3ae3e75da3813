"""The table of the frameworks, on a terminal and as a page of the documentation."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass

from tests.frameworks.cases import Case
from tests.frameworks.verdict import Run, Verdict


@dataclass(frozen=True)
class Row:
    """A case with its result.

    Attributes:
        case: The case.
        version: The version of its first package.
        without: The run without this package.
        beside: The run with it.
        verdict: The verdict, or None if it was not run.
        missing: Why it was not run.
    """

    case: Case
    version: str = ""
    without: Run = Run()
    beside: Run = Run()
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
        arrived = f"{len(self.without.spans)} / {len(self.beside.spans)}"
        return arrived, str(self.verdict.energy), str(self.verdict.cpu_time)


_LINE = "{:20} {:10} {:>10} {:>10} {:>10} {:>4}  {}"

HEAD = _LINE.format("case", "version", "spans", "energy", "CPU time", "s", "verdict")


def line(row: Row, seconds: float) -> str:
    """Return the line of a case for a terminal."""
    return _LINE.format(row.case.name, row.version, *row.counts, f"{seconds:.0f}", row.words)


_PAGE = """# Frameworks

<!-- Written by `python -m tests.frameworks --write`. -->

Each program ran twice, without this package and with it, and sent its spans to an OTLP receiver; "spans" are the spans that
arrived without / with it. The GPU was simulated, with a constant power; the other columns count the spans that have a value
of those that must have it: `hw.energy` on spans of at least 0.3 s and on local roots, which are spans without a parent in their
process, and `process.cpu.time` on local roots. `right` means that no span was lost or added, and none of these values was
missing or wrong. Versions: {versions}.

| framework | version | how it is started | spans | `hw.energy` | `process.cpu.time` | verdict |
|---|---|---|---|---|---|---|
"""


def page(rows: Sequence[Row]) -> str:
    """Return the page of the documentation."""
    lines = []
    for row in rows:
        cells = (f"{row.case.name} (`{row.case.packages[0]}`)", row.version, row.case.start, *row.counts, row.words)
        lines.append(f"| {' | '.join(cell.replace('|', '/').replace('<', '&lt;') for cell in cells)} |\n")
    return _PAGE.format(versions=f"Python {platform.python_version()}, Linux") + "".join(lines)
