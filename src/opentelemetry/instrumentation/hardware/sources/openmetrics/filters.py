"""Filters of series, in two forms.

A filter is a regular expression that is searched in ``endpoint.name``, where the name is the one on the page
(``…_total``, ``…_count``). In the second form it also has an expression for each of some labels, searched in the value
of the label; a series without the label does not match. A series is reported if any filter matches, or if there are no
filters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, TypeAlias

from opentelemetry.instrumentation.hardware.settings.endpoints import Words

# A label, the expression for its value, and an expression that finds the value in a line of a page.
Label: TypeAlias = "tuple[str, re.Pattern[str], re.Pattern[str]]"

_MAX_CACHED: Final = 20_000  # maximum number of names with a cached result
_LONGEST_CACHED: Final = 200  # and their maximum length


class Filters:
    """The filters of an endpoint.

    Args:
        words: The filters; None to match everything.

    Attributes:
        match_all: Whether everything matches.
    """

    def __init__(self, endpoint: str, words: Words | None) -> None:
        self.match_all = not words
        pairs = words if isinstance(words, dict) else {word: {} for word in words or [""]}
        self._filters = [
            (re.compile(name), tuple(_label(label, value) for label, value in labels.items()))
            for name, labels in pairs.items()
        ]
        self._endpoint = endpoint
        self._cached = lru_cache(_MAX_CACHED)(self._matching)

    def matching(self, name: str) -> tuple[tuple[Label, ...], ...]:
        """Return the label conditions of each filter that matches a name; empty if no filter does."""
        return self._cached(name) if len(name) <= _LONGEST_CACHED else self._matching(name)

    def _matching(self, name: str) -> tuple[tuple[Label, ...], ...]:
        path = f"{self._endpoint}.{name}"
        conditions = tuple(labels for pattern, labels in self._filters if pattern.search(path))
        return ((),) if () in conditions else conditions

    def may_match(self, name: str, line: str) -> bool:
        """Whether the series of a line may match. This is cheaper than parsing the line."""
        return any(all(_occurs(label, line) for label in labels) for labels in self.matching(name))

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        return any(
            all(label in labels and value.search(labels[label]) for label, value, _ in conditions)
            for conditions in self.matching(name)
        )


def _label(label: str, value: str) -> Label:
    in_line = re.compile(rf'[{{,]\s*"?{re.escape(label)}"?\s*=\s*"((?:[^"\\]|\\.)*)"')
    return label, re.compile(value), in_line


def _occurs(label: Label, line: str) -> bool:
    _, value, in_line = label
    match = in_line.search(line)
    return match is not None and ("\\" in match[1] or value.search(match[1]) is not None)
