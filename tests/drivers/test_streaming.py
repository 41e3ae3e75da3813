"""Streams: complete lines of a running tool are read. It never runs twice and never outlives the program."""

from __future__ import annotations

import array
import math
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.support.children import ROOT, command, descriptors, lives, run
from tests.support.stage import Clock
from tests.support.waiting import wait_for
from tests.tools import standalone_python

from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.drivers.capture import Record, Replay
from opentelemetry.instrumentation.hardware.drivers.streaming import LINE_LIMIT, Reports, StreamingCommand
from opentelemetry.instrumentation.hardware.drivers.subprocess import Tool
from opentelemetry.instrumentation.hardware.model import Unavailable

if sys.platform != "win32":
    import fcntl
    import termios

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="starts tools as POSIX has them"),
    pytest.mark.usefixtures("nothing_is_left"),
]

forks = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")

LONG = 60.0  # seconds after which something counts as hung

# Functions for the tools. `next_word` waits until the test has written a word to a file.
PRELUDE = """
import os, signal, sys, time
def put(text): os.write(1, text.encode())
def note(path):
    with open(path, "a") as pids: pids.write(f"{os.getpid()}\\n")
def next_word(path, word):
    while open(path).read().strip() != word: time.sleep(0.002)
"""


@pytest.fixture
def make_stream(tmp_path: Path) -> Iterator[Callable[..., StreamingCommand]]:
    """A function that returns a stream of a Python program."""
    streams = []

    def make(
        program: str, clock: Callable[[], float] | None = None, name: str = "tool", **more: Any
    ) -> StreamingCommand:
        path = tmp_path / name
        path.write_text(f"#!{sys.executable}\n{PRELUDE}{program}\n")
        path.chmod(0o755)
        tool = Tool("tool", str(path), **more)
        streams.append(StreamingCommand(tool, clock) if clock else StreamingCommand(tool))
        return streams[-1]

    yield make
    for stream in streams:
        stream.close()


@pytest.fixture
def pipes(make_stream: Callable[..., StreamingCommand]) -> Callable[[], list[int]]:
    """The pipes that were opened since the start of the test."""
    before = descriptors()

    def new() -> list[int]:
        now = descriptors()
        return [int(each) for each in now.keys() - before.keys() if now[each].startswith("pipe:")]

    return new


@pytest.fixture
def buffered(pipes: Callable[[], list[int]]) -> Callable[[], int]:
    """The number of unread bytes in the pipes."""

    def count() -> int:
        size, total = array.array("i", [0]), 0
        for each in pipes():
            fcntl.ioctl(each, termios.FIONREAD, size)
            total += size[0]
        return total

    return count


def _pids(path: Path, count: int = 1) -> list[int]:
    """The process ids that tools wrote into a file, at least `count`."""

    def pids() -> list[int]:
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    wait_for(lambda: len(pids()) >= count, LONG, f"{count} pids in {path}")
    return pids()


def _only(pids: list[int], alive: int) -> None:
    """Wait until only one of these processes lives; those killed by a keeper end a moment later."""
    expected = [number == alive for number in range(len(pids))]
    wait_for(lambda: [lives(pid) for pid in pids] == expected, LONG, f"end of all but number {alive}")


def _read_lines(stream: StreamingCommand, count: int) -> list[bytes]:
    lines: list[bytes] = []
    while len(lines) < count:
        lines += stream.read(LONG)
    return lines


# -- a program that closes descriptors of others


@pytest.mark.parametrize("number", ["free", "the program's"])
def test_closed_pipes_end_the_tool_and_leave_other_descriptors_alone(
    make_stream: Callable[..., StreamingCommand],
    tmp_path: Path,
    number: str,
    pipes: Callable[[], list[int]],
) -> None:
    """The program may have pipes under the same numbers: they are neither read nor closed."""
    pids = tmp_path / "pids"
    stream = make_stream(f"note({str(pids)!r})\nput('line\\n')\nsignal.pause()")
    stream.open([], LONG)
    assert _read_lines(stream, 1) == [b"line"]
    ours = pipes()
    reading, writing = os.pipe()
    os.write(writing, b"the program's own")
    for each in ours:
        if number == "free":
            os.close(each)
        else:
            os.dup2(reading, each)
    with pytest.raises(ChildProcessError, match="the program closed the pipe to tool"):
        stream.read(LONG)
    stream.close()
    if number != "free":
        for each in ours:
            assert os.path.sameopenfile(each, reading)
            os.close(each)
    assert os.read(reading, 99) == b"the program's own"
    os.close(reading)
    os.close(writing)
    _only(_pids(pids), -1)
    stream.open([], LONG)
    assert _read_lines(stream, 1) == [b"line"]


# -- lines


def test_lines_are_whole_and_in_order(make_stream: Callable[..., StreamingCommand]) -> None:
    stream = make_stream("for number in range(500): put(f'line {number} {sys.argv[1]}\\n')\nsignal.pause()")
    stream.open(["x y"], LONG)
    assert _read_lines(stream, 500) == [f"line {number} x y".encode() for number in range(500)]
    assert stream.read() == [], "without a timeout it does not wait"


def test_line_in_pieces_is_one_line(
    make_stream: Callable[..., StreamingCommand], tmp_path: Path, buffered: Callable[[], int]
) -> None:
    word = tmp_path / "word"
    word.write_text("")
    program = (
        f"put('{{\"a\": '); next_word({str(word)!r}, 'go on'); put('1'); next_word({str(word)!r}, 'end')\n"
        "put('}\\n\\nhalf'); signal.pause()"
    )
    stream = make_stream(program)
    stream.open([], LONG)
    for following in ("go on", "end"):
        wait_for(buffered, LONG, "piece of a line")
        assert stream.read(0.05) == []
        word.write_text(following)
    assert _read_lines(stream, 2) == [b'{"a": 1}', b""]
    assert stream.read(0.05) == []


@pytest.mark.parametrize("size", [1, 4095, 65536, 65537, LINE_LIMIT])
def test_lines_up_to_the_limit_are_whole(make_stream: Callable[..., StreamingCommand], size: int) -> None:
    stream = make_stream(f"sys.stdout.write('x' * {size} + '\\n' + 'y\\n'); sys.stdout.flush(); signal.pause()")
    stream.open([], LONG)
    lines = _read_lines(stream, 2)
    assert [(len(line), set(line)) for line in lines] == [(size, set(b"x")), (1, set(b"y"))]


def test_line_longer_than_the_pipe_takes_few_reads(
    make_stream: Callable[..., StreamingCommand], buffered: Callable[[], int]
) -> None:
    stream = make_stream("while True: put('x' * 700_000 + '\\n'); time.sleep(0.05)")
    stream.open([], LONG)
    assert len(_read_lines(stream, 1)[0]) == 700_000
    lines: list[bytes] = []
    reads = 0
    while len(lines) < 5:
        wait_for(lambda: buffered() > 60_000, LONG, "full pipe")
        lines += stream.read()
        reads += 1
    assert {len(line) for line in lines} == {700_000}
    assert reads <= 10, "a pipe holds a tenth of a line; a slow machine may need a second read"


def test_line_above_the_limit_kills_the_tool(make_stream: Callable[..., StreamingCommand], tmp_path: Path) -> None:
    stream = make_stream(f"note({str(tmp_path / 'pid')!r})\nwhile True: put('x' * 65536)")
    stream.open([], LONG)
    with pytest.raises(ChildProcessError, match="tool printed a line of more than 2 MiB"):
        _read_lines(stream, 1)
    assert not lives(_pids(tmp_path / "pid")[0])


def test_output_above_the_limit_kills_the_tool(
    make_stream: Callable[..., StreamingCommand],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pipes: Callable[[], list[int]],
    buffered: Callable[[], int],
) -> None:
    """The pipe is filled before it is read; otherwise the tool may write no faster than it is read."""
    monkeypatch.setattr("opentelemetry.instrumentation.hardware.drivers.streaming.LIMIT", 500_000)
    stream = make_stream(f"note({str(tmp_path / 'pid')!r})\nwhile True: put(('x' * 1023 + '\\n') * 64)")
    stream.open([], LONG)
    for each in pipes():
        fcntl.fcntl(each, fcntl.F_SETPIPE_SZ, 1 << 20)
    wait_for(lambda: buffered() > 500_000, LONG, "full pipe")
    with pytest.raises(ChildProcessError, match="tool printed more than 0 MiB at once"):
        stream.read()
    assert not lives(_pids(tmp_path / "pid")[0])


def test_tool_that_prints_without_end_is_killed_and_restarted_with_backoff(
    make_stream: Callable[..., StreamingCommand], tmp_path: Path, buffered: Callable[[], int]
) -> None:
    clock = Clock()
    pids = tmp_path / "pids"
    stream = make_stream(f"note({str(pids)!r})\nwhile True: put('{{}}\\n' * 1000)", clock)
    parsed: list[bytes] = []
    reports = Reports(stream, "tool", parsed.append, [], 1.0, clock=clock)
    for _ in range(100):  # seconds
        with suppress(ChildProcessError):
            reports.read()
            wait_for(lambda: buffered() > 30_000, LONG, "full pipe")
            reports.read()
        clock.now += 1.0
    assert re.match(r"tool printed \d+ lines at once; retry in 24 s", reports.error)
    assert len(_pids(pids)) == 7, "at once and after 1, 2, 4, 8, 16 and 32 s"
    assert len(parsed) <= 7 * 1000
    _only(_pids(pids), -1)


def test_last_line_of_stderr_is_in_the_error(make_stream: Callable[..., StreamingCommand]) -> None:
    stream = make_stream(
        "sys.stderr.write('x' * (5 << 20) + '\\nno such sensor\\n'); sys.stderr.flush()\nput('a\\nhalf'); sys.exit(3)"
    )
    stream.open([], LONG)
    assert _read_lines(stream, 1) == [b"a"]
    with pytest.raises(ChildProcessError, match=r"tool exited: no such sensor$"):
        stream.read(LONG)


def test_binary_lines_are_returned_unchanged(make_stream: Callable[..., StreamingCommand]) -> None:
    stream = make_stream("os.write(1, bytes(range(256)) * 3 + b'\\n'); signal.pause()")
    stream.open([], LONG)
    whole = bytes(range(256)) * 3
    assert _read_lines(stream, 4) == whole.split(b"\n")


# -- silence


def test_silence_for_three_periods_kills_the_tool(make_stream: Callable[..., StreamingCommand], tmp_path: Path) -> None:
    clock = Clock()
    stream = make_stream(f"note({str(tmp_path / 'pid')!r}); put('a\\n'); signal.pause()", clock)
    stream.open([], 10.0)
    wait_for(lambda: stream.read() == [b"a"], LONG, "first line")
    clock.now += 29.0
    assert stream.read() == []
    clock.now += 2.0
    with pytest.raises(TimeoutError, match="tool printed nothing for 3 periods"):
        stream.read()
    wait_for(lambda: not lives(_pids(tmp_path / "pid")[0]), LONG, "end of the tool")


def test_first_line_may_take_ten_seconds(make_stream: Callable[..., StreamingCommand]) -> None:
    clock = Clock()
    stream = make_stream("signal.pause()", clock)
    stream.open([], 0.5)
    clock.now += 9.0
    assert stream.read() == []
    clock.now += 2.0
    with pytest.raises(TimeoutError):
        stream.read()


def test_old_lines_of_a_full_pipe_are_dropped(
    make_stream: Callable[..., StreamingCommand], tmp_path: Path, buffered: Callable[[], int]
) -> None:
    """The pipe is full and the tool blocks in the middle of a line; lines after that are new."""
    clock, word = Clock(), tmp_path / "word"
    word.write_text("")
    program = (
        "for number in range(200): put(f'{number:04} ' + 'x' * 1000 + '\\n')\n"
        f"next_word({str(word)!r}, 'new')\n"
        "while True: put('new\\n'); time.sleep(0.01)"
    )
    stream = make_stream(program, clock)
    stream.open([], 1.0)
    wait_for(lambda: buffered() > 60_000, LONG, "full pipe")
    clock.now += 3600.0
    assert stream.read() == [], "old"
    word.write_text("new")
    clock.now += 2.0
    lines = []
    while b"new" not in lines:
        lines = stream.read(LONG)
        clock.now += 1.0


def test_rest_of_a_dropped_line_is_dropped(
    make_stream: Callable[..., StreamingCommand], tmp_path: Path, buffered: Callable[[], int]
) -> None:
    clock, word = Clock(), tmp_path / "word"
    word.write_text("")
    stream = make_stream(
        f"put('old\\nold\\nhalf'); next_word({str(word)!r}, 'on'); put(' of it\\nnew\\n'); signal.pause()", clock
    )
    stream.open([], 1.0)
    wait_for(lambda: buffered() == len("old\nold\nhalf"), LONG, "two lines and a half")
    clock.now += 3600.0
    assert stream.read() == []
    assert stream.read() == [], "the next line is due in three periods"
    word.write_text("on")
    wait_for(lambda: buffered() == len(" of it\nnew\n"), LONG, "the other half")
    assert stream.read() == [b"new"]


def test_lines_of_a_long_pause_are_kept_unless_the_pipe_was_full(
    make_stream: Callable[..., StreamingCommand], tmp_path: Path, buffered: Callable[[], int]
) -> None:
    clock = Clock()
    stream = make_stream("for number in range(60): put(f'{number}\\n')\nput('end'); signal.pause()", clock)
    stream.open([], 1.0)
    wait_for(lambda: buffered() == 60 * 3 - 10 + 3, LONG, "60 lines")
    clock.now += 60.0
    assert stream.read() == [str(number).encode() for number in range(60)]


# -- end and restart of the tool


def test_last_lines_are_read_before_the_end_is_an_error(make_stream: Callable[..., StreamingCommand]) -> None:
    stream = make_stream("put('a\\nb\\nhalf a l'); os.kill(os.getpid(), signal.SIGKILL)")
    stream.open([], LONG)
    assert _read_lines(stream, 2) == [b"a", b"b"]
    with pytest.raises(ChildProcessError, match="tool exited"):
        stream.read(LONG)
    with pytest.raises(ChildProcessError, match="tool exited"):
        stream.read()


def test_grandchild_with_open_output_is_not_waited_for(
    make_stream: Callable[..., StreamingCommand], tmp_path: Path
) -> None:
    program = (
        "import subprocess\n"
        f"pid = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)']).pid\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(f'{{pid}}\\n'); put('a\\n')"
    )
    stream = make_stream(program)
    stream.open([], LONG)
    assert _read_lines(stream, 1) == [b"a"]
    with pytest.raises(ChildProcessError, match="tool exited"):
        stream.read(LONG)
    grandchild = _pids(tmp_path / "pid")[0]
    wait_for(lambda: not lives(grandchild), LONG, "end of the grandchild, which is in the process group")


def test_restart_backoff_grows_and_is_reset_by_a_long_run(
    make_stream: Callable[..., StreamingCommand], tmp_path: Path
) -> None:
    clock, pids = Clock(), tmp_path / "pids"
    stream = make_stream(f"note({str(pids)!r}); sys.exit(1)", clock)

    def die() -> None:
        stream.open([], 10.0)
        with pytest.raises(ChildProcessError, match="exited"):
            wait_for(lambda: stream.read(LONG), LONG, "line")

    for number, pause in enumerate((1, 2, 4, 8, 16, 32, 60, 60), 1):
        die()
        clock.now += pause - 0.5
        with pytest.raises(ChildProcessError, match=r"tool exited; retry in [01] s"):
            stream.open([], 10.0)
        assert len(_pids(pids, number)) == number
        clock.now += 0.5
    (tmp_path / "tool").write_text(f"#!{sys.executable}\n{PRELUDE}note({str(pids)!r}); put('a\\n'); time.sleep(3600)")
    stream.open([], 60.0)
    assert _read_lines(stream, 1) == [b"a"]
    clock.now += 61.0
    os.kill(_pids(pids)[-1], signal.SIGKILL)
    with pytest.raises(ChildProcessError, match="exited"):
        wait_for(stream.read, LONG, "line")
    clock.now += 1.0
    stream.open([], 10.0)


def test_reports_skip_other_lines_expire_and_continue_with_the_next_run(
    make_stream: Callable[..., StreamingCommand], tmp_path: Path
) -> None:
    clock, word = Clock(), tmp_path / "word"
    word.write_text("")
    stream = make_stream(
        f"put('loading\\n1\\n2\\nx\\n'); next_word({str(word)!r}, 'y'); put('y\\n'); next_word({str(word)!r}, 'end')",
        clock,
    )
    reports = Reports(stream, "tool", int, [], 10.0, clock=clock)
    assert reports.read(LONG) == [1, 2]
    assert (reports.newest, reports.error) == (2, "")
    clock.now += 20
    word.write_text("y")
    assert reports.read(LONG) == []
    assert (reports.newest, reports.error) == (2, "tool: invalid literal for int() with base 10: b'y'")
    clock.now += 15
    assert reports.read() == []
    newest = reports.newest
    assert newest is None, "the newest report is older than three periods"
    word.write_text("end")
    with pytest.raises(ChildProcessError, match="tool exited"):
        wait_for(lambda: reports.read(LONG), LONG, "report")
    assert reports.error == "tool exited"
    clock.now += 1.0
    assert reports.read(LONG) == [1, 2]
    assert (reports.newest, reports.error) == (2, "")


def test_reopening_ends_the_tool_before(make_stream: Callable[..., StreamingCommand], tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    stream = make_stream(f"note({str(pids)!r}); put('a\\n'); time.sleep(3600)")
    for number in range(1, 4):
        stream.open([], LONG)
        assert _read_lines(stream, 1) == [b"a"]
        _only(_pids(pids, number), number - 1)
    stream.close()
    _only(_pids(pids, 3), -1)
    with pytest.raises(ChildProcessError, match="tool is not running"):
        stream.read()


def test_unkillable_tool_is_abandoned_and_not_started_twice(
    make_stream: Callable[..., StreamingCommand], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A process that sleeps in its driver; here, killpg does nothing, and there is no shell."""
    for module in ("child", "detached"):
        monkeypatch.setattr(f"opentelemetry.instrumentation.hardware.drivers.{module}.SHELL", "/nowhere/sh")
    stream = make_stream(f"note({str(tmp_path / 'pids')!r}); put('a\\n'); time.sleep(3600)")
    stream.open([], LONG)
    assert _read_lines(stream, 1) == [b"a"]
    (pid,) = _pids(tmp_path / "pids")
    reached = os.killpg
    monkeypatch.setattr("opentelemetry.instrumentation.hardware.drivers.child.GRACE", 0.05)
    monkeypatch.setattr(os, "killpg", lambda *arguments: None)
    with pytest.raises(ChildProcessError, match=f"tool hangs and cannot be killed; .* while process {pid} exists"):
        stream.open([], LONG)
    monkeypatch.setattr(os, "killpg", reached)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not lives(pid), LONG, "end of the tool")
    stream.open([], LONG)
    assert _read_lines(stream, 1) == [b"a"]


def test_tool_that_runs_is_no_child_of_the_program_unless_orphans_stay_zombies(
    make_stream: Callable[..., StreamingCommand], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some programs that are process 1 of a container reap no orphans. Here, one of ours has the state of those."""
    stream = make_stream("put(f'{os.getppid()}\\n')")
    stream.open([], LONG)
    (parent,) = _read_lines(stream, 1)
    assert int(parent) != os.getpid()
    assert psutil.Process(int(parent)).ppid() != os.getpid()
    stream.close()
    zombies: list[int] = []
    for _ in range(20):
        zombies.append(os.posix_spawn("/bin/sh", ["sh", "-c", ":"], {}, setpgroup=zombies[0] if zombies else 0))
        os.waitid(os.P_PID, zombies[-1], os.WEXITED | os.WNOWAIT)
    try:
        monkeypatch.setattr(
            "opentelemetry.instrumentation.hardware.drivers.detached._ended", lambda: {zombies[0]: -math.inf}
        )
        stream.open([], LONG)
        (parent,) = _read_lines(stream, 1)
        assert int(parent) == os.getpid()
    finally:
        for each in zombies:
            os.waitpid(each, 0)


def test_missing_tool_is_unavailable(make_stream: Callable[..., StreamingCommand], tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no-such-tool is not installed"):
        Drivers().stream(Tool("no-such-tool"))
    stream = make_stream("put('a\\n')", fix="reinstall it")
    (tmp_path / "tool").unlink()
    with pytest.raises(Unavailable, match="is not executable"):
        stream.open([], LONG)


# -- the program that reads the stream


@forks
def test_forked_child_opens_its_own_tool(make_stream: Callable[..., StreamingCommand], tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    stream = make_stream(f"note({str(pids)!r}); put('a\\n'); time.sleep(3600)")
    stream.open([], LONG)
    assert _read_lines(stream, 1) == [b"a"]
    child = os.fork()
    if not child:
        try:
            stream.close()
            stream.open([], LONG)
            lines = _read_lines(stream, 1)
            stream.close()
            os._exit(0 if lines == [b"a"] else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    _only(_pids(pids, 2), 0)
    assert stream.read() == []


def test_drivers_keep_one_stream_per_tool_and_end_it(tmp_path: Path) -> None:
    drivers = Drivers()
    stream = drivers.stream(Tool("sh"))
    assert drivers.stream(Tool("sh")) is stream
    stream.open(["-c", f"echo $$ >> {tmp_path}/pid; echo a; exec sleep 3600"], LONG)
    assert _read_lines(stream, 1) == [b"a"]
    drivers.close()
    assert not lives(_pids(tmp_path / "pid")[0])
    stream.open(["-c", "echo b; exec sleep 3600"], LONG)
    assert _read_lines(stream, 1) == [b"b"], "usable after close"
    drivers.close()


def test_streams_run_in_several_threads(make_stream: Callable[..., StreamingCommand]) -> None:
    streams = {
        each: make_stream("while True: put(sys.argv[1] * 1000 + '\\n'); time.sleep(0.001)", name=each) for each in "abc"
    }
    lines: dict[str, set[bytes]] = {}

    def work(letter: str) -> None:
        streams[letter].open([letter], 0.001)
        lines[letter] = {*_read_lines(streams[letter], 50)}
        streams[letter].close()

    threads = [threading.Thread(target=work, args=(letter,)) for letter in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert lines == {letter: {letter.encode() * 1000} for letter in "abc"}


def test_stream_is_recorded_and_replayed() -> None:
    output, tool = StringIO(), Tool("sh")
    record = Record(Drivers(), output, "tool")

    def listen(drivers: Drivers) -> list[object]:
        stream = drivers.stream(tool)
        stream.open(["-c", "echo a"], LONG)
        answers: list[object] = [stream.read(LONG)]
        drivers.next()  # type: ignore[attr-defined]
        try:
            stream.read(LONG)
        except ChildProcessError as error:
            answers.append(str(error))
        drivers.close()
        return answers

    assert listen(record) == [[b"a"], "sh exited"]
    assert listen(Replay(output.getvalue().splitlines())) == [[b"a"], "sh exited"]


# -- documents and arguments


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs memfd_create")
@pytest.mark.parametrize("wrapper", ["", "#!/bin/sh\n"], ids=["tool", "script"])
def test_document_is_read_from_memory(
    make_stream: Callable[..., StreamingCommand], tmp_path: Path, wrapper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As often as the tool likes, and by a tool that a script starts. The folder of temporary files stays empty."""
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "empty"))
    stream = make_stream(
        "for _ in range(2): put(f'{sys.argv[1]} {sys.argv[2]} {open(sys.argv[2]).read()}\\n')\nsignal.pause()"
    )
    if wrapper:
        (tmp_path / "tool").rename(tmp_path / "real")
        (tmp_path / "tool").write_text(f'{wrapper}"{tmp_path}/real" "$@"\nexit 1\n')
        (tmp_path / "tool").chmod(0o755)
    stream.open(["-c", "{document}"], LONG, "a text")
    assert _read_lines(stream, 2) == [b"-c /dev/stdin a text"] * 2
    assert not [*(tmp_path / "empty").iterdir()]


@pytest.mark.whole
def test_tool_and_document_with_the_python_of_uv() -> None:
    """It lacks pidfd_open(), memfd_create() and new sessions, because its C library is old."""
    paths = str(ROOT / "src"), str(Path(psutil.__file__).parents[1])
    done = run([str(standalone_python()), *command("drivers/document")[1:]], {"PYTHONPATH": ":".join(paths)})
    assert (done.stdout, done.stderr) == ("False [b'a line']\n", "")


def test_fixed_arguments_come_first(make_stream: Callable[..., StreamingCommand]) -> None:
    stream = make_stream("put(' '.join(sys.argv[1:]) + '\\n'); signal.pause()", arguments=("-u", "program"))
    stream.open(["x"], LONG)
    assert _read_lines(stream, 1) == [b"-u program x"]
