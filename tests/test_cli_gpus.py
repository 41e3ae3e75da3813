"""GPUs in the commands: a block for each in the table, a line for each at a glance, and no name said twice."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.children import PATIENCE, environment, run
from tests.tools import nvml

from opentelemetry.instrumentation.hardware import vocabulary as v
from opentelemetry.instrumentation.hardware.cli.table import draw
from opentelemetry.instrumentation.hardware.cli.view import View
from opentelemetry.instrumentation.hardware.model import Snapshot, Values

SNAPSHOT = ["otel-hardware", "snapshot", "--window", "0.1", "--sources", "nvidia"]
OURS = re.compile(r"GPU-[0-9a-f-]{36}|MIG-[0-9a-f-]{36}")


def shown(fake: nvml.FakeNvml, columns: int, *arguments: str) -> list[str]:
    answer = run([*SNAPSHOT, *arguments], fake.environment | {"COLUMNS": str(columns)})
    assert answer.returncode == 0
    return answer.stdout.splitlines()


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
def test_every_number_of_a_gpu_stands_in_its_block(tmp_path: Path, columns: int) -> None:
    fake = nvml.FakeNvml(tmp_path, nvml.h100(0), nvml.geforce(1))
    lines = shown(fake, columns)
    assert max(map(len, lines)) <= columns
    found = blocks(lines)
    numbers = json.loads("".join(shown(fake, columns, "--format", "json")))["metrics"]
    for name, uuid in ((f"GPU {index}", gpu["UUID"]) for index, gpu in enumerate((nvml.h100(0), nvml.geforce(1)))):
        expected = {
            point["name"].removeprefix("hw.")
            for point in numbers
            if uuid in (point["attributes"].get("hw.id"), point["attributes"].get("hw.parent"))
        }
        assert {line.split()[0] for line in found[name] if re.match("  [a-z]", line)} == expected
    assert not OURS.search("\n".join(line for line in lines if line.startswith(" ")))


def test_a_block_says_what_people_look_for(tmp_path: Path) -> None:
    lines = shown(nvml.FakeNvml(tmp_path, nvml.geforce(0)), 80)
    assert "GPU 0   NVIDIA GeForce RTX 4090   GPU-00002684-0000-4000-8000-000000000000" in lines
    said = " ".join(" ".join(blocks(lines)["GPU 0"]).split())
    for words in (
        "driver 570.86.15 address 0000:01:00.0",
        "status ok gpu",
        "gpu.memory.limit 24 GiB",
        "gpu.performance_state P2",
        "fan.speed_ratio fan 0 45 % fan 1 47 %",
        "gpu.throttle.time 0 s: application_clocks, power_cap, slowdown_hw, sync_boost,",
    ):
        assert words in said
    assert "busy" not in "".join(lines), "one GPU needs no overview"


def test_parts_of_a_gpu_have_blocks_behind_it(tmp_path: Path) -> None:
    fake = nvml.FakeNvml(tmp_path, nvml.mig(nvml.a100(0), 0, {0: (1, 0), 3: (5, 0)}), nvml.a100(1))
    lines = shown(fake, 100)
    assert [*blocks(lines)] == ["GPU 0", "MIG 0/0", "MIG 0/3", "GPU 1"]
    assert any(line.startswith("MIG 0/3   NVIDIA A100-SXM4-80GB MIG 1g.10gb   part of GPU 0") for line in lines)
    assert re.search(r"^MIG 0/3 +- +4 / 9.75 GiB +- +- +- +MIG 1g.10gb$", "\n".join(lines), re.MULTILINE)


def test_a_gpu_that_failed_is_seen_at_a_glance(tmp_path: Path) -> None:
    broken = {"UUID": nvml.h100(1)["UUID"]} | {call: nvml.refused(15) for call in nvml.h100(1) if call != "UUID"}
    lines = shown(nvml.FakeNvml(tmp_path, nvml.h100(0), broken), 100)
    assert "GPU 1" in blocks(lines)
    assert re.search(r"^GPU +state +busy", "\n".join(lines), re.MULTILINE)
    assert re.search(r"^GPU 0 +- +88 %", "\n".join(lines), re.MULTILINE)
    assert re.search(r"^GPU 1 +failed +- ", "\n".join(lines), re.MULTILINE)


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 40), (40, 10)])
def test_live_each_gpu_has_a_line_and_nothing_scrolls(tmp_path: Path, columns: int, rows: int) -> None:
    fake = nvml.FakeNvml(tmp_path, *(nvml.h100(index) for index in range(8)))
    frames, after = live(fake.environment, columns, rows)
    for frame in frames:
        assert len(frame) <= rows
        assert max(map(len, frame)) <= columns
    text = "\n".join(frames[-1])
    for index in range(8 if rows > 12 else 5):
        assert re.search(rf"^GPU {index} +88 % +48.8 / 79.6 GiB", text, re.MULTILINE)
    if columns >= 80:
        assert re.search(r"^GPU 0 +.* +513 / 700 W +61 °C +power_cap [0-9.]+ %", text, re.MULTILINE)
        assert re.search(r"^CPU [\d.<]+ % of \d+   memory [\d.]+ .*GiB   disk read", text, re.MULTILINE)
    assert re.search(r"… \d+ more lines", frames[-1][-1])
    assert "gpu.throttle.time" in after, "the whole table stays behind"


def live(env: Mapping[str, str], columns: int, rows: int) -> tuple[list[list[str]], str]:
    """The frames that a terminal shows, and what stays behind."""
    ours, theirs = pty.openpty()
    line = ["otel-hardware", "snapshot", "--watch", "--every", "0.2", "--count", "2"]
    size = {"TERM": "xterm", "NO_COLOR": "1", "COLUMNS": str(columns), "LINES": str(rows)}
    shown = b""
    with subprocess.Popen(line, env=environment({**env, **size}), stdin=theirs, stdout=theirs, stderr=theirs) as child:
        os.close(theirs)
        while True:
            try:
                more = os.read(ours, 65536)
            except OSError:  # nobody has it open any more
                break
            shown += more
        os.close(ours)
        assert child.wait(PATIENCE) == 0, shown
    screen, _, after = shown.decode().replace("\r\n", "\n").partition("\x1b[?1049l")
    frames = re.sub(r"\x1b\[(K|J|\?25h)", "", screen).split("\x1b[H")[1:]
    return [frame.split("\n") for frame in frames], after


def test_at_its_end_a_program_is_told_with_the_gpus_that_it_used() -> None:
    def gpu(number: int) -> dict[str, str | int]:
        return {v.HW_ID: f"GPU-{number}", v.HW_NAME: f"GPU {number}", v.HW_VENDOR: "NVIDIA", v.HW_MODEL: "NVIDIA L4"}

    values: Values = {
        v.HW_GPU_INFO: [(1, gpu(0)), (1, gpu(1))],
        v.HW_GPU_UTILIZATION: [(0.5, {v.HW_ID: "GPU-1", v.HW_NAME: "GPU 1", v.GPU_TASK: "general"})],
        v.PROCESS_GPU_MEMORY_USAGE: [(3 * 1024**3, {v.HW_ID: "GPU-1"})],
    }
    view = View(0.0, 1.0, Snapshot(values), {}, (), 2**22 + 1)
    lines = draw(view.of_process(), 80).splitlines()
    assert "  gpu.memory.usage  GPU 1  3 GiB" in lines
    assert "GPU 1   NVIDIA L4   GPU-1" in lines
    assert not any("GPU 0" in line or "utilization" in line for line in lines)
