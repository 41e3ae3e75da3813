"""Rows of the table of settings, and parsers of their values, from text or from an equivalent Python object.

Each parser has a ``form``: a phrase that describes accepted values, used in warnings and in the documentation.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, Final, TypeAlias

from opentelemetry.instrumentation.hardware.settings.endpoints import EndpointConfigError, Endpoints, Words
from opentelemetry.instrumentation.hardware.settings.redaction import redacted

Word: TypeAlias = "Callable[[str], str | None]"  # returns the normalized word, or None if the word is invalid

SPAN_FIELDS: Final = ("name", "kind", "scope")  # what the words of ``SPANS_FILTER`` refer to

_SHOWN: Final = 500  # characters of begin and end of a message about a long value

_ADDRESS: Final = re.compile(r"[^\s:/]+:[0-9]{1,5}|\[[0-9a-fA-F:.]+\]:[0-9]{1,5}|(unix:)?/\S+")


class InvalidValueError(ValueError):
    """A setting does not accept a value. The message names the value and what is accepted.

    Attributes:
        valid: The other words, endpoints or filters, if only some are invalid.
    """

    def __init__(self, message: str, valid: Sequence[str] | Endpoints | Words = ()) -> None:
        text = redacted(message)
        super().__init__(text if len(text) <= 2 * _SHOWN else f"{text[:_SHOWN]} ... {text[-_SHOWN:]}")
        self.valid = valid


class Parser:
    """The parser of one setting.

    Args:
        form: Accepted values, as a phrase that can follow "is not".
        parse: Returns the value of the setting; a ValueError or TypeError means that the given value is invalid.
        secret: Whether messages must not show the value.
    """

    def __init__(self, form: str, parse: Callable[[object], Any], secret: bool = False) -> None:
        self.form = form
        self._secret = secret
        self._parse = parse

    def __call__(self, value: object) -> Any:
        """Parse a value.

        Raises:
            InvalidValueError: The value is invalid.
        """
        try:
            return self._parse(value)
        except InvalidValueError:
            raise
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            if isinstance(error, EndpointConfigError) and error.valid:
                raise InvalidValueError(str(error), error.valid) from None
            shown = "the value" if self._secret else repr(value)
            why = f" ({error})" if isinstance(error, EndpointConfigError) else ""  # never contains a secret
            raise InvalidValueError(f"{shown} is not {self.form}{why}") from None


def setting(parser: Parser, default: str, help: str) -> Any:  # noqa: A002
    """Return a setting, which becomes a field of ``Config``. Default and text are those of the documentation."""
    return field(default=None, metadata={"read": parser, "form": parser.form, "default": default, "help": help})


def number(form: str, least: float, most: float) -> Parser:
    """Return a parser of numbers within bounds."""

    def parse(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise TypeError
        parsed = float(value)
        if not (math.isfinite(parsed) and least <= parsed <= most):
            raise ValueError
        return parsed

    return Parser(form, parse)


def choice(*options: str) -> Parser:
    """Return a parser of one of a few words, in upper or lower case. True and False, also as words, are on and off."""

    def parse(value: object) -> str:
        word = (str(value) if isinstance(value, bool) else _text(value)).lower()
        word = {"true": "on", "false": "off"}.get(word, word)
        if word not in options:
            raise ValueError
        return word

    return Parser(" or ".join(filter(None, (", ".join(options[:-1]), options[-1]))), parse)


def place(what: str, word: Word) -> Parser:
    """Return a parser of ``auto``, ``off`` or other values, which are described by a phrase and checked as a word."""

    def parse(value: object) -> str:
        text = _text(value)
        result = text.lower() if text.lower() in ("auto", "off") else word(text)
        if result is None:
            raise ValueError
        return result

    return Parser(f"auto, off or {what}", parse)


def path(what: str) -> Parser:
    """Return a parser of the absolute path of a file or folder, ``auto`` or ``off``."""
    return place(f"the absolute path of {what}", absolute_path)


def words(what: str, word: Word = str, alone: Sequence[str] = ()) -> Parser:
    """Return a parser of a list of words, or of text with commas between them.

    Args:
        what: The words, as a phrase that can follow "a comma-separated list of".
        word: Checks and normalizes one word.
        alone: Words that are valid only as the whole value, which must not be empty.
    """
    form = f"{', '.join(alone)} or " * bool(alone) + f"a comma-separated list of {what}"

    def parse(value: object) -> list[str]:
        if not isinstance(value, (str, list, tuple, set, frozenset)):
            raise TypeError
        given = [text for each in (value.split(",") if isinstance(value, str) else value) if (text := _text(each))]
        if any(each.lower() in alone for each in given):
            (single,) = given
            return [single.lower()]
        parsed = {each: word(each) for each in given}
        invalid = [repr(each) for each, result in parsed.items() if result is None]
        valid = [result for result in parsed.values() if result is not None]
        if (invalid or alone) and not valid:
            raise ValueError
        if invalid:
            raise InvalidValueError(f"{', '.join(invalid)} is invalid, expected {form}", valid)
        return valid

    return Parser(form, parse)


def absolute_path(word: str) -> str | None:
    """Return the word if it is an absolute path, else None."""
    return word if os.path.isabs(word) else None


def address(word: str) -> str | None:
    """Return the word if it is an address of a service, else None. A port alone stands for that port of localhost."""
    word = f"localhost:{word}" if word.isdigit() else word
    return word if _ADDRESS.fullmatch(word) else None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value.strip()


def span_rule(word: str) -> str | None:
    """Return a word of ``SPANS_FILTER``; None if it is not ``name:PATTERN``, ``kind:PATTERN`` or ``scope:PATTERN``."""
    field, separator, pattern = word.removeprefix("-").partition(":")
    return word if separator and pattern and field in SPAN_FIELDS else None


def simulation(value: object) -> object:
    """Return what to simulate, a :class:`.simulator.machine.Spec`."""
    from opentelemetry.instrumentation.hardware.simulator.machine import Spec  # rarely needed

    if isinstance(value, Spec):
        return value
    text = _text(value)
    try:
        return Spec.parse(text)
    except ValueError as error:
        if str(error):
            raise InvalidValueError(str(error)) from None
        raise
