"""Whether a reading costs more with many sockets of this process, or beside many processes of other programs."""

from __future__ import annotations

import socket
import statistics
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.slow.benchmarks.figure import Figure
from tests.slow.benchmarks.ours import ByHand
from tests.slow.benchmarks.steady import in_turn, yardstick

SOCKETS = 1000
PROCESSES = 300
_TIMES = 5


def figures(seconds: float) -> list[Figure]:
    with _reader() as ask:

        def crowded() -> float:
            with crowd(PROCESSES):
                return ask("alone")

        cost = in_turn(
            {"alone": lambda: ask("alone"), "sockets": lambda: ask("sockets"), "processes": crowded},
            seconds,
            lambda: ask("yardstick"),
        )
    return [
        cost.figure(name, run, "ms of CPU", "without", "alone", bound=1.1, relative=True)
        for name, run in ((f"{SOCKETS:,} sockets open", "sockets"), (f"{PROCESSES} other processes", "processes"))
    ]


@contextmanager
def _reader() -> Iterator[Callable[[str], float]]:
    """A child that reads every source when asked; to it, a crowd that this process starts is of other programs."""
    with subprocess.Popen(
        [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        questions, answers = child.stdin, child.stdout
        assert answers is not None

        def ask(question: str) -> float:
            print(question, file=questions, flush=True)
            return float(answers.readline())

        yield ask
        questions.close()


def _answer() -> None:
    """Answer the questions on standard input, in milliseconds of CPU time, until it ends."""
    whole = ByHand()

    def alone() -> float:
        return statistics.median(whole.cost() for _ in range(_TIMES))

    def crowded() -> float:
        with sockets(SOCKETS):
            return alone()

    alone()
    answers = {"alone": alone, "sockets": crowded, "yardstick": yardstick}
    for question in sys.stdin:
        print(answers[question.strip()](), flush=True)


@contextmanager
def sockets(number: int) -> Iterator[None]:
    """Keep so many connected TCP sockets in this process; they are reset at the end, so none stays in the kernel."""
    import resource  # not on Windows, where this module is imported by tests that are skipped

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
    """Keep so many sleeping processes as children of this one; they end when their pipe closes."""
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


if __name__ == "__main__":
    _answer()
