"""Which series of an endpoint are wanted: W&B's filters, in both of their forms, with one meaning.

A filter is a regular expression that is looked for anywhere in ``endpoint.name``; ``^`` and ``$`` tie it down. The name
is that of the sample, as the page spells it (``…_total``, ``…_count``). The other form says of labels, too, what has to
be found in their values; a series without one of them is not wanted by that filter. One filter that wants a series is
enough; where there are no filters, all are wanted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeAlias

from opentelemetry.instrumentation.hardware.endpoints import Words

Label: TypeAlias = "tuple[str, re.Pattern[str], re.Pattern[str]]"
"""A label, what is looked for in its value, and how the two stand in a line of a page."""

_MOST: Final = 20_000
"""Names whose verdict is remembered."""


class Filters:
    """The filters of an endpoint.

    Args:
        endpoint: its name.
        words: the filters; None: all is wanted.
    """

    def __init__(self, endpoint: str, words: Words | None) -> None:
        pairs = words if isinstance(words, dict) else {word: {} for word in words or [""]}
        self._filters = [
            (re.compile(name), tuple(_label(label, value) for label, value in labels.items()))
            for name, labels in pairs.items()
        ]
        self._endpoint = endpoint
        self._verdicts: dict[str, tuple[tuple[Label, ...], ...]] = {}

    def named(self, name: str) -> tuple[tuple[Label, ...], ...]:
        """What the filters that like a name want of the labels; nothing where none likes it."""
        verdict = self._verdicts.get(name)
        if verdict is None:
            if len(self._verdicts) >= _MOST:
                self._verdicts.clear()
            path = f"{self._endpoint}.{name}"
            verdict = tuple(labels for pattern, labels in self._filters if pattern.search(path))
            self._verdicts[name] = ((),) if () in verdict else verdict
        return self._verdicts[name]

    def may_want(self, name: str, line: str) -> bool:
        """Whether the series of a line may be wanted: what is cheap to tell without parsing it."""
        return any(all(_found(each, line) for each in labels) for labels in self.named(name))

    def want(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a series is wanted."""
        return any(
            all(label in labels and value.search(labels[label]) for label, value, _ in each)
            for each in self.named(name)
        )


def _label(label: str, value: str) -> Label:
    spelled = re.compile(rf'[{{,]\s*"?{re.escape(label)}"?\s*=\s*"((?:[^"\\]|\\.)*)"')
    return label, re.compile(value), spelled


def _found(label: Label, line: str) -> bool:
    _, value, spelled = label
    match = spelled.search(line)
    return match is not None and ("\\" in match[1] or value.search(match[1]) is not None)
