"""A pytest plugin: how many workers run the suite, and tests that need the machine to themselves.

Tests marked `alone` run after all others, one at a time: workers leave them out, and the process that started the
workers runs them when those are done. Without workers they run last.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from typing import Any

import pytest

ALONE = pytest.StashKey[list[str]]()  # the node ids of the tests that run alone


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Five workers for two cores: about half of the suite's time is waiting for children.

    The fast part has no such tests. That of a named folder runs in this process: each worker takes seconds to start.
    """
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None  # pytest-xdist reads it
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    if config.option.markexpr == "fast":
        return cores if config.args_source is pytest.Config.ArgsSource.TESTPATHS else 0
    return max(5, min(5 * cores // 2, 16))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the tests marked `alone` last; in a worker, leave them out."""
    alone = [item for item in items if item.get_closest_marker("alone")]
    others = [item for item in items if item not in alone]
    if hasattr(config, "workerinput"):
        config.stash[ALONE] = [item.nodeid for item in alone]
        items[:] = others
    else:
        items[:] = others + alone


def pytest_collection_finish() -> None:
    """Let garbage collections, of which a test makes many, leave out the modules and tests."""
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a worker, report the tests that it left out."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["alone"] = session.config.stash.get(ALONE, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Collect the tests that a worker left out. All workers name the same tests; a crashed worker names none."""
    if alone := getattr(node, "workeroutput", {}).get("alone"):
        node.config.stash[ALONE] = alone


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """After the workers' tests, run those that they left out."""
    result = yield
    config = session.config
    alone = config.stash.get(ALONE, [])
    if alone and not hasattr(config, "workerinput") and not _stopped(session):
        collected = session.testscollected
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.line("")  # ends the line of dots
        # Node ids are relative to the root; arguments are relative to the directory that pytest was started in.
        items = session.perform_collect([str(config.rootpath / nodeid) for nodeid in alone])
        for item, following in zip(items, [*items[1:], None], strict=True):
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if _stopped(session):
                break
        session.testscollected += collected
    return result


def _stopped(session: pytest.Session) -> bool:
    return bool(session.shouldfail or session.shouldstop)
