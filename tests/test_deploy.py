"""The files in `examples/deploy`, checked by the programs that read them."""

from __future__ import annotations

import re
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
from tests.tools import helm, program, python_tools
from tests.tools.daemon import wait

FOLDER = ROOT / "examples" / "deploy"
UNIT = FOLDER / "otel-hardware.service"
MANIFEST = FOLDER / "kubernetes.yaml"
GATEWAY = FOLDER / "gateway.yaml"
CHART = FOLDER / "helm"
SCRIPT = FOLDER / "slurm.sh"
PAGE = ROOT / "docs" / "deployment.md"
COMMAND = Path(sys.executable).with_name("otel-hardware")


def test_systemd_accepts_the_unit_and_refuses_an_unknown_setting(tmp_path: Path) -> None:
    verify = [str(program("systemd-analyze")), "verify"]
    unit = tmp_path / UNIT.name
    text = substitute(UNIT.read_text(), {"/opt/otel-hardware/bin/otel-hardware": str(COMMAND)})
    unit.write_text(text)
    done = subprocess.run([*verify, unit], capture_output=True, text=True, check=False)
    # It also reports problems of the machine's own units.
    assert (done.returncode, [line for line in done.stderr.splitlines() if unit.name in line]) == (0, [])
    unit.write_text(substitute(text, {"DynamicUser": "DynamicUsr"}))
    assert "DynamicUsr" in subprocess.run([*verify, unit], capture_output=True, text=True, check=False).stderr


def test_unit_on_the_page_is_that_of_the_file() -> None:
    (block,) = [each for each in blocks(PAGE) if each.language == "ini"]
    assert block.text == "".join(f"{line}\n" for line in UNIT.read_text().splitlines() if not line.startswith("#"))


def test_unit_leaves_the_agent_little_to_break(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(substitute(UNIT.read_text(), {"/opt/otel-hardware/bin/otel-hardware": "/bin/true"}))
    line = [str(program("systemd-analyze")), "security", "--offline=true", "--no-pager"]
    done = subprocess.run([*line, "--threshold=30", unit], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-300:]  # its exposure is at most 3.0
    unit.write_text(re.sub("^(Protect|Restrict|System|Capability|Lock).*$", "", unit.read_text(), flags=re.MULTILINE))
    assert subprocess.run([*line, "--threshold=30", unit], capture_output=True, check=False).returncode != 0


def schema_problems(manifest: Path) -> str:
    """Return what the schemas of Kubernetes say against a manifest."""
    line = [str(python_tools()), "-m", "kubernetes_validate", "--strict", "-k", "1.37", str(manifest)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr if done.returncode else ""


def chart(*options: str) -> subprocess.CompletedProcess[str]:
    """Run Helm on the chart."""
    command, *more = options
    line = [str(helm()), command, *(["agent"] if command == "template" else []), str(CHART), *more]
    return subprocess.run(line, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("manifest", [MANIFEST, GATEWAY], ids=lambda path: path.stem)
def test_manifest_has_only_fields_that_kubernetes_knows(manifest: Path, tmp_path: Path) -> None:
    assert not schema_problems(manifest)
    misspelt = tmp_path / manifest.name
    misspelt.write_text(substitute(manifest.read_text(), {"runAsNonRoot": "runAsNonRot"}))
    assert "runAsNonRot" in schema_problems(misspelt)


def test_chart_passes_its_linter_and_refuses_unknown_values() -> None:
    done = chart("lint", "--strict")
    assert done.returncode == 0, done.stdout
    for wrong in ("presett=all", "preset=everything", "podResources=perhaps"):
        assert chart("template", "--set", wrong).returncode != 0, wrong


EVERYTHING = (
    *("--set", "cluster=c1,preset=minimal,podResources=true,runtimeClassName=nvidia,priorityClassName="),
    *("--set-string", "environment.OTEL_METRIC_EXPORT_INTERVAL=60000,nodeSelector.gpu=true"),
)


@pytest.mark.parametrize("options", [(), EVERYTHING], ids=["default", "everything"])
def test_chart_makes_a_manifest_that_kubernetes_knows(options: tuple[str, ...], tmp_path: Path) -> None:
    done = chart("template", *options)
    assert done.returncode == 0, done.stderr
    manifest = tmp_path / "chart.yaml"
    manifest.write_text(done.stdout)
    assert not schema_problems(manifest)


def pod(text: str) -> dict[str, Any]:
    spec: dict[str, Any] = yaml.safe_load(text)["spec"]["template"]["spec"]
    return spec


def test_chart_and_manifest_are_as_safe_as_each_other() -> None:
    both = [pod(MANIFEST.read_text()), pod(chart("template").stdout)]
    for spec in both:
        (container,) = spec["containers"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"name": "machine-id", "mountPath": "/etc/machine-id", "readOnly": True} in container["volumeMounts"]
    assert both[0]["securityContext"] == both[1]["securityContext"]


def test_the_kubelet_is_asked_by_root_without_capabilities() -> None:
    spec = pod(chart("template", "--set", "podResources=true").stdout)
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsUser"] == 0
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "/var/lib/kubelet/pod-resources" in {mount["mountPath"] for mount in container["volumeMounts"]}


def test_daemonset_selects_its_own_pods_and_uses_declared_variables() -> None:
    spec = yaml.safe_load(MANIFEST.read_text())["spec"]
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    (container,) = spec["template"]["spec"]["containers"]
    declared: set[str] = set()
    for variable in container["env"]:  # $(NAME) is replaced only if NAME is declared before
        assert set(re.findall(r"\$\((\w+)\)", variable.get("value", ""))) <= declared
        declared.add(variable["name"])


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.instrumentation"])
def test_image_gets_all_files_that_the_build_needs(name: str) -> None:
    text = (FOLDER / name).read_text()
    copied = re.findall(r"^COPY ([^-].*) /package/\S*$", text, re.MULTILINE)
    names = " ".join(copied).split()
    assert [name for name in names if not (ROOT / name).exists()] == []
    assert {"pyproject.toml", "README.md", "LICENSE", "src"} == {*names}


def test_operator_finds_the_same_packages_for_pods_with_glibc_and_with_musl() -> None:
    """It copies one of two folders, whose names it knows, by the annotation of the pod."""
    glibc, musl, final = (FOLDER / "Dockerfile.instrumentation").read_text().split("\n\n")
    commands = [re.findall(r"^(?:COPY|RUN) .*", stage, re.MULTILINE) for stage in (glibc, musl)]
    assert [each.replace("/autoinstrumentation", "/autoinstrumentation-musl") for each in commands[0]] == commands[1]
    assert ("-slim" in glibc, "-alpine" in musl) == (True, True)
    for stage, folder in (("build", "/autoinstrumentation"), ("build-musl", "/autoinstrumentation-musl")):
        assert f"COPY --from={stage} {folder} {folder}\n" in final


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
