"""Start a process directly, with its standard streams and no other descriptor of the program.

Not by :mod:`subprocess`: Popen waits for the end of a pipe that a process forked by the program at the same moment,
such as a worker, keeps open for its whole life.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial

if sys.platform != "win32":
    import fcntl


def spawn(line: list[str], environment: dict[str, str], streams: Sequence[int | None], group: int | None) -> int:
    """Start a process.

    Args:
        line: The path and the arguments.
        environment: The environment variables.
        streams: Its standard streams; None: nothing.
        group: Its process group; 0: a new one; None: a new one, in a new session if Python has that.
    """
    start = partial(
        os.posix_spawn,
        line[0],
        line,
        environment,
        file_actions=[
            *((os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in _inheritable()),
            *(
                (os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0)
                if stream is None
                else (os.POSIX_SPAWN_DUP2, stream, number)
                for number, stream in enumerate(streams)
            ),
        ],
        setsigmask=(),
        setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),  # Python ignores them, and a child would inherit that
    )
    if group is None:
        with suppress(NotImplementedError):  # Python was built with an old C library: uv, conda
            return start(setsid=True)
    return start(setpgroup=group or 0)


def lacks(path: str) -> str:
    """Return what a program lacks that exists, but that the system does not find."""
    with suppress(OSError), open(path, "rb") as file:
        if file.read(2) == b"#!":
            return "the interpreter in its first line does not exist"
    return "its C library is not installed"


def file_identity(descriptor: int) -> tuple[int, int] | None:
    """Return the device and inode of an open descriptor; None if it is closed.

    The program may close our descriptors, and the next file that it opens gets the same number.
    """
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def above_standard_streams(descriptor: int) -> int:
    """Return the descriptor, moved above 5 if needed: a child has others at 0 to 5.

    They are free if the program closed its standard streams.
    """
    if descriptor > 5:
        return descriptor
    moved: int = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 6)
    os.close(descriptor)
    return moved


def _inheritable() -> Iterator[int]:
    """Yield the descriptors that a child would inherit, because the program opened them without O_CLOEXEC."""
    with suppress(FileNotFoundError):  # without /dev/fd they are inherited
        for name in os.listdir("/dev/fd"):
            with suppress(OSError):  # the descriptor of this listing
                if int(name) > 2 and os.get_inheritable(int(name)):
                    yield int(name)
