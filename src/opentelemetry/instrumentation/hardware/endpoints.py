"""Endpoints: which OpenMetrics endpoints to scrape, how, and what of them is wanted, in the user's words.

What is not understood raises :class:`EndpointConfigError`, whose sentence gives away no secret: neither headers
nor what an address carries beside host and path.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

TOTAL: Final = 1500
"""Series of all endpoints together: well below what the SDK takes of one instrument."""

SHARE: Final = 1000
"""Series of an endpoint that names no limit, where the others leave it so many."""

Words: TypeAlias = list[str] | dict[str, dict[str, str]]
"""Filters as W&B has them: regular expressions, or such expressions with one for each label."""


class EndpointConfigError(ValueError):
    """What of the user's words is not understood, in a sentence without secrets."""


@dataclass(frozen=True)
class Endpoint:
    """One endpoint.

    Attributes:
        name: what its series are known by.
        url: where it is.
        filters: which series are wanted; None: what is wanted of every endpoint.
        headers: more to send along.
        bearer_token_file: the file of a token, read anew for each scrape.
        ca_file: the authorities that its certificate is checked against, instead of the system's.
        cert_file: our own certificate.
        key_file: the key of our certificate, where it is not in the same file.
        interval: seconds between two scrapes, at least; each collection has one otherwise.
        timeout: seconds that a scrape may take, all in all.
        max_bytes: of a page, unpacked.
        max_series: how many different ones are reported in the life of the process.
    """

    __hash__ = None  # type: ignore[assignment]  # its headers have none, and making one is costly

    name: str
    url: str = field(repr=False)  # its query may be secret
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
        """The address without what may be secret in it."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}{parts.path}"


class Endpoints(dict[str, Any]):
    """What may be shown of the endpoints, by name; all of it is in ``each``."""

    def __init__(self, each: Sequence[Endpoint]) -> None:
        shown = {one.name: {"url": one.shown} | ({"filters": one.filters} if one.filters else {}) for one in each}
        super().__init__(shown)
        self.each = tuple(each)

    def __str__(self) -> str:
        return ",".join(f"{one.name}={one.shown}" for one in self.each)


def endpoints(value: object) -> Endpoints:
    """The endpoints that a setting names: ``name=url`` pairs, a file, or a mapping of what such a file has.

    Raises:
        EndpointConfigError: it is none of these.
    """
    if isinstance(value, Endpoints):
        return value
    if isinstance(value, str):
        value = _pairs(value.split(",")) if "=" in value else _file(value.strip())
    elif isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        value = _pairs(value)
    if not isinstance(value, Mapping) or not value:
        raise EndpointConfigError("there is no endpoint in it")
    return Endpoints(_shared([_endpoint(name, options) for name, options in value.items()]))


def _pairs(words: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in filter(None, map(str.strip, words)):
        name, equals, url = (part.strip() for part in word.partition("="))
        if not equals:
            raise EndpointConfigError(f"the part after {', '.join(found) or 'the beginning'} is no name=url")
        if name in found:
            raise EndpointConfigError(f"there are two endpoints {name}")
        found[name] = url
    return found


def _file(path: str) -> object:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, ValueError) as error:
        raise EndpointConfigError(
            f"the file {path} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None
    try:
        return json.loads(text)
    except ValueError as error:
        if path.endswith(".json"):
            raise EndpointConfigError(f"{path} is no JSON: {error}") from None
    try:
        import yaml
    except ImportError:
        raise EndpointConfigError(f"{path} is no JSON, and YAML takes PyYAML (pip install pyyaml)") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        raise EndpointConfigError(f"{path} is no YAML{'' if line is None else f', line {line + 1}'}") from None


def _endpoint(name: object, options: object) -> Endpoint:
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_-]{1,63}", name):
        raise EndpointConfigError("the name of an endpoint is made of letters, digits, _ and -")
    if isinstance(options, str):
        options = {"url": options}
    if not isinstance(options, Mapping) or "url" not in options:
        raise EndpointConfigError(f"endpoint {name} has no url")
    known = {setting.name: setting.default for setting in fields(Endpoint) if setting.name != "name"}
    for option in options:
        if option not in known:
            raise EndpointConfigError(
                f"endpoint {name} has an option that there is not; the options are {', '.join(known)}"
            )
    read = {option: _option(name, option, known[option], given) for option, given in options.items()}
    if "key_file" in read and "cert_file" not in read:
        raise EndpointConfigError(f"endpoint {name} has a key_file and no cert_file")
    return Endpoint(name=name, **read)


def _option(name: str, option: str, default: object, given: object) -> Any:
    if option == "url":
        return _url(name, given)
    if option == "filters":
        return filters(given)
    if option == "headers":
        return _headers(name, given)
    if isinstance(default, str):
        if not isinstance(given, str) or not given:
            raise EndpointConfigError(f"endpoint {name}: {option} takes the path of a file")
        return given
    number = isinstance(given, (int, float)) and not isinstance(given, bool) and math.isfinite(given)
    least = 0 if option == "interval" else 0.001 if option == "timeout" else 1
    most = {"interval": 3600, "timeout": 60, "max_bytes": 1 << 30, "max_series": TOTAL}[option]
    if not number or not least <= given <= most:  # type: ignore[operator]
        raise EndpointConfigError(f"endpoint {name}: {option} takes a number from {least:g} to {most}")
    return type(default)(given)  # type: ignore[call-arg]


def _url(name: str, given: object) -> str:
    try:
        parts = urlsplit(given if isinstance(given, str) else "")
        valid = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        valid = False
    if not valid or re.search(r"[^\x21-\x7e]", str(given)):
        raise EndpointConfigError(f"the url of endpoint {name} takes the form http://host:port/metrics")
    if "@" in parts.netloc:
        raise EndpointConfigError(
            f"the url of endpoint {name} holds a password: name it in headers or bearer_token_file, in a file"
        )
    return str(given)


def _headers(name: str, given: object) -> dict[str, str]:
    good = isinstance(given, Mapping) and all(
        isinstance(key, str)
        and re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", key)
        and isinstance(value, str)
        and re.fullmatch(r"[\x20-\x7e]*", value)
        for key, value in given.items()
    )
    if not good:
        raise EndpointConfigError(f"the headers of endpoint {name} are no names with texts")
    return dict(given)  # type: ignore[call-overload, no-any-return]


def filters(value: object) -> Words:
    """Filters: regular expressions with commas, a list of them, or a mapping of each to {label: expression}.

    Raises:
        EndpointConfigError: it is none of these, or an expression is none.
    """
    if isinstance(value, str):
        text = value.strip()
        try:
            value = json.loads(text) if text[:1] in ("[", "{") else [part.strip() for part in text.split(",")]
        except ValueError as error:
            raise EndpointConfigError(f"the filters are no JSON: {error}") from None
        value = [part for part in value if part] if isinstance(value, list) else value
    if isinstance(value, (list, tuple)) and value and all(isinstance(each, str) for each in value):
        _compiled(value)
        return list(value)
    if isinstance(value, Mapping) and value:
        found = {name: dict(labels or {}) for name, labels in value.items() if isinstance(labels or {}, Mapping)}
        words = [word for labels in found.values() for pair in labels.items() for word in pair]
        if len(found) == len(value) and all(isinstance(word, str) for word in [*found, *words]):
            _compiled([*found, *(expression for labels in found.values() for expression in labels.values())])
            return found
    raise EndpointConfigError("filters are regular expressions, or a mapping of such to {label: expression}")


def _compiled(expressions: Sequence[str]) -> None:
    for expression in expressions:
        try:
            re.compile(expression)
        except re.error as error:
            raise EndpointConfigError(f"the filter {expression} is no regular expression: {error}") from None


def _shared(found: list[Endpoint]) -> list[Endpoint]:
    """The endpoints with their limits: those that name none have equal shares of what the others leave."""
    open_ = [one for one in found if not one.max_series]
    left = TOTAL - sum(one.max_series for one in found)
    if left < len(open_):
        raise EndpointConfigError(f"max_series of all endpoints together may be {TOTAL}, and each needs one")
    return [replace(one, max_series=one.max_series or min(SHARE, left // len(open_))) for one in found]
