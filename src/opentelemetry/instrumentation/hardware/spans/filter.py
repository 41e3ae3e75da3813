"""SpanFilter: which spans get attributes."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from opentelemetry.sdk.trace import Span

from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.settings.log import logger
from opentelemetry.instrumentation.hardware.settings.parsing import SPAN_FIELDS
from opentelemetry.instrumentation.hardware.spans.demand import INTERVAL

_LOG = logger(__name__)

_MOST_NAMES: Final = 1000  # names of spans for which the decision is kept

_TRIED: Final = 1000  # spans without a match after which a warning says that the filter matches nothing


class SpanFilter:
    """Which spans get attributes: those that the setting ``SPANS_FILTER`` selects and that are long enough.

    A root is always long enough, unless ``SPANS_MIN_DURATION`` is set: it is what people look at first.

    Args:
        config: The settings ``SPANS_MIN_DURATION`` and ``SPANS_FILTER``.

    Attributes:
        accepts_all: Whether there is no filter: then :meth:`accepts` need not be called.
        shortest: Nanoseconds of the shortest span that gets attributes.
        shortest_root: Those of the shortest root.
    """

    def __init__(self, config: Config) -> None:
        self.shortest_root = int(1e9 * (config.spans_min_duration or 0.0))
        self.shortest = max(self.shortest_root, int(1e9 * INTERVAL))
        self._setting = config.name_of("spans_filter")
        self._rules: list[tuple[int, str, bool]] = []  # a field, a pattern, and whether matching spans are left out
        for word in config.spans_filter or ():
            field, _, pattern = word.removeprefix("-").partition(":")
            self._rules.append((SPAN_FIELDS.index(field), pattern, word.startswith("-")))
        self.accepts_all = not self._rules
        self._only_excludes = all(is_excluded for _, _, is_excluded in self._rules)
        self._decide = lru_cache(_MOST_NAMES)(self._is_accepted)
        self._refused = 0

    def accepts(self, span: Span) -> bool:
        """Whether a span matches one of the words, or none of those that begin with "-"."""
        scope = span.instrumentation_scope
        is_accepted = self._decide(span.name, span.kind.name.lower(), scope.name if scope else "")
        if self._refused >= 0:
            self._refused = -1 if is_accepted else self._refused + 1
            if self._refused == _TRIED:
                self._refused = -1
                _LOG.warning("%s has matched none of the first %s spans", self._setting, _TRIED)
        return is_accepted

    def _is_accepted(self, *fields: str) -> bool:
        matching = {is_excluded for field, pattern, is_excluded in self._rules if fnmatchcase(fields[field], pattern)}
        return True not in matching and (False in matching or self._only_excludes)
