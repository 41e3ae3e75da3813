"""What all tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

import pytest
from tests.children import descriptors
from tests.waiting import wait_for


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write made-up captures and expected output anew, instead of comparing"
    )


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether files that are made from something else are to be written anew."""
    return bool(request.config.getoption("--rewrite"))


@pytest.fixture(scope="module", autouse=True)
def grpc_has_ended() -> None:
    """A file begins when what gRPC had open for the one before it is closed; its own threads do that, after it says so."""
    with suppress(AssertionError):  # where it stays open, it does for both of two looks, too
        wait_for(lambda: "anon_inode:[eventpoll]" not in descriptors().values(), 10, "end of gRPC")


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
