"""Building the programs that tests run against, and the messages if one is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests import tools
from tests.tools import Missing, Recipe, build

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


@pytest.mark.parametrize(("variable", "outcome"), [("", "skipped"), ("true", "failed")])
def test_missing_program_skips_outside_ci_and_fails_in_ci(
    variable: str, outcome: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def test() -> None:
        raise Missing("the reason")

    monkeypatch.setenv("CI", variable)
    call = pytest.CallInfo.from_call(test, "call")
    report = request.node.ihook.pytest_runtest_makereport(item=request.node, call=call)
    assert report.outcome == outcome
    assert "the reason" in str(report.longrepr)
