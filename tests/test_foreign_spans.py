"""Hardware numbers on the spans of libraries with a TracerProvider of their own, over a simulated NVML."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest
from tests import children
from tests.tools import Missing, fake_nvml, need
from tests.tools.nvml import MIB, FakeNvml, h100, listed, moving

from opentelemetry.instrumentation.hardware import catalog as c

WATTS = 250.0


def _installed(library: str, module: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise Missing(f"{library} is not installed: pip install {library}")


@pytest.mark.parametrize(
    ("library", "module", "name"),
    [("nemo-lens", "nemo", "megatron.train.step"), ("logfire", "logfire", "train {step}")],
)
def test_spans_of_a_library_have_the_energy_of_their_time(library: str, module: str, name: str, tmp_path: Path) -> None:
    if library == "nemo-lens" and sys.version_info < (3, 13):
        pytest.skip("nemo-lens needs Python 3.13")
    need(lambda: _installed(library, module))
    need(fake_nvml)
    gpu = {**h100(0), "PowerUsage": int(1000 * WATTS), "FieldValues.83": f"ullong {moving(5_000_000, 1000 * WATTS)}"}
    fake = FakeNvml(tmp_path, gpu)
    with children.started(children.command("foreign_spans", library), fake.environment) as child:
        fake.set_lines({"gpu0.ComputeRunningProcesses": listed((child.pid, 700 * MIB))})
        out, err = child.communicate("\n", timeout=children.PATIENCE)
    assert child.returncode == 0, err
    (span,) = [span for span in json.loads(out) if c.SPAN_ENERGY.name in span["attributes"]]
    assert span["name"] == name
    interval = span["attributes"][c.SPAN_RESOLUTION.name]
    expected = pytest.approx(WATTS * span["seconds"], rel=0.05, abs=WATTS * interval)
    assert span["attributes"][c.SPAN_ENERGY.name] == expected
