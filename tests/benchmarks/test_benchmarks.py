"""The benchmarks work; and what can be counted instead of timed stays within its bounds."""

from __future__ import annotations

import ctypes
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.benchmarks import fresh
from tests.benchmarks.__main__ import NAMES, main
from tests.benchmarks.growth import PROCESSES, SOCKETS, crowd
from tests.benchmarks.locks import releases
from tests.benchmarks.steady import REFERENCE

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the benchmarks need Linux")


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_works_and_yields_finite_numbers(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REFERENCE, "")  # what is set there goes with the test
    file = tmp_path / "figures.json"
    assert main(["--quick", "--only", name, "--json", str(file)]) == 0
    figures = json.loads(file.read_text())
    table = capsys.readouterr().out
    assert figures
    for figure in figures:
        assert figure["name"] in table
        numbers = [figure[key] for key in ("ours", "theirs", "bound", "ratio") if figure[key] is not None]
        assert all(math.isfinite(number) and number >= 0 for number in numbers), figure


@pytest.mark.alone
@pytest.mark.parametrize("times", [0, 1, 7, 30])
def test_every_release_of_the_lock_is_counted(times: int) -> None:
    assert releases(lambda: [os.stat("/") for _ in range(times)]) == times


@pytest.mark.alone
def test_a_call_that_keeps_the_lock_is_no_release() -> None:
    pid = ctypes.PyDLL(None).getpid
    assert releases(lambda: [pid() for _ in range(1000)]) == 0


@pytest.mark.alone
def test_counting_leaves_the_interpreter_as_it_was() -> None:
    before = sys.getswitchinterval(), os.sched_getaffinity(0)
    with pytest.raises(ZeroDivisionError):
        releases(lambda: 1 // 0)
    assert (sys.getswitchinterval(), os.sched_getaffinity(0)) == before


@pytest.fixture(scope="module")
def plain() -> dict[str, int]:
    return _counted()


def _counted(*arguments: Any) -> dict[str, int]:
    counted: dict[str, int] = fresh.call("tests.benchmarks.counted:reading", *arguments)
    return counted


@pytest.mark.alone
def test_a_reading_of_every_source_lets_go_of_the_lock_at_most_twelve_times(plain: dict[str, int]) -> None:
    assert plain["releases"] <= 12


@pytest.mark.alone
def test_a_reading_does_no_more_with_many_sockets(plain: dict[str, int]) -> None:
    assert _counted(SOCKETS) == plain


@pytest.mark.alone
def test_a_reading_does_no_more_beside_many_processes(plain: dict[str, int]) -> None:
    with crowd(PROCESSES):
        assert _counted() == plain
