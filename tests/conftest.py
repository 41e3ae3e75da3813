"""What all tests share."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator
from contextlib import suppress

import pytest
from tests.alone import Turns
from tests.children import descriptors
from tests.programs import traces
from tests.waiting import wait_for

TURNS = pytest.StashKey[Turns]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write simulated captures and expected output anew, instead of comparing"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Restore Ctrl+C, which a shell makes its background jobs ignore: tests interrupt their children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[TURNS] = Turns.of_worker(config)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove what the workers share."""
    config.stash[TURNS].close()


def pytest_xdist_auto_num_workers() -> int:
    """Two workers per core: about half of the suite's time is waiting for children."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(4, min(2 * cores, 16))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests marked `alone` last."""
    items.sort(key=lambda item: item.get_closest_marker("alone") is not None)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Keep other workers from running tests beside one that is marked `alone`."""
    with item.config.stash[TURNS].turn(alone=item.get_closest_marker("alone") is not None):
        return (yield)


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
