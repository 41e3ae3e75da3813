"""`otel-hardware record`: the capture that it writes. Mistakes in its arguments are in `cli/mistakes.txt`."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.sources.playing import playing
from tests.support.children import environment, run, started
from tests.support.commands import otel_hardware
from tests.support.waiting import wait_for

from opentelemetry.instrumentation.hardware.cli import main
from opentelemetry.instrumentation.hardware.drivers.capture import Replay
from opentelemetry.instrumentation.hardware.settings import SOURCE_GROUP

COMMAND = ["otel-hardware", "record"]


def _record(*arguments: str, env: dict[str, str] | None = None) -> tuple[int, list[str], str]:
    """The exit status, the lines of the output, and those of standard error."""
    answer = otel_hardware("record", *arguments, env=env)
    return answer.status, answer.out.splitlines(), answer.err


@pytest.mark.parametrize("source", ["host", "filesystem", "process"])
def test_recorded_capture_replays_into_metrics(source: str) -> None:
    status, lines, errors = _record(source, "--ticks", "2", "--interval", "0.01")
    assert status == 0
    assert errors == "" or errors.startswith("otel-hardware: replaced: "), errors
    replay = Replay(lines)
    assert replay.header["capture"] == source
    assert replay.header["nature"] == "recorded"
    assert len(replay.ticks) == 2
    assert replay.ticks[1] >= 0.01
    with playing(lambda name: replay, {"sources": [source]}) as stage:
        points = stage.tick()
    prefix = {"host": "system.cpu.time{", "filesystem": "system.filesystem.usage{", "process": "process.cpu.time{"}
    assert [line for line in points if line.startswith(prefix[source])], points
    assert f"otel_hardware.source.up{{otel_hardware.source={source}}} 1 {{source}} gauge" in points


def test_record_output_writes_a_file(tmp_path: Path) -> None:
    path = tmp_path / "host.jsonl"
    status, lines, errors = _record("host", "--ticks", "1", "--output", str(path))
    assert (status, lines, errors) == (0, [], "")
    assert Replay(path.read_text().splitlines()).ticks == [0.0]


def test_settings_are_in_the_header_of_the_capture() -> None:
    env = {"OTEL_PYTHON_HARDWARE_DETAIL": "connections"}
    _, lines, _ = _record("host", "--ticks", "1", "--interfaces", "lo", env=env)
    assert Replay(lines).header["settings"] == {"detail": ["connections"], "interfaces": ["lo"]}
    assert any("/proc/net/sockstat" in line for line in lines)
    _, lines, _ = _record("process", "--ticks", "1", "--detail", "cpu", env=env)
    assert Replay(lines).header["settings"] == {"detail": ["cpu"]}, "flags win"


def test_record_pid_reads_another_process() -> None:
    with started([sys.executable, "-c", "input()"]) as child:
        _, lines, _ = _record("process", "--ticks", "1", "--pid", str(child.pid))
    replay = Replay(lines)
    assert replay.header["pid"] == child.pid
    assert replay.files().read(f"/proc/{child.pid}/stat").startswith(b"%d " % child.pid)


def test_record_hide_replaces_whole_words_only() -> None:
    _, lines, _ = _record("host", "--ticks", "1", "--hide", "MemTotal", "--hide", "stat", "--hide", "(")
    text = "\n".join(lines)
    assert "MemTotal" not in text
    assert "xxxxxxxx: " in text
    assert "/proc/xxxx" in text
    assert "/proc/vmstat" in text, "only whole words"


def test_recorded_process_names_have_no_arguments(tmp_path: Path) -> None:
    document = (Path(__file__).parents[1] / "sources" / "nvidia" / "smi" / "v10-v100.xml").read_text()
    assert "<process_name>python3 train.py --name" in document, "precondition"
    (tmp_path / "output.xml").write_text(document)
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\ncat {tmp_path / 'output.xml'}\n")
    tool.chmod(0o755)
    env = {"OTEL_PYTHON_HARDWARE_NVML": "off", "OTEL_PYTHON_HARDWARE_NVIDIA_SMI": str(tool)}
    _, lines, _ = _record("nvidia", "--ticks", "1", env=env)
    text = "\n".join(lines)
    assert "<process_name>python3</process_name>" in text
    assert "train.py" not in text


def test_unavailable_source_is_recorded_with_exit_status_1(tmp_path: Path) -> None:
    status, lines, errors = _record("filesystem", "--disk-paths", str(tmp_path / "nothing"))
    assert status == 1
    last = f"otel-hardware: filesystem: --disk-paths: {tmp_path / 'nothing'}: No such file or directory"
    assert errors.splitlines()[-1] == last
    replay = Replay(lines)
    with pytest.raises(FileNotFoundError):
        replay.files().space(str(tmp_path / "nothing"))


def test_source_that_cannot_be_loaded_is_one_sentence(tmp_path: Path) -> None:
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{SOURCE_GROUP}]\nwidgets = acme_nowhere:Widgets\n")
    done = run([*COMMAND, "widgets"], {"PYTHONPATH": str(tmp_path)})
    why = "ModuleNotFoundError: No module named 'acme_nowhere'"
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"otel-hardware: widgets: it cannot be loaded: {why}\n"


def test_record_names_the_endpoint_that_it_records() -> None:
    _, lines, errors = _record("openmetrics", "--ticks", "1", "--openmetrics", "a=http://[::1]:1/,b=http://[::1]:2/")
    first = "otel-hardware: only openmetrics:a is recorded; to record openmetrics:b, configure it alone"
    assert errors.splitlines()[0] == first
    assert len([line for line in lines if line.startswith('["http", "get"')]) == 1


def test_record_help_has_only_settings_that_a_source_reads() -> None:
    answer = otel_hardware("record", "--help")
    assert answer.status == 0
    for word in ("graphcore, holders, host,", "--hide", "--devices"):
        assert word in " ".join(answer.out.split())
    settings = otel_hardware("record", "--help-settings")
    assert settings.status == 0
    assert "--disk-paths" in settings.out
    for flag in ("--sources", "--sample-interval", "--counter-origin"):
        assert flag not in answer.out + settings.out


def test_record_pid_of_a_zombie_is_a_mistake() -> None:
    with started([sys.executable, "-c", "pass"]) as child:
        gone = Path(f"/proc/{child.pid}/stat")
        wait_for(lambda: b") Z " in gone.read_bytes(), 20, "zombie")
        status, lines, errors = _record("process", "--ticks", "1", "--pid", str(child.pid))
    assert (status, lines) == (2, [])
    assert "there is no process" in errors


def test_sigint_keeps_the_ticks_recorded_so_far(tmp_path: Path) -> None:
    path = tmp_path / "host.jsonl"
    with started([*COMMAND, "host", "--ticks", "1000", "--interval", "0.05", "--output", str(path)]) as child:
        wait_for(lambda: path.exists() and path.read_text().count('"tick"') >= 3, 60, "third tick")
        os.kill(child.pid, signal.SIGINT)
        out, errors = child.communicate(timeout=60)
    assert (child.returncode, out) == (130, "")
    assert "Traceback" not in errors
    assert len(Replay(path.read_text().splitlines()).ticks) >= 3


class Closing(StringIO):
    """A pipe that is closed after two writes."""

    writes = 0

    def write(self, text: str) -> int:
        self.writes += 1
        if self.writes > 2:
            raise BrokenPipeError
        return super().write(text)


def test_closed_pipe_ends_the_command_and_is_no_fault_of_the_source() -> None:
    out, err = Closing(), StringIO()
    with patch.dict(os.environ, environment(), clear=True), redirect_stdout(out), redirect_stderr(err):
        assert main(["record", "host", "--interval", "0.01", "--ticks", "5"]) == 0
    assert "Source" not in err.getvalue()
    assert out.writes <= 4


def test_record_command_writes_to_standard_output() -> None:
    done = run([*COMMAND, "host", "--interval", "0.01"])
    assert (done.returncode, done.stderr) == (0, "")
    assert len(Replay(done.stdout.splitlines()).ticks) == 3
    assert json.loads(done.stdout.splitlines()[0])["capture"] == "host"
