"""The messages of the TPU runtime's metric service, as protobuf has them on the wire.

Five small messages are read and two are written, so they are taken apart here: a second description of them in
protobuf's registry would clash with the one that libtpu or Google's own tools bring into the same process.
https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from opentelemetry.instrumentation.hardware.model import Number

LIMIT: Final = 1 << 20
"""Bytes that an answer may have."""

SERIES: Final = 1024
"""Numbers that an answer may have: of every device and link of a host, and some."""

_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5

_DEEPEST = 8
"""How far lists may lie in lists."""

Raw: TypeAlias = "tuple[int, int, int | bytes]"
"""Number, wire type, and what stands there."""


class Series(NamedTuple):
    """One number of an answer, or one distribution.

    Attributes:
        labels: what it is of.
        value: a gauge's or counter's value; None for a distribution, and where none is said.
        distribution: ``count``, ``mean``, ``buckets`` and their ``bounds`` (upper ends, one fewer than buckets); or
            ``count``, ``sum`` and ``quantiles``; what is said of it.
    """

    labels: dict[str, str | int]
    value: Number | None = None
    distribution: dict[str, Any] | None = None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("the message breaks off in a number")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & (1 << 64) - 1, at
        shift += 7


def fields(data: bytes) -> Iterator[Raw]:
    """The fields of a message.

    Raises:
        ValueError: it is none, or not all of it.
    """
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if not number:
            raise ValueError("the message has a field without a number")
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield number, kind, value
            continue
        if kind == _BYTES:
            size, at = _varint(data, at)
        elif kind in (_DOUBLE, _FLOAT):
            size = 8 if kind == _DOUBLE else 4
        else:
            raise ValueError(f"the message has a field of the unknown type {kind}")
        if size > len(data) - at:
            raise ValueError("the message breaks off in a field")
        yield number, kind, data[at : at + size]
        at += size


def _inner(data: bytes, wanted: int) -> Iterator[bytes]:
    """The messages (or texts) that a field holds."""
    for number, kind, value in fields(data):
        if number == wanted and kind == _BYTES and isinstance(value, bytes):
            yield value


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _double(value: bytes) -> float:
    number: float = struct.unpack("<d", value)[0]
    return number


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _scalar(raw: Raw, reads: Mapping[int, tuple[int, Callable[[Any], Any]]]) -> Any:
    """A field by its number, if its type is the one that it should have."""
    number, kind, value = raw
    expected, read = reads.get(number, (-1, None))
    return read(value) if read is not None and kind == expected else None


_GAUGE: Final[Mapping[int, tuple[int, Callable[[Any], Any]]]] = {
    1: (_DOUBLE, _double),
    2: (_VARINT, _signed),
    3: (_BYTES, _text),
}
_COUNTER: Final[Mapping[int, tuple[int, Callable[[Any], Any]]]] = {1: (_DOUBLE, _double), 2: (_VARINT, int)}
_ATTRIBUTE: Final[Mapping[int, tuple[int, Callable[[Any], Any]]]] = {1: (_BYTES, _text), 3: (_VARINT, _signed)}


def _last(data: bytes, reads: Mapping[int, tuple[int, Callable[[Any], Any]]]) -> Any:
    """Of the members that exclude each other the last one, as protobuf has it; None where there is none."""
    said = None
    for raw in fields(data):
        value = _scalar(raw, reads)
        said = said if value is None else value
    return said


def _number(said: Any) -> Number | None:
    """A finite number, also one that is spelled as text."""
    if isinstance(said, str):
        try:
            said = float(said)
        except ValueError:
            return None
    return said if isinstance(said, (int, float)) and math.isfinite(said) else None


def _labels(data: bytes, found: dict[str, str | int], depth: int = 0) -> None:
    """What an ``Attribute`` says: a key with a value, or with a list of attributes."""
    if depth > _DEEPEST:
        raise ValueError("the message has lists in lists without end")
    key = next(map(_text, _inner(data, 1)), "")
    for value in _inner(data, 2):
        for listed in _inner(value, 6):
            for attribute in _inner(listed, 1):
                _labels(attribute, found, depth + 1)
        said = _last(value, _ATTRIBUTE)
        if said is not None:
            found[key] = said


def _packed(kind: int, value: int | bytes, expected: int) -> Iterator[int | float]:
    """Numbers of a repeated field, one by one or all in a row."""
    if isinstance(value, int):
        if expected == _VARINT:
            yield _signed(value)
    elif kind == _DOUBLE and expected == _DOUBLE:
        yield _double(value)
    elif kind == _BYTES and expected == _DOUBLE and len(value) % 8 == 0:
        yield from struct.unpack(f"<{len(value) // 8}d", value)
    elif kind == _BYTES and expected == _VARINT:
        at = 0
        while at < len(value):
            number, at = _varint(value, at)
            yield _signed(number)


def _bounds(data: bytes, count: int) -> list[float]:
    """The upper ends of so many buckets but the last, which has none."""
    bounds: list[float] = []
    for number, _, options in fields(data):
        if not isinstance(options, bytes):
            continue
        if number == 3:
            said = (each for key, kind, raw in fields(options) if key == 1 for each in _packed(kind, raw, _DOUBLE))
            bounds = [float(each) for each in said]
        elif number == 2:
            growth = _last(options, {2: (_DOUBLE, _double)})
            scale = _last(options, {3: (_DOUBLE, _double)})
            if growth and scale and math.log(max(growth, 1.0)) * count < 600:
                bounds = [scale * growth**index for index in range(count - 1)]
        elif number == 4:
            width = _last(options, {2: (_DOUBLE, _double)})
            offset = _last(options, {3: (_DOUBLE, _double)}) or 0.0
            if width:
                bounds = [offset + width * index for index in range(count - 1)]
    rising = bounds == sorted(set(bounds)) and all(map(math.isfinite, bounds))
    return bounds if rising and len(bounds) == count - 1 else []


def _distribution(data: bytes) -> dict[str, Any]:
    count = _last(data, {1: (_VARINT, _signed)}) or 0
    mean = _number(_last(data, {2: (_DOUBLE, _double)}) or 0.0)
    found: dict[str, Any] = {"count": count}
    if mean is not None:
        found["mean"] = mean
    buckets = [int(each) for number, kind, raw in fields(data) if number == 7 for each in _packed(kind, raw, _VARINT)]
    options = next(_inner(data, 6), None)
    if buckets and options is not None and len(buckets) <= SERIES and (bounds := _bounds(options, len(buckets))):
        found |= {"buckets": buckets, "bounds": bounds}
    return found


def _summary(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {"count": _last(data, {1: (_VARINT, int)}) or 0}
    total = _number(_last(data, {2: (_DOUBLE, _double)}))
    if total is not None:
        found["sum"] = total
    pairs = [(_last(each, {1: (_DOUBLE, _double)}), _last(each, {2: (_DOUBLE, _double)})) for each in _inner(data, 3)]
    found["quantiles"] = [[part, value] for part, value in pairs if None not in (_number(part), _number(value))]
    return found


def _series(data: bytes) -> Series:
    labels: dict[str, str | int] = {}
    for attribute in _inner(data, 1):
        _labels(attribute, labels)
    value: Number | None = None
    distribution: dict[str, Any] | None = None
    for number, kind, raw in fields(data):
        if kind != _BYTES or not isinstance(raw, bytes):
            continue
        if number == 3:
            value = _number(_last(raw, _GAUGE))
        elif number == 4:
            value = _number(_last(raw, _COUNTER))
        elif number in (5, 6):
            distribution = _distribution(raw) if number == 5 else _summary(raw)
    return Series(labels, value, distribution)


def response(data: bytes) -> list[Series]:
    """The numbers of a ``MetricResponse``.

    Raises:
        ValueError: it is none, or too large to be true.
    """
    if len(data) > LIMIT:
        raise ValueError(f"the answer has {len(data)} bytes")
    found = []
    for metric in _inner(data, 1):
        for each in _inner(metric, 3):
            found.append(_series(each))
            if len(found) > SERIES:
                raise ValueError(f"the answer has more than {SERIES} numbers")
    return found


def text(data: bytes) -> str:
    """The text of a profiler's ``MonitorResponse``.

    Raises:
        ValueError: it is none.
    """
    return "".join(map(_text, _inner(data, 1)))


def _tagged(number: int, kind: int, value: bytes) -> bytes:
    return bytes([number << 3 | kind]) + value


def _counted(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def metric_request(name: str, alone: bool) -> bytes:
    """A ``MetricRequest``: of one process ``alone``, or of all of the host where it can speak for them."""
    said = name.encode()
    return _tagged(1, _BYTES, _counted(len(said)) + said) + (_tagged(2, _VARINT, b"\1") if alone else b"")


def monitor_request(milliseconds: int, level: int) -> bytes:
    """A profiler's ``MonitorRequest``, with the time of day."""
    return (
        _tagged(1, _VARINT, _counted(milliseconds)) + _tagged(2, _VARINT, _counted(level)) + _tagged(3, _VARINT, b"\1")
    )
