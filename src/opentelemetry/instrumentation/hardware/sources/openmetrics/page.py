"""Parse a scraped page with ``prometheus_client``.

Buckets, quantiles, creation times and lines that no filter matches are dropped before parsing. For an invalid line,
only its metric family is dropped.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, NamedTuple, TypeVar

from opentelemetry.instrumentation.hardware.sources.openmetrics.filters import Filters

T = TypeVar("T")

ACCEPT: Final = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.7,"
    "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.4,*/*;q=0.1"
)

_META = re.compile(r'#[ \t]+(HELP|TYPE|UNIT)[ \t]+("(?:[^"\\]|\\.)*"|\S+)[ \t]*(.*)')
_NAME = re.compile(
    r"\s*(?:([a-zA-Z_:][a-zA-Z0-9_:]{0,999})(?=\s*\{|\s[^{]*(?:#|$))"  # the parser takes all before a brace
    r'|\{\s*"((?:[^"\\]|\\.){0,1000})")'
)

# A sample that an exemplar follows. Clients put exemplars where the parser does not allow them.
_BEFORE_EXEMPLAR = re.compile(r'([^\s{]*(?=[\s{])(?:\s*\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\})?[^#"]*?)\s# \{')

# Content types of documents that are not pages, and of some exporters' pages.
_OTHER_TYPES: Final = ("text/html", "application/json")

# Maximum number of lines of a page that are parsed, and of metric families: several times as many as there may be
# series.
_MAX_LINES: Final = 5_000

_MAX_LENGTH: Final = 1 << 12  # maximum characters of a line

_MAX_AGE: Final = 300.0  # seconds after which a sample with a timestamp of its own is stale, as in Prometheus

# Limit of values. A larger one, such as DBL_MAX, stands for a value that is not known.
_MAX_VALUE: Final = 1e100

# For each type, the suffixes that its samples have after the name of the family, and whether such lines are parsed.
_SUFFIXES: Final[Mapping[str, Mapping[str, bool]]] = {
    "counter": {"_total": True, "_created": False},
    "summary": {"": False, "_count": True, "_sum": True, "_created": False},
    "histogram": {"": False, "_bucket": False, "_count": True, "_sum": True, "_created": False},
    "gaugehistogram": {"_bucket": True, "_gcount": True, "_gsum": True},  # the parser needs the buckets
    "info": {"_info": True},
}

# Seconds for which the interpreter lock is released after this number of lines: a long page delays no other thread.
_PAUSE: Final = 1e-4
_LINES_PER_PAUSE: Final = 20

# Errors that invalid lines cause.
_INVALID: Final = (ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError)


class Sample(NamedTuple):
    """One value of a page.

    Attributes:
        name: The name on the page.
        type: Counter, gauge, summary (a histogram as well), info, stateset, gaugehistogram, unknown or untyped.
        help: The description of the family.
        unit: The unit on the page, such as seconds or bytes.
        labels: Labels with a value.
        value: A finite number.
    """

    name: str
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


class _Family:
    """The lines of one metric family, which need not be together on the page."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.type = self.unit = ""
        self.head: dict[str, str] = {}
        self.lines: list[str] = []

    def add_meta(self, keyword: str, name: str, text: str) -> None:
        """Add a HELP, TYPE or UNIT line. A second one is ignored."""
        if keyword in self.head:
            return
        if keyword == "UNIT":
            self.unit = text.strip()
        if keyword == "TYPE":
            self.type = text.strip()
            if self.type == "histogram":  # without buckets, which the parser would miss
                text = "summary"
        self.head[keyword] = f"# {keyword} {name} {text}"

    def each(self) -> Iterator[str]:
        return (f"{line}\n" for line in chain(self.head.values(), self.lines))


def _family_of(name: str, families: Mapping[str, _Family]) -> tuple[_Family | None, bool]:
    """Return the family of a sample, if there is one already, and whether samples of this name are parsed."""
    family, suffix = families.get(name), ""
    if family is None:
        before, _, last = name.rpartition("_")
        family, suffix = families.get(before), f"_{last}"
        if family is None or suffix not in _SUFFIXES.get(family.type, ()):
            return None, True
    return family, _SUFFIXES.get(family.type, {}).get(suffix, True)


def paced(each: Iterable[T], count: int = _LINES_PER_PAUSE) -> Iterator[T]:
    """Yield the same, and release the interpreter lock each time after some."""
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

    def parse(self, kind: str, body: bytes, now: float, complete: bool = False) -> Page:
        """Parse a page.

        Args:
            kind: The Content-Type of the page.
            body: The page.
            now: Unix seconds, to recognize stale samples.
            complete: Whether the page has the length, or the last chunk, that the server gave. Else it may be cut off.

        Raises:
            ValueError: The body is not a page of metrics, or is truncated.
        """
        media = kind.partition(";")[0].strip().lower()
        strict = media == "application/openmetrics-text"
        is_other = media in _OTHER_TYPES and not body.lstrip().startswith(b"#")
        if is_other or media == "application/vnd.google.protobuf":
            raise ValueError(f"unsupported Content-Type: {kind[:60]!r}")
        text = body.decode().removeprefix("\ufeff")  # servers on Windows write a byte order mark, and \r before each \n
        if strict and not f"\n{text}".rstrip("\r\n").endswith("\n# EOF"):
            raise ValueError("the page is cut off: it does not end with # EOF")
        if text and not strict and not complete and not text.endswith("\n"):
            raise ValueError("the page is cut off: it does not end with a line feed")
        page = Page()
        families = self._families(text, strict, page)
        for family in paced(families):
            page.samples += self._valid(family, strict, now, page)
        is_known = page.samples or not self._filters.match_all or any(family.head for family in families)
        if page.invalid and not is_known:
            raise ValueError("the page has no metrics")
        return page

    def _valid(self, family: _Family, openmetrics: bool, now: float, page: Page) -> list[Sample]:
        """Return the samples of a family. What only OpenMetrics forbids, such as a counter of NaN, is no error."""
        stale = page.stale
        for strict in dict.fromkeys((openmetrics, False)):
            page.stale = stale
            try:
                return list(self._samples(family, openmetrics, strict, now, page))
            except _INVALID as error:
                reason = f"{family.name or 'a family'}: {error}"
        page.invalid.append(reason[:200])
        return []

    def _families(self, text: str, strict: bool, page: Page) -> Iterable[_Family]:
        """Return the metric families with the lines that may match a filter.

        In OpenMetrics, a gauge and a counter may have the same name, as in each page of a Go program.
        """
        matching, may_match = self._filters.matching, self._filters.may_match
        families: dict[str, _Family] = {}
        left = _MAX_LINES
        for start, line in paced(_lines(text), 2 * _LINES_PER_PAUSE):
            meta = _META.match(line) if line[:1] == "#" else None
            if meta is not None:
                name = _unescaped(meta[2][1:-1]) if meta[2].startswith('"') else meta[2]
                family = _kept(name, families)
                if strict and family is not None and meta[1] in family.head:
                    family = _kept(f"{name}_total", families, name)
                if family is not None:
                    family.add_meta(*meta.groups())
            if line[:1] == "#":
                continue
            match = _NAME.match(line)
            if match is None:
                if words := line.strip()[:60].split():  # without labels and value, which change
                    page.invalid.append(f"{words[0].partition('{')[0]!r} is not a valid line")
                continue
            name = match[1] or _unescaped(match[2])
            family, is_parsed = _family_of(name, families)
            needs_all = family is not None and family.type == "gaugehistogram"
            if not is_parsed or not (matching(name) or needs_all):
                continue
            if left <= 0 and self._filters.match_all:
                before = start - 1  # the line feed
                page.beyond += text.count("\n", start) - text.count("\n#", before) - text.count("\n\n", before)
                break
            family = family or _kept(name, families)
            if family is None or left <= 0 or len(line) > _MAX_LENGTH:
                page.beyond += 1
            elif needs_all or may_match(name, line):
                left -= 1
                exemplar = _BEFORE_EXEMPLAR.match(line) if " # {" in line else None
                line = exemplar[1] if exemplar else line  # noqa: PLW2901
                family.lines.append(line)
        return families.values()

    def _samples(self, family: _Family, openmetrics: bool, strict: bool, now: float, page: Page) -> Iterator[Sample]:
        """Parse the lines of a family, and yield its samples that match the filters and have a plausible value."""
        if not family.lines:
            return
        end = ["# EOF\n"] if strict else []
        for each in self._parsers[strict](paced(chain(family.each(), end))):
            # That of OpenMetrics also where the other parser knows only the name of a sample: x_total, x_bucket.
            kind = each.type if strict or family.type not in ("counter", "gaugehistogram") else family.type
            least = 0 if kind in ("counter", "summary") else -_MAX_VALUE
            for name, labels, value, timestamp, *_ in paced(each.samples):
                if not strict and each.type == "counter":
                    name = family.name  # noqa: PLW2901 - the parser adds _total where the page has none
                if not isinstance(value, (int, float)) or not least <= value < _MAX_VALUE:
                    continue
                if kind == "gaugehistogram" and name.endswith("_bucket"):
                    continue
                if not self._filters.matches(name, labels):
                    continue
                unit = 1000 if openmetrics and not strict else 1  # that parser takes milliseconds
                if timestamp is not None and now - float(timestamp) * unit > _MAX_AGE:
                    page.stale += 1
                    continue
                known = {label: text for label, text in labels.items() if text}
                yield Sample(name, kind, each.documentation, family.unit, known, float(value))


def _kept(key: str, families: dict[str, _Family], name: str = "") -> _Family | None:
    """Return the family with this key, which is by default its name. It is added if there are not too many."""
    if key not in families and len(families) < _MAX_LINES:
        families[key] = _Family(name or key)
    return families.get(key)


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda each: "\n" if each[1] == "n" else each[1], text) if "\\" in text else text
