"""Parse a scraped page with ``prometheus_client``.

Lines that no filter matches are dropped before parsing. For an invalid line, only its metric family is dropped.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from math import isfinite
from typing import Any, Final, NamedTuple, TypeVar

from opentelemetry.instrumentation.hardware.sources.openmetrics.filters import Filters

T = TypeVar("T")

ACCEPT: Final = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.7,"
    "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.4,*/*;q=0.1"
)

_META = re.compile(r'#[ \t]+(HELP|TYPE|UNIT)[ \t]+("(?:[^"\\]|\\.)*"|\S+)[ \t]*(.*)')
_NAME = re.compile(r'\s*(?:([a-zA-Z_:][a-zA-Z0-9_:]*)|\{\s*"((?:[^"\\]|\\.)*)")')

_MAX_LINES: Final = 5_000
"""Maximum number of lines of a page that are parsed: several times as many as there may be series."""

_MAX_LENGTH: Final = 1 << 14
"""Maximum characters of a line."""

_MAX_AGE: Final = 300.0
"""Seconds after which a sample with a timestamp of its own is stale, as in Prometheus."""

_WHOLE_FAMILY: Final = ("histogram", "gaugehistogram")
"""Types for which the OpenMetrics parser needs all lines of the family."""

_PAUSE: Final = 1e-4
_LINES_PER_PAUSE: Final = 20
"""Seconds for which the interpreter lock is released after so many lines: a long page delays no other thread."""

_INVALID: Final = (ValueError, TypeError, IndexError, KeyError, AttributeError)
"""Errors that the parsers raise for invalid lines."""


class Sample(NamedTuple):
    """One value of a page.

    Attributes:
        name: The name on the page.
        family: The name that TYPE, HELP and UNIT refer to.
        type: Counter, gauge, histogram, summary, info, stateset, gaugehistogram, unknown or untyped.
        help: The description of the family.
        unit: The unit as Prometheus names it, such as seconds or bytes.
        labels: Labels with a value.
        value: A finite number.
    """

    name: str
    family: str
    type: str
    help: str
    unit: str
    labels: Mapping[str, str]
    value: float


@dataclass
class Page:
    """The samples of a page, and what was dropped.

    Attributes:
        samples: Samples that match the filters.
        invalid: The error of each invalid metric family.
        beyond: Number of lines beyond the limits of number and length.
        stale: Number of samples with an old timestamp.
    """

    samples: list[Sample] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)
    beyond: int = 0
    stale: int = 0


class _Block:
    """The lines of one family."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.type = ""
        self.head: list[str] = []
        self.lines: list[str] = []
        self.wanted = False

    def add_meta(self, line: str, meta: re.Match[str]) -> None:
        """Add a HELP, TYPE or UNIT line."""
        self.head.append(line)
        if meta[1] == "TYPE":
            self.type = meta[3].strip()

    def each(self) -> Iterator[str]:
        """Yield the lines with their ends."""
        return (f"{line}\n" for line in chain(self.head, self.lines))


def paced(each: Iterable[T], count: int = _LINES_PER_PAUSE) -> Iterator[T]:
    """Yield the same, and release the interpreter lock after so many."""
    for number, one in enumerate(each, 1):
        yield one
        if number % count == 0:
            time.sleep(_PAUSE)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines one by one, with their offsets; to split a long text at once takes milliseconds."""
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield start, text[start:end]
        start = end + 1
    yield start, text[start:]


def _samples_from(text: str, start: int) -> int:
    """Return the number of samples from the line that begins at an offset."""
    before = start - 1  # the line feed
    return text.count("\n", start) - text.count("\n#", before) - text.count("\n\n", before)


class Parser:
    """Parses pages.

    Raises:
        ImportError: prometheus_client is not installed.
    """

    def __init__(self, filters: Filters) -> None:
        from prometheus_client.openmetrics.parser import text_fd_to_metric_families as openmetrics
        from prometheus_client.parser import text_fd_to_metric_families as prometheus

        self._filters = filters
        self._parsers: dict[bool, Any] = {True: openmetrics, False: prometheus}

    def parse(self, kind: str, body: bytes, now: float) -> Page:
        """Parse a page.

        Args:
            kind: The Content-Type of the page.
            body: The page.
            now: Unix seconds, to recognize stale samples.

        Raises:
            ValueError: The body is not a page of metrics, or is truncated.
        """
        strict = kind.partition(";")[0].strip().lower() == "application/openmetrics-text"
        if kind.lower().startswith(("text/html", "application/json", "application/vnd.google.protobuf")):
            raise ValueError(f"unsupported Content-Type: {kind[:60]!r}")
        text = body.decode()
        if strict and not f"\n{text}".rstrip("\n").endswith("\n# EOF"):
            raise ValueError("the page is cut off: it does not end with # EOF")
        if text and not strict and not text.endswith("\n"):
            raise ValueError("the page is cut off: it does not end with a line feed")
        page = Page()
        blocks = [block for block in self._blocks(text, strict, page) if block.wanted]
        names = {block.name for block in blocks}
        for family in self._families(blocks, strict, page):
            page.samples += self._samples(family, strict, names, now, page)
        return page

    def _blocks(self, text: str, strict: bool, page: Page) -> Iterator[_Block]:
        """Yield the metric families, without the lines that cannot match a filter."""
        matching, may_match = self._filters.matching, self._filters.may_match
        block, left = _Block(), _MAX_LINES
        for start, line in paced(_lines(text), 2 * _LINES_PER_PAUSE):
            if line[:1] == "#":
                meta = _META.match(line)
                if meta is not None:
                    name = _unquoted(meta[2])
                    if name != block.name:
                        yield block
                        block = _Block(name)
                    block.add_meta(line, meta)
                continue
            match = _NAME.match(line)
            if match is None:
                if line.strip():
                    page.invalid.append("a line without a name")
                continue
            name = match[1] or _unescaped(match[2])
            conditions = matching(name)
            in_whole_family = block.type in _WHOLE_FAMILY and name.startswith(block.name)
            if not conditions and not (strict and in_whole_family):
                continue
            if in_whole_family and not strict and name.endswith("_bucket"):
                continue
            if left <= 0 and self._filters.match_all:
                page.beyond += _samples_from(text, start)
                break
            if left <= 0 or len(line) > _MAX_LENGTH:
                page.beyond += 1
                continue
            if not name.startswith(block.name):
                yield block
                block = _Block()
            wanted = bool(conditions) and (conditions == ((),) or may_match(name, line))
            if wanted or (strict and in_whole_family):
                left -= 1
                block.lines.append(line)
                block.wanted = block.wanted or wanted
        yield block

    def _families(self, blocks: Iterable[_Block], strict: bool, page: Page) -> Iterator[Any]:
        """Parse all families at once, or one by one if any is invalid."""
        parse, end = self._parsers[strict], ["# EOF\n"] if strict else []
        try:
            lines = chain.from_iterable(block.each() for block in blocks)
            yield from list(parse(paced(chain(lines, end))))
        except _INVALID:
            for block in blocks:
                try:
                    yield from list(parse(paced(chain(block.each(), end))))
                except _INVALID as error:
                    page.invalid.append(f"{block.name or 'a family'}: {error}"[:200])

    def _samples(self, family: Any, strict: bool, names: set[str], now: float, page: Page) -> Iterator[Sample]:
        for name, labels, value, timestamp, *_ in paced(family.samples):
            if not strict and family.type == "counter" and name not in names:
                name = name.removesuffix("_total")  # noqa: PLW2901 - the parser adds it where the page has none
            if not isinstance(value, (int, float)) or not isfinite(value) or not self._filters.matches(name, labels):
                continue
            if timestamp is not None and now - float(timestamp) > _MAX_AGE:
                page.stale += 1
                continue
            known = {label: text for label, text in labels.items() if text}
            yield Sample(name, family.name, family.type, family.documentation, family.unit, known, float(value))


def _unquoted(name: str) -> str:
    return _unescaped(name[1:-1]) if name.startswith('"') else name


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda each: "\n" if each[1] == "n" else each[1], text) if "\\" in text else text
