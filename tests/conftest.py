"""What all tests share."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.children import descriptors
from tests.programs import traces
from tests.waiting import wait_for

pytest_plugins = ["tests.parallel"]

PORTABLE = (
    "sources/test_captures.py",
    "sources/test_portable.py",
    "test_board.py",
    "test_choice.py",
    "test_config.py",
    "test_cycle.py",
    "test_devices.py",
    "test_model.py",
    "test_poller.py",
    "test_rhythm.py",
    "test_rounds.py",
    "test_sources.py",
    "test_vocabulary.py",
    "test_wandb.py",
    "test_windows.py",
)
"""The files of tests that run on macOS and Windows too: they need no child process and none of Linux's files."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write simulated captures and expected output anew, instead of comparing"
    )


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Outside of Linux, leave out what needs Linux."""
    if sys.platform.startswith("linux") or not collection_path.name.startswith("test_"):
        return None
    return collection_path.relative_to(Path(__file__).parent).as_posix() not in PORTABLE or None


def pytest_configure() -> None:
    """Restore Ctrl+C, which a shell makes its background jobs ignore: tests interrupt their children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether files that are made from something else are to be written anew."""
    return bool(request.config.getoption("--rewrite"))


@pytest.fixture(scope="module", autouse=True)
def files_do_not_meet() -> Iterator[None]:
    """What gRPC has open when one file of tests ends is closed before the next begins; of the kernel's, nothing is."""
    if not os.path.isdir("/proc/self/fd"):
        yield
        return
    with suppress(AssertionError):  # where it stays open, it does so at both ends of a comparison
        wait_for(lambda: "anon_inode:[eventpoll]" not in descriptors().values(), 10, "end of gRPC's own threads")
    yield
    wait_for(lambda: traces.descriptors() == [], 10, "end of what reads the kernel's files")


@pytest.fixture
def no_child_is_left() -> Iterator[None]:
    """After the test there is no child, not even a dead one."""
    yield
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.fixture
def nothing_is_left(no_child_is_left: None) -> Iterator[None]:
    """And there are the descriptors of before it."""
    before = descriptors()
    yield
    assert descriptors() == before
