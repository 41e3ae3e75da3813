"""Whether a reading costs more where there are many sockets, or many processes of other programs."""

from __future__ import annotations

import resource
import socket
import statistics
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.benchmarks import fresh
from tests.benchmarks.figure import Figure
from tests.benchmarks.ours import ByHand
from tests.benchmarks.steady import in_turn

SOCKETS = 1000
PROCESSES = 300
_TIMES = 5


def figures(quick: bool) -> list[Figure]:
    rounds = 3 if quick else 15
    few, many = reading_with_sockets(rounds)

    def lone() -> float:
        return float(fresh.call(f"{__name__}:reading", rounds))

    def crowded() -> float:
        with crowd(PROCESSES):
            return lone()

    cost = in_turn({"lone": lone, "crowded": crowded}, 1 if quick else 5)
    return [
        Figure(f"reading with {SOCKETS} sockets open", many, "ms CPU", "none", few, 1.1 * few, "1.1 x, for noise"),
        Figure(
            f"reading beside {PROCESSES} processes of others",
            cost["crowded"],
            "ms CPU",
            "none",
            cost["lone"],
            1.1 * cost["lone"],
            "1.1 x, for noise",
        ),
    ]


def reading(rounds: int) -> float:
    """CPU milliseconds of reading every source in this process, its tree included."""
    whole = ByHand()
    return statistics.median(_cost(whole) for _ in range(rounds))


def reading_with_sockets(rounds: int) -> tuple[float, float]:
    """The same without and with sockets, in turn."""
    whole = ByHand()

    def crowded() -> float:
        with sockets(SOCKETS):
            return _cost(whole)

    cost = in_turn({"few": lambda: _cost(whole), "many": crowded}, rounds)
    return cost["few"], cost["many"]


def _cost(whole: ByHand) -> float:
    return statistics.median(whole.cost() for _ in range(_TIMES))


@contextmanager
def sockets(number: int) -> Iterator[None]:
    """So many connected TCP sockets of this process; none of them lingers in the kernel afterwards."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = number + 256
    if soft != resource.RLIM_INFINITY and soft < wanted:
        more = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
    made: list[socket.socket] = []
    try:
        with socket.create_server(("127.0.0.1", 0), backlog=16) as server:
            for _ in range(number // 2):
                made.append(socket.create_connection(server.getsockname()))
                made.append(server.accept()[0])
                for each in made[-2:]:
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            yield
    finally:
        for each in made:
            each.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


_CROWD = """
import os, signal, sys
children = []
try:
    for _ in range(int(sys.argv[1])):
        child = os.fork()
        if not child:
            os.read(0, 1)
            os._exit(0)
        children.append(child)
    print("there", flush=True)
    os.read(0, 1)
finally:
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
"""


@contextmanager
def crowd(number: int) -> Iterator[None]:
    """So many sleeping processes beside those that :mod:`fresh` starts; they end when their pipe closes."""
    with subprocess.Popen(
        [sys.executable, "-S", "-E", "-c", _CROWD, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        try:
            if parent.stdout.readline() != b"there\n":
                raise RuntimeError(f"{number} processes could not be started")
            yield
        finally:
            parent.stdin.close()
            parent.wait(30)
