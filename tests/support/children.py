"""Run programs as child processes of a test: with a clean environment and a deadline, and always reaped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from shutil import which
from typing import IO, Any

import pytest
from packaging.version import Version

from opentelemetry.instrumentation import auto_instrumentation

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "programs"

# Maximum seconds for the exit of a child. Our exit hook adds about one second, and machines can be slow.
END = 20.0

# Other instrumentations that are installed. Most programs leave them out: FastAPI's doubles the time of a start.
PEERS = "fastapi,system_metrics"

# What `opentelemetry-instrument` adds to the environment of a program. The command itself takes a third of a start.
AUTO_INSTRUMENTATION = {"PYTHONPATH": str(Path(auto_instrumentation.__file__).parent)}

inherited = pytest.mark.skipif(
    Version(version("opentelemetry-instrumentation")) < Version("0.63b0"),
    reason="before 0.63b0 opentelemetry-instrument does not instrument child interpreters",
)

# Seconds after which a child counts as hung: far more than any of them takes, because machines can be slow.
PATIENCE = 120.0


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a user's shell: no variables of OpenTelemetry or pytest, plus those of the test.

    A child can import ``tests``, behind whatever the test puts on PYTHONPATH.
    """
    ours = ("OTEL_", "PYTEST_", "COLUMNS", "LINES")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    clean["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{clean.get('PATH', os.defpath)}"
    clean |= extra or {}
    clean["PYTHONPATH"] = os.pathsep.join(filter(None, [clean.get("PYTHONPATH"), str(ROOT)]))
    return clean


def command(program: str, *arguments: object) -> list[str]:
    """Return the command line of one of the programs."""
    return [sys.executable, str(PROGRAMS / f"{program}.py"), *map(str, arguments)]


def instrumented(program: str, *arguments: object, flags: tuple[str, ...] = ()) -> list[str]:
    """Return the command line of a program without OpenTelemetry code, started by `opentelemetry-instrument`."""
    return ["opentelemetry-instrument", *flags, *command(program, *arguments)]


class Piped(subprocess.Popen[str]):
    """A child with a pipe for each standard stream."""

    stdin: IO[str]
    stdout: IO[str]
    stderr: IO[str]

    def end_input(self) -> None:
        """Close its standard input, which `communicate()` then leaves alone."""
        self.stdin.close()
        self.stdin = None  # type: ignore[assignment]


@contextmanager
def started(line: list[str], env: Mapping[str, str] | None = None, **options: Any) -> Iterator[Piped]:
    """Start a child in its own process group, which is killed with all its children at the end of the block."""
    child = Piped(
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
    """Run a child until it exits. If it does not, the test fails with its output."""
    with started(line, env, **options) as child:
        try:
            out, err = child.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            out, err = child.communicate()
            raise AssertionError(f"{' '.join(line)} did not exit within {PATIENCE:g} s\n{out}\n{err}") from None
    return subprocess.CompletedProcess(line, child.returncode, out, err)


def succeed(line: list[str], env: Mapping[str, str] | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a child that has to succeed. Its status 77 skips the test: the machine does not allow it."""
    return _checked(run(line, env, **options))


def _checked(outcome: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    if outcome.returncode == 77:
        pytest.skip(f"not allowed here: {outcome.stdout.strip()}")
    assert outcome.returncode == 0, f"{outcome.stdout}\n{outcome.stderr}"
    return outcome


def run_past_last_line(
    line: list[str], env: Mapping[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a child that prints one line when its work is done. It must then succeed, within `END` seconds.

    If there is no line within `PATIENCE`, it is killed; its status shows that.
    """
    with started(line, env, **options) as child:
        alarm = threading.Timer(PATIENCE, os.killpg, (child.pid, signal.SIGKILL))
        alarm.start()
        try:
            first = child.stdout.readline()
        finally:
            alarm.cancel()
        rest, err = end_of(child)
    return _checked(subprocess.CompletedProcess(line, child.returncode, first + rest, err))


def end_of(child: subprocess.Popen[str]) -> tuple[str, str]:
    """Return what a child prints until it exits, which must happen within `END` seconds."""
    try:
        return child.communicate(timeout=END)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        raise AssertionError(f"the exit of the program was delayed for {END:g} s: {child.communicate()}") from None


def ended_cpu_time() -> float:
    """Return the CPU seconds of all children of this process that have ended, as counted by the kernel."""
    import resource

    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def scene(program: str, *arguments: object) -> Any:
    """Return the JSON that a program prints."""
    return json.loads(succeed(command(program, *arguments)).stdout)


def in_pid_namespace(*flags: str) -> list[str]:
    """Return the prefix that starts a command as the first process of a new PID namespace."""
    for before in ([], ["--user", "--map-root-user"]) if which("unshare") else ():
        line = ["unshare", *before, "--pid", "--fork", *flags]
        if subprocess.run([*line, "true"], capture_output=True, check=False).returncode == 0:
            return line
    pytest.skip("PID namespaces are not allowed here")


def descriptors() -> dict[str, str]:
    """Return the open descriptors of this process with their targets."""
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
