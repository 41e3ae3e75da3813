"""Page: the samples of a scraped page that are wanted, by ``prometheus_client``'s parsers.

Lines that no filter wants are dropped before anything is parsed. What of a page is not in its format costs that family
and no other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final, NamedTuple

from opentelemetry.instrumentation.hardware.sources.openmetrics.filters import Filters

ACCEPT: Final = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.7,"
    "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.4,*/*;q=0.1"
)

_META = re.compile(r'#[ \t]+(HELP|TYPE|UNIT)[ \t]+("(?:[^"\\]|\\.)*"|\S+)[ \t]*(.*)')
_NAME = re.compile(r'\s*(?:([a-zA-Z_:][a-zA-Z0-9_:]*)|\{\s*"((?:[^"\\]|\\.)*)")')

_LINES: Final = 10_000
"""Lines of a page that are parsed at most; more are not looked at."""

_LONG: Final = 1 << 14
"""Letters that a line may have."""

_OLD: Final = 300.0
"""Seconds after which a sample that has a time of its own is out of date, as Prometheus has it."""

_WHOLE: Final = ("histogram", "gaugehistogram")
"""Types that the parser of OpenMetrics wants to see with all of their lines."""


class Sample(NamedTuple):
    """One value of a page.

    Attributes:
        name: as the page spells it.
        family: the name that TYPE, HELP and UNIT are about.
        type: counter, gauge, histogram, summary, info, stateset, gaugehistogram, unknown or untyped.
        help: what it is.
        unit: in Prometheus's words: seconds, bytes.
        labels: those that have a value.
        value: a finite number.
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
    """What was found on a page.

    Attributes:
        samples: those that are wanted.
        broken: families that are not in the format; what is wrong with the first of them.
        beyond: lines that were not looked at, because there are too many of them or they are too long.
        old: samples that are out of date.
    """

    samples: list[Sample] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    beyond: int = 0
    old: int = 0


class _Block:
    """The lines of one family."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.type = ""
        self.head: list[str] = []
        self.lines: list[str] = []
        self.wanted = False

    def text(self) -> str:
        return "\n".join([*self.head, *self.lines, ""])


class Parser:
    """Takes pages apart.

    Raises:
        ImportError: prometheus_client is not installed.
    """

    def __init__(self, filters: Filters) -> None:
        from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
        from prometheus_client.parser import text_string_to_metric_families as prometheus

        self._filters = filters
        self._parsers: dict[bool, Any] = {True: openmetrics, False: prometheus}

    def parse(self, kind: str, body: bytes, now: float) -> Page:
        """The samples of a page.

        Args:
            kind: its Content-Type.
            body: its bytes.
            now: Unix seconds; samples with a much older time of their own are left out.

        Raises:
            ValueError: it is no such page, or not all of it.
        """
        strict = kind.partition(";")[0].strip().lower() == "application/openmetrics-text"
        if kind.lower().startswith(("text/html", "application/json", "application/vnd.google.protobuf")):
            raise ValueError(f"it has a page of another kind ({kind[:60]})")
        text = body.decode()
        if strict and not text.rstrip("\n").endswith("# EOF"):
            raise ValueError("its page ends without # EOF")
        page = Page()
        blocks = [block for block in self._blocks(text, strict, page) if block.wanted]
        spelled = {block.name for block in blocks}
        for family in self._families(blocks, strict, page):
            page.samples += self._samples(family, strict, spelled, now, page)
        return page

    def _blocks(self, text: str, strict: bool, page: Page) -> Iterator[_Block]:
        """The families, without the lines that are not wanted."""
        named, may_want = self._filters.named, self._filters.may_want
        block, left = _Block(), _LINES
        for line in text.split("\n"):
            if line[:1] == "#":
                meta = _META.match(line)
                if meta is not None:
                    name = _unquoted(meta[2])
                    if name != block.name:
                        yield block
                        block = _Block(name)
                    block.head.append(line)
                    if meta[1] == "TYPE":
                        block.type = meta[3].strip()
                continue
            match = _NAME.match(line)
            if match is None:
                if line.strip():
                    page.broken.append("a line without a name")
                continue
            name = match[1] or _unescaped(match[2])
            verdict = named(name)
            whole = block.type in _WHOLE and name.startswith(block.name)
            if not verdict and not (strict and whole):
                continue
            if whole and not strict and name.endswith("_bucket"):
                continue
            if left <= 0 or len(line) > _LONG:
                page.beyond += 1
                continue
            if not name.startswith(block.name):
                yield block
                block = _Block()
            wanted = bool(verdict) and (verdict == ((),) or may_want(name, line))
            if wanted or (strict and whole):
                left -= 1
                block.lines.append(line)
                block.wanted = block.wanted or wanted
        yield block

    def _families(self, blocks: Iterable[_Block], strict: bool, page: Page) -> Iterator[Any]:
        """What the parser makes of all blocks; of one after the other, where something is wrong with any."""
        parse, end = self._parsers[strict], "# EOF\n" if strict else ""
        try:
            yield from list(parse("".join(block.text() for block in blocks) + end))
        except (ValueError, TypeError, IndexError, KeyError, AttributeError):
            for block in blocks:
                try:
                    yield from list(parse(block.text() + end))
                except (ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
                    page.broken.append(f"{block.name or 'a family'}: {error}"[:200])

    def _samples(self, family: Any, strict: bool, spelled: set[str], now: float, page: Page) -> Iterator[Sample]:
        for name, labels, value, timestamp, *_ in family.samples:
            if not strict and family.type == "counter" and name not in spelled:
                name = name.removesuffix("_total")  # noqa: PLW2901 - the parser adds it where the page has none
            if not isinstance(value, (int, float)) or not isfinite(value) or not self._filters.want(name, labels):
                continue
            if timestamp is not None and now - float(timestamp) > _OLD:
                page.old += 1
                continue
            known = {label: text for label, text in labels.items() if text}
            yield Sample(name, family.name, family.type, family.documentation, family.unit, known, float(value))


def _unquoted(name: str) -> str:
    return _unescaped(name[1:-1]) if name.startswith('"') else name


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda each: "\n" if each[1] == "n" else each[1], text) if "\\" in text else text
