"""The generated documentation agrees with the catalog and the settings."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from opentelemetry.instrumentation.hardware import environment_variables
from opentelemetry.instrumentation.hardware.catalog import CATALOG
from opentelemetry.instrumentation.hardware.settings import PREFIX, Config

reference = pytest.importorskip("reference", reason="the generator is not part of this source archive")

ROOT = Path(__file__).resolve().parents[1]
AGAIN = "run: python .ci/reference.py"


PAGES = ("configuration.md", "dev/coverage.md", "events.md", "metrics.md", "openmetrics.md", "spans.md", "wandb.md")


@pytest.mark.parametrize("page", PAGES)
def test_generated_page_is_current(page: str) -> None:
    assert (ROOT / "docs" / page).read_text() == reference.pages()[page], AGAIN


def test_every_page_has_a_template() -> None:
    assert tuple(reference.pages()) == PAGES


def test_every_metric_has_one_heading() -> None:
    headings = re.findall(r"^### `(.+)`$", reference.pages()["metrics.md"], re.MULTILINE)
    assert sorted(headings) == sorted(row.name for row in CATALOG)


def test_every_setting_has_an_environment_variable_constant() -> None:
    flags = {name: value for name, value in vars(environment_variables).items() if name.startswith("OTEL_")}
    assert flags == {name: name for name in (PREFIX + setting.name.upper() for setting in fields(Config))}


def test_reference_command_writes_all_pages(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / ".ci" / "reference.py"), str(tmp_path)]
    subprocess.run(command, check=True, timeout=300)
    for page in ("docs/registry/metrics.yaml", *(f"docs/{page}" for page in PAGES)):
        assert (tmp_path / page).read_text() == (ROOT / page).read_text(), AGAIN


def test_reference_command_writes_nothing_for_a_flag(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / ".ci" / "reference.py"), "--help"]
    done = subprocess.run(command, check=True, timeout=60, cwd=tmp_path, capture_output=True, text=True)
    assert "usage" in done.stdout
    assert [*tmp_path.iterdir()] == []
