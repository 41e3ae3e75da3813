"""A library that hangs or crashes while it is loaded costs an error, never the program that loads it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.children import command, succeed
from tests.support.waiting import wait_for
from tests.tools import Missing

from opentelemetry.instrumentation.hardware.drivers.shared_library import load

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="on Linux only, a child loads it first")

HEADERS = "#include <fcntl.h>\n#include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n"
CONSTRUCTOR = (
    HEADERS + "__attribute__((constructor)) static void begin(void) {{ {} }}\nint answer(int x) {{ return 42; }}"
)
FUNCTION = HEADERS + "int init(int flags) {{ {} }}\nint answer(int x) {{ return 42; }}"

# Waits for the main thread of the program. The child does not have the variable.
WAITS = """
    char path[4096];
    if (!getenv("WAITS"))
        return;
    snprintf(path, sizeof path, "%s.begun", getenv("WAITS"));
    close(open(path, O_CREAT | O_WRONLY, 0600));
    snprintf(path, sizeof path, "%s.go", getenv("WAITS"));
    while (access(path, F_OK))
        usleep(1000);
"""

Build = Callable[[str], Path]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Compiles a library; each call has the same path and another file."""

    def compiled(source: str) -> Path:
        compiler = shutil.which("gcc")
        if compiler is None:
            raise Missing("no gcc command to build a library with: apt-get install gcc libc6-dev")
        new, path = tmp_path / "new.so", tmp_path / "driver.so"
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", new], input=source, text=True, check=True, timeout=60
        )
        new.replace(path)
        return path

    return compiled


def loading(
    path: Path, *functions: str, seconds: float = 30, env: dict[str, str] | None = None, prefix: Sequence[str] = ()
) -> Any:
    """What a program reports that loads the library in a thread."""
    answer = succeed([*prefix, *command("tools/loading", seconds, path, *functions)], env)
    return json.loads(answer.stdout)


@pytest.mark.parametrize("constructor", ["for (;;) pause();", "for (;;);"], ids=["waits", "spins"])
def test_constructor_that_never_returns_is_a_timeout(build: Build, constructor: str) -> None:
    found = loading(build(CONSTRUCTOR.format(constructor)), seconds=2)
    assert found["error"][0] == "TimeoutError"
    assert "was not loaded within 2 s" in found["error"][1]
    assert found["turns"] > 3


def test_fifo_is_a_timeout(tmp_path: Path) -> None:
    path = tmp_path / "driver.so"
    os.mkfifo(path)
    assert loading(path, seconds=2)["error"][0] == "TimeoutError"


def test_library_on_a_mount_that_hangs_is_a_timeout(build: Build) -> None:
    path = build(FUNCTION.format("return 0;"))
    found = loading(path, seconds=2, prefix=command("machines/dead_mount", path))
    assert found["error"][0] == "TimeoutError"
    assert found["turns"] > 3


@pytest.mark.parametrize(
    ("source", "how"),
    [
        pytest.param(CONSTRUCTOR.format("*(volatile int *)0 = 1;"), "signal 11", id="constructor-crashes"),
        pytest.param(CONSTRUCTOR.format("abort();"), "signal 6", id="constructor-aborts"),
        pytest.param(CONSTRUCTOR.format("exit(42);"), "exit code 42", id="constructor-exits"),
        pytest.param(CONSTRUCTOR.format("_exit(0);"), "exit code 0", id="constructor-exits-quietly"),
        pytest.param(CONSTRUCTOR.format("raise(SIGTERM);"), "signal 15", id="constructor-is-terminated"),
        pytest.param(CONSTRUCTOR.format("for (int n = 0; n < 64; n++) close(n);"), r"exit code \d+", id="closes-files"),
        pytest.param(FUNCTION.format("*(volatile int *)0 = flags; return 0;"), "signal 11", id="function-crashes"),
    ],
)
def test_library_that_ends_the_process_is_an_error(build: Build, source: str, how: str) -> None:
    path = build(source)
    text = rf"{path} ended a process that loaded it \({how}\); this process does not load it"
    with pytest.raises(ChildProcessError, match=f"^{text}$"):
        load(str(path), "init")


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"text\n", "file too short"), (b"text\n" * 999, "invalid ELF header"), (None, "cannot open shared object file")],
    ids=["short", "text", "missing"],
)
def test_file_that_is_no_library_is_an_error(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "driver.so"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(OSError, match=reason) as error:
        load(str(path))
    assert type(error.value) is OSError


def test_function_that_never_returns_is_accepted(build: Build) -> None:
    """It only blocks the thread that calls it."""
    found = loading(build(FUNCTION.format("for (;;) pause();")), "init", seconds=2)
    assert found["error"] is None


def test_library_is_loaded_without_the_interpreter_lock(build: Build) -> None:
    path = build(CONSTRUCTOR.format(WAITS))
    assert loading(path, env={"WAITS": str(path)})["error"] is None


def test_library_that_prints_and_lacks_a_function_is_loaded(build: Build) -> None:
    library = load(str(build(CONSTRUCTOR.format('puts("refused done"); fflush(stdout);'))), "init")
    assert library.answer(0) == 42


def test_exchanged_library_is_tried_again(build: Build) -> None:
    path = str(build(CONSTRUCTOR.format("abort();")))
    with pytest.raises(ChildProcessError):
        load(path)
    build(FUNCTION.format("return 0;"))
    assert load(path).answer(0) == 42
    build(CONSTRUCTOR.format("abort();"))
    with pytest.raises(ChildProcessError):
        load(path)


def test_library_is_loaded_where_no_child_can_be_started(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: object, **options: object) -> int:
        raise BlockingIOError("Resource temporarily unavailable")

    path = str(build(FUNCTION.format("return 0;")))
    monkeypatch.setattr(os, "posix_spawn", refused)
    assert load(path, "init").answer(0) == 42


def test_second_child_is_not_started_while_the_first_cannot_be_killed(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    from opentelemetry.instrumentation.hardware.drivers import shared_library as library
    from opentelemetry.instrumentation.hardware.drivers.child import Child

    path = str(build(CONSTRUCTOR.format("for (;;) pause();")))
    monkeypatch.setattr(library, "DEADLINE", 0.5)
    kill = Child.kill
    pids = []

    def unkillable(child: Child) -> bool:
        pids.append(child.pid)
        return False

    with monkeypatch.context() as patch:
        patch.setattr(Child, "kill", unkillable)
        patch.setattr(Child, "_kill_group", lambda child: None)
        for text in ("was not loaded", "hangs and cannot be killed"):
            with pytest.raises(TimeoutError, match=text):
                load(path)
    child = library._command(path)._unkillable
    assert child is not None
    kill(child)
    wait_for(child.has_exited, 30, "end of the child")
