"""Findings of ``doctor``, and the report for people."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from typing import NamedTuple

from opentelemetry.instrumentation.hardware.cli.layout import wrap


class Finding(NamedTuple):
    """The result of one check.

    Attributes:
        part: Sources, settings, zero code or export.
        state: Ok; note for information; wrong for what prevents metrics from being exported; default for a setting that
            has its default, and off for a source that a setting turns off.
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


def report(findings: Sequence[Finding], width: int, bold: bool) -> Iterator[str]:
    """Return the lines of the report."""
    strong, plain = ("\x1b[1m", "\x1b[0m") if bold else ("", "")
    known = versions()
    yield (
        f"otel-hardware {known.pop('opentelemetry-instrumentation-hardware', '')} on {socket.gethostname()}: "
        + ", ".join(f"{name} {number}" for name, number in known.items())
    )
    wrong = [finding for finding in findings if finding.state == "wrong"]
    if wrong:
        yield f"{strong}{len(wrong)} wrong:{plain} {', '.join(dict.fromkeys(finding.subject for finding in wrong))}"
    else:
        yield "No problems found."
    part = ""
    for finding in _condensed(findings):
        if finding.part != part:
            part = finding.part
            yield f"\n{strong}{part}{plain}"
        yield from _lines(finding, finding.state.upper() if finding.state == "wrong" else finding.state, width)


def _condensed(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Yield the findings, with one line for all sources that are off and one for all settings with their default."""
    for part, group in groupby(findings, lambda finding: finding.part):
        found = [*group]
        shown = [finding for finding in found if finding.state not in ("off", "default")]
        yield from shown
        off = [finding.subject for finding in found if finding.state == "off"]
        if off:
            yield Finding(part, "off", ", ".join(off), "")
        if any(finding.state == "default" for finding in found):
            others = "other settings" if shown else "settings"
            yield Finding(part, "", "", f"all {others} have their defaults; --format json lists them")


def _lines(finding: Finding, state: str, width: int) -> Iterator[str]:
    text = finding.text + (f" → {finding.fix}" if finding.fix else "")
    start = f"  {state:<5}  {finding.subject:<15}  " if text and finding.subject else f"  {state:<5}  "
    yield from wrap(text or finding.subject, max(width, 60), start, " " * 26)
