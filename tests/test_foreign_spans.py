"""Hardware numbers on the spans of libraries with a TracerProvider of their own, over a simulated NVML."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support import children
from tests.tools import Missing
from tests.tools.load import WAVERING, check_energy, loaded
from tests.tools.nvml import MIB, FakeNvml, h100, listed

from opentelemetry.instrumentation.hardware import catalog as c


def _installed(library: str, module: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise Missing(f"{library} is not installed: pip install {library}")


def spans(line: list[str], folder: Path) -> list[dict[str, Any]]:
    """Run a program that uses a simulated GPU from its beginning, and return those of its spans that have energy."""
    fake = FakeNvml(folder, loaded(h100(0), WAVERING))
    exporters = {f"OTEL_{signal}_EXPORTER": "none" for signal in ("TRACES", "METRICS", "LOGS")}
    with children.started(line, {**exporters, **fake.environment}) as child:
        fake.set_lines({"gpu0.ComputeRunningProcesses": listed((child.pid, 700 * MIB))})
        out, err = child.communicate("\n", timeout=children.PATIENCE)
    assert child.returncode == 0, err
    return [span for span in json.loads(out) if c.SPAN_ENERGY.name in span["attributes"]]


@pytest.mark.skipif(sys.version_info < (3, 13), reason="nemo-lens needs Python 3.13")
def test_spans_of_nemo_lens_have_the_energy_of_their_time(tmp_path: Path) -> None:
    _installed("nemo-lens", "nemo")
    (span,) = spans(children.command("spans/foreign_spans", "nemo-lens"), tmp_path)
    assert span["name"] == "megatron.train.step"
    check_energy(span["attributes"], span["begin"], span["end"])


@pytest.mark.parametrize(
    ("start", "way"),
    [
        (children.command, []),
        # The global provider stays the same; inside, it has another one without our processor.
        (children.command, ["again"]),
        # It is configured before instrument(), and its MeterProvider has no hash.
        (children.command, ["before"]),
        # Under opentelemetry-instrument, logfire has a TracerProvider of its own beside the global one.
        (children.instrumented, ["processor"]),
    ],
    ids=["after", "again", "before", "processor"],
)
def test_spans_of_logfire_have_the_energy_of_their_time(
    start: Callable[..., list[str]], way: list[str], tmp_path: Path
) -> None:
    _installed("logfire", "logfire")
    (span,) = spans(start("spans/foreign_spans", "logfire", *way), tmp_path)
    assert span["name"] == "train {step}"
    check_energy(span["attributes"], span["begin"], span["end"])


def test_metrics_are_exported_after_logfire_was_configured_again() -> None:
    """It makes anew only the instruments to which somebody refers."""
    _installed("logfire", "logfire")
    assert "process.cpu.time" in children.scene("spans/foreign_metrics")
