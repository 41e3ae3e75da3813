"""W&B's keys of Trainium: which of several runtimes is that of the process."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any
from unittest.mock import patch

import pytest
from tests.sources.machines import STRANGER
from tests.sources.npus import CHILD, CONTAINER, HOST, listing, npu_host, program, reports_of, runtime
from tests.support.wandb import row, watched

from opentelemetry.instrumentation.hardware import wandb
from opentelemetry.instrumentation.hardware.settings import Config


def percents(
    runtimes: Sequence[Mapping[str, Any]], namespace: Mapping[str, Any], environ: Mapping[str, str]
) -> dict[str, float]:
    """The utilization by core."""
    drivers = npu_host({**namespace, "/dev/neuron0": ""} | program(CHILD), reports_of(*runtimes))
    with patch.dict(os.environ, environ):
        keys = row("trainium", STRANGER, drivers, devices="all")
    return {name.split(".")[1]: keys[name] for name in keys if name.endswith(".neuroncore_utilization")}


# The runtimes of three ranks; the second one is observed.
RANKS = [runtime(4240, (0,), 1), runtime(STRANGER, (1,), 1), runtime(4242, (2,), 1)]


# The same by the host's PIDs, which mean nothing in a container.
FOREIGN = [runtime(7000 + rank, (rank,), 1, tag=f"job{rank}") for rank in range(3)]


def test_rank_of_another_process_is_that_of_its_own_environment() -> None:
    drivers = npu_host({**CONTAINER, "/dev/neuron0": ""} | program(CHILD), reports_of(*FOREIGN))
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, env={"LOCAL_RANK": "2"}) as other:
        with watched("trainium", STRANGER, drivers, devices="all") as watching:
            points = wandb.Points(watching.viewer.first, 0.0, Config(), other.pid)
            found = points.row(watching.viewer.collect())
        other.communicate()
    assert "trn.2.neuroncore_utilization" in found


@pytest.mark.parametrize(
    ("runtimes", "namespace", "rank", "expected"),
    [
        pytest.param(RANKS, HOST, "", ["1"], id="own"),
        pytest.param(RANKS, HOST, "1", ["1"], id="own-of-rank"),
        pytest.param(RANKS, HOST, "2", ["1"], id="own-before-core-of-rank"),
        pytest.param([runtime(STRANGER, (0, 1, 2), 1)], HOST, "2", ["2"], id="one-core-of-several"),
        pytest.param([runtime(STRANGER, (2, 3), 1)], HOST, "1", ["2", "3"], id="two-cores-per-rank"),
        pytest.param([runtime(CHILD, (5,), 1)], HOST, "", ["5"], id="child"),
        pytest.param(FOREIGN, CONTAINER, "", [], id="unknown-pids"),
        pytest.param(FOREIGN, CONTAINER, "2", ["2"], id="unknown-pids-and-rank"),
        pytest.param(FOREIGN, CONTAINER, "x", [], id="no-number"),
    ],
)
def test_runtime_is_that_of_the_process_or_of_its_rank(
    runtimes: Sequence[Mapping[str, Any]], namespace: Mapping[str, Any], rank: str, expected: list[str]
) -> None:
    assert [*percents(runtimes, namespace, {"LOCAL_RANK": rank} if rank else {})] == expected


def test_core_of_a_rank_is_that_of_the_runtime_that_uses_it() -> None:
    ranks = [listing(runtime(7000 + rank, (rank,), 1, tag=f"job{rank}"), range(4)) for rank in range(4)]
    assert percents(ranks, CONTAINER, {"LOCAL_RANK": "2"}) == {"2": 40.0625}


def test_cores_that_the_runtime_lists_but_does_not_use_are_left_out() -> None:
    ours = listing(runtime(STRANGER, (0,), 1), range(2))
    assert percents([ours], HOST, {}) == {"0": 40.0625}
