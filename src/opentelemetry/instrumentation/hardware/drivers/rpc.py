"""Unary gRPC calls, made by a child process with grpcio.

grpcio is never loaded into the program: it starts threads and takes locks that a forked child inherits, so children of
programs that fork (multiprocessing, a DataLoader) can hang in it.
https://github.com/grpc/grpc/blob/master/doc/fork_support.md

The child reads a line of JSON for each call and prints one with the answer. It has no proxy settings.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import time
from collections.abc import Callable
from importlib.machinery import PathFinder
from typing import Any, Final, TypeVar

from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.drivers.child import Child, last_line
from opentelemetry.instrumentation.hardware.drivers.spawn import above_standard_streams, file_identity
from opentelemetry.instrumentation.hardware.drivers.subprocess import Command, Tool, python_executable, search_path
from opentelemetry.instrumentation.hardware.model import Unavailable

T = TypeVar("T")

# The status of a call.
INVALID_ARGUMENT: Final = 3
DEADLINE_EXCEEDED: Final = 4
NOT_FOUND: Final = 5
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
UNAVAILABLE: Final = 14

MAX_MESSAGE: Final = 1 << 20  # maximum size of an answer in bytes

_PROGRAM: Final = """\
import base64, json, sys
sys.path.append(sys.argv[1])
import grpc
options = [("grpc.max_receive_message_length", int(sys.argv[2])), ("grpc.use_local_subchannel_pool", 1)]
channels = {}
print("{}", flush=True)
for line in sys.stdin:
    call = json.loads(line)
    address = call["address"]
    try:
        if address not in channels:
            channels[address] = grpc.insecure_channel(address, options)
        method = channels[address].unary_unary(call["method"])
        message = method(base64.b64decode(call["request"]), timeout=call["timeout"])
        answer = {"message": base64.b64encode(message).decode()}
    except grpc.RpcError as error:
        answer = {"code": error.code().value[0], "text": error.details() or ""}
        if error.code() is grpc.StatusCode.UNAVAILABLE:  # connect at the next call, without a backoff
            channels.pop(address).close()
    print(json.dumps(answer), flush=True)
"""

# Where the program has it. Looked up at import, because that takes a lock that a forked child could inherit.
_PACKAGE: Final = PathFinder.find_spec("grpc", search_path())

_START: Final = 10.0  # seconds that the child may take to load grpcio

_GRACE: Final = 1.0  # seconds that the child may take in addition to the timeout of a call

_LINE_LIMIT: Final = 2 * MAX_MESSAGE


class Channels:
    """A child that calls any address. It is started for the first call and keeps its connections.

    Raises:
        Unavailable: grpcio is not installed, or there is no Python to start.
    """

    def __init__(self) -> None:
        if _PACKAGE is None or _PACKAGE.origin is None:
            raise Unavailable("the package grpcio is not installed", "pip install grpcio")
        folder = os.path.dirname(os.path.dirname(_PACKAGE.origin))
        self._arguments = ["-I", "-c", _PROGRAM, folder, str(MAX_MESSAGE)]
        self._command = Command(Tool("the gRPC client", python_executable()))
        self._child: Child | None = None
        self._requests: socket.socket | None = None
        self._file: tuple[int, int] | None = None

    def call(self, address: str, method: str, request: bytes, timeout: float, decode: Callable[[bytes], T]) -> T:
        """Call a method and return the answer.

        Args:
            address: ``host:port``, or ``unix:`` and a path.
            method: ``/package.Service/Method``.
            request: The encoded message.
            timeout: Seconds for the whole call.
            decode: Decodes the answer, or raises a ValueError.

        Raises:
            DriverError: The call failed or the answer is invalid. The code is a gRPC status.
        """
        call = {
            "address": address,
            "method": method,
            "request": base64.b64encode(request).decode(),
            "timeout": timeout,
        }
        try:
            self._start()
            self._send(json.dumps(call).encode() + b"\n")
            answer = self._answer(timeout + _GRACE)
        except (OSError, ValueError, Unavailable) as error:
            self.close()
            raise DriverError(INTERNAL, str(error)) from None
        if "message" in answer:
            try:
                return decode(base64.b64decode(answer["message"]))
            except ValueError as error:
                raise DriverError(INTERNAL, f"invalid answer: {error}") from None
        code, text = answer["code"], " ".join(answer["text"].split())
        if code == DEADLINE_EXCEEDED:
            text = f"timed out after {timeout:g} s"
        elif code == UNAVAILABLE:  # ends with the cause, after the addresses that were tried
            text = text.rpartition(": ")[2]
        raise DriverError(code, "".join(filter(str.isprintable, text))[:200] or f"gRPC status {code} without a message")

    def close(self) -> None:
        """End the child. In a forked child of the program, only close the descriptors."""
        requests, self._requests = self._requests, None
        if requests is not None:
            if file_identity(requests.fileno()) == self._file:
                requests.close()
            else:  # the program closed it and may have reused its number
                requests.detach()
        child, self._child = self._child, None
        if child is not None:
            self._command.stop(child)

    def _start(self) -> None:
        if self._child is not None:
            return
        ours, theirs = socket.socketpair()  # not a pipe: see _send
        self._requests = ours
        self._file = file_identity(ours.fileno())
        stdin = above_standard_streams(theirs.detach())
        try:
            self._child = self._command.start(self._arguments, stdin, detached=0.0)
        finally:
            os.close(stdin)
        self._answer(_START)

    def _send(self, line: bytes) -> None:
        """Send a request. If the child has died, no signal is raised, which would end programs that reset SIGPIPE."""
        if self._requests is None or file_identity(self._requests.fileno()) != self._file:
            raise ConnectionError("the program closed the connection to the gRPC client")
        self._requests.sendall(line, socket.MSG_NOSIGNAL)

    def _answer(self, seconds: float) -> dict[str, Any]:
        assert self._child is not None
        deadline = time.monotonic() + seconds
        line = bytearray()
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"the gRPC client did not answer within {seconds:g} s")
            chunk = self._child.read_chunk(left)
            if chunk is None:
                raise ChildProcessError(f"the gRPC client exited: {last_line(self._child.stderr)}")
            line += chunk
            if len(line) > _LINE_LIMIT:
                raise ChildProcessError("the gRPC client printed too much")
        answer: dict[str, Any] = json.loads(line)
        return answer
