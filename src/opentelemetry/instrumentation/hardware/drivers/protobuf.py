"""Classes of protobuf messages that are described in tables.

They are kept in a separate descriptor pool, so that they never conflict with those that the program registers, such as
libtpu's or tpu-info's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError


def classes(package: str, messages: Mapping[str, Sequence[tuple[int, str, str]]]) -> dict[str, Any]:
    """Return the class of each message.

    Args:
        package: A name for them.
        messages: By message, number, name and type of its fields; the type may begin with ``repeated``.
    """
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto2")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for number, field_name, words in fields:
            *repeated, kind = words.split()
            message.field.add(
                name=field_name,
                number=number,
                label=field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL,
                type=field.TYPE_MESSAGE if kind in messages else getattr(field, f"TYPE_{kind.upper()}"),
                type_name=f".{package}.{kind}" if kind in messages else None,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}


def parsed(known: Mapping[str, Any], name: str, data: bytes) -> Any:
    """Return a message of one of the :func:`classes`.

    Raises:
        ValueError: The data is another message.
    """
    try:
        return known[name].FromString(data)
    except DecodeError:
        raise ValueError(f"it is not a {name}") from None


def text(value: str | bytes) -> str:
    """Return a string of a message. protobuf returns bytes for one that is not UTF-8."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
