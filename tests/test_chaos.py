"""A job whose processes are started, forked, stopped and killed at random: one reporter, and never two."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.version import Version
from tests.slow.chaos import Chaos, Job
from tests.tools.collector import Collector


@pytest.mark.parametrize("seed", range(3))
def test_one_process_reports_the_host_whatever_happens_to_the_others(seed: int, tmp_path: Path) -> None:
    job = Job(tmp_path)
    try:
        chaos = Chaos(job, seed, size=6)
        for _ in range(25):
            chaos.round(actions=1)
    finally:
        job.close()


@pytest.mark.skipif(
    Version(version("opentelemetry-sdk")) < Version("1.44"), reason="a forked child has the resource of its parent"
)
def test_no_series_arrives_twice_at_a_collector(tmp_path: Path) -> None:
    with Collector(tmp_path) as collector:
        job = Job(tmp_path, collector)
        try:
            chaos = Chaos(job, seed=3, size=6)
            for _ in range(10):
                chaos.round(actions=2)
        finally:
            job.close()
