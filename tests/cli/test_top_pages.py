"""The live view: no number is ever cut, the pages, the filter, signals to processes, themes, and the first frame."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Hashable, Iterator
from pathlib import Path
from unittest.mock import patch

import psutil
import pytest
from tests.cli.screens import OTHERS, View, on

from opentelemetry.instrumentation.hardware.bottlenecks.judge import Judge, Verdict
from opentelemetry.instrumentation.hardware.bottlenecks.rules import RULES
from opentelemetry.instrumentation.hardware.catalog import SYSTEM_UPTIME
from opentelemetry.instrumentation.hardware.cli.top import themes
from opentelemetry.instrumentation.hardware.cli.top.board import PANELS
from opentelemetry.instrumentation.hardware.cli.top.dialogs import send
from opentelemetry.instrumentation.hardware.cli.top.host import header
from opentelemetry.instrumentation.hardware.cli.top.process_panels import as_tree, matches
from opentelemetry.instrumentation.hardware.cli.top.processes import Process, ProcessReader
from opentelemetry.instrumentation.hardware.cli.top.shapes import axis, flowed, whole, width_of
from opentelemetry.instrumentation.hardware.cli.top.widgets import Drawn
from opentelemetry.instrumentation.hardware.model import Snapshot
from opentelemetry.instrumentation.hardware.pipeline.runner import State
from opentelemetry.instrumentation.hardware.pipeline.view import View as Viewed

# -- no number is ever cut


def numbers(drawn: Drawn) -> set[str]:
    """The words with a digit, without bars, graphs, time axes, and texts that end with an ellipsis."""
    found: set[str] = set()
    for line in drawn.lines:
        text = "".join(piece for piece, style in line if style != "track")
        for word in re.split(r"[\s\u2501\u2578\u2581-\u2588\u2800-\u28ff]+", text):
            if any(char.isdigit() for char in word) and not word.endswith("…") and not re.fullmatch(r"-\d+[smh]", word):
                found.add(word)
    return found


def draw(view: View, width: int) -> Iterator[tuple[str, Drawn]]:
    """Draw every panel for a terminal of this width, in a panel as wide as it, and in a half and a third of it."""
    draws = view.app._board.draws()
    for name in PANELS:
        for part in (1, 2, 3):
            if name == "page" and part > 1:
                continue
            yield name, draws[name](max(width // part - 4, 12), 40)


@pytest.mark.parametrize("gpus", [0, 16])
def test_no_number_is_cut(gpus: int, tmp_path: Path) -> None:
    async def act(view: View) -> None:
        readout = view.app._board.readout
        assert readout is not None
        pages: list[tuple[str, Hashable]] = [("processes", ("", 5120))]
        if gpus:
            pages.append(("devices", readout.devices[3].id))
        for page in pages:
            view.app._board.page = page
            known: dict[str, set[str]] = {}
            for name, drawn in draw(view, 400):
                known[name] = known.get(name, set()) | numbers(drawn)
            for width in range(40, 221):
                for name, drawn in draw(view, width):
                    strangers = numbers(drawn) - known[name]
                    assert not strangers, f"{name} in {width} columns: {strangers}"
                    assert all(width_of(line) <= width for line in drawn.lines), (name, width)

    on(tmp_path, gpus, (120, 40), act, 6)


def test_number_of_the_device_is_left_out_last(tmp_path: Path) -> None:
    async def act(view: View) -> None:
        for width in range(8, 221):
            lines = view.app._board.devices(width, 40).lines[1:17]
            names = ["".join(text for text, _ in line).split()[:2] for line in lines]
            assert names == [["GPU", str(number)] for number in range(16)], width

    on(tmp_path, 16, (120, 40), act, 3)


@pytest.mark.parametrize("size", [(40, 12), (63, 20), (100, 30), (108, 24)])
def test_narrow_screens(size: tuple[int, int], tmp_path: Path) -> None:
    async def act(view: View) -> None:
        await view.shows("GPU 0")
        assert max(map(len, view.text.splitlines())) <= size[0]
        assert "GPU 3" in "".join("".join(text for text, _ in line) for line in view.panel("devices")._drawn.lines)

    on(tmp_path, 4, size, act, 3)


def test_what_has_no_room_is_left_out_whole() -> None:
    items = [[("user 59%", "")], [("nice 10%", "")], [("steal 3%", "")]]
    assert whole(items, 19) == [("user 59%", ""), ("  ", ""), ("nice 10%", "")]
    assert width_of(whole(items, 17)) == 8
    assert whole(items, 7) == []
    assert [width_of(line) for line in flowed(items, 20)] == [18, 8]


def test_first_line_fits_every_width() -> None:
    view = Viewed(0.0, 1.0, Snapshot({SYSTEM_UPTIME: [(12_345.0, {})]}), {}, (), None, {})
    for note in ("", "exporting to http://localhost:4318"):
        for width in range(1, 120):
            line = header("node-1", view, note, "12:00:00", width)
            assert width_of(line) == width


def test_time_axis() -> None:
    text = axis(120.0, 60)[0][0]
    assert len(text) == 60
    assert text.endswith("now")
    assert text.index("-1m") == 30
    assert axis(0.0, 60) == []


# -- pages


def test_first_arrow_selects_a_row_of_the_first_table(tmp_path: Path) -> None:
    async def act(view: View) -> None:
        await view.press("down", "down", "enter")
        await view.shows("GPU 1 · H100")

    on(tmp_path, 4, (120, 50), act, 3)


def test_page_of_a_device(tmp_path: Path) -> None:
    async def act(view: View) -> None:
        await view.press("tab", "down", "down", "down", "enter")
        await view.shows(
            "GPU 3 · H100", "700 / 700 W", "84 °C", "power cap", "4100021", "unknown: the program is loading"
        )
        await view.press("right")
        await view.shows("GPU 0 · H100")
        await view.press("left")
        await view.shows("GPU 3 · H100")
        for _ in range(25):
            await view.read()
        await view.hides("unknown: the program is loading")
        await view.press("escape")
        await view.shows("Processes 11")

    on(tmp_path, 4, (120, 50), act, 3)


def test_verdict_is_beside_the_device_and_on_its_page(tmp_path: Path) -> None:
    async def act(view: View) -> None:
        readout = view.app._board.readout
        assert readout is not None
        rule = next(each for each in RULES if each.name == "throttled")
        evidence = [(condition, 0.5) for condition in rule.cases[0]]
        verdict = Verdict("throttled", rule.meaning, 75.0, evidence=evidence, advice=rule.advice)
        with patch.object(Judge, "verdicts", lambda judge: {readout.devices[1].id: verdict}):
            await view.read()
            await view.shows("HELD BACK BY")
            (line,) = (line for line in view.text.splitlines() if "throttled" in line)
            assert "GPU 1" in line
            await view.press("enter", "right")
            await view.shows(
                "GPU 1 · H100", "throttled: its clocks are lowered; for 1 min 15 s", "50 %", "→ heat: check"
            )

    on(tmp_path, 4, (120, 50), act, 3)


def test_page_of_a_process(tmp_path: Path) -> None:
    async def act(view: View) -> None:
        view.panel("processes").focus()
        view.panel("processes").select(("GPU 1", 4100007))
        await view.press("enter")
        await view.shows("Process 4100007", "train.py --config llama-8b.yaml --rank 1", "76.5 / 79.6 GiB")
        await view.shows("torchrun --nproc-per-node", "tmux new", "└ /opt/conda/bin/python train.py")
        await view.press("escape")
        await view.shows("CPU 32 threads")

    on(tmp_path, 4, (120, 50), act, 3)


def test_double_click_opens_a_page(tmp_path: Path) -> None:
    async def act(view: View) -> None:
        await view.pilot.double_click(offset=(4, 4))
        await view.shows("GPU 1 · H100")

    on(tmp_path, 4, (120, 40), act, 3)


# -- processes


def test_filter_and_tree(tmp_path: Path) -> None:
    async def act(view: View) -> None:
        await view.shows("Processes 7")
        await view.press("slash", *"bob")
        await view.shows("Processes 1 of 7", "rsync -a")
        await view.hides("sshd")
        await view.press("enter")
        await view.hides("text in device")
        await view.press("escape")
        await view.shows("Processes 7", "sshd")
        await view.press("t")
        await view.shows("└ rsync -a")
        await view.press("slash", *"nobody")
        await view.shows("no process has 'nobody'")
        await view.press("escape")
        await view.shows("Processes 7")

    on(tmp_path, 0, (120, 40), act, 2)


def test_tree_of_processes() -> None:
    def process(pid: int, parent: int) -> Process:
        return Process(pid, command=f"p{pid}", parent=parent)

    rows = [process(4, 2), process(2, 1), process(3, 1), process(9, 8), process(1, 0)]
    assert [(each.pid, prefix) for each, prefix in as_tree(rows)] == [
        (9, ""),
        (1, ""),
        (2, "├ "),
        (4, "│ └ "),
        (3, "└ "),
    ]
    assert matches(process(4, 2), "P4")
    assert not matches(process(4, 2), "p5")


def test_signal_is_sent_after_a_question(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:

        async def act(view: View) -> None:
            view.panel("processes").focus()
            view.panel("processes").select(("", child.pid))
            await view.press("k")
            await view.shows("SIGTERM", "cancel", str(child.pid))
            await view.press("enter")
            await view.hides("SIGTERM")
            assert child.poll() is None
            await view.press("k", "down", "enter")
            await view.shows(f"sent SIGTERM to {child.pid}")

        with patch.dict(OTHERS, {child.pid: OTHERS[1]._replace(pid=child.pid)}):
            on(tmp_path, 0, (120, 40), act, 2)
        assert child.wait(60) == -15 or os.name == "nt"


def test_signal_to_a_process_that_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        process = psutil.Process(child.pid)
        child.communicate(b"\n")
    assert send(process, "SIGTERM") == f"process {child.pid} has ended"


def test_all_processes_of_this_machine() -> None:
    reader = ProcessReader()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        found = reader.everything(())
        assert found[child.pid].parent == os.getpid()
        assert found[child.pid].command.endswith("-c input()")
        assert found[child.pid].cpu is None
        found = reader.everything([child.pid])
        assert found[child.pid].cpu is not None
        child.communicate(b"\n")
    reader._due = 0.0
    assert child.pid not in reader.everything(())


# -- themes, and the first frame


@pytest.mark.parametrize(
    ("answer", "variable", "expected"),
    [
        ("\x1b]11;rgb:ffff/ffff/ffff\x1b\\\x1b[?62c", "", "light"),
        ("\x1b]11;rgb:1212/1212/1212\x07\x1b[?62c", "0;15", "dark"),
        ("\x1b]11;rgb:fd/f6/e3\x1b\\", "", "light"),
        ("\x1b[?62c", "0;15", "light"),
        ("", "15;0", "dark"),
        ("", "", "dark"),
    ],
)
def test_theme_suits_the_terminal(answer: str, variable: str, expected: str) -> None:
    with patch.object(themes, "_ask", lambda question: answer), patch.dict(os.environ, {"COLORFGBG": variable}):
        assert themes.of_terminal() == expected


@pytest.mark.skipif(os.name == "nt", reason="there is no pty")
def test_terminal_that_hangs_up_is_not_read_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.openpty()
    answers = iter([b"\x1b]11;", b""])
    monkeypatch.setattr("select.select", lambda *_: ([theirs], [], []))
    monkeypatch.setattr("os.read", lambda *_: next(answers))
    with open(theirs) as terminal, open(ours, "wb"), patch.object(sys, "stdin", terminal):
        assert themes._ask("?") == "\x1b]11;"


def test_themes_have_the_same_styles() -> None:
    dark, light = themes.THEMES["dark"], themes.THEMES["light"]
    assert dark.styles.keys() == light.styles.keys() == dark.selected.keys() == light.selected.keys()


def test_first_frame_says_what_it_waits_for(tmp_path: Path) -> None:
    async def act(view: View) -> None:
        runner = next(each for each in view.app._feed._session.runners if each.name == "host")
        with patch.object(runner, "state", State.STARTING):
            view.app._show()
            view.panel("page").redraw()
            await view.shows("Reading", "waiting for", "host")
        await view.read()
        await view.hides("Reading")

    on(tmp_path, 0, (80, 24), act, 0)
