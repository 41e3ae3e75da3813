"""GPUs in the tables of the commands. Whole tables are in `cli/gpu*.txt`; see cli/test_transcripts.py."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.support.commands import otel_hardware, simulated
from tests.tools import nvml

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.cli.table import draw, summary
from opentelemetry.instrumentation.hardware.model import Snapshot, Values
from opentelemetry.instrumentation.hardware.pipeline.view import View


def shown(fake: nvml.FakeNvml, columns: int, *arguments: str) -> list[str]:
    with simulated():
        answer = otel_hardware(
            "snapshot", "--sources", "nvidia", *arguments, env={**fake.environment, "COLUMNS": str(columns)}
        )
    assert answer.status == 0
    return answer.out.splitlines()


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_snapshot_table_has_each_metric_of_each_gpu_without_uuid(tmp_path: Path, columns: int) -> None:
    fake = nvml.FakeNvml(tmp_path, nvml.a100(0), nvml.geforce(1))
    lines = shown(fake, columns)
    assert max(map(len, lines)) <= columns
    found: dict[str, set[str]] = {"GPU 0": set(), "GPU 1": set()}
    metric = ""
    for line in lines:
        metric = line.split()[0] if line.startswith("hw.") else metric
        device = re.search(r"  +(GPU \d)( |$)", line)
        if metric and device:
            found[device[1]].add(metric)
    numbers = json.loads("".join(shown(fake, columns, "--format", "json")))["metrics"]
    for name, uuid in ((f"GPU {index}", gpu["UUID"]) for index, gpu in enumerate((nvml.a100(0), nvml.geforce(1)))):
        expected = {
            point["name"]
            for point in numbers
            if uuid in (point["attributes"].get("hw.id"), point["attributes"].get("hw.parent"))
        }
        assert expected
        assert found[name] == expected
    assert not re.search(r"GPU-[0-9a-f-]{36}|MIG-[0-9a-f-]{36}", "\n".join(lines))


@pytest.mark.parametrize(
    ("sensors", "shown_"),
    [
        ({"gpu": 61.0, "memory": 70.0}, "61 °C"),
        ({"edge": 45.0, "junction": 71.0, "memory": 64.0}, "71 °C"),
        ({"edge": 45.0, "memory": 64.0}, "45 °C"),
        ({"memory": 64.0}, ""),
    ],
)
def test_temperature_of_summary_falls_back_to_junction_and_edge(sensors: dict[str, float], shown_: str) -> None:
    gpu: dict[str, str | int] = {c.HW_ID: "0000:c8:00.0", c.HW_NAME: "GPU 0", c.HW_TYPE: "gpu"}
    values: Values = {
        c.HW_GPU_UTILIZATION: [(0.5, {c.HW_ID: "0000:c8:00.0", c.HW_NAME: "GPU 0", c.GPU_TASK: "general"})],
        c.HW_TEMPERATURE: [(value, {**gpu, c.HW_SENSOR_LOCATION: sensor}) for sensor, value in sensors.items()],
    }
    lines = summary(View(0.0, 1.0, Snapshot(values), {}, (), None, {}), 80)
    assert lines == (["GPU    busy  temp", f"GPU 0  50 %  {shown_}"] if shown_ else ["GPU    busy", "GPU 0  50 %"])


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
    view = View(0.0, 1.0, Snapshot(values), {}, (), 2**22 + 1, {"GPU-0": "GPU 0", "GPU-1": "GPU 1"})
    lines = draw(view.of_process(), 80).splitlines()
    assert "process.gpu.memory.usage  GPU 1  3 GiB" in lines
    assert not any("GPU 0" in line or "utilization" in line for line in lines)
