"""The table of the matrix, on a terminal and as a page of the documentation."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version

from tests.slow.matrix.case import Case
from tests.slow.matrix.groups import GROUPS


@dataclass(frozen=True)
class Row:
    """A case with its result.

    Attributes:
        case: The case.
        off: Status and duration without the package.
        on: Status and duration with it.
        problems: How they differ.
        missing: Why it did not run.
        errors: The standard error of the run with the package.
    """

    case: Case
    off: str = ""
    on: str = ""
    problems: Sequence[str] = ()
    missing: str = ""
    errors: Sequence[str] = field(default=(), repr=False)

    @property
    def fails(self) -> bool:
        """Whether it differs, and no documented limit is the reason."""
        return bool(self.problems) and not self.case.expected

    @property
    def kind(self) -> str:
        """The word of its verdict."""
        if self.missing:
            return "not run"
        return "equal" if not self.problems else "expected" if self.case.expected else "fails"

    @property
    def verdict(self) -> str:
        """Its verdict, with the reason."""
        if self.missing:
            return f"not run: {self.missing}"
        if not self.problems:
            return "equal"
        text = "; ".join(self.problems)
        return f"expected: {self.case.expected} ({text})" if self.case.expected else f"FAILS: {text}"


def row(each: Row) -> str:
    """Return the line of a case."""
    return f"{each.case.title:55} {each.off:>12} {each.on:>12}  {each.verdict[:300]}"


_KINDS = ("equal", "expected", "fails", "not run")


def summary(rows: Sequence[Row]) -> str:
    """Return the counts by group."""
    lines = ["{:14} {:>6} {:>6} {:>9} {:>6} {:>8}".format("group", "cases", *_KINDS)]
    for group in [*GROUPS, ""]:
        part = [each for each in rows if not group or each.case.group == group]
        found = Counter(each.kind for each in part)
        if part:
            counts = (found[kind] for kind in _KINDS)
            lines.append("{:14} {:>6} {:>6} {:>9} {:>6} {:>8}".format(group or "all", len(part), *counts))
    return "\n".join(lines)


_HEAD = """# The matrix of faults

<!-- Written by `python -m tests.slow.matrix --write`. -->

Each case runs a program twice, without this package and with it, in the same faulty surroundings. Compared are the exit
status, the duration of the end, the output, standard error, processes and files that are left behind, and what an OTLP
receiver got: the application's own metrics, the host exactly once, nothing twice, no impossible value and no counter
that falls. `equal` means that nothing differed except the messages that the case allows, mostly one warning. A
difference with a known reason is a documented limit, listed below as expected.
"""


def page(rows: Sequence[Row]) -> str:
    """Return the page of the documentation."""
    versions = f"Python {platform.python_version()}, OpenTelemetry {version('opentelemetry-sdk')}, Linux"
    lines = [
        _HEAD,
        f"All results are of one run:\n{versions}.\n",
        "| group | about | cases | equal | expected | fails | not run |",
    ]
    lines.append("|---|---|---|---|---|---|---|")
    for group, about in GROUPS.items():
        part = [each for each in rows if each.case.group == group]
        found = Counter(each.kind for each in part)
        lines.append(f"| {group} | {about} | {len(part)} | " + " | ".join(str(found[kind]) for kind in _KINDS) + " |")
    found = Counter(each.kind for each in rows)
    lines.append(f"| all | | {len(rows)} | " + " | ".join(str(found[kind]) for kind in _KINDS) + " |")
    lines += ["", "## Differences", "", "| case | difference | reason |", "|---|---|---|"]
    for each in rows:
        if each.problems or each.missing:
            text = _cell("; ".join(each.problems)) if each.problems else "not run"
            reason = each.missing or each.case.expected or "**not expected**"
            lines.append(f"| {each.case.title} | {text} | {_cell(reason)} |")
    for group, about in GROUPS.items():
        lines += ["", f"## {group}", "", f"{about[0].upper()}{about[1:]}.", "", "| case | off | on | verdict |"]
        lines.append("|---|---|---|---|")
        lines += [
            f"| {each.case.name} | {each.off} | {each.on} | {each.kind} |" for each in rows if each.case.group == group
        ]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
