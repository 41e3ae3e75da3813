"""W&B's keys of NVIDIA GPUs where the library cannot be used: the real source runs a tool that prints a document."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.sources.nvidia.test_tool import FOLDER

from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.wandb.keys import row
from opentelemetry.instrumentation.hardware.wandb.nvidia import KEYS, Probe


@pytest.mark.parametrize(
    ("document", "corrected", "uncorrected"),
    [
        pytest.param("v12-l40s", 0, 0, id="not the 9 of the whole lifetime"),
        pytest.param("v10-v100", 1, 0, id="of the device memory"),
    ],
)
def test_wandb_keys_of_memory_errors_by_nvidia_smi(
    tmp_path: Path, document: str, corrected: int, uncorrected: int
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\nexec cat {FOLDER / document}.xml\n")
    tool.chmod(0o755)
    probe = Probe(Config.read({"nvml": "off", "nvidia_smi": str(tool), "devices": "all"}, {}), os.getpid())
    try:
        found = row(KEYS, probe.read() or {})
    finally:
        probe.close()
    assert found["gpu.0.correctedMemoryErrors"] == corrected
    assert found["gpu.0.unCorrectedMemoryErrors"] == found["gpu.0.uncorrectedMemoryErrors"] == uncorrected
