"""Servers and task queues under ``opentelemetry-instrument``. `python -m tests.slow.launchers` runs more of them."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.version import Version
from tests.slow.launchers.cases import CASES
from tests.slow.launchers.runner import run
from tests.tools.collector import Collector

QUICK = (
    "multiprocessing-fork-instrument",
    "multiprocessing-spawn",
    "multiprocessing-forkserver-instrument",
    "gunicorn-sync",
    "gunicorn-gthread-preload",
    "uvicorn-workers",
)

pytestmark = pytest.mark.skipif(
    Version(version("opentelemetry-sdk")) < Version("1.44"),
    reason="older SDKs do not instrument child interpreters, or keep the resource of the parent in a forked child",
)


@pytest.mark.parametrize("name", QUICK)
def test_host_is_reported_once_and_each_worker_reports_itself(name: str, collector: Collector, tmp_path: Path) -> None:
    (case,) = [case for case in CASES if case.name == name]
    outcome = run(case, collector, tmp_path, flush=True)
    assert (outcome.problems, outcome.hosts) == ((), 1)
    assert outcome.processes == case.expected
