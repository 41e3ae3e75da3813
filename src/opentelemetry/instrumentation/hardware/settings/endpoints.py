"""The OpenMetrics endpoints of the settings ``OPENMETRICS`` and ``OPENMETRICS_FILTERS``.

Error messages contain no secrets: no headers, and only the scheme, host and path of a URL.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from opentelemetry.instrumentation.hardware.settings.redaction import redacted

# Maximum series of all endpoints together, below the SDK's cardinality limit of 2000 per instrument.
TOTAL: Final = 1500

SHARE: Final = 1000  # maximum of the default of ``max_series``

# Filters in W&B's two forms: regular expressions, or a mapping of each to {label: expression}.
Words: TypeAlias = list[str] | dict[str, dict[str, str]]


class EndpointConfigError(ValueError):
    """An invalid endpoint or filter. The message contains no secret.

    Attributes:
        valid: The other endpoints or filters, if only some are invalid.
    """

    def __init__(self, message: str, valid: Endpoints | Words | None = None) -> None:
        super().__init__(redacted(message))
        self.valid = valid


@dataclass(frozen=True)
class Endpoint:
    """One endpoint.

    Attributes:
        name: Value of the attribute ``openmetrics.endpoint``.
        url: HTTP or HTTPS.
        filters: Series to report; None for ``OPENMETRICS_FILTERS``.
        headers: Further HTTP headers.
        bearer_token_file: File with a token, read for each scrape.
        ca_file: Certificate authorities instead of the system's.
        cert_file: Client certificate.
        key_file: Key of the client certificate, if it is not in the same file.
        interval: Minimum seconds between two scrapes; 0 to scrape for each collection.
        timeout: Deadline of a scrape in seconds.
        max_bytes: Maximum size of the uncompressed page.
        max_series: Maximum number of different series over the life of the process.
    """

    name: str
    url: str = field(repr=False)  # the query may be secret
    filters: Words | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    bearer_token_file: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    interval: float = 0.0
    timeout: float = 5.0
    max_bytes: int = 10 << 20
    max_series: int = 0

    @property
    def shown(self) -> str:
        """The URL without a query, which may be secret."""
        return redacted(self.url)


class Endpoints(dict[str, Any]):
    """The endpoints by name, without what may be secret. :attr:`each` has the complete endpoints."""

    def __init__(self, each: Sequence[Endpoint]) -> None:
        shown = {one.name: {"url": one.shown} | ({"filters": one.filters} if one.filters else {}) for one in each}
        super().__init__(shown)
        self.each = tuple(each)

    def __str__(self) -> str:
        return ",".join(f"{one.name}={one.shown}" for one in self.each)


def endpoints(value: object) -> Endpoints:
    """Parse ``name=url`` pairs, the path of a file, or a mapping as in such a file.

    Raises:
        EndpointConfigError: The value is invalid, or some of its endpoints or filters are.
    """
    if isinstance(value, Endpoints):
        return value
    if isinstance(value, str):
        if re.match(r"\s*https?://", value):
            raise EndpointConfigError(f"a URL needs a name before it, such as app={redacted(value.strip())}")
        value = _pairs(value.split(",")) if "=" in value else _file(value.strip())
    elif isinstance(value, (list, tuple)) and _are_texts(value):
        value = _pairs(value)
    if not isinstance(value, Mapping) or not value:
        raise EndpointConfigError("it contains no endpoint")
    parsed: list[Endpoint] = []
    problems: list[str] = []
    for name, options in value.items():
        try:
            parsed.append(_endpoint(name, options, problems))
        except EndpointConfigError as error:
            problems.append(str(error))
    unlimited = [one for one in parsed if not one.max_series]
    left = TOTAL - sum(one.max_series for one in parsed)
    if left < len(unlimited):
        raise EndpointConfigError(f"max_series of all endpoints together is at most {TOTAL}, and each needs at least 1")
    found = Endpoints(
        [one if one.max_series else replace(one, max_series=min(SHARE, left // len(unlimited))) for one in parsed]
    )
    if problems:
        raise EndpointConfigError("; ".join(problems), found or None)
    return found


def _pairs(words: Sequence[str]) -> dict[str, str]:
    parsed: dict[str, str] = {}
    for word in filter(None, map(str.strip, words)):
        name, equals, url = (part.strip() for part in word.partition("="))
        if not equals:
            raise EndpointConfigError(f"the part after {', '.join(parsed) or 'the beginning'} is not name=url")
        if name in parsed:
            raise EndpointConfigError(f"there are two endpoints {name}")
        parsed[name] = url
    return parsed


def _file(path: str) -> object:
    try:
        mode = os.stat(path).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # a pipe would hang the program, at its start
            raise OSError("it is not a regular file")
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise EndpointConfigError(f"cannot read {path}: {reason}") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        if path.endswith(".json"):
            raise EndpointConfigError(f"{path} is not JSON: {error}") from None
    try:
        import yaml
    except ImportError:
        raise EndpointConfigError(f"{path} is not JSON, and YAML needs PyYAML (pip install pyyaml)") from None
    try:
        return yaml.safe_load(text)
    except Exception as error:  # of PyYAML, but also a ValueError for an impossible date, a KeyError for "!!bool x"
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        raise EndpointConfigError(f"{path} is not YAML{'' if line is None else f', line {line + 1}'}") from None


def _endpoint(name: object, options: object, problems: list[str]) -> Endpoint:
    """Parse an endpoint without its invalid filters, which are added to `problems`.

    Raises:
        EndpointConfigError: The endpoint is invalid, or all of its filters are.
    """
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_-]{1,63}", name):
        raise EndpointConfigError("the name of an endpoint consists of letters, digits, _ and -")
    if isinstance(options, str):
        options = {"url": options}
    if not isinstance(options, Mapping) or "url" not in options:
        raise EndpointConfigError(f"endpoint {name} has no url")
    parsed = {}
    for option, value in options.items():
        if option not in _OPTIONS:
            raise EndpointConfigError(f"endpoint {name} has an unknown option; the options are {', '.join(_OPTIONS)}")
        try:
            parsed[option] = _OPTIONS[option](value)
        except EndpointConfigError as error:
            problem = f"endpoint {name}: {option} {error}"
            if not error.valid:
                raise EndpointConfigError(problem) from None
            parsed[option] = error.valid
            problems.append(problem)
    if "key_file" in parsed and "cert_file" not in parsed:
        raise EndpointConfigError(f"endpoint {name} has a key_file and no cert_file")
    return Endpoint(name=name, **parsed)


def _url(value: object) -> str:
    try:
        parts = urlsplit(value if isinstance(value, str) else "")
        valid = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        valid = False
    if not valid or re.search(r"[^\x21-\x7e]", str(value)):
        raise EndpointConfigError("is not of the form http://host:port/metrics")
    if "@" in parts.netloc:
        raise EndpointConfigError("contains a password; use headers or bearer_token_file in a configuration file")
    return str(value)


def _headers(value: object) -> dict[str, str]:
    valid = isinstance(value, Mapping) and all(
        isinstance(name, str)
        and re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name)
        and isinstance(text, str)
        and re.fullmatch(r"[\x20-\x7e]*", text)
        for name, text in value.items()
    )
    if not valid:
        raise EndpointConfigError("is not a mapping of header names to texts")
    return dict(value)  # type: ignore[call-overload, no-any-return]


def _path(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise EndpointConfigError("is not the path of a file")
    return value


def _number(kind: type, least: float, most: float) -> Callable[[object], Any]:
    def parse(value: object) -> Any:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            raise EndpointConfigError(f"is not a number from {least:g} to {most}")
        return kind(value)

    return parse


def filters(value: object) -> Words:
    """Parse filters: comma-separated regular expressions, a list of them, or a mapping of each to {label: expression}.

    Raises:
        EndpointConfigError: The value is invalid, or some of its expressions are.
    """
    if isinstance(value, str):
        text = value.strip()
        if text.startswith(("[", "{")):
            try:
                value = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise EndpointConfigError(f"is not JSON: {error}") from None
        else:  # a quantifier such as {1,3} has a comma, too
            value = [*filter(None, map(str.strip, re.split(r",(?!\d*\})", text)))]
    pairs = value
    if isinstance(value, (list, tuple, set, frozenset)) and _are_texts(value):
        pairs = dict.fromkeys(value)
    if not isinstance(pairs, Mapping) or not pairs:
        raise EndpointConfigError(_FORM)
    parsed: dict[str, dict[str, str]] = {}
    problems = []
    for name, labels in pairs.items():
        if not isinstance(labels or {}, Mapping) or not _are_texts([name, *(labels or {})]):
            raise EndpointConfigError(_FORM)
        try:
            for expression in (name, *(labels or {}).values()):
                re.compile(expression)
        except (re.error, TypeError, OverflowError, RecursionError, Warning) as error:  # a program may raise warnings
            problems.append(f"{expression!r} is not a regular expression: {error}")
        else:
            parsed[name] = dict(labels or {})
    found: Words = parsed if isinstance(value, Mapping) else list(parsed)
    if problems:
        raise EndpointConfigError("; ".join(problems), found or None)
    return found


def _are_texts(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)


_FORM: Final = "is neither a list of regular expressions nor a mapping of each to {label: expression}"

# The function that checks and converts the value of each option of an endpoint.
_OPTIONS: Final[Mapping[str, Callable[[object], Any]]] = {
    "url": _url,
    "filters": filters,
    "headers": _headers,
    "bearer_token_file": _path,
    "ca_file": _path,
    "cert_file": _path,
    "key_file": _path,
    "interval": _number(float, 0, 3600),
    "timeout": _number(float, 0.001, 60),
    "max_bytes": _number(int, 1, 1 << 30),
    "max_series": _number(int, 1, TOTAL),
}
