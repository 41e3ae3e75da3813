"""``otel-hardware record``: the capture that it writes, and what it says when it cannot."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from tests.children import run, started
from tests.sources.playing import playing
from tests.waiting import wait_for

from opentelemetry.instrumentation.hardware import cli
from opentelemetry.instrumentation.hardware.replay import Replay

COMMAND = ["otel-hardware", "record"]


def _record(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str], str]:
    """The exit status, the lines of the output, and what was said beside it."""
    status = cli.main(["record", *arguments])
    out, err = capsys.readouterr()
    return status, out.splitlines(), err


@pytest.mark.parametrize("source", ["host", "filesystem", "process"])
def test_a_capture_can_be_played(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, lines, said = _record(capsys, source, "--ticks", "2", "--interval", "0.01")
    assert (status, said) == (0, "")
    replay = Replay(lines)
    assert replay.header["capture"] == source
    assert replay.header["nature"] == "recorded"
    assert len(replay.ticks) == 2
    assert replay.ticks[1] >= 0.01
    with playing(lambda name: replay, {"sources": [source]}) as stage:
        points = stage.tick()
    prefix = {"host": "system.cpu.time{", "filesystem": "system.filesystem.usage{", "process": "process.cpu.time{"}
    assert [line for line in points if line.startswith(prefix[source])], points
    assert f"otel_hardware.source.up{{otel_hardware.source={source}}} 1 1 gauge" in points


def test_it_is_written_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "host.jsonl"
    status, lines, said = _record(capsys, "host", "--ticks", "1", "--output", str(path))
    assert (status, lines, said) == (0, [], "")
    assert Replay(path.read_text().splitlines()).ticks == [0.0]


def test_the_settings_travel_along(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_PYTHON_HARDWARE_DETAIL", "connections")
    _, lines, _ = _record(capsys, "host", "--ticks", "1", "--interfaces", "lo")
    assert Replay(lines).header["settings"] == {"detail": ["connections"], "interfaces": ["lo"]}
    assert any("/proc/net/sockstat" in line for line in lines)
    _, lines, _ = _record(capsys, "process", "--ticks", "1", "--detail", "cpu")
    assert Replay(lines).header["settings"] == {"detail": ["cpu"]}, "flags win"


def test_another_process_can_be_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    with started([sys.executable, "-c", "input()"]) as child:
        _, lines, _ = _record(capsys, "process", "--ticks", "1", "--pid", str(child.pid))
    replay = Replay(lines)
    assert replay.header["pid"] == child.pid
    assert replay.kernel().read(f"/proc/{child.pid}/stat").startswith(b"%d " % child.pid)


def test_words_are_hidden_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    _, lines, _ = _record(capsys, "host", "--ticks", "1", "--hide", "MemTotal", "--hide", "stat", "--hide", "(")
    text = "\n".join(lines)
    assert "MemTotal" not in text
    assert "xxxxxxxx: " in text
    assert "/proc/xxxx" in text
    assert "/proc/vmstat" in text, "only whole words"


def test_a_source_that_has_nothing_here_is_captured_as_such(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, lines, said = _record(capsys, "filesystem", "--disk-paths", str(tmp_path / "nothing"))
    assert status == 1
    assert said.splitlines()[-1].startswith(
        f"otel-hardware: filesystem: none of {tmp_path / 'nothing'} can be read (set "
    )
    replay = Replay(lines)
    with pytest.raises(FileNotFoundError):
        replay.kernel().space(str(tmp_path / "nothing"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing"], "there is no source nothing; the sources are "),
        (["host", "--output", "/nowhere/at/all"], "/nowhere/at/all cannot be written: No such file or directory"),
        (["process", "--pid", "0"], "there is no process 0; --pid takes the number of one that runs"),
        (["process", "--pid", "somebody"], "there is no process somebody"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, lines, said = _record(capsys, *arguments)
    assert (status, lines) == (2, [])
    (line,) = said.splitlines()
    assert line.startswith(f"otel-hardware: {sentence}")


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--ticks", "0"], "--ticks: '0' is not understood: it takes a number from 1 on"),
        (["--ticks", "many"], "--ticks: 'many' is not understood: it takes a number from 1 on"),
        (["--interval", "soon"], "--interval: 'soon' is not a time: it takes seconds, such as 15 or 0.5"),
        (["--detail", "all"], "--detail:"),
    ],
)
def test_a_flag_that_makes_no_sense_is_named(
    flags: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(["record", "host", *flags])
    assert left.value.code == 2
    assert sentence in capsys.readouterr().err


def test_the_help_says_what_it_is_for_and_how(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(["record", "--help"])
    assert left.value.code == 0
    said = capsys.readouterr().out
    sources = "container, filesystem, graphcore, host,"
    for word in (sources, "--hide", "otel-hardware record host --output", "exit status"):
        assert word in " ".join(said.split())
    assert max(map(len, said.splitlines())) <= 120
    assert not [flag for flag in ("--sources", "--sample-interval", "--counter-origin") if flag in said]


def test_a_process_that_ends_meanwhile_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with started([sys.executable, "-c", "pass"]) as child:
        gone = Path(f"/proc/{child.pid}/stat")
        wait_for(lambda: b") Z " in gone.read_bytes(), 20, "dead child that nobody has fetched")
        status, lines, said = _record(capsys, "process", "--ticks", "1", "--pid", str(child.pid))
    assert (status, lines) == (2, [])
    assert "there is no process" in said


def test_ctrl_c_ends_it_with_what_was_read(tmp_path: Path) -> None:
    path = tmp_path / "host.jsonl"
    with started([*COMMAND, "host", "--ticks", "1000", "--interval", "0.05", "--output", str(path)]) as child:
        wait_for(lambda: path.exists() and path.read_text().count('"tick"') >= 3, 60, "third tick")
        os.kill(child.pid, signal.SIGINT)
        out, said = child.communicate(timeout=60)
    assert (child.returncode, out) == (130, "")
    assert "Traceback" not in said
    assert len(Replay(path.read_text().splitlines()).ticks) >= 3


def test_as_the_command_that_users_have() -> None:
    done = run([*COMMAND, "host", "--ticks", "1"])
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout.splitlines()[0])["capture"] == "host"
