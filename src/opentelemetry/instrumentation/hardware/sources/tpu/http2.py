"""As much of HTTP/2 as one question and its answer need, over a socket of our own; gRPC's own library is not loaded.

That library starts threads and takes locks of which a forked child gets a copy that nobody will ever let go of: a
program that forks (multiprocessing, a DataLoader) has children that hang because of it, in ``os.fork`` itself, and its
documentation says that it does not support it. Here is no thread and no lock.

https://www.rfc-editor.org/rfc/rfc9113 and https://www.rfc-editor.org/rfc/rfc7541; no dynamic table is used: it is said
to have no room, so every block of headers can be read, or left, by itself.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, cast

from opentelemetry.instrumentation.hardware.drivers.subprocess import file_identity

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PUSH, _PING, _GOAWAY, _WINDOW, _CONTINUATION = 0, 1, 3, 4, 5, 6, 7, 8, 9
_END_STREAM = _ACK = 0x1
_END_HEADERS, _PADDED, _PRIORITY = 0x4, 0x8, 0x20

_FRAME: Final = 1 << 14
"""Bytes of a frame, at most, as long as nothing else is agreed on; and of a block of headers."""

_MOST: Final = (1 << 31) - 1
"""The largest number of a stream, and of bytes that may come unasked."""

_STATUS: Final = {8: "200", 9: "204", 10: "206", 11: "304", 12: "400", 13: "404", 14: "500"}
"""What of HPACK's static table is of use: the places of ``:status``."""

_STATIC: Final = 61

_HUFFMAN: Final[Mapping[int, bytes]] = {
    5: b"012aceiost",
    6: b" %-./3456789=A_bdfghlmnpru",
    7: b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz",
    8: b"&*,;XZ",
    10: b'!"()?',
    11: b"'+|",
    12: b"#>",
    13: b"\x00$@[]~",
    14: b"^}",
    15: b"<`{",
    19: b"\\\xc3\xd0",
}
"""HPACK's code, which is canonical: by bits, in the order of the codes; what no header of gRPC's has is left out."""


class Away(OSError):  # noqa: N818 - as the errors of sockets are called
    """Nobody is there, or whoever was has gone without an answer."""


class Reset(Exception):  # noqa: N818 - an answer, if not the one that was hoped for
    """The question is turned down, with HTTP/2's code for it."""

    def __init__(self, code: int) -> None:
        super().__init__(f"HTTP/2 error {code}")
        self.code = code


class Answer(NamedTuple):
    """Headers and trailers together, and what came between them."""

    headers: dict[str, str]
    body: bytearray


class Connection:
    """A connection, for one question at a time; made for the first. After any error it is of no more use.

    Args:
        address: ``host:port``, or ``unix:`` and a path.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._socket = cast(socket.socket, None)
        self._ours: tuple[int, int] | None = None
        self._stream = -1
        self._buffer = b""
        self._at = 0
        self._owed = 0
        self.usable = True
        settings = struct.pack(">HIHIHI", 1, 0, 2, 0, 4, _MOST)  # no table, nothing pushed, no waiting for windows
        widened = struct.pack(">I", _MOST - 0xFFFF)
        self._unsent = _PREFACE + _frame(_SETTINGS, 0, 0, settings) + _frame(_WINDOW, 0, 0, widened)

    def ask(self, headers: Iterable[tuple[str, str]], body: bytes, most: int, deadline: float) -> Answer:
        """Ask, and wait for the answer.

        Args:
            headers: in lower case, those that begin with a colon first.
            body: less than a frame.
            most: bytes that may come.
            deadline: when all has to be there, by :func:`time.monotonic`; looking up a host's name comes on top.

        Raises:
            Away: nobody is there; or the connection ends, or ended long ago.
            TimeoutError: it takes too long.
            Reset: it is turned down.
            ValueError: the answer is none, or too long.
        """
        self.usable = False  # until all has gone well
        self._reach(deadline)
        self._stream += 2
        if self._owed:
            self._unsent += _frame(_WINDOW, 0, 0, struct.pack(">I", self._owed))
            self._owed = 0
        self._unsent += _frame(_HEADERS, _END_HEADERS, self._stream, b"".join(_packed(*pair) for pair in headers))
        self._send(_frame(_DATA, _END_STREAM, self._stream, body), deadline)
        answer = Answer({}, bytearray())
        last = self._stream + 2 > _MOST
        for kind, flags, stream, payload in self._frames(most, deadline):
            if kind in (_SETTINGS, _PING) and not flags & _ACK:
                self._send(_frame(kind, _ACK, 0, payload if kind == _PING else b""), deadline)
            elif kind == _GOAWAY:
                last = True
                if len(payload) < 8 or struct.unpack_from(">I", payload)[0] & _MOST < self._stream:
                    raise Away("the server ends the connection")
            elif kind == _RESET and stream == self._stream:
                raise Reset(int.from_bytes(payload, "big"))
            elif kind == _PUSH:
                raise ValueError("the server pushes what was not asked for")
            elif kind == _DATA:
                self._owed += len(payload)
                if stream == self._stream:
                    answer.body.extend(_unpadded(flags, payload))
            elif kind == _HEADERS and stream == self._stream:
                answer.headers.update(unpacked(payload))
            if flags & _END_STREAM and kind in (_DATA, _HEADERS) and stream == self._stream:
                self.usable = not last
                return answer
        raise ValueError(f"the answer has more than {most} bytes")

    def _reach(self, deadline: float) -> None:
        """Connect, or see that the connection is still there: its number may be a file of the program's by now."""
        if self._stream < 0:
            self._connect(deadline)
        elif file_identity(self._socket.fileno()) != self._ours:
            raise Away("the program closed the connection")

    def _send(self, data: bytes, deadline: float) -> None:
        data, self._unsent = self._unsent + data, b""
        try:
            self._socket.settimeout(_left(deadline))
            self._socket.sendall(data)
        except TimeoutError:
            raise
        except OSError as error:
            raise Away(_why(error)) from None

    def _frames(self, most: int, deadline: float) -> Iterator[tuple[int, int, int, bytes]]:
        """Frames as they come, those of one block of headers as one; none after so many bytes."""
        begun: tuple[int, int, bytes] | None = None
        while most > 0:
            head = self._take(9, deadline)
            size = int.from_bytes(head[:3], "big")
            kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big") & _MOST
            if size > _FRAME:
                raise ValueError("it does not speak HTTP/2")
            most -= 9 + size
            payload = self._take(size, deadline)
            if begun is not None:
                if kind != _CONTINUATION or stream != begun[1]:
                    raise ValueError("a block of headers breaks off")
                first, stream, before = begun
                kind, payload = _HEADERS, before + payload
                flags = first | flags & _END_HEADERS
            elif kind == _HEADERS:
                payload = _unpadded(flags, payload)
            if kind == _HEADERS and not flags & _END_HEADERS:
                if len(payload) > _FRAME:
                    raise ValueError("a block of headers has no end")
                begun = flags, stream, payload
                continue
            begun = None
            yield kind, flags, stream, payload

    def _take(self, size: int, deadline: float) -> bytes:
        while len(self._buffer) - self._at < size:
            try:
                self._socket.settimeout(_left(deadline))
                more = self._socket.recv(1 << 16)
            except TimeoutError:
                raise
            except OSError as error:
                raise Away(_why(error)) from None
            if not more:
                raise Away("the server ends the connection")
            self._buffer, self._at = self._buffer[self._at :] + more, 0
        self._at += size
        return self._buffer[self._at - size : self._at]

    def _connect(self, deadline: float) -> None:
        """Connect with the first place of the address that answers."""
        why = ""
        for family, place in _places(self._address):
            try:
                self._socket = made = socket.socket(family, socket.SOCK_STREAM)  # where a fork finds it
            except OSError as error:
                if error.errno != errno.EAFNOSUPPORT:
                    raise  # that is no matter of who is there
                why = why or _why(error)
                continue
            self._ours = file_identity(made.fileno())
            try:
                made.settimeout(_left(deadline))
                made.connect(place)
                if family in (socket.AF_INET, socket.AF_INET6):
                    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return
            except TimeoutError:
                raise
            except (OSError, OverflowError) as error:
                made.close()
                why = why or _why(error)
        raise Away(why or "the host has no address")

    def close(self) -> None:
        """Close the descriptor, if it is ours still; in a forked child the connection stays its parent's."""
        if self._socket is not None:
            if file_identity(self._socket.fileno()) == self._ours:
                self._socket.close()
            else:
                self._socket.detach()


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("it takes too long")
    return left


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _places(address: str) -> Iterator[tuple[int, Any]]:
    """Where an address leads to. Numbers and this host are known; other names are looked up."""
    if address.startswith("unix:"):
        if not hasattr(socket, "AF_UNIX"):
            raise Away("this system has no sockets of Unix")
        yield socket.AF_UNIX, f"/{address.removeprefix('unix:').lstrip('/')}"
        return
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if host == "localhost":
        yield socket.AF_INET, ("127.0.0.1", int(port))
        yield socket.AF_INET6, ("::1", int(port))
        return
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        try:
            found = socket.getaddrinfo(host.encode(), port.encode(), type=socket.SOCK_STREAM)
        except OSError as error:
            raise Away(_why(error)) from None
        yield from ((family, place) for family, _, _, _, place in found)
    else:
        yield (socket.AF_INET if version == 4 else socket.AF_INET6), (host, int(port))


# -- Frames.


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def _unpadded(flags: int, payload: bytes) -> bytes:
    """What a frame of data or headers has beside its padding and its priority."""
    begin = end = 0
    if flags & _PADDED:
        begin, end = 1, payload[0] if payload else 0
    if flags & _PRIORITY:
        begin += 5
    if begin + end > len(payload):
        raise ValueError("a frame is shorter than its padding")
    return payload[begin : len(payload) - end]


# -- Headers.


def _size(value: int) -> bytes:
    if value < 0x7F:
        return bytes((value,))
    found = [0x7F]
    value -= 0x7F
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


def _packed(name: str, value: str) -> bytes:
    """A header that goes into no table."""
    return b"\0" + b"".join(_size(len(each)) + each for each in (name.encode(), value.encode()))


def _number(block: bytes, at: int, bits: int) -> tuple[int, int]:
    most = (1 << bits) - 1
    value = block[at] & most
    at += 1
    if value < most:
        return value, at
    shift = 0
    while True:
        if shift > 28:
            raise ValueError("a number in the headers has no end")
        byte = block[at]
        at += 1
        value += (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _text(block: bytes, at: int) -> tuple[str, int]:
    packed = block[at] & 0x80
    size, at = _number(block, at, 7)
    if size > len(block) - at:
        raise ValueError("the headers break off")
    raw = block[at : at + size]
    return (_plain(raw) if packed else raw.decode("latin-1")), at + size


def _plain(raw: bytes) -> str:
    """Text in HPACK's code, up to a character that no header of gRPC's has."""
    bits, left = int.from_bytes(raw, "big"), 8 * len(raw)
    found = bytearray()
    while True:
        code = before = 0
        for length, known in _HUFFMAN.items():
            code <<= length - before
            before = length
            if length > left:
                return found.decode("latin-1")
            place = (bits >> left - length & (1 << length) - 1) - code
            if place < len(known):
                found.append(known[place])
                left -= length
                break
            code += len(known)
        else:
            return found.decode("latin-1")


def unpacked(block: bytes) -> Iterator[tuple[str, str]]:
    """The headers of a block that are spelled, and ``:status``.

    Raises:
        ValueError: it is none, or needs a table that has no room.
    """
    at = 0
    try:
        while at < len(block):
            first = block[at]
            if first & 0xE0 == 0x20:
                size, at = _number(block, at, 5)
                if size:
                    raise ValueError("the headers need a table that has no room")
                continue
            whole = bool(first & 0x80)
            place, at = _number(block, at, 7 if whole else 6 if first & 0x40 else 4)
            if place > _STATIC or (whole and not place):
                raise ValueError("the headers need a table that has no room")
            name = ":status" if place in _STATUS else ""
            if whole:
                value = _STATUS.get(place, "")
            else:
                if not place:
                    name, at = _text(block, at)
                value, at = _text(block, at)
            if name:
                yield name, value
    except IndexError:
        raise ValueError("the headers break off") from None
