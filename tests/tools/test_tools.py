"""Building the programs that tests run against, and the messages if one is missing."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest
from tests import tools
from tests.tools import Missing, Recipe, build, need

# A compiler that copies.
COPY = Recipe(folder="fakenvml", product="copy.c", command=("cp", "fakenvml.c"), compiler="coreutils")


@pytest.fixture(autouse=True)
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tools, "BUILT", tmp_path / "built")
    return tmp_path / "built"


def test_product_is_kept_and_needs_no_compiler_again(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    product = build(COPY)
    assert product.read_bytes() == (tools.SOURCES / "fakenvml" / "fakenvml.c").read_bytes()
    assert sorted(built.iterdir()) == [product.parent, built / "fakenvml.lock"]
    monkeypatch.setenv("PATH", "")
    assert build(COPY) == product


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (("no-such-compiler",), "no no-such-compiler command to build it with: coreutils"),
        (("cp", "no-such-source"), "building fakenvml failed:\\n.*no-such-source"),
    ],
)
def test_missing_or_failing_compiler_is_the_reason(command: tuple[str, ...], reason: str, built: Path) -> None:
    with pytest.raises(Missing, match=reason):
        build(Recipe(folder="fakenvml", product="copy.c", command=command, compiler="coreutils"))
    assert not list(built.glob("fakenvml-*"))


def test_cache_that_cannot_be_written_is_the_reason(built: Path) -> None:
    built.write_text("a file")
    with pytest.raises(Missing, match=f"cannot be built in {built} .*XDG_CACHE_HOME"):
        build(COPY)


def test_waiting_for_the_build_of_another_process_is_reported(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "PROGRESS_SECONDS", 0.0)
    built.mkdir()
    lines = []
    with (built / "fakenvml.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)

        def progress(line: str) -> None:
            lines.append(line)
            fcntl.flock(other, fcntl.LOCK_UN)

        assert build(COPY, progress).exists()
    assert lines[0].startswith("another process builds fakenvml: waiting for it")


@pytest.mark.parametrize(("variable", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_missing_program_skips_outside_ci_and_fails_in_ci(
    variable: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def get() -> Path:
        raise Missing("the reason")

    monkeypatch.setenv("CI", variable)
    with pytest.raises(outcome, match="the reason"):
        need(get)
