"""W&B itself and this package, side by side, on the same machine and the same simulated driver."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.children import PROGRAMS, run, started
from tests.tools import fake_nvml, need, wandb
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


def test_wandb_has_the_same_keys_and_values(tmp_path: Path) -> None:
    need(fake_nvml)
    python = need(wandb)
    driver = FakeNvml(tmp_path, h100(0), geforce(1))
    env = {**driver.environment, "HOME": str(tmp_path), "WANDB_ERROR_REPORTING": "false"}
    with started([str(python), str(PROGRAMS / "tools" / "wandb_run.py"), str(tmp_path)], env) as child:
        driver.set_lines({"gpu1.ComputeRunningProcesses": listed((child.pid, 700 * MIB))})
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "sampled\n", child.stderr.read()
        arguments = ("--format", "wandb", "--window", "0.2", "--pid", str(child.pid))
        ours = run(["otel-hardware", "snapshot", *arguments], driver.environment)
        child.stdin.write("\n")
        child.stdin.flush()
        line = child.stdout.readline()
        assert line, child.stderr.read()
    theirs, row = json.loads(line), json.loads(ours.stdout)
    assert theirs.keys() - row.keys() == set()
    assert {key for key in row.keys() - theirs.keys() if key.startswith("gpu.")} == OURS
    for key, value in theirs.items():
        if key in MOMENTS:
            assert row[key] == pytest.approx(value, abs=MOMENTS[key]), key
        elif not any(word in key for word in GROWING):
            assert row[key] == pytest.approx(value, rel=1e-3), key
    for index in (0, 1):
        assert row[f"gpu.{index}.energyJoules"] == pytest.approx(theirs[f"gpu.{index}.energyJoules"], rel=1e-2)
