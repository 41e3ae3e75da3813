"""Convert the answers and errors of drivers to JSON types and back."""

from __future__ import annotations

import builtins
from typing import Any, cast

from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.drivers.child import Output
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.system.files import FilesystemSpace, Usage

_TUPLES = {each.__name__: each for each in (Usage, FilesystemSpace, Output)}


def encode(answer: Any) -> Any:
    """Convert an answer to JSON types."""
    if isinstance(answer, bytes):
        return {"bytes": answer.decode(errors="surrogateescape")}
    if type(answer).__name__ in _TUPLES:
        return {type(answer).__name__: {name: encode(each) for name, each in answer._asdict().items()}}
    if isinstance(answer, (list, tuple)):
        return [encode(each) for each in answer]
    if isinstance(answer, dict):
        return {name: encode(each) for name, each in answer.items()}
    return answer


def decode(encoded: Any) -> Any:
    """Convert JSON types back to an answer, the inverse of :func:`encode`."""
    if isinstance(encoded, list):
        return [decode(each) for each in encoded]
    if isinstance(encoded, dict):
        name, inner = next(iter(encoded.items())) if len(encoded) == 1 else ("", None)
        if name == "bytes" and isinstance(inner, str):
            return inner.encode(errors="surrogateescape")
        if name in _TUPLES and isinstance(inner, dict):
            return _TUPLES[name](**{field: decode(each) for field, each in inner.items()})
        return {name: decode(each) for name, each in encoded.items()}
    return encoded


def encode_error(error: Exception) -> Any:
    """Convert an error to JSON types."""
    if isinstance(error, Unavailable):
        return {"error": ["Unavailable", None, error.reason, error.fix]}
    if isinstance(error, DriverError):
        return {"error": ["DriverError", error.code, error.text]}
    if isinstance(error, OSError):
        return {"error": [type(error).__name__, error.errno, error.strerror or str(error)]}
    return {"error": [type(error).__name__, None, str(error)]}


def decode_error(encoded: Any) -> Exception | None:
    """Return the error that an answer encodes, or None. A module's exception becomes a new class of the same name."""
    if not (isinstance(encoded, dict) and isinstance(encoded.get("error"), list)):
        return None
    kind, number, text, *fix = encoded["error"]
    if kind == "Unavailable":
        return Unavailable(text, *fix)
    if kind == "DriverError":
        return DriverError(number, text)
    if number is not None:
        return OSError(number, text)
    known = getattr(builtins, kind, None)
    if not (isinstance(known, type) and issubclass(known, Exception)):
        known = type(kind, (Exception,), {})
    return cast(Exception, known(text))
