"""The gate: builds, checks and tests a clean checkout; installs everything that it needs.

    .ci/run              all steps
    .ci/run style types  only these
    .ci/run --list       what each step does

A failed step does not stop those that do not need it. The exit status is 0 when all passed. GitHub Actions and
pre-commit run steps of this file, so that no command is written twice.
"""

from __future__ import annotations

import argparse
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
QUIET = 15.0
"""Seconds without output after which the gate says that a command still runs."""

PATIENCE = 5.0
"""Seconds that a command may take to end by itself after Ctrl-C."""

DEBIAN = {
    "jq": "jq",
    "lm-sensors": "sensors",
    "prometheus": "prometheus",
    "prometheus-node-exporter": "prometheus-node-exporter",
    "rocm-smi": "rocm-smi",
    "strace": "strace",
}
"""Packages, each with its command."""

SCRIPTS = "Scripts" if os.name == "nt" else "bin"


class StepError(Exception):
    """A step did not pass; the text says why."""


# -- running commands


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


def environment() -> dict[str, str]:
    """The environment of all commands: that of a CI machine, with byte code cached, and the installed packages only."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")}
    samples = ROOT.parent / "shared" / "samples"
    if samples.is_dir():
        kept.setdefault("HARDWARE_SAMPLES", str(samples))
    return {"UV_PYTHON_DOWNLOADS": "never", "PIP_DISABLE_PIP_VERSION_CHECK": "1", **kept, "CI": "true"}


def run(*command: str | Path) -> None:
    """Run a command in the checkout and pass its output on.

    Raises:
        StepError: it cannot be started, or its exit status is not 0.
    """
    words = [str(word) for word in command]
    shown = " ".join(words).replace(f"{ROOT}{os.sep}", "")
    say(f"$ {shown}")
    try:
        process = subprocess.Popen(
            words,
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError as error:
        raise StepError(f"cannot run {words[0]}: {error.strerror}") from None
    try:
        forward(process, shown)
    except KeyboardInterrupt:
        stop(process)
        raise
    if process.wait():
        raise StepError(f"exit status {process.returncode}: {shown}")


def stop(process: subprocess.Popen[bytes]) -> None:
    """Wait for a command after Ctrl-C, which a terminal sends to it as well; end it where that was not enough."""
    for end in (None, process.terminate, process.kill):
        if end is not None:
            end()
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
            return


def forward(process: subprocess.Popen[bytes], shown: str) -> None:
    """Copy what a command writes until it ends, and a line whenever it has written nothing for a while."""
    output = process.stdout
    assert output is not None
    chunks: queue.Queue[bytes] = queue.Queue()

    def read() -> None:
        with output:
            while chunk := os.read(output.fileno(), 65536):
                chunks.put(chunk)
        chunks.put(b"")

    threading.Thread(target=read, daemon=True).start()
    began, ended = time.monotonic(), False
    while True:
        try:
            chunk = chunks.get(timeout=QUIET)
        except queue.Empty:
            if ended:  # a child that it left behind holds its output open
                return
            ended = process.poll() is not None
            say(f"  ... {time.monotonic() - began:.0f} s: {shown[:80]}")
            continue
        if not chunk:
            return
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()


# -- environments


@cache
def uv() -> Path:
    """The command uv, installed into an environment of its own where there is none."""
    found = shutil.which("uv")
    if found:
        return Path(found)
    programs = ROOT / ".venv-uv" / SCRIPTS
    if not shutil.which("uv", path=str(programs)):
        run(sys.executable, "-m", "venv", "--clear", programs.parent)
        run(programs / "python", "-m", "pip", "install", "-q", "uv")
    return programs / "uv"


def install(name: str, python: str | Path, *what: str, keep: bool = False) -> Path:
    """Install requirements into `.venv-NAME`, made anew unless it may be kept; returns its folder of programs."""
    folder = ROOT / f".venv-{name}"
    run(uv(), "venv", "-q", "--allow-existing" if keep else "--clear", "-p", python, folder)
    run(uv(), "pip", "install", "-q", "--compile-bytecode", "-p", folder, *what)
    return folder / SCRIPTS


@cache
def development() -> Path:
    """The programs that check the sources; the package itself is installed in place."""
    return install("dev", sys.executable, "-e", ".[test]", keep=True)


def pythons() -> list[Path]:
    """The CPython interpreters of the supported versions that are installed, oldest first."""
    found = []
    for minor in range(10, 20):
        candidates: Iterable[str | Path | None] = (
            shutil.which(f"python3.{minor}"),
            *sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python")),
            sys.executable,
        )
        test = f"import sys; sys.exit(sys.version_info[:2] != (3, {minor}) or sys.implementation.name != 'cpython')"
        for candidate in candidates:
            if candidate and subprocess.run([candidate, "-c", test], capture_output=True, check=False).returncode == 0:
                found.append(Path(candidate))
                break
    return found


def oldest_requirements() -> list[str]:
    """The lowest version that pyproject.toml allows of each dependency of the package."""
    section = re.search(r"^dependencies = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text("utf-8"), re.M | re.S)
    assert section is not None
    return [f"{name}=={version}" for name, version in re.findall(r'"([\w-]+) >= ([\w.]+)"', section[1])]


def readme(pattern: str) -> str:
    """The line of the README that matches."""
    for line in (ROOT / "README.md").read_text("utf-8").splitlines():
        if re.search(pattern, line):
            return line
    raise StepError(f"README.md has no line that matches {pattern}")


def wheel() -> str:
    """The wheel that the step `package` built."""
    found = sorted(DIST.glob("*.whl"))
    if len(found) != 1:
        raise StepError("dist/ does not hold exactly one wheel: run the step `package` first")
    built = found[0].stat().st_mtime
    if any(file.stat().st_mtime > built for file in (ROOT / "pyproject.toml", *(ROOT / "src").rglob("*.py"))):
        raise StepError("the wheel in dist/ is older than the sources: run the step `package` first")
    return str(found[0])


# -- steps


def style() -> None:
    """Formatting and lint (ruff)."""
    run(development() / "ruff", "format", "--check", ".")
    run(development() / "ruff", "check", ".")


def types() -> None:
    """Static types of package and tests (mypy)."""
    run(development() / "mypy")


def package() -> None:
    """Build sdist and wheel into dist/ and check their metadata."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(uv(), "build", "-q", "--out-dir", DIST)
    run(uv(), "tool", "run", "-q", "twine", "check", "--strict", *sorted(DIST.glob("opentelemetry*")))


def components() -> None:
    """Install and build the programs that tests run against (Linux)."""
    missing = [name for name, command in DEBIAN.items() if not shutil.which(command)]
    if missing:
        if not shutil.which("apt-get"):
            raise StepError(f"not installed, and there is no apt-get to install them: {', '.join(missing)}")
        sudo = ["sudo"] if os.geteuid() else []
        apt_get = [*sudo, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-y", "-qq"]
        run(*apt_get, "update")
        run(*apt_get, "install", "--no-install-recommends", *DEBIAN)
    run(sys.executable, "-m", "tests.tools")


def main_command() -> None:
    """The README's main command, for three seconds."""
    run("bash", "-c", readme(r"otel-hardware run$") + " --duration 3")


def test() -> None:
    """The README's test command."""
    run("bash", "-c", readme(r"-m pytest$"))


def oldest() -> None:
    """The suite on the built wheel, the oldest installed Python and the oldest dependencies."""
    suite("oldest", pythons()[0], *oldest_requirements())


def newest() -> None:
    """The suite on the built wheel, the newest installed Python and the newest dependencies."""
    suite("newest", pythons()[-1])


def suite(name: str, python: Path, *requirements: str) -> None:
    """Run the suite on the installed wheel."""
    programs = install(name, python, f"{wheel()}[test]", *requirements)
    run(programs / "python", "-m", "pytest", "-q")


STEPS: dict[str, Callable[[], None]] = {
    "style": style,
    "types": types,
    "package": package,
    "components": components,
    "main": main_command,
    "test": test,
    "oldest": oldest,
    "newest": newest,
}


def table(rows: list[tuple[str, float, str]]) -> str:
    """The steps, their seconds and their results."""
    total = ("all", sum(seconds for _, seconds, _ in rows), "")
    return "\n".join(f"{name:<12}{seconds:>7.0f} s  {result}".rstrip() for name, seconds, result in [*rows, total])


def main() -> int:
    """Run the steps that were named, or all."""
    parser = argparse.ArgumentParser(description="The gate: builds, checks and tests a clean checkout.")
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"one of {', '.join(STEPS)}; all by default")
    parser.add_argument("--list", action="store_true", help="print what each step does")
    arguments = parser.parse_args()
    if arguments.list:
        for name, step in STEPS.items():
            say(f"{name:<12}{step.__doc__}")
        return 0
    unknown = [name for name in arguments.steps if name not in STEPS]
    if unknown:
        parser.error(f"no such step: {', '.join(unknown)} (there are {', '.join(STEPS)})")
    rows = []
    interrupted = False
    for name in arguments.steps or STEPS:
        say(f"\n== {name}: {STEPS[name].__doc__}")
        began = time.monotonic()
        try:
            STEPS[name]()
            result = "passed"
        except (StepError, OSError) as failure:
            result = f"FAILED: {failure}"
            say(result)
        except KeyboardInterrupt:
            interrupted, result = True, "interrupted"
        rows.append((name, time.monotonic() - began, result))
        if interrupted:
            break
    say(f"\n{table(rows)}")
    return 130 if interrupted else int(any(result != "passed" for _, _, result in rows))


if __name__ == "__main__":
    sys.exit(main())
