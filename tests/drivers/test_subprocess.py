"""Commands: deadline, output limits, process groups and the environment of a tool."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.children import PROGRAMS, lives, started
from tests.support.waiting import wait_for

from opentelemetry.instrumentation.hardware.drivers.child import LIMIT, Output
from opentelemetry.instrumentation.hardware.drivers.subprocess import Command, Tool, python_executable
from opentelemetry.instrumentation.hardware.model import Unavailable

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="starts tools as POSIX has them"),
    pytest.mark.usefixtures("nothing_is_left"),
]

forks = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")

LONG = 60.0  # seconds after which a tool counts as hung

DRIVERS = "opentelemetry.instrumentation.hardware.drivers"


@pytest.fixture
def make_command(tmp_path: Path) -> Callable[..., Command]:
    """A function that returns a command for a Python program."""

    def make(program: str, interpreter: str = sys.executable, **more: Any) -> Command:
        path = tmp_path / "tool"
        path.write_text(f"#!{interpreter}\n{program}\n")
        path.chmod(0o755)
        return Command(Tool("tool", str(path), **more))

    return make


def _pids(path: Path) -> list[int]:
    """The pids that tools have written to a file."""
    return [int(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


def _pid_in(path: Path) -> int:
    """The first pid that a tool writes to a file."""
    wait_for(lambda: _pids(path), LONG, f"pid in {path}")
    return _pids(path)[0]


@pytest.fixture
def stop_deadline(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, int], None]:
    """Stop the clock of deadlines until some tools have started, so that a slow machine does not matter."""

    def stop(path: Path, count: int = 1) -> None:
        begun = time.monotonic()

        def now() -> float:
            real = time.monotonic()
            return real if len(_pids(path)) >= count or real > begun + LONG else begun

        clock = SimpleNamespace(monotonic=now, sleep=time.sleep)
        for module in ("subprocess", "child"):
            monkeypatch.setattr(f"{DRIVERS}.{module}.time", clock)

    return stop


@pytest.fixture
def unkillable(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Make tools ignore SIGKILL, like one that sleeps in its driver, until the returned function is called."""
    reached = os.killpg
    monkeypatch.setattr(f"{DRIVERS}.child.GRACE", 0.05)
    monkeypatch.setattr(f"{DRIVERS}.child.SHELL", "/nowhere/sh")
    monkeypatch.setattr(os, "killpg", lambda *arguments: None)
    return lambda: monkeypatch.setattr(os, "killpg", reached)


# -- output


def test_output_and_exit_code_are_returned(make_command: Callable[..., Command]) -> None:
    command = make_command("import sys; print(sys.argv[1:]); print('hm', file=sys.stderr); sys.exit(7)")
    assert command.run(["-q", "a b"], LONG) == Output(7, b"['-q', 'a b']\n", b"hm\n")
    assert command.run([], LONG).stdout == b"[]\n", "second run"


@pytest.mark.parametrize("size", [0, 1, 65536, 65537, 3_000_000, LIMIT])
def test_output_up_to_the_limit_is_whole(make_command: Callable[..., Command], size: int) -> None:
    output = make_command(f"import sys; sys.stdout.write('x' * {size})").run([], LONG)
    assert (output.code, len(output.stdout), output.stdout.count(b"x")) == (0, size, size)


@pytest.mark.parametrize("stop", ["sys.exit(1)", "time.sleep(3600)"], ids=["that ends", "that keeps running"])
def test_output_above_the_limit_is_an_error(make_command: Callable[..., Command], stop: str) -> None:
    command = make_command(f"import sys, time\nfor _ in range(100): sys.stdout.write('x' * (1 << 20))\n{stop}")
    with pytest.raises(ChildProcessError, match="tool printed more than 4 MiB"):
        command.run([], LONG)


def test_only_the_end_of_stderr_is_kept(make_command: Callable[..., Command]) -> None:
    output = make_command("import sys; sys.stderr.write('x' * (20 << 20) + 'at last'); print('fine')").run([], LONG)
    assert (output.code, output.stdout) == (0, b"fine\n")
    assert len(output.stderr) == 4096
    assert output.stderr.endswith(b"at last")


def test_flood_of_stderr_takes_little_cpu_time(make_command: Callable[..., Command]) -> None:
    command = make_command("import sys\nwhile True: sys.stderr.write('x' * 65536)")
    begin, used = time.monotonic(), time.thread_time()
    with pytest.raises(TimeoutError):
        command.run([], 2.0)
    assert time.thread_time() - used < 0.2 * (time.monotonic() - begin)


def test_binary_output_is_returned_unchanged(make_command: Callable[..., Command]) -> None:
    output = make_command("import os; os.write(1, bytes(range(256)) * 300)").run([], LONG)
    assert output == Output(0, bytes(range(256)) * 300)


@pytest.mark.parametrize(("signum", "name"), [(signal.SIGSEGV, "SIGSEGV"), (signal.SIGKILL, "SIGKILL")])
def test_death_by_signal_is_a_negative_exit_code(make_command: Callable[..., Command], signum: int, name: str) -> None:
    program = f"import os, signal; os.write(1, b'<gpu><te'); os.kill(os.getpid(), signal.{name}); signal.pause()"
    assert make_command(program).run([], LONG) == Output(-signum, b"<gpu><te")


def test_tool_that_closed_its_output_is_waited_for(make_command: Callable[..., Command]) -> None:
    program = "import os, sys, time; print('x', flush=True); os.close(1); os.close(2); time.sleep(0.2); os._exit(5)"
    assert make_command(program).run([], LONG) == Output(5, b"x\n")


# -- deadlines

HANGS = {
    "that hangs": "import time; time.sleep(3600)",
    "that ignores signals": (
        "import signal, time\n"
        "for each in range(1, 32):\n"
        "    if each not in (signal.SIGKILL, signal.SIGSTOP): signal.signal(each, signal.SIG_IGN)\n"
        "time.sleep(3600)"
    ),
    "that is stopped": "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
    "that prints without end": "import time\nwhile True: print('x', flush=True); time.sleep(0.001)",
    "that closes its output": "import os, time; os.close(1); os.close(2); time.sleep(3600)",
    "that prints half a line": "import time; print('<gpu', end='', flush=True); time.sleep(3600)",
}


@pytest.mark.parametrize("program", HANGS.values(), ids=HANGS)
def test_hanging_tool_is_killed_at_its_deadline(
    make_command: Callable[..., Command], stop_deadline: Callable[..., None], program: str, tmp_path: Path
) -> None:
    note = f"import os; open({str(tmp_path / 'pid')!r}, 'w').write(f'{{os.getpid()}}\\n')\n"
    command = make_command(note + program)
    stop_deadline(tmp_path / "pid")
    with pytest.raises(TimeoutError, match=r"tool timed out after 0\.1 s"):
        command.run([], 0.1)
    assert not lives(_pid_in(tmp_path / "pid"))
    with pytest.raises(TimeoutError):  # the next one is started
        command.run([], 0.01)


GRANDCHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
open({path!r}, "w").write(f"{{child.pid}}\\n")
print("output", flush=True)
"""


def test_grandchild_with_open_output_is_not_waited_for(make_command: Callable[..., Command], tmp_path: Path) -> None:
    output = make_command(GRANDCHILD.format(path=str(tmp_path / "pid")) + "import os; os._exit(3)").run([], LONG)
    assert output == Output(3, b"output\n")
    grandchild = _pid_in(tmp_path / "pid")
    wait_for(lambda: not lives(grandchild), LONG, "end of the grandchild, which is in the process group")


def test_grandchildren_are_killed_at_the_deadline(
    make_command: Callable[..., Command], stop_deadline: Callable[..., None], tmp_path: Path
) -> None:
    command = make_command(GRANDCHILD.format(path=str(tmp_path / "pid")) + "child.wait()")
    stop_deadline(tmp_path / "pid")
    with pytest.raises(TimeoutError):
        command.run([], 0.1)
    grandchild = _pid_in(tmp_path / "pid")
    wait_for(lambda: not lives(grandchild), LONG, "end of the grandchild")


def test_unkillable_tool_is_abandoned_and_not_started_twice(
    make_command: Callable[..., Command],
    stop_deadline: Callable[..., None],
    tmp_path: Path,
    unkillable: Callable[[], None],
) -> None:
    pids = tmp_path / "pids"
    command = make_command(
        f"import os, time\nwith open({str(pids)!r}, 'a') as pids: pids.write(f'{{os.getpid()}}\\n')\ntime.sleep(3600)"
    )
    stop_deadline(pids)
    with pytest.raises(TimeoutError):
        command.run([], 0.1)
    pid = _pid_in(pids)
    assert lives(pid)
    for _ in range(3):
        with pytest.raises(ChildProcessError, match=f"tool hangs and cannot be killed; .* while process {pid} exists"):
            command.run([], LONG)
    unkillable()
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not lives(pid), LONG, "end of the tool")
    stop_deadline(pids, 2)
    with pytest.raises(TimeoutError):  # the first one has exited: the next one is started, and hangs too
        command.run([], 0.1)
    assert len(_pids(pids)) == 2


# -- how a tool is started


def test_tool_has_empty_stdin_and_its_own_process_group(make_command: Callable[..., Command]) -> None:
    output = make_command("import os, sys; print(sys.stdin.read(), os.getpgid(0))").run([], LONG)
    assert int(output.stdout) != os.getpgid(0)


def test_tool_has_default_signals() -> None:
    """Python ignores SIGPIPE, and a thread of the program may block any signal."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
    try:
        output = Command(Tool("cat")).run(["/proc/self/status"], LONG).stdout.decode()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    signals = {name: int(mask, 16) for name, mask in re.findall(r"^(Sig\w+):\s*([0-9a-f]{16})$", output, re.MULTILINE)}
    assert signals["SigBlk"] == 0
    assert not signals["SigIgn"] & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1)


def test_tool_gets_a_scrubbed_environment(
    make_command: Callable[..., Command], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "OTEL_PYTHON_CONFIGURATOR",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "LD_PRELOAD",
        "AWS_SECRET",
        "NVIDIA_X",
        "NVIDIA_XY",
    ):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.setenv("LD_LIBRARY_PATH", ":/driver:lib")
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    program = "import os; print({name: os.environ[name] for name in os.environ if name != 'LC_CTYPE'})"
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    expected = {**kept, "LD_LIBRARY_PATH": "/driver", "LANG": "C", "LC_ALL": "C"}
    assert eval(make_command(program).run([], LONG).stdout) == expected
    assert eval(make_command(program, environment=("NVIDIA_X",)).run([], LONG).stdout) == {
        **expected,
        "NVIDIA_X": "/nowhere",
    }


def test_tool_inherits_no_descriptor(make_command: Callable[..., Command]) -> None:
    ends = os.pipe()
    os.set_inheritable(ends[1], True)
    try:
        output = make_command("import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:-1])").run([], LONG)
    finally:
        for end in ends:
            os.close(end)
    assert output.stdout == b"[0, 1, 2]\n"


def test_program_without_standard_streams_runs_tools() -> None:
    """A daemon may have closed them: pipes to the tool must not get the numbers 0 to 2."""
    program = (
        "import os\n"
        f"from {DRIVERS}.child import Output\n"
        f"from {DRIVERS}.subprocess import Command, Tool\n"
        "out = os.dup(1)\n"
        "for stream in range(3): os.close(stream)\n"
        "command = Command(Tool('sh'))\n"
        "outputs = [command.run(['-c', 'cat; echo x; echo y >&2; exit 3'], 60.0) for _ in range(2)]\n"
        "files = command.run(['-c', 'ls /proc/$PPID/fd'], 60.0).stdout.split()\n"
        "os.write(out, repr((outputs == [Output(3, b'x\\n', b'y\\n')] * 2, {b'0', b'1', b'2'} & {*files})).encode())"
    )
    with started([sys.executable, "-c", program]) as child:
        assert child.communicate(timeout=LONG)[0] == "(True, set())"


def test_tool_is_looked_up_on_path_then_in_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("path", "vendor"):
        (tmp_path / folder).mkdir()
    tool = Tool("some-smi", folders=(str(tmp_path / "vendor"),), fix="install it")
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/usr/bin:/bin")

    def put(folder: str) -> None:
        (tmp_path / folder / "some-smi").write_text(f"#!/bin/sh\necho {folder}\n")
        (tmp_path / folder / "some-smi").chmod(0o755)

    with pytest.raises(Unavailable, match="some-smi is not installed") as missing:
        Command(tool)
    assert missing.value.fix == "install it"
    put("vendor")
    assert Command(tool).run([], LONG).stdout == b"vendor\n"
    put("path")
    assert Command(tool).run([], LONG).stdout == b"path\n"
    assert Command(tool._replace(path=f"{tmp_path}/vendor/some-smi")).run([], LONG).stdout == b"vendor\n"
    with pytest.raises(Unavailable, match="/nowhere/some-smi is not executable"):
        Command(tool._replace(path="/nowhere/some-smi"))
    (tmp_path / "path/some-smi").chmod(0o644)
    assert Command(tool).run([], LONG).stdout == b"vendor\n", "a file that is not executable is not a tool"


def test_removed_tool_is_unavailable(make_command: Callable[..., Command], tmp_path: Path) -> None:
    command = make_command("print('x')", fix="reinstall it")
    assert command.run([], LONG).code == 0
    (tmp_path / "tool").unlink()
    with pytest.raises(Unavailable, match="tool is not executable") as error:
        command.run([], LONG)
    assert error.value.fix == "reinstall it"


def test_script_with_missing_interpreter_is_unavailable(make_command: Callable[..., Command]) -> None:
    command = make_command("", interpreter="/nowhere/python")
    with pytest.raises(Unavailable, match=r"tool cannot be started: the interpreter in its first line does not exist"):
        command.run([], LONG)


def test_program_for_another_c_library_is_unavailable(make_command: Callable[..., Command], tmp_path: Path) -> None:
    """As nvidia-smi on Alpine, whose C library is not glibc."""
    command = make_command("", fix="it comes with the driver")
    (tmp_path / "tool").write_bytes(Path(sys.executable).read_bytes().replace(b"/ld-", b"/no-"))
    with pytest.raises(Unavailable, match=r"tool cannot be started: its C library is not installed") as error:
        command.run([], LONG)
    assert "Alpine" in error.value.fix


@pytest.mark.parametrize("search", [":/nowhere", "/nowhere::", ".", "", "tools"])
def test_tool_is_never_taken_from_the_current_folder(
    search: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tools").mkdir()
    for path in (tmp_path / "some-smi", tmp_path / "tools/some-smi"):
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", search)
    with pytest.raises(Unavailable, match="some-smi is not installed"):
        Command(Tool("some-smi"))


def test_tool_gets_a_path_without_the_current_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", ":/usr/bin::bin:/bin:.")
    assert Command(Tool("sh")).run(["-c", "echo $PATH"], LONG).stdout == b"/usr/bin:/bin\n"


def test_command_runs_without_a_shell(make_command: Callable[..., Command], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{DRIVERS}.child.SHELL", "/nowhere/sh")
    assert make_command("print('x')").run([], LONG).stdout == b"x\n"


# -- the program that runs tools


ENDS = {
    "that is killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "that ends": "os._exit(0)",
    "that becomes another one": "os.execv('/bin/true', ['true'])",
    "that has forked a worker": "os.fork() or time.sleep(3600)\nos.kill(os.getpid(), signal.SIGKILL)",
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("way", ["command", "stream"])
def test_whole_process_group_of_a_tool_ends_with_the_program(way: str, end: str, tmp_path: Path) -> None:
    """The tool is a script that runs its work in a child."""
    pids = tmp_path / "pids"
    with started([sys.executable, str(PROGRAMS / "processes/runs_tool.py"), way, str(pids), end]):
        wait_for(lambda: len(_pids(pids)) == 2, LONG, "the tool and its child")
        wait_for(lambda: not any(map(lives, _pids(pids))), LONG, "end of the tool and its child")


@forks
def test_forked_child_runs_tools(
    make_command: Callable[..., Command],
    stop_deadline: Callable[..., None],
    tmp_path: Path,
    unkillable: Callable[[], None],
) -> None:
    """Also while its parent has an unkillable tool, which the child leaves alone."""
    pids = tmp_path / "pids"
    command = make_command(
        f"import os, sys, time; open({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
        "time.sleep(float(sys.argv[1])); print('x')"
    )
    stop_deadline(pids)
    with pytest.raises(TimeoutError):
        command.run(["3600"], 0.1)
    left = _pid_in(pids)
    unkillable()
    child = os.fork()
    if not child:
        try:
            os._exit(0 if command.run(["0"], LONG) == Output(0, b"x\n") else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert lives(left)
    os.kill(left, signal.SIGKILL)
    wait_for(lambda: not lives(left), LONG, "end of the tool")
    assert command.run(["0"], LONG).stdout == b"x\n", "it is reaped, and the next one started"


@forks
def test_processes_forked_meanwhile_do_not_delay_a_tool(
    make_command: Callable[..., Command], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes that inherit the pipes to a tool and keep them open."""
    command = make_command("", interpreter="/bin/echo")
    forked: list[int] = []
    spawn = os.posix_spawn

    def fork_and_spawn(*arguments: Any, **options: Any) -> int:
        forked.append(os.fork())
        if not forked[-1]:
            time.sleep(3600)
            os._exit(0)
        return spawn(*arguments, **options)

    monkeypatch.setattr(os, "posix_spawn", fork_and_spawn)
    try:
        assert [command.run(["x"], LONG).code for _ in range(3)] == [0] * 3
    finally:
        for child in forked:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    assert len(forked) >= 3


@pytest.mark.parametrize("how", ["signal.SIG_IGN", "lambda *_: os.waitpid(-1, os.WNOHANG)"], ids=["ignores", "reaps"])
def test_program_that_reaps_every_child_loses_only_the_exit_code(how: str) -> None:
    program = (
        "import os, signal, time\n"
        "from opentelemetry.instrumentation.hardware.drivers.subprocess import Command, Tool\n"
        f"signal.signal(signal.SIGCHLD, {how})\n"
        "command = Command(Tool('sh'))\n"
        "for line in ('echo x; exit 3', 'echo y'):\n"
        "    print(command.run(['-c', line], 60.0).stdout)\n"
        "try: command.run(['-c', 'sleep 3600'], 0.2)\n"
        "except TimeoutError as error: print(error)\n"
    )
    with started([sys.executable, "-c", program]) as child:
        out, err = child.communicate(timeout=LONG)
    assert out.splitlines() == ["b'x\\n'", "b'y\\n'", "sh timed out after 0.2 s"], err


def test_tools_run_in_several_threads(make_command: Callable[..., Command], tmp_path: Path) -> None:
    make_command("import sys; sys.stdout.write(sys.argv[1] * 200000)")
    outputs: dict[str, bytes] = {}

    def work(letter: str) -> None:
        own = Command(Tool("tool", str(tmp_path / "tool")))
        for _ in range(5):
            outputs[letter] = own.run([letter], LONG).stdout

    threads = [threading.Thread(target=work, args=(letter,)) for letter in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert outputs == {letter: letter.encode() * 200000 for letter in "abcd"}


@pytest.mark.parametrize("executable", [sys.executable, "/usr/sbin/uwsgi", "/bin/true", "", None])
def test_interpreter_is_a_python_when_sys_executable_is_not(
    executable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    program = Command(Tool("ours", python_executable(), arguments=("-I", "-c", "print('done')")))
    assert program.run([], 60.0).stdout == b"done\n"


def test_interpreter_is_not_a_frozen_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would run the user's program again."""
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "executable", "/opt/mypython")
    assert python_executable() == "python3"


@pytest.mark.parametrize(("before", "expected"), [("/opt/lib", b"/opt/lib\n"), (None, b"\n")])
def test_tool_does_not_get_the_libraries_of_a_frozen_program(
    before: str | None, expected: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyInstaller sets these variables."""
    monkeypatch.setattr(sys, "_MEIPASS", "/opt/program/_internal", raising=False)
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/program/_internal" + (f":{before}" if before else ""))
    if before:
        monkeypatch.setenv("LD_LIBRARY_PATH_ORIG", before)
    tool = Command(Tool("tool", "/bin/sh", arguments=("-c", 'echo "$LD_LIBRARY_PATH"')))
    assert tool.run([], LONG).stdout == expected
