"""Mask: replaces what identifies a machine, its owner or its users in a recording.

The same text has the same substitute within a recording, so that it replays as it was recorded. The substitutes of two
recordings differ.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from getpass import getuser
from typing import Final

_BYTE: Final = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_GROUP: Final = r"[0-9a-fA-F]{1,4}"

# What is private, by what it is called in a message. What has the name ``kept`` stays.
_PATTERNS: Final[Mapping[str, re.Pattern[str]]] = {
    "command lines": re.compile(r"(?<=<process_name>)(?P<kept>[^<\s]*)\s[^<]*"),
    "serial numbers": re.compile(
        r"(?P<kept>\b(?:\w*serial(?:[ _-]?(?:number|no))?|asset[ _-]?tag)\"?\s*[:=>]\s*\"?)[\w.-]*\w", re.IGNORECASE
    ),
    "UUIDs": re.compile(r"\b[0-9a-fA-F]{8}(?:[-_][0-9a-fA-F]{4}){3}[-_][0-9a-fA-F]{12}\b"),
    "ids": re.compile(r"\b(?:[0-9a-f]{64}|[0-9a-f]{32})\b"),
    "MAC addresses": re.compile(r"\b(?!(?:00:){5}00|(?:ff:){5}ff)(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}\b"),
    "sockets": re.compile(r"\b(?:[0-9A-F]{8}){1,4}:[0-9A-F]{4}\b"),
    "routes": re.compile(r"(?<=\t)(?!0{8})[0-9A-F]{8}(?=\t)"),
    "IP addresses": re.compile(
        rf"(?<![\w.])(?!127\.|0\.0\.0\.0)(?:{_BYTE}\.){{3}}{_BYTE}(?![\w.])"
        rf"|(?<![\w:])(?:(?:{_GROUP}:){{7}}{_GROUP}|(?:{_GROUP}:)+(?::{_GROUP})+)(?![\w:])"
    ),
    "home folders": re.compile(r"(?P<kept>/(?:home|Users)/)[^/\s\"'\\]+"),
    "servers": re.compile(r"(?<= )[\w.-]*[a-zA-Z][\w.-]*(?=:/)"),
}

_SERIAL: Final = re.compile(r"serial|asset_tag", re.IGNORECASE)


class Mask:
    """Masks text. It replaces further words by x, and the names of the host and the user, by default of this machine.

    Attributes:
        found: How many different texts were replaced, by what they are.
    """

    def __init__(self, words: Iterable[str] = (), names: Mapping[str, Iterable[str]] | None = None) -> None:
        self._salt = secrets.token_bytes(16)
        self._known: dict[tuple[str, str], str] = {}
        self.found: Counter[str] = Counter()
        names = _names() if names is None else names
        self._patterns = {
            **{
                name: re.compile(rf"(?<![\w.-]){_any(each)}(?![\w-])", re.IGNORECASE)
                for name, each in names.items()
                if each
            },
            **_PATTERNS,
        }
        words = [*words]
        self._words = re.compile(rf"(?<!\w){_any(words)}(?!\w)") if words else None

    def __call__(self, text: str) -> str:
        """Return a text without what is private."""
        if self._words is not None:
            text = self._words.sub(lambda found: "x" * len(found[0]), text)
        for name, pattern in self._patterns.items():
            text = pattern.sub(self._replaced(name), text)
        return text

    def answer(self, arguments: Iterable[object], content: object) -> object:
        """Return the answer to a call: a serial number if the call asks for one, the program of a command line."""
        last = str([*arguments][-1:])
        if isinstance(content, dict):
            return {name: self.answer(arguments, each) for name, each in content.items()}
        if not isinstance(content, str):
            return content
        if _SERIAL.search(last) and content.strip():
            return self._substitute("serial numbers", content)
        if last.endswith("/cmdline']"):
            return content.partition("\0")[0]
        return content

    def _replaced(self, name: str) -> Callable[[re.Match[str]], str]:
        def replace(found: re.Match[str]) -> str:
            kept = found.groupdict().get("kept") or ""
            return kept + self._substitute(name, found[0][len(kept) :])

        return replace

    def _substitute(self, name: str, text: str) -> str:
        """Return another text of the same form."""
        if (name, text) not in self._known:
            self.found[name] += 1
            self._known[name, text] = self._made(name, text)
        return self._known[name, text]

    def _made(self, name: str, text: str) -> str:
        number = self.found[name]
        if name == "IP addresses":
            return f"2001:db8::{number:x}" if ":" in text else f"192.0.2.{number % 256}"
        if name == "command lines":
            return ""
        digits = iter(hashlib.sha256(self._salt + text.encode()).hexdigest() * (1 + len(text) // 64))
        if name in ("UUIDs", "ids", "MAC addresses", "sockets", "routes"):
            made = re.sub(r"[0-9a-fA-F]", lambda _: next(digits), text)
            return made.upper() if text.isupper() else made
        return f"{name.rstrip('s').replace(' ', '-')}-{number}"


def _names() -> dict[str, list[str]]:
    """Return the names of this host and of the user."""
    host = socket.gethostname()
    users = [os.environ.get(each, "") for each in ("USER", "LOGNAME", "SUDO_USER")]
    with suppress(Exception):
        users.append(getuser())
    common = ("", "root", "user", "host", "localhost")  # words that say nothing, and that files of the kernel have
    return {
        "host names": [each for each in {host, host.partition(".")[0]} if each not in common and len(each) > 2],
        "user names": [each for each in {*users} if each not in common],
    }


def _any(words: Iterable[str]) -> str:
    return "(?:" + "|".join(re.escape(each) for each in sorted(words, key=len, reverse=True)) + ")"
