"""The live view: whole screens on simulated machines, keys, colours, and a real terminal.

`pytest tests/cli/test_top.py --rewrite` writes the screens in `tests/cli/top/` and the picture of the README. Look at
what changed.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import psutil
import pytest
from tests.cli.pictures import picture
from tests.cli.screens import View, on
from tests.sources.machines import STRANGER as ROOT
from tests.sources.macs import MACS
from tests.sources.npus import NPUS
from tests.sources.radeons import RADEONS
from tests.sources.tpus import TPUS
from tests.support.children import environment
from tests.support.commands import otel_hardware
from tests.support.stage import Clock
from tests.support.stepped import Stepped
from tests.tools.nvml import MIB, FakeNvml, h100, listed
from textual.geometry import Region

from opentelemetry.instrumentation.hardware.cli import figures
from opentelemetry.instrumentation.hardware.cli.messages import say
from opentelemetry.instrumentation.hardware.cli.top.board import arranged
from opentelemetry.instrumentation.hardware.cli.top.processes import ProcessReader, holders, users
from opentelemetry.instrumentation.hardware.cli.top.shapes import GOOD, Column, Layout, bar, graph, spark, width_of
from opentelemetry.instrumentation.hardware.cli.top.widgets import Drawn, Panel
from opentelemetry.instrumentation.hardware.pipeline.view import Viewer
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.system import tree

FOLDER = Path(__file__).parent / "top"
PICTURE = Path(__file__).parents[2] / "docs" / "images" / "top.svg"

SIZES = ((80, 24), (120, 40), (200, 50))
YELLOW, RED = "#ffd75f", "#ff5f5f"


# -- whole screens


@pytest.mark.parametrize("gpus", [0, 1, 16])
def test_screen(gpus: int, tmp_path: Path, rewrite: bool) -> None:
    async def act(view: View) -> None:
        for width, height in SIZES:
            await view.resize((width, height))
            await view.equals(FOLDER / f"{gpus}-gpus-{width}x{height}.txt", lambda: view.text, rewrite)
            lines = view.text.splitlines()
            assert len(lines) == height
            assert max(map(len, lines)) <= width

    on(tmp_path, gpus, SIZES[-1], act)


def test_picture_of_the_readme(tmp_path: Path, rewrite: bool) -> None:
    async def act(view: View) -> None:
        await view.equals(PICTURE, lambda: picture(view.strips), rewrite)

    on(tmp_path, 4, (120, 40), act, 68)


# -- keys and colours


def rows(view: View, panel: str) -> list[str]:
    """The rows of a table, by their first two words."""
    lines = view.app.query_one(f"#{panel}", Panel)._drawn.lines[1:]
    return [" ".join("".join(text for text, _ in line).split()[:2]) for line in lines if line]


def test_keys(tmp_path: Path) -> None:
    async def act(view: View) -> None:
        await view.shows("GPU 2", "DEVICE▲")  # ascending
        assert rows(view, "devices")[:3] == ["GPU 0", "GPU 1", "GPU 2"]
        await view.press("r")
        await view.shows("DEVICE▼")
        assert rows(view, "devices")[0] == "GPU 15"
        await view.press("r", "s", "s")
        await view.shows("MEMORY▼")
        assert rows(view, "devices")[:2] == ["GPU 1", "GPU 15"], "by memory in use"
        await view.press("tab", "tab", "s", "s", "s", "s")
        await view.shows("CPU▼")
        assert rows(view, "processes")[0] == "GPU 15"
        await view.shows("1-2 of 23")
        await view.press("end")
        await view.shows("22-23 of 23")
        await view.press("z", "home")
        await view.hides("CPU 32 threads")
        await view.until(lambda: view.text.count("python train.py") == 15)  # all processes have room
        assert view.text.count("python train.py") == 15
        await view.press("escape")
        await view.shows("CPU 32 threads")
        await view.press("p")
        await view.shows("paused")
        await view.press("p", "question_mark")
        await view.shows("next panel")
        await view.press("q")  # closes the help
        await view.press("m")
        await view.shows("Missing")
        await view.shows("graphcore: there is no IPU")
        await view.press("escape", "q")
        assert view.app.return_code == 0

    on(tmp_path, 16, (80, 24), act, 3)


def test_click_on_a_title_sorts(tmp_path: Path) -> None:
    async def act(view: View) -> None:
        await view.shows("TEMP")
        at = view.text.splitlines()[2].index("TEMP")
        await view.pilot.click(offset=(at, 2))
        await view.shows("TEMP▼")
        assert rows(view, "devices")[0] == "GPU 3"
        await view.pilot.click(offset=(at, 2))
        await view.shows("TEMP▲")

    on(tmp_path, 4, (120, 40), act, 3)


def test_colours_show_what_is_wrong(tmp_path: Path) -> None:
    async def act(view: View) -> None:
        await view.shows("   0%", "76.5/79.6G", "60.3/79.6G", "84°C", "power cap", "89%")
        assert view.style("   0%") == YELLOW, "GPU 2 is idle, but a process holds its memory"
        assert view.style("76.5/79.6G") == YELLOW, "96 % of the memory"
        assert view.style("60.3/79.6G") not in (YELLOW, RED)
        assert view.style("84°C") == YELLOW
        assert view.style("power cap") == YELLOW
        assert view.style("89%") == YELLOW, "a file system"

    on(tmp_path, 4, (120, 40), act, 3)


def test_only_changed_lines_are_drawn(tmp_path: Path) -> None:
    async def act(view: View) -> None:
        panel = view.app.query_one("#storage", Panel)
        panel.show(lambda width, height: Drawn([[("one", "")], [("two", "")]], "title"))
        drawn: list[tuple[Region, ...]] = []
        with patch.object(panel, "refresh", lambda *regions, **options: drawn.append(regions)):
            panel.show(lambda width, height: Drawn([[("one", "")], [("2", "")]], "title"))
            panel.show(lambda width, height: Drawn([[("one", "")], [("2", "")]], "title"))
        assert [[region.y for region in regions] for regions in drawn] == [[1]]

    on(tmp_path, 0, (80, 24), act, 1)


def test_message_is_shown_for_a_while(tmp_path: Path) -> None:
    async def act(view: View) -> None:
        say("export to http://localhost:4317 fails")
        await view.read()
        await view.shows("export to http://localhost:4317 fails")
        assert len(view.text.splitlines()) == 24
        for _ in range(15):
            await view.read()
        await view.hides("fails")

    on(tmp_path, 0, (80, 24), act, 1)


def test_failed_reading_is_shown_and_the_next_one_works(tmp_path: Path) -> None:
    async def act(view: View) -> None:
        with patch.object(view.app._feed, "collect", side_effect=OSError("broken")):
            await view.app.read()
            await view.shows("OSError: broken")
        await view.read()
        await view.hides("broken")

    on(tmp_path, 0, (80, 24), act, 1)


def test_panel_that_cannot_be_drawn_shows_why(tmp_path: Path) -> None:
    def draw(width: int, height: int) -> Drawn:
        raise ZeroDivisionError("no total")

    async def act(view: View) -> None:
        view.app.query_one("#storage", Panel).show(draw)
        await view.shows("ZeroDivisionError: no total", "Memory 4")
        await view.read()
        await view.hides("ZeroDivisionError")

    on(tmp_path, 0, (120, 40), act, 1)


def test_cores_are_shown_where_they_are_read(tmp_path: Path) -> None:
    async def act(view: View) -> None:
        await view.shows("CPU 32 threads")
        panel = view.app.query_one("#cpu", Panel)
        assert len("".join(text for text, _ in panel._drawn.lines[-1])) >= 32

    on(tmp_path, 0, (80, 24), act, 3, detail=["cpu"])


# -- shapes


def test_bar_and_graph() -> None:
    assert bar(0.5, 4, GOOD) == [("━━", GOOD), ("━━", "track")]
    assert bar(None, 4, GOOD) == [("━━━━", "track")]
    assert bar(7.0, 4, GOOD)[0] == ("━━━━", GOOD)
    assert ["".join(text for text, _ in line) for line in graph([None, None, 0.0, 1.0], 2, 2)] == [" ⢸", " ⣸"]
    assert spark([None, 0.0, 0.5, 1.0, 2.0], 6, GOOD) == [("  ▁▄▇█", GOOD)]


def test_columns_without_room_are_left_out() -> None:
    columns = [Column[str](name, 6, lambda row, _: [(row, "")], str, rank=at) for at, name in enumerate("ABC")]
    assert [column.title for column, _ in Layout(columns, 20).columns] == ["A", "B", "C"]
    assert [column.title for column, _ in Layout(columns, 19).columns] == ["A", "B"]
    assert width_of(Layout(columns, 13).row("wide text")) == 13


@pytest.mark.parametrize("devices", [0, 1, 4, 16, 128])
@pytest.mark.parametrize("size", [(40, 10), (80, 22), (100, 30), (120, 38), (200, 48)])
def test_panels_fill_the_screen(devices: int, size: tuple[int, int]) -> None:
    needs = {"cpu": 7, "memory": 7, "traffic": 6, "storage": 6}
    if devices:
        needs |= {"devices": devices + 3, "processes": devices + 3}
    placed = arranged(*size, needs, {"cpu": 9})
    assert sorted(name for row in placed for name in row.panels) == sorted(needs)
    assert all(sum(row.spans) == 12 for row in placed)
    height = sum(row.height for row in placed)
    assert height == size[1] or (size[1] < 22 and height > size[1]), "a small screen scrolls"


# -- devices of every vendor, and who uses them


STORIES = {f"{story.source}/{story.name}": story for story in (*RADEONS, *TPUS, *NPUS, *MACS)}


@pytest.mark.parametrize(
    ("name", "device", "model", "known", "used_by"),
    [
        (
            "amd/mi300x",
            "GPU 0",
            "MI300X",
            {"busy", "used", "total", "power", "temperature", "clock"},
            [
                ("GPU 0", ROOT, 70_000_000_001),
                ("GPU 0", ROOT + 1, 10**9),
                ("GPU 1", ROOT + 1, 2 * 10**9),
                ("GPU 1", 99, 17 * 10**9),
            ],
        ),
        ("amd/amd-smi-7", "GPU 0", "MI3", {"busy", "used", "total", "power", "temperature"}, []),
        ("tpu/v5e", "TPU 0", "TPU v5e", {"busy", "used", "total"}, []),
        (
            "trainium/trn2",
            "Neuron 0",
            "",
            {"busy", "used"},
            [("Neuron 0", ROOT, 204_531_122), ("Neuron 1", ROOT + 1, 102_265_561), ("Neuron 1", 4242, 204_531_122)],
        ),
        (
            "graphcore/c2",
            "IPU 0",
            "",
            {"busy", "temperature"},
            [("IPU 0", ROOT, None), ("IPU 1", ROOT + 1, None), ("IPU 2", 4242, None)],
        ),
        ("apple/macmon-0.8.2", "GPU", "M", {"busy", "power", "temperature", "clock"}, []),
    ],
)
def test_devices_of_other_vendors(
    name: str, device: str, model: str, known: set[str], used_by: list[tuple[str, int, int | None]]
) -> None:
    story = STORIES[name]
    clock, machine = Clock(), story.at(0)
    config = Config.read({"sources": [story.source], **story.settings}, {})
    session = Stepped(config, story.pid, 10.0, lambda source: machine, clock, all_processes=True)
    try:
        viewer = Viewer(session)
        clock.now += 10.0
        machine.become(story.at(1))
        view = viewer.collect()
        devices = figures.devices(view)
        first = devices[0]
        assert first.name.startswith(device)
        assert model in first.model
        assert known <= {field for field, value in first._asdict().items() if value is not None}
        processes = users(holders(session), {each.id: each.name for each in devices}, {})
        assert [(each.device, each.pid, each.device_memory) for each in processes] == used_by
    finally:
        session.close()


def test_processes_have_user_and_command(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()  # \x1b[31m"], stdin=subprocess.PIPE) as child:
        gone = child.pid + 1_000_000
        used = listed((child.pid, 40_000 * MIB), (gone, 9 * MIB))
        fake = FakeNvml(tmp_path, h100(0) | {"ComputeRunningProcesses": used})
        with (
            patch.dict(os.environ, environment(fake.environment), clear=True),
            patch.object(tree, "_is_host_namespace", lambda files: True),
        ):
            session = Stepped(Config.read({"sources": ["nvidia"]}), interval=2.0, all_processes=True)
            reader = ProcessReader()
            try:
                session.read_now(1.0)
                found = holders(session)
                pids = [holder.pid for _, holder in found if holder.owner is not None]
                reader.read(pids)
                first, second = users(found, {str(h100(0)["UUID"]): "GPU 0"}, reader.read(pids))
            finally:
                session.close()
        child.communicate(b"\n")
    assert (first.device, first.pid, first.device_memory) == ("GPU 0", child.pid, 40_000 * MIB)
    assert first.user == psutil.Process().username()
    assert first.command == f"{sys.executable} -c input()  # \\x1b[31m"
    assert first.cpu is not None
    assert first.memory is not None
    assert first.memory > MIB
    assert (second.pid, second.user, second.command, second.cpu) == (gone, "", "", None)


def test_in_a_container_a_pid_alone_names_no_process(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, h100(0) | {"ComputeRunningProcesses": listed((os.getpid(), 40_000 * MIB))})
    with (
        patch.dict(os.environ, environment(fake.environment), clear=True),
        patch.object(tree, "_is_host_namespace", lambda files: False),
    ):
        session = Stepped(Config.read({"sources": ["nvidia"]}), interval=2.0, all_processes=True)
        try:
            session.read_now(1.0)
            (found,) = users(holders(session), {}, ProcessReader().read([os.getpid()]))
        finally:
            session.close()
    assert (found.pid, found.user, found.command) == (os.getpid(), "", "")


# -- a real terminal


class RealTerminal:
    """A command in a terminal of its own.

    Attributes:
        child: The command.
        output: What it has written.
    """

    def __init__(self, *arguments: str, code: str = "", term: str = "screen-256color") -> None:
        main = f"{code}\nimport sys\nfrom opentelemetry.instrumentation.hardware.cli import main\nsys.exit(main())"
        self._terminal, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(other)
        env = {key: value for key, value in environment({"TERM": term}).items() if key != "COLORTERM"}
        self.child = subprocess.Popen(
            [sys.executable, "-c", main, *arguments], stdin=other, stdout=other, stderr=other, env=env, close_fds=True
        )
        self._other = other
        self.output = ""

    def wait_for(self, text: str, seconds: float = 120.0, after: int = 0) -> None:
        """Read until there is this text, behind so many characters."""
        deadline = time.monotonic() + seconds
        while text not in self.output[after:]:
            assert time.monotonic() < deadline, f"{text!r} does not come: {self.output[-2000:]!r}"
            self._read(1.0)

    def _read(self, seconds: float) -> None:
        if select.select([self._terminal], [], [], seconds)[0]:
            self.output += os.read(self._terminal, 65536).decode(errors="replace")

    def press(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def end(self) -> int:
        """Wait for the end of the command, and return its exit status."""
        deadline = time.monotonic() + 120.0
        while self.child.poll() is None:
            assert time.monotonic() < deadline, self.output[-2000:]
            self._read(0.1)
        while select.select([self._terminal], [], [], 0.0)[0]:
            self._read(0.0)
        assert termios.tcgetattr(self._other) == self.before, "the terminal is as it was"
        return self.child.returncode

    def close(self) -> None:
        self.child.kill()
        self.child.wait()
        os.close(self._terminal)
        os.close(self._other)


@contextmanager
def terminal(*arguments: str, **options: str) -> Iterator[RealTerminal]:
    opened = RealTerminal(*arguments, **options)
    try:
        yield opened
    finally:
        opened.close()


OPENED, CLOSED = "\x1b[?1049h", "\x1b[?1049l"  # the terminal's second screen


@pytest.mark.parametrize("way", ["q", "\x03", "SIGTERM", "SIGHUP"])
def test_real_terminal_is_restored(way: str) -> None:
    with terminal("top", "--sources", "host", "--every", "0.5") as found:
        found.wait_for("Memory")
        if way.startswith("SIG"):
            found.child.send_signal(getattr(signal, way))
        else:
            found.press(way)
        assert found.end() == 0
    assert found.output.rindex(CLOSED) > found.output.index(OPENED)
    assert "38;5;" in found.output, "one of 256 colours"
    assert "38;2;" not in found.output, "no true colour, which this terminal does not have"


def test_real_terminal_is_restored_after_stop_and_continue() -> None:
    """By SIGSTOP. Textual catches Ctrl-Z and SIGTSTP."""
    with terminal("top", "--sources", "host", "--every", "0.5") as found:
        found.wait_for("Memory")
        found.child.send_signal(signal.SIGSTOP)
        os.waitpid(found.child.pid, os.WUNTRACED)
        found.child.send_signal(signal.SIGCONT)
        opened = found.output.index(OPENED)
        found.wait_for(OPENED, after=opened + 1)
        found.wait_for("Memory", after=found.output.rindex(OPENED))
        found.press("q")
        assert found.end() == 0
    assert found.output.count(OPENED) == found.output.count(CLOSED) == 2
    assert len(re.findall(r"\x1b\[>\d+u", found.output)) == found.output.count("\x1b[<u"), "protocols of the keyboard"


def test_without_textual_there_is_a_table() -> None:
    hidden = "import sys; sys.modules['textual'] = None"
    with terminal("top", "--sources", "host", "--every", "0.5", "--duration", "2", code=hidden) as found:
        assert found.end() == 0
    text = re.sub(r"\s+", " ", found.output)
    assert "pip install 'opentelemetry-instrumentation-hardware[top]'" in text
    assert "system.memory.limit" in text


def test_without_utf_8_there_is_a_table() -> None:
    latin = "import sys; sys.stdout.reconfigure(encoding='latin-1')"
    with terminal("top", "--sources", "host", "--every", "0.5", "--duration", "2", code=latin) as found:
        assert found.end() == 0
    assert "UTF-8" in found.output
    assert "system.memory.limit" in found.output


def test_no_terminal() -> None:
    answer = otel_hardware("top")
    assert answer.status == 2
    assert (
        answer.err
        == "otel-hardware: top needs a terminal with a TERM such as xterm; 'otel-hardware snapshot' prints the values\n"
    )
