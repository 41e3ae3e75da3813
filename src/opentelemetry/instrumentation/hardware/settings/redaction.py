"""Texts for people, in messages, logs and tables: without secrets, and without what a terminal would obey."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

_SHAPES: Final = (
    (re.compile(r"([A-Za-z][\w+.-]{0,30}://)(?:(?!://)\S)*@"), r"\1"),  # the user and password of a URL
    (re.compile(r"([A-Za-z][\w+.-]{0,30}://)[^\s/:@]*:(?!\d)[^/@\n]{0,1000}@"), r"\1"),  # with a blank in the password
    # Of an address without a scheme; a number after "@" is the seed of a simulation, and no host.
    (re.compile(r"(?<![\w/])[^\s,'\"=(/:]+:[^\s/]{0,1000}@(?!\d+(?![\w.:@]))"), ""),
    (re.compile(r"(://(?:(?!://)[^\s?#])*)[?#](?:\S*[^\s'\":;,.)\]}])?"), r"\1"),  # the query of a URL
    (re.compile(r"(?<=[\w/])\?[^\s'\"]*=[^\s'\"]*"), ""),  # of a path
)

# Characters of the shortest header value that is searched for. Shorter ones would be found in any text.
_SHORTEST: Final = 4


def redacted(text: str) -> str:
    """Return a text without user info and queries of URLs, and without the headers of the exporters' variables.

    It is :func:`printable`.
    """
    for shape, rest in _SHAPES:
        text = shape.sub(rest, text)
    for secret in _header_values():
        text = text.replace(secret, "***")
    return printable(text)


def printable(text: str) -> str:
    """Return a text with escapes in place of control characters, line feeds and marks of direction.

    Endpoints, tools and names of processes may have any characters. A terminal obeys some, and a line feed in a log is
    the begin of another message.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def did_you_mean(word: str, known: Iterable[str], otherwise: str, before: str = "") -> str:
    """Return a question about a misspelt word; another text if no known one is similar.

    A word that continues a known one, as ``SPANS_ENABLED`` does, means that one, not ``SPANS_SHARES``. What precedes
    the words for the user, such as the prefix of variables, is ``before``.
    """
    from difflib import get_close_matches  # rarely needed, and its import takes a millisecond

    names = {name.lower(): name for name in known}
    word = word.lower()
    similar = get_close_matches(word, names, 1)
    for base in [name for name in names if word.startswith(f"{name}_")]:
        if not similar or not similar[0].startswith(word[: len(base) + 2]):
            similar = [base]
    return f"did you mean {before}{names[similar[0]]}?" if similar else otherwise


def _header_values() -> list[str]:
    """The values of headers in ``OTEL_EXPORTER_*HEADERS``, as given and decoded, the longest first."""
    given = [value for name, value in os.environ.items() if name.startswith("OTEL_EXPORTER") and "HEADERS" in name]
    words = [word.partition("=")[2].strip() or word.strip() for value in given for word in value.split(",")]
    forms = {form for word in words for form in (word, unquote(word))}
    forms |= {form.partition(" ")[2] for form in forms}  # what follows the scheme, as in "Bearer x"
    found = {form for form in forms if len(form) >= _SHORTEST}
    return sorted(found, key=len, reverse=True)
