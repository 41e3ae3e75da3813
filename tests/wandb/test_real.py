"""W&B itself and this package, side by side, on the same machine and the same simulated driver."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.support.children import PROGRAMS, run, started
from tests.support.web import Web, page
from tests.tools import wandb
from tests.tools.nvml import MIB, FakeNvml, geforce, h100, listed

# Keys of which the two read different moments, and the largest difference in their unit.
MOMENTS = {
    "cpu": 100.0,
    "disk./.usageGB": 1.0,
    "disk./.usagePercent": 1.0,
    "memory_percent": 10.0,
    "proc.cpu.threads": 16,
    "proc.memory.availableMB": 1024.0,
    "proc.memory.percent": 0.5,
    "proc.memory.rssMB": 64.0,
}

# Increases since the first sample, which is another one, and totals that grow.
GROWING = ("network.", "disk.", "energyJoules", "nvlink", "proc.memory.oomKills", "proc.cpu.throttledPercent")

# What W&B has on its pages, and has switched off since.
OURS = {f"gpu.{index}.{name}" for index in (0, 1) for name in ("encoderUtilization", "graphicsClock")}

PAGE = """# TYPE util gauge
util{gpu="0",host="a"} 7.25
util{gpu="1",host="a"} 5
util{gpu="2",host="b"} 9
# TYPE work_total counter
work_total{queue="x"} 3
# TYPE latency histogram
latency_bucket{le="1"} 1
latency_bucket{le="+Inf"} 2
latency_count 2
latency_sum 1
untyped 4
"""


def side_by_side(
    folder: Path, key: str, *, env: Mapping[str, str], driver: FakeNvml | None = None, **settings: object
) -> tuple[dict[str, float], dict[str, float]]:
    """Return W&B's values and ours, of its process. Its run has two samples of a key.

    Args:
        env: Variables of this package.
        driver: Lists the process as one that uses GPU 1.
        settings: Those of W&B.
    """
    python = wandb()
    theirs = {"HOME": str(folder), "WANDB_ERROR_REPORTING": "false", **(driver.environment if driver else {})}
    line = [str(python), str(PROGRAMS / "tools" / "wandb_run.py"), str(folder), key, json.dumps(settings)]
    with started(line, theirs) as child:
        if driver is not None:
            driver.set_lines({"gpu1.ComputeRunningProcesses": listed((child.pid, 700 * MIB))})
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "sampled\n", child.stderr.read()
        arguments = ("--format", "wandb", "--window", "0.2", "--pid", str(child.pid))
        ours = run(["otel-hardware", "snapshot", *arguments], env)
        child.stdin.write("\n")
        child.stdin.flush()
        answer = child.stdout.readline()
        assert answer, child.stderr.read()
    return json.loads(answer), json.loads(ours.stdout)


def test_wandb_has_the_same_keys_and_values(tmp_path: Path) -> None:
    driver = FakeNvml(tmp_path, h100(0), geforce(1))
    theirs, ours = side_by_side(
        tmp_path, "gpu.0.smActive", env=driver.environment, driver=driver, x_stats_disk_paths=["/"]
    )
    assert theirs.keys() - ours.keys() == set()
    assert {key for key in ours.keys() - theirs.keys() if key.startswith("gpu.")} == OURS
    for key, value in theirs.items():
        if key in MOMENTS:
            assert ours[key] == pytest.approx(value, abs=MOMENTS[key]), key
        elif not any(word in key for word in GROWING):
            assert ours[key] == pytest.approx(value, rel=1e-3), key
    for index in (0, 1):
        assert ours[f"gpu.{index}.energyJoules"] == pytest.approx(theirs[f"gpu.{index}.energyJoules"], rel=1e-2)


@pytest.mark.parametrize(
    "filters",
    [
        [".*"],
        ["util"],
        ["node.util", "work"],
        {"node.util": {"gpu": "[01]"}},
        {".*": {"gpu": "1|2"}},
        {"util": {"gpu": "0"}, "work": {"queue": ".*"}},
    ],
    ids=str,
)
def test_wandb_scrapes_the_same_series(tmp_path: Path, filters: object) -> None:
    with Web(page(PAGE)) as web:
        theirs, ours = side_by_side(
            tmp_path,
            "openmetrics.node.util.0",
            env={
                "OTEL_PYTHON_HARDWARE_OPENMETRICS": f"node={web.url}",
                "OTEL_PYTHON_HARDWARE_OPENMETRICS_FILTERS": json.dumps(filters),
            },
            x_stats_open_metrics_endpoints={"node": web.url},
            x_stats_open_metrics_filters=filters,
        )
    scraped = [{key: value for key, value in row.items() if key.startswith("openmetrics.")} for row in (theirs, ours)]
    assert scraped[0] == scraped[1]
    assert scraped[0]
