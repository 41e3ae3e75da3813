"""The gate: builds, checks and tests a clean checkout, and installs what it needs.

    .ci/run                   all steps but fast
    .ci/run style types fast  only these steps
    .ci/run --list            what each step does

Each step runs even if an earlier one failed. The exit status is 0 if all passed. GitHub Actions and pre-commit run
the steps of this file, so that each command is written only once.
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
import zipfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
QUIET = 15.0  # seconds without output after which the gate prints that a command still runs

PATIENCE = 5.0  # seconds to wait for a command to exit after Ctrl-C before it is terminated

# Debian packages that tests need, with a command of each.
DEBIAN = {
    "g++": "g++",
    "gcc-mingw-w64-x86-64": "x86_64-w64-mingw32-gcc",
    "jq": "jq",
    "lm-sensors": "sensors",
    "openssl": "openssl",
    "prometheus": "prometheus",
    "prometheus-node-exporter": "prometheus-node-exporter",
    "rocm-smi": "rocm-smi",
    "strace": "strace",
    "systemd": "systemd-analyze",
    "wine": "wine",
}

SCRIPTS = "Scripts" if os.name == "nt" else "bin"


class StepError(Exception):
    """A step failed. The message has the reason."""


# -- running commands


def log(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


def environment() -> dict[str, str]:
    """Return the environment of all commands: CI is set, byte code is cached, and PYTHONPATH is removed."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")}
    samples = ROOT.parent / "shared" / "samples"
    if samples.is_dir():
        kept.setdefault("HARDWARE_SAMPLES", str(samples))
    return {"UV_PYTHON_DOWNLOADS": "never", "PIP_DISABLE_PIP_VERSION_CHECK": "1", **kept, "CI": "true"}


def run(*command: str | Path, **variables: str) -> None:
    """Run a command in the checkout and pass its output on.

    Args:
        command: The command line.
        variables: Environment variables to add.

    Raises:
        StepError: The command cannot be started, or its exit status is not 0.
    """
    words = [str(word) for word in command]
    shown = " ".join(words).replace(f"{ROOT}{os.sep}", "")
    log(f"$ {shown}")
    try:
        process = subprocess.Popen(
            words,
            cwd=ROOT,
            env=environment() | variables,
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
    """Wait for a command after Ctrl-C, which the terminal also sends to it. Then terminate it, then kill it."""
    for end in (None, process.terminate, process.kill):
        if end is not None:
            end()
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
            return


def forward(process: subprocess.Popen[bytes], shown: str) -> None:
    """Copy the output of a command until it exits, and print a line whenever there is no output for a while."""
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
            if ended:  # a child process keeps its output open
                return
            ended = process.poll() is not None
            log(f"  ... {time.monotonic() - began:.0f} s: {shown[:80]}")
            continue
        if not chunk:
            return
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()


# -- environments


@cache
def uv() -> Path:
    """Return the path of uv. If it is not installed, install it into a separate environment."""
    installed = shutil.which("uv")
    if installed:
        return Path(installed)
    programs = ROOT / ".venv-uv" / SCRIPTS
    if not shutil.which("uv", path=str(programs)):
        run(sys.executable, "-m", "venv", "--clear", programs.parent)
        run(programs / "python", "-m", "pip", "install", "-q", "uv")
    return programs / "uv"


def install(name: str, python: str | Path, *what: str, keep: bool = False) -> Path:
    """Install requirements into `.venv-NAME`, which is cleared unless `keep` is set. Returns its folder of programs."""
    folder = ROOT / f".venv-{name}"
    run(uv(), "venv", "-q", "--allow-existing" if keep else "--clear", "-p", python, folder)
    run(uv(), "pip", "install", "-q", "--compile-bytecode", "-p", folder, *what)
    return folder / SCRIPTS


@cache
def development() -> Path:
    """Install the development tools and the package in editable mode. Returns the folder of programs."""
    return install("dev", sys.executable, "-e", ".[test]", keep=True)


def pythons() -> list[Path]:
    """Return the installed CPython interpreters of the supported versions, oldest first."""
    interpreters = []
    for minor in range(10, 20):
        candidates: Iterable[str | Path | None] = (
            shutil.which(f"python3.{minor}"),
            *sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python")),
            sys.executable,
        )
        test = f"import sys; sys.exit(sys.version_info[:2] != (3, {minor}) or sys.implementation.name != 'cpython')"
        for candidate in candidates:
            if candidate and subprocess.run([candidate, "-c", test], capture_output=True, check=False).returncode == 0:
                interpreters.append(Path(candidate))
                break
    return interpreters


def oldest_requirements() -> list[str]:
    """Return the dependencies of the package, each in the lowest version that pyproject.toml allows."""
    section = re.search(r"^dependencies = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text("utf-8"), re.M | re.S)
    assert section is not None
    return [f"{name}=={version}" for name, version in re.findall(r'"([\w-]+) >= ([\w.]+)"', section[1])]


def readme(pattern: str) -> str:
    """Return the first line of the README that matches."""
    for line in (ROOT / "README.md").read_text("utf-8").splitlines():
        if re.search(pattern, line):
            return line
    raise StepError(f"README.md has no line that matches {pattern}")


def wheel() -> str:
    """Return the wheel that the step `package` built."""
    wheels = sorted(DIST.glob("*.whl"))
    if len(wheels) != 1:
        raise StepError("dist/ does not contain exactly one wheel: run the step `package` first")
    built = wheels[0].stat().st_mtime
    if any(file.stat().st_mtime > built for file in (ROOT / "pyproject.toml", *(ROOT / "src").rglob("*.py"))):
        raise StepError("the wheel in dist/ is older than the sources: run the step `package` first")
    return str(wheels[0])


# -- steps


def style() -> None:
    """Formatting and lint (ruff)."""
    run(development() / "ruff", "format", "--check", ".")
    run(development() / "ruff", "check", ".")


def types() -> None:
    """Static types of package and tests (mypy)."""
    run(development() / "mypy")


def package() -> None:
    """Build sdist and wheel into dist/; check their metadata and contents; use the wheel alone and from typed code."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(uv(), "build", "-q", "--out-dir", DIST)
    run(uv(), "tool", "run", "-q", "twine", "check", "--strict", *sorted(DIST.glob("opentelemetry*")))
    built = wheel()
    check_contents(built)
    programs = install("package", sys.executable, built)
    run(programs / "otel-hardware", "doctor", OTEL_METRICS_EXPORTER="console")
    run(programs / "python", ROOT / ".ci" / "consumer.py")
    # Without the configuration of this repository, mypy sees only what a user's mypy sees.
    mypy = (uv(), "tool", "run", "-q", "mypy", "--strict", "--config-file=", f"--cache-dir={programs.parent / 'mypy'}")
    run(*mypy, f"--python-executable={programs / 'python'}", ROOT / ".ci" / "consumer.py")


def check_contents(built: str) -> None:
    """Check that the wheel has only the package, with its marker of types, and that no link of the README is relative.

    Raises:
        StepError: It does not.
    """
    with zipfile.ZipFile(built) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith(".dist-info/METADATA"))).decode()
    home = "opentelemetry/instrumentation/hardware/"
    others = [name for name in names if not name.startswith(home) and ".dist-info/" not in name]
    if others or f"{home}py.typed" not in names:
        raise StepError(f"the wheel has no {home}py.typed, or files of others: {others}")
    relative = re.findall(r"\]\((?!https?:|#)[^)]*\)", metadata)
    if relative:
        raise StepError(f"these links of the README lead nowhere on a package index: {relative}")


def components() -> None:
    """Install and build the programs that tests need (Linux)."""
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
    """The README's main command, for three seconds; it prints the metrics, because there is no Collector here."""
    run("bash", "-c", readme(r"otel-hardware run$") + " --duration 3", OTEL_METRICS_EXPORTER="console")


def test() -> None:
    """The README's test command."""
    run("bash", "-c", readme(r"-m pytest$"))


def fast() -> None:
    """Units, tables and captures; the step `test` runs them, too."""
    run(development() / "python", "-m", "pytest", "-q", "-m", "fast")


def oldest() -> None:
    """The suite on the built wheel, the oldest installed Python and the oldest dependencies."""
    suite("oldest", pythons()[0], *oldest_requirements())


def newest() -> None:
    """The suite on the built wheel, the newest installed Python and the newest dependencies."""
    suite("newest", pythons()[-1])


# Only the step `test` runs these: they test what is no part of the wheel, or pure functions, which the captures of the
# sources exercise with each version of Python as well.
ONCE = (
    "tests/alerts",
    "tests/slow/benchmarks",
    "tests/test_documentation.py",
    "tests/test_span_examples.py",
    "tests/slow/fuzz",
    "tests/wandb",
)


def suite(name: str, python: Path, *requirements: str) -> None:
    """Run the suite on the installed wheel."""
    programs = install(name, python, f"{wheel()}[test]", *requirements)
    run(programs / "python", "-m", "pytest", "-q", *(f"--ignore={path}" for path in ONCE))


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
ALONE: dict[str, Callable[[], None]] = {"fast": fast}  # steps that run only on request


def table(rows: list[tuple[str, float, str]]) -> str:
    """Format the steps with their seconds and results."""
    total = ("all", sum(seconds for _, seconds, _ in rows), "")
    return "\n".join(f"{name:<12}{seconds:>7.0f} s  {result}".rstrip() for name, seconds, result in [*rows, total])


def main() -> int:
    """Run the steps on the command line, or all of them."""
    steps = STEPS | ALONE
    parser = argparse.ArgumentParser(description="The gate: builds, checks and tests a clean checkout.")
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"one of {', '.join(steps)}; default: all but fast")
    parser.add_argument("--list", action="store_true", help="print what each step does")
    arguments = parser.parse_args()
    if arguments.list:
        for name, step in steps.items():
            log(f"{name:<12}{step.__doc__}")
        return 0
    unknown = [name for name in arguments.steps if name not in steps]
    if unknown:
        parser.error(f"unknown step: {', '.join(unknown)} (choose from {', '.join(steps)})")
    rows = []
    interrupted = False
    for name in arguments.steps or STEPS:
        log(f"\n== {name}: {steps[name].__doc__}")
        began = time.monotonic()
        try:
            steps[name]()
            result = "passed"
        except (StepError, OSError) as failure:
            result = f"FAILED: {failure}"
            log(result)
        except KeyboardInterrupt:
            interrupted, result = True, "interrupted"
        rows.append((name, time.monotonic() - began, result))
        if interrupted:
            break
    log(f"\n{table(rows)}")
    return 130 if interrupted else int(any(result != "passed" for _, _, result in rows))


if __name__ == "__main__":
    sys.exit(main())
