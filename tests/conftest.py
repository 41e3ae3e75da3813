"""Options and fixtures of all tests."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from hypothesis import is_hypothesis_test, settings
from tests.support import traces
from tests.support.children import descriptors
from tests.support.waiting import wait_for
from tests.tools import Missing

if TYPE_CHECKING:
    from tests.support.sink import Sink
    from tests.tools.collector import Collector
    from tests.tools.tls import Certificate

pytest_plugins = ["tests.support.parallel"]

settings.register_profile("suite", max_examples=50)  # the gate runs the suite three times; tests/slow/fuzz has a fuzzer
settings.load_profile("suite")

# Tests that also run on macOS and Windows: they need no child processes and no files of Linux.
PORTABLE = (
    "sources/test_captures.py",
    "system/test_psutil_backend.py",
    "pipeline/test_collector.py",
    "accelerators/test_selection.py",
    "test_settings.py",
    "pipeline/test_counters.py",
    "accelerators/test_fields.py",
    "test_model.py",
    "pipeline/test_runner.py",
    "pipeline/test_schedule.py",
    "pipeline/test_thread.py",
    "sources/test_sources.py",
    "test_catalog.py",
    "wandb/test_keys.py",
    "pipeline/test_aggregate.py",
)

# Folders and files with the fast part: units, tables and captures.
FAST = {
    "accelerators",
    "pipeline",
    "sources",
    "system",
    "wandb",
    "test_catalog.py",
    "test_model.py",
    "test_settings.py",
}

# What files in these folders are named after that run whole programs, other readers, or many readings. Single tests of
# this kind are marked `whole`.
WHOLE = {
    "cost",
    "descendants",
    "driver",
    "faults",
    "forks",
    "independent",
    "new_metric",
    "new_vendor",
    "presence",
    "process",
    "programs",
    "real",
    "reporter",
    "rpc",
    "tpu",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write simulated captures and expected output instead of comparing"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """On other systems, leave out the tests that need Linux. For the fast part, import no other test."""
    if not collection_path.name.startswith("test_"):
        return None
    if config.option.markexpr == "fast" and not _may_be_fast(collection_path):
        return True
    if sys.platform.startswith("linux"):
        return None
    return collection_path.relative_to(Path(__file__).parent).as_posix() not in PORTABLE or None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the fast part. A search through random inputs is not in it."""
    test = getattr(item, "function", None)
    if _may_be_fast(item.path) and not item.get_closest_marker("whole") and not is_hypothesis_test(test):
        item.add_marker("fast")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> None:
    """Skip a test for which a program is missing. If CI is set, it fails."""
    if call.excinfo is not None and isinstance(call.excinfo.value, Missing):
        reason = str(call.excinfo.value)
        end = partial(pytest.fail, reason, pytrace=False) if os.environ.get("CI") else partial(pytest.skip, reason)
        call.excinfo = pytest.CallInfo.from_call(end, call.when).excinfo


def _may_be_fast(module: Path) -> bool:
    path = module.relative_to(Path(__file__).parent)
    return path.parts[0] in FAST and path.stem.removeprefix("test_") not in WHOLE


def pytest_configure() -> None:
    """Restore Ctrl+C, which a shell makes its background jobs ignore: tests interrupt their children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether to write expected files instead of comparing with them."""
    return bool(request.config.getoption("--rewrite"))


@pytest.fixture(scope="module", autouse=True)
def no_descriptor_outlives_a_module() -> Iterator[None]:
    """Wait until gRPC's threads have closed descriptors of earlier tests, and our threads those of this module."""
    if not os.path.isdir("/proc/self/fd"):
        yield
        return
    with suppress(AssertionError):  # one that stays open is the same before and after a test
        wait_for(lambda: "anon_inode:[eventpoll]" not in descriptors().values(), 10, "end of gRPC's threads")
    yield
    wait_for(lambda: traces.descriptors() == [], 10, "closing of the files of /proc and /sys")
    # A test that leaves its job locked hides the host from the ranks that another test starts.
    wait_for(lambda: not any("/otel-hardware" in path for path in descriptors().values()), 10, "closing of the locks")


@pytest.fixture
def no_child_is_left() -> Iterator[None]:
    """Check that no child process is left after the test, not even a zombie."""
    yield
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.fixture
def nothing_is_left(no_child_is_left: None) -> Iterator[None]:
    """Check that the test left no children and no open descriptors."""
    before = descriptors()
    yield
    assert descriptors() == before


@pytest.fixture
def sink() -> Iterator[Sink]:
    from tests.support.sink import Sink  # not in the tests that also run on other systems

    with Sink() as opened:
        yield opened


@pytest.fixture
def job() -> dict[str, str]:
    """The environment of a new job."""
    from opentelemetry.instrumentation.hardware.settings import JOB

    return {JOB: f"{os.geteuid()}/test:{uuid4()}"}


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    """The Collector that all tests of a module share. Services are told apart by name."""
    from tests.tools.collector import Collector

    with Collector(tmp_path_factory.mktemp("collector")) as started:
        yield started


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """The certificate of servers on this machine."""
    from tests.tools.tls import certificate

    return certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def refusing() -> Iterator[str]:
    """An endpoint that refuses connections while the test lasts."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{probe.getsockname()[1]}"
