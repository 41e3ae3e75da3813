"""What the doctor finds, and the report that is made of it."""

from __future__ import annotations

import socket
import sys
import textwrap
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple


class Finding(NamedTuple):
    """One thing that was looked at.

    Attributes:
        part: sources, settings, zero code or otlp.
        state: ok; note for what is good to know; wrong for what loses numbers.
        subject: what was looked at.
        text: what was found.
        fix: what to do.
    """

    part: str
    state: str
    subject: str
    text: str
    fix: str = ""


def versions() -> dict[str, str]:
    """Of Python, and of the packages that everything hangs on."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in ("opentelemetry-instrumentation-hardware", "opentelemetry-sdk", "psutil"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def report(findings: Sequence[Finding], width: int, bold: bool) -> Iterator[str]:
    """The lines for people, so many letters wide."""
    strong, plain = ("\x1b[1m", "\x1b[0m") if bold else ("", "")
    known = versions()
    yield (
        f"otel-hardware {known.pop('opentelemetry-instrumentation-hardware', '')} on {socket.gethostname()}: "
        + ", ".join(f"{name} {number}" for name, number in known.items())
    )
    part = ""
    for finding in findings:
        if finding.part != part:
            part = finding.part
            yield f"\n{strong}{part}{plain}"
        state = "" if part == "settings" and finding.state == "ok" else finding.state
        yield from _lines(finding, state.upper() if state == "wrong" else state, width)
    wrong = [finding for finding in findings if finding.state == "wrong"]
    yield ""
    if not wrong:
        yield "All is well."
    else:
        yield f"{strong}{len(wrong)} wrong:{plain} {'; '.join(dict.fromkeys(finding.subject for finding in wrong))}"


def _lines(finding: Finding, state: str, width: int) -> Iterator[str]:
    start = f"  {state:<5}  {finding.subject:<15}  "
    text = finding.text + (f" → {finding.fix}" if finding.fix else "")
    yield textwrap.fill(
        text,
        max(width, 60),
        initial_indent=start,
        subsequent_indent=" " * 26,
        break_long_words=False,
        break_on_hyphens=False,
    )
