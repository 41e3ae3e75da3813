"""Findings of ``doctor``, and the report for people."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from opentelemetry.instrumentation.hardware.cli.text import counted, wrap
from opentelemetry.instrumentation.hardware.system.identity import host_name


class Finding(NamedTuple):
    """The result of one check.

    Attributes:
        part: Sources, spans, settings, zero code, export or compare.
        state: Ok; note for information; wrong for what has to be corrected; default for a setting that has its default,
            off for a source that a setting turns off, and absent for one that this machine does not have.
        subject: What was checked.
        text: The result.
        fix: What to do.
    """

    part: str
    state: str
    subject: str
    text: str
    fix: str = ""


def versions() -> dict[str, str]:
    """Return the versions of Python and of the most important packages."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in ("opentelemetry-instrumentation-hardware", "opentelemetry-sdk", "psutil"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def report(findings: Sequence[Finding], width: int, bold: bool, everything: bool = False) -> Iterator[str]:
    """Return the lines of the report: the verdict, what is wrong, what was found, notes, settings and export.

    With ``everything``, each source that is absent or turned off is shown, with the reason.
    """
    strong, plain = ("\x1b[1m", "\x1b[0m") if bold else ("", "")
    known = versions()
    yield (
        f"otel-hardware {known.pop('opentelemetry-instrumentation-hardware', '')} on {host_name()}: "
        + ", ".join(f"{name} {number}" for name, number in known.items())
    )
    wrong = [finding for finding in findings if finding.state == "wrong"]
    count = counted(len(wrong), "problem") if wrong else "No problems"
    yield f"{strong}{count} found{'' if wrong else '.'}{plain}" + (":" if wrong else "")
    sections = {
        "": wrong,
        "sources": [*_of(findings, "ok", "sources"), *_missing(findings, everything)],
        "spans": _of(findings, "ok", "spans"),
        "notes": [finding for finding in findings if finding.state == "note" and finding.part != "settings"],
        "settings": [*_of(findings, "ok", "settings"), *_of(findings, "note", "settings")],
        "export": [*_of(findings, "ok", "zero code"), *_of(findings, "ok", "export"), *_of(findings, "ok", "compare")],
    }
    for title, shown in sections.items():
        if shown and title:
            yield f"\n{strong}{title}{plain}"
        for finding in shown:
            text = finding.text + (f" → {finding.fix}" if finding.fix else "")
            yield from wrap(text, max(width, 60), f"  {finding.subject:<15}  ", " " * 19)


def _of(findings: Sequence[Finding], state: str, part: str) -> list[Finding]:
    return [finding for finding in findings if finding.state == state and finding.part == part]


def _missing(findings: Sequence[Finding], everything: bool) -> Iterator[Finding]:
    """Yield one line for all sources that are absent and one for all that are off, or one for each."""
    absent, off = _of(findings, "absent", "sources"), _of(findings, "off", "sources")
    if everything:
        yield from (*absent, *off)
        return
    for title, group in (("absent", absent), ("turned off", off)):
        if group:
            names = ", ".join(finding.subject for finding in group)
            yield Finding("sources", "", title, names + (" (--all shows why)" if group is absent else ""))
