"""A new vendor is one folder, and a row for its setting. No other file of the package is changed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.support.children import ROOT, run

import opentelemetry.instrumentation.hardware as package

SOURCE = """
from opentelemetry.instrumentation.hardware.accelerators.source import AcceleratorSource

class Acme(AcceleratorSource):
    name = "acme"
    signs = ("/sys/module/acme",)
    settings = ("acme_smi",)
    absent = "no Acme driver is loaded"

    def drivers(self):
        return iter(())
"""

ROW = """
    acme_smi: str | None = setting(path("acme-smi"), "auto", "The tool of Acme.")
"""

FORM = "auto, off or the absolute path of acme-smi"
VARIABLE = "OTEL_PYTHON_HARDWARE_ACME_SMI"

VALUES = """
from opentelemetry.instrumentation.hardware import Config, environment_variables
from opentelemetry.instrumentation.hardware.sources.acme import Acme

config = Config.read({"acme_smi": "/opt/acme-smi"}, {})
print(config.acme_smi, Config(acme_smi="off").acme_smi, Config().acme_smi, Acme.prepare(config))
print(environment_variables.OTEL_PYTHON_HARDWARE_ACME_SMI)
"""

PAGE = """
import reference

print(reference.pages()["configuration.md"])
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """PYTHONPATH with the package, and with one more vendor and its setting."""
    ours = Path(package.__file__).parent
    top = tmp_path_factory.mktemp("package")
    copy = top.joinpath(*package.__name__.split("."))
    changed = copy / "sources" / "acme" / "__init__.py", copy / "settings" / "table.py"
    for file in changed:
        file.parent.mkdir(parents=True)
    for folder in (".", "sources", "settings"):
        for file in (ours / folder).iterdir():
            if file.name not in ("sources", "settings", "table.py", "__pycache__"):
                (copy / folder / file.name).symlink_to(file)
    vendor, table = changed
    vendor.write_text(SOURCE)
    table.write_text((ours / "settings" / "table.py").read_text() + ROW)
    return f"{top}:{ROOT / '.ci'}"


def test_setting_of_a_new_vendor_is_read_from_code_and_is_a_sign(path: str) -> None:
    child = run([sys.executable, "-c", VALUES], {"PYTHONPATH": path})
    assert child.stdout == f"/opt/acme-smi off None True\n{VARIABLE}\n", child.stderr


def test_setting_of_a_new_vendor_is_a_flag_with_help(path: str) -> None:
    line = [sys.executable, "-m", package.__name__, "snapshot", "--help-settings"]
    child = run(line, {"PYTHONPATH": path, "COLUMNS": "200"})
    assert "--acme-smi" in child.stdout, child.stderr
    assert f"The tool of Acme. Takes {FORM}; default: auto." in child.stdout


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (sys.executable, f"{sys.executable} (from {VARIABLE})"),
        ("/opt/acme-smi", f"/opt/acme-smi does not exist, or this user cannot see it → correct or unset {VARIABLE}"),
        ("acme-smi", f"{VARIABLE}: 'acme-smi' is not {FORM}; using the default (auto)"),
    ],
    ids=["valid", "missing", "invalid"],
)
def test_setting_of_a_new_vendor_is_checked_by_doctor(path: str, value: str, shown: str) -> None:
    line = [sys.executable, "-m", package.__name__, "doctor", "--sources=acme"]
    child = run(line, {"PYTHONPATH": path, "COLUMNS": "300", VARIABLE: value})
    assert shown in child.stdout, child.stderr
    assert "is not a setting" not in child.stdout


def test_setting_of_a_new_vendor_is_documented(path: str) -> None:
    pytest.importorskip("reference", reason="the generator is not part of this source archive")
    child = run([sys.executable, "-c", PAGE], {"PYTHONPATH": path})
    assert f"| `{VARIABLE}` | The tool of Acme. | auto | {FORM} |" in child.stdout, child.stderr
