"""The files in `examples/deploy`, checked by the programs that read them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support import children
from tests.support.blocks import WAITING, blocks, desk, substitute
from tests.support.children import PATIENCE, ROOT
from tests.support.sink import Sink
from tests.tools.daemon import wait

FOLDER = ROOT / "examples" / "deploy"
UNIT = FOLDER / "otel-hardware.service"
MANIFEST = FOLDER / "kubernetes.yaml"
SCRIPT = FOLDER / "slurm.sh"
PAGE = ROOT / "docs" / "deployment.md"
COMMAND = Path(sys.executable).with_name("otel-hardware")


def installed(name: str) -> str:
    """Return the path of a program that is not needed in CI either."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    verify = [installed("systemd-analyze"), "verify"]
    unit = tmp_path / UNIT.name
    unit.write_text(substitute(UNIT.read_text(), {"/opt/otel-hardware/bin/otel-hardware": str(COMMAND)}))
    done = subprocess.run([*verify, unit], capture_output=True, text=True, check=False)
    # It also reports problems of the machine's own units.
    assert (done.returncode, [line for line in done.stderr.splitlines() if unit.name in line]) == (0, [])


def test_systemd_refuses_an_unknown_setting(tmp_path: Path) -> None:
    verify = [installed("systemd-analyze"), "verify"]
    unit = tmp_path / UNIT.name
    text = substitute(UNIT.read_text(), {"/opt/otel-hardware/bin/otel-hardware": str(COMMAND)})
    unit.write_text(substitute(text, {"DynamicUser": "DynamicUsr"}))
    done = subprocess.run([*verify, unit], capture_output=True, text=True, check=False)
    assert "DynamicUsr" in done.stderr


def test_unit_on_the_page_is_that_of_the_file() -> None:
    (block,) = [each for each in blocks(PAGE) if each.language == "ini"]
    assert block.text == "".join(f"{line}\n" for line in UNIT.read_text().splitlines() if not line.startswith("#"))


def unknown_fields(manifest: Path) -> list[str]:
    """Return the fields of a manifest that kubectl drops, because the types of Kubernetes do not have them."""
    # Any command that works without a cluster and decodes the manifest would do. This one prints only what it changes.
    image = "otel-hardware=changed"
    command = [installed("kubectl"), "set", "image", "--local", "-f", str(manifest), image, "-o", "json"]
    typed = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    ours = yaml.safe_load(manifest.read_text().replace("image: otel-hardware", "image: changed"))
    return missing(ours, typed)


def missing(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """Return the paths of values that are not the same in the second document."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return [each for key in ours for each in missing(ours[key], theirs.get(key), f"{path}.{key}")]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [each for number, pair in enumerate(zip(ours, theirs)) for each in missing(*pair, f"{path}[{number}]")]
    return [] if ours == theirs else [path]


def test_kubernetes_knows_every_field_of_the_manifest(tmp_path: Path) -> None:
    assert unknown_fields(MANIFEST) == []
    misspelt = tmp_path / MANIFEST.name
    misspelt.write_text(substitute(MANIFEST.read_text(), {"hostPID": "hostPid"}))
    assert unknown_fields(misspelt) == [".spec.template.spec.hostPid"]


def test_daemonset_selects_its_own_pods_and_uses_declared_variables() -> None:
    spec = yaml.safe_load(MANIFEST.read_text())["spec"]
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    (container,) = spec["template"]["spec"]["containers"]
    declared: set[str] = set()
    for variable in container["env"]:  # $(NAME) is replaced only if NAME is declared before
        assert set(re.findall(r"\$\((\w+)\)", variable.get("value", ""))) <= declared
        declared.add(variable["name"])


def test_image_gets_all_files_that_the_build_needs() -> None:
    text = (FOLDER / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (.+) /package/\S*$", text, re.MULTILINE)
    names = " ".join(copied).split()
    assert [name for name in names if not (ROOT / name).exists()] == []
    assert {"pyproject.toml", "README.md", "LICENSE", "src"} == {*names}


def test_slurm_script_runs_the_program_and_its_metrics_arrive(tmp_path: Path) -> None:
    with Sink() as sink:
        here = sink.environment()
        endpoint = f"export OTEL_EXPORTER_OTLP_ENDPOINT={here['OTEL_EXPORTER_OTLP_ENDPOINT']}"
        changes = {
            "export OTEL_EXPORTER_OTLP_ENDPOINT=http://collector.example:4317": endpoint,
            "INTERVAL=15000": "INTERVAL=500",
            "srun ": "",
        }
        script = ["bash", "-euc", substitute(SCRIPT.read_text(), changes)]
        with children.started(script, here | desk(tmp_path, WAITING), cwd=tmp_path) as running:
            wait(lambda: sink.names >= {"process.cpu.time", "system.memory.usage"}, PATIENCE, "metrics")
            (tmp_path / "stop").touch()
            running.communicate(timeout=PATIENCE)
    assert running.returncode == 0
    assert {resource["service.name"] for resource in sink.resources} == {"train"}


def test_slurm_script_on_the_page_is_that_of_the_file() -> None:
    (block,) = [each for each in blocks(PAGE) if "#SBATCH" in each.text]
    lines = [line for line in SCRIPT.read_text().splitlines() if not line.startswith("# ")]
    assert block.text.splitlines() == lines
