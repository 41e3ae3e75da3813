"""Hardware numbers on the spans of libraries with a TracerProvider of their own, over a simulated NVML."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support import children
from tests.tools import Missing, fake_nvml, need
from tests.tools.load import WAVERING, check_energy, loaded
from tests.tools.nvml import MIB, FakeNvml, h100, listed

from opentelemetry.instrumentation.hardware import catalog as c


def _installed(library: str, module: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise Missing(f"{library} is not installed: pip install {library}")


def spans(line: list[str], folder: Path) -> list[dict[str, Any]]:
    """Run a program that uses a simulated GPU from its beginning, and return those of its spans that have energy."""
    need(fake_nvml)
    fake = FakeNvml(folder, loaded(h100(0), WAVERING))
    exporters = {f"OTEL_{signal}_EXPORTER": "none" for signal in ("TRACES", "METRICS", "LOGS")}
    with children.started(line, {**exporters, **fake.environment}) as child:
        fake.set_lines({"gpu0.ComputeRunningProcesses": listed((child.pid, 700 * MIB))})
        out, err = child.communicate("\n", timeout=children.PATIENCE)
    assert child.returncode == 0, err
    return [span for span in json.loads(out) if c.SPAN_ENERGY.name in span["attributes"]]


@pytest.mark.skipif(sys.version_info < (3, 13), reason="nemo-lens needs Python 3.13")
def test_spans_of_nemo_lens_have_the_energy_of_their_time(tmp_path: Path) -> None:
    need(lambda: _installed("nemo-lens", "nemo"))
    (span,) = spans(children.command("spans/foreign_spans", "nemo-lens"), tmp_path)
    assert span["name"] == "megatron.train.step"
    check_energy(span["attributes"], span["begin"], span["end"])


def test_spans_of_logfire_have_the_energy_of_their_time(tmp_path: Path) -> None:
    need(lambda: _installed("logfire", "logfire"))
    (span,) = spans(children.command("spans/foreign_spans", "logfire"), tmp_path)
    assert span["name"] == "train {step}"
    check_energy(span["attributes"], span["begin"], span["end"])


def test_logfire_may_be_configured_again(tmp_path: Path) -> None:
    """The global provider stays the same; inside, it has another one without our processor."""
    need(lambda: _installed("logfire", "logfire"))
    (span,) = spans(children.command("spans/foreign_spans", "logfire", "again"), tmp_path)
    check_energy(span["attributes"], span["begin"], span["end"])


def test_logfire_may_be_configured_before_instrument(tmp_path: Path) -> None:
    """Its MeterProvider has no hash."""
    need(lambda: _installed("logfire", "logfire"))
    (span,) = spans(children.command("spans/foreign_spans", "logfire", "before"), tmp_path)
    check_energy(span["attributes"], span["begin"], span["end"])


def test_metrics_are_exported_after_logfire_was_configured_again() -> None:
    """It makes anew only the instruments to which somebody refers."""
    need(lambda: _installed("logfire", "logfire"))
    assert "process.cpu.time" in children.scene("spans/foreign_metrics")


def test_provider_that_is_not_the_global_one_takes_a_processor(tmp_path: Path) -> None:
    """Under ``opentelemetry-instrument``, logfire has a TracerProvider of its own beside the global one."""
    need(lambda: _installed("logfire", "logfire"))
    (span,) = spans(children.instrumented("spans/foreign_spans", "logfire", "processor"), tmp_path)
    check_energy(span["attributes"], span["begin"], span["end"])
