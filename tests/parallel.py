"""A pytest plugin: how many workers run the suite, and tests that need the machine to themselves.

Tests marked `alone` run after all others, one at a time: workers leave them out, and the process that started the
workers runs them when those are done. Without workers they run last.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest

ALONE = pytest.StashKey[list[str]]()
"""The node ids of the tests that run alone."""


def pytest_xdist_auto_num_workers() -> int:
    """Two workers per core: about half of the suite's time is waiting for children."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(4, min(2 * cores, 16))


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


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a worker, name the tests that it left out."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["alone"] = session.config.stash.get(ALONE, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a worker left out; all workers name the same tests."""
    node.config.stash[ALONE] = getattr(node, "workeroutput", {}).get("alone", [])


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """After the workers' tests, run those that they left out."""
    result = yield
    alone = session.config.stash.get(ALONE, [])
    if alone and not hasattr(session.config, "workerinput") and not session.shouldfail and not session.shouldstop:
        collected = session.testscollected
        items = session.perform_collect(alone)
        for item, following in zip(items, [*items[1:], None], strict=True):
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        session.testscollected += collected
    return result
