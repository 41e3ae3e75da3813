"""Programs that a test starts as children: with a clean environment, a deadline, and never left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import which
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PROGRAMS = ROOT / "tests" / "programs"
END = 20.0
"""Seconds that the end of a child may take: ours adds about one to it, and machines are slow at times."""

PATIENCE = 120.0
"""Seconds until a child counts as hung: far more than any of them takes, because machines are slow at times."""


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a user's shell: nothing of OpenTelemetry or pytest, and what the test adds.

    A child can import ``tests``, behind whatever the test puts on PYTHONPATH.
    """
    ours = ("OTEL_", "PYTEST_", "COLUMNS", "LINES")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    clean["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{clean.get('PATH', os.defpath)}"
    clean |= extra or {}
    clean["PYTHONPATH"] = os.pathsep.join(filter(None, [clean.get("PYTHONPATH"), str(ROOT)]))
    return clean


def command(program: str, *arguments: object) -> list[str]:
    """How one of the programs is started."""
    return [sys.executable, str(PROGRAMS / f"{program}.py"), *map(str, arguments)]


def instrumented(program: str, *arguments: object, flags: tuple[str, ...] = ()) -> list[str]:
    """How one of the programs is started that knows nothing of OpenTelemetry."""
    return ["opentelemetry-instrument", *flags, *command(program, *arguments)]


@contextmanager
def started(line: list[str], env: Mapping[str, str] | None = None, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A child in a process group of its own, which is killed at the end of the block, with all of its children."""
    child = subprocess.Popen(
        line,
        env=environment(env),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )
    try:
        yield child
    finally:
        for stop in (child.kill, lambda: os.killpg(child.pid, signal.SIGKILL)):
            with suppress(ProcessLookupError):
                stop()
        child.communicate()


def run(line: list[str], env: Mapping[str, str] | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a child to its end; a test fails with the output of a child that does not end."""
    with started(line, env, **options) as child:
        try:
            out, err = child.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            out, err = child.communicate()
            raise AssertionError(f"{' '.join(line)} did not end within {PATIENCE:g} s\n{out}\n{err}") from None
    return subprocess.CompletedProcess(line, child.returncode, out, err)


def run_past_last_line(
    line: list[str], env: Mapping[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a child that prints one line when its work is done; it has to end within `END` seconds of that."""
    with started(line, env, **options) as child:
        assert child.stdout is not None
        first = child.stdout.readline()
        rest, err = end_of(child)
    return subprocess.CompletedProcess(line, child.returncode, first + rest, err)


def end_of(child: subprocess.Popen[str]) -> tuple[str, str]:
    """What a child prints until its end, which has to come within `END` seconds."""
    try:
        return child.communicate(timeout=END)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        raise AssertionError(f"something held up the program's end for {END:g} s: {child.communicate()}") from None


def ended_cpu_time() -> float:
    """CPU seconds of all children of this process that have ended, as the kernel counts them."""
    import resource

    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def scene(program: str, *arguments: object) -> Any:
    """What a program prints, as JSON, that makes a machine of its own; it may not everywhere, and says 77 then."""
    outcome = run(command(program, *arguments))
    if outcome.returncode == 77:
        pytest.skip(f"there may be no namespace here: {outcome.stdout.strip()}")
    assert outcome.returncode == 0, outcome.stderr
    return json.loads(outcome.stdout)


def in_pid_namespace(*flags: str) -> list[str]:
    """What starts a command in a pid namespace of its own, as its first process."""
    for before in ([], ["--user", "--map-root-user"]) if which("unshare") else ():
        line = ["unshare", *before, "--pid", "--fork", *flags]
        if subprocess.run([*line, "true"], capture_output=True, check=False).returncode == 0:
            return line
    pytest.skip("there may be no pid namespace here")


def has_setpriv() -> bool:
    """Whether util-linux's setpriv is there, which makes a child die with its parent."""
    line = ["sh", "-c", "setpriv --pdeathsig KILL --version"]
    return subprocess.run(line, env=environment(), capture_output=True, check=False).returncode == 0


def without_setpriv(name: str, path: str | None = None) -> str | None:
    """Stands in for `shutil.which` where commands are looked for: all are found but that tool."""
    return None if name == "setpriv" else which(name, path=path)


def descriptors() -> dict[str, str]:
    """What is open in this process: descriptor and what it leads to."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the one that listed them
    return found


def lives(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
