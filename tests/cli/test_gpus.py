"""GPUs in the tables of the commands. Whole tables are in `cli/gpu*.txt`; see cli/test_transcripts.py."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.commands import otel_hardware, simulated
from tests.tools import fake_nvml, need, nvml

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.cli.table import draw
from opentelemetry.instrumentation.hardware.cli.view import View
from opentelemetry.instrumentation.hardware.model import Snapshot, Values


def shown(fake: nvml.FakeNvml, columns: int, *arguments: str) -> list[str]:
    with simulated():
        answer = otel_hardware(
            "snapshot", "--sources", "nvidia", *arguments, env={**fake.environment, "COLUMNS": str(columns)}
        )
    assert answer.status == 0
    return answer.out.splitlines()


def blocks(lines: list[str]) -> dict[str, list[str]]:
    """The lines below each GPU's heading, by its name."""
    found: dict[str, list[str]] = {}
    rest: list[str] = []
    for line in lines:
        if line and not line.startswith(" "):
            heading = re.match(r"((?:GPU|MIG) [\d/]+)   (?:NVIDIA|GPU-)", line)
            rest = found.setdefault(heading[1], []) if heading else []
        elif line:
            rest.append(line)
    return found


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_snapshot_table_block_of_gpu_has_its_metrics_without_uuid(tmp_path: Path, columns: int) -> None:
    need(fake_nvml)
    fake = nvml.FakeNvml(tmp_path, nvml.a100(0), nvml.geforce(1))
    lines = shown(fake, columns)
    assert max(map(len, lines)) <= columns
    found = blocks(lines)
    numbers = json.loads("".join(shown(fake, columns, "--format", "json")))["metrics"]
    for name, uuid in ((f"GPU {index}", gpu["UUID"]) for index, gpu in enumerate((nvml.a100(0), nvml.geforce(1)))):
        expected = {
            point["name"].removeprefix("hw.")
            for point in numbers
            if uuid in (point["attributes"].get("hw.id"), point["attributes"].get("hw.parent"))
        }
        assert expected
        assert {line.split()[0] for line in found[name] if re.match("  [a-z]", line)} == expected
    assert not re.search(r"GPU-[0-9a-f-]{36}|MIG-[0-9a-f-]{36}", "\n".join(line for line in lines if line[:1] == " "))


def test_table_of_process_has_only_the_gpus_that_it_used() -> None:
    def gpu(number: int) -> dict[str, str | int]:
        return {
            c.HW_ID: f"GPU-{number}",
            c.HW_NAME: f"GPU {number}",
            c.HW_VENDOR: "NVIDIA",
            c.HW_MODEL: "NVIDIA L4",
        }

    values: Values = {
        c.HW_GPU_INFO: [(1, gpu(0)), (1, gpu(1))],
        c.HW_GPU_UTILIZATION: [(0.5, {c.HW_ID: "GPU-1", c.HW_NAME: "GPU 1", c.GPU_TASK: "general"})],
        c.PROCESS_GPU_MEMORY_USAGE: [(3 * 1024**3, {c.HW_ID: "GPU-1"})],
    }
    view = View(0.0, 1.0, Snapshot(values), {}, (), 2**22 + 1)
    lines = draw(view.of_process(), 80).splitlines()
    assert "  gpu.memory.usage  GPU 1  3 GiB" in lines
    assert "GPU 1   NVIDIA L4   GPU-1" in lines
    assert not any("GPU 0" in line or "utilization" in line for line in lines)
