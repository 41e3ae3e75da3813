"""The package on Windows: a Windows build of Python, psutil and the real NVML binding, under Wine.

Wine has no performance counters, disks, consoles or handles, so these are not shown here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import psutil
import pytest
from tests.support.children import PATIENCE, PROGRAMS, ROOT, Piped, run, started
from tests.tools import program, windows
from tests.tools.nvml import FakeNvml, h100

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Wine is tested on Linux")

MODULE = ("-m", "opentelemetry.instrumentation.hardware")
UUID = str(h100()["UUID"])


def _path(path: Path) -> str:
    return f"Z:{path}".replace("/", "\\")


def _without_noise(err: str) -> str:
    return "\n".join(each for each in err.splitlines() if not each.startswith("wine:"))


class Windows:
    """A Windows with an H100.

    Attributes:
        state: The path of the file with the answers of its driver.
        environment: The variables of its programs.
    """

    def __init__(self, folder: Path) -> None:
        self._python = windows()
        self._wine = program("wine")
        home = self._python.parent.parent
        FakeNvml(folder, {call: value for call, value in h100().items() if "Processes" not in call})
        self.state = _path(folder / "nvml-state")
        paths = PROGRAMS / "windows", ROOT / "src", home / "site"
        self.environment = {
            "WINEPREFIX": str(home / "prefix"),
            "WINEDEBUG": "-all",
            "PYTHONPATH": ";".join([*map(_path, paths), ""]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "FAKE_NVML_STATE": self.state,
        }

    def line(self, *arguments: str) -> list[str]:
        """Return the command line of the interpreter."""
        return [str(self._wine), _path(self._python), *arguments]

    def python(self, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run the interpreter."""
        done = run(self.line(*arguments), {**self.environment, **(env or {})}, cwd=PROGRAMS / "windows")
        done.stderr = _without_noise(done.stderr)
        return done

    def command(self, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run `otel-hardware`."""
        return self.python(*MODULE, *arguments, env=env)

    def console(self, *arguments: str) -> AbstractContextManager[Piped]:
        """Start `otel-hardware`, which exports to its standard output."""
        env = {**self.environment, "OTEL_METRICS_EXPORTER": "console"}
        return started(self.line(*MODULE, *arguments), env, cwd=PROGRAMS / "windows")


def _wait_for_process(reporting: Piped) -> None:
    """Wait until the metrics of the program are in the output of its reporter."""
    assert any('"process.cpu.time"' in line for line in reporting.stdout), reporting.stderr.read()


@pytest.fixture(name="machine")
def _machine(tmp_path: Path) -> Windows:
    return Windows(tmp_path)


def test_values_of_the_host_are_those_of_linux(machine: Windows) -> None:
    done = machine.command("snapshot", "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    snapshot = json.loads(done.stdout)
    assert snapshot["problems"] == []
    values = {(each["name"], *each["attributes"].values()): each["value"] for each in snapshot["metrics"]}
    disk = psutil.disk_usage("/")
    assert values["system.memory.limit",] == pytest.approx(psutil.virtual_memory().total, abs=1 << 20)
    assert values["system.cpu.logical.count",] == psutil.cpu_count()
    assert values["system.filesystem.limit", "Z:\\", "NTFS", "Z:\\"] == pytest.approx(disk.total, rel=0.1)
    assert 0.0 < values["system.memory.utilization", "used"] < 1.0
    assert values["hw.power", UUID, "GPU 0", "gpu"] == pytest.approx(512.6, rel=0.01)


def test_doctor_says_what_windows_lacks(machine: Windows) -> None:
    done = machine.command("doctor")
    text = " ".join(done.stdout.split())
    assert "NVIDIA H100 80GB HBM3; driver 570.86.15" in text
    assert "system.paging.usage: psutil cannot read it without Windows' performance counters" in text  # as in Wine
    assert "/proc" not in text


def test_tools_are_not_run(machine: Windows) -> None:
    done = machine.command("doctor", env={"OTEL_PYTHON_HARDWARE_NVML": "C:\\nothing.dll"})
    assert "nvidia-smi is not run on Windows" in " ".join(done.stdout.split())


def test_run_reports_a_program_to_its_end(machine: Windows) -> None:
    program_of = machine.line("-c", "input(); raise SystemExit(7)")[1:]
    with machine.console("run", "--interval", "1", "--", *program_of) as reporting:
        _wait_for_process(reporting)
        _, err = reporting.communicate("\n", timeout=PATIENCE)
    assert (reporting.returncode, _without_noise(err)) == (7, "")


def test_run_reports_a_running_process_to_its_end(machine: Windows) -> None:
    text = "import os; print(os.getpid(), flush=True); input()"
    with started(machine.line("-c", text), machine.environment) as other:
        pid = other.stdout.readline().strip()
        with machine.console("run", "--interval", "1", "--attach", pid) as reporting:
            _wait_for_process(reporting)
            print(file=other.stdin, flush=True)
            _, err = reporting.communicate(timeout=PATIENCE)
    assert (reporting.returncode, _without_noise(err)) == (0, "")


def test_spans_metrics_and_blocks_have_the_energy_of_the_gpu(machine: Windows) -> None:
    done = machine.python("spans.py", machine.state)
    assert (done.returncode, done.stderr) == (0, "")
    parent, child, energy = json.loads(done.stdout)
    for each in (parent["span"], child["span"]):
        assert each["hw.energy"] == pytest.approx(2 * 512.6, rel=0.1)
        assert each["process.cpu.time"] >= 0.0
    assert energy == pytest.approx(512.6, rel=0.1)
    assert {"process.cpu.time", "process.windows.handle.count"} <= {*parent["metrics"]} & {*child["metrics"]}
    assert {"hw.energy", "system.cpu.time"} <= {*parent["metrics"]} - {*child["metrics"]}, "one reports the host"


def test_another_process_reports_the_host_after_the_end_of_the_first(machine: Windows, tmp_path: Path) -> None:
    done = machine.python("takeover.py", _path(tmp_path / "ready"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["False", "True"]


def test_agent_is_replaced_with_one_message(machine: Windows) -> None:
    text = "from opentelemetry.instrumentation.hardware import HardwareInstrumentor as H; H().instrument()"
    done = machine.python("-c", text, env={"OTEL_PYTHON_HARDWARE_MODE": "agent"})
    assert done.returncode == 0
    assert done.stderr == "An agent needs pidfd_open(2) of Linux 5.3; this process reports instead"


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGBREAK"])
def test_signal_ends_run_after_an_export(machine: Windows, name: str) -> None:
    done = machine.python("interrupted.py", name, env={"OTEL_METRICS_EXPORTER": "console"})
    assert done.returncode == 0
    assert '"system.cpu.time"' in done.stdout


def test_top_shows_devices_and_processes(machine: Windows) -> None:
    done = machine.python("top.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 GPU H100 80GB HBM3" in done.stdout
    assert UUID in done.stdout


def test_top_needs_no_type_of_the_terminal(machine: Windows) -> None:
    text = """
import os, sys
from opentelemetry.instrumentation.hardware.cli.top import is_terminal
os.environ.pop("TERM", None)
sys.stdin = type("Terminal", (), {"isatty": lambda self: True})()
out, sys.stdout = sys.stdout, sys.stdin
print(is_terminal(), file=out)
"""
    assert machine.python("-c", text).stdout.strip() == "True"
