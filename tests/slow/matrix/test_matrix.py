"""The fast cases of the matrix: programs behave the same with this package and without it."""

from __future__ import annotations

import sys

import pytest
from tests.slow.matrix import __main__ as runner
from tests.slow.matrix.__main__ import Matrix
from tests.slow.matrix.case import Case
from tests.slow.matrix.groups import GROUPS, cases
from tests.slow.matrix.report import page, row
from tests.slow.matrix.run import Outcome, _received, compare
from tests.support.journal import OURS, Arrived, Export

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the cases need Linux")

CASES = cases(GROUPS)

# By how much waits and bounds are longer than in a run of the whole matrix: the machine may run other tests, too.
SLOW = 4.0


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    """Shares the runs without the package."""
    return Matrix(SLOW)


@pytest.mark.parametrize("case", [case for case in CASES if case.fast], ids=lambda case: case.title)
def test_program_is_the_same_with_the_package(case: Case, matrix: Matrix) -> None:
    found = matrix.row(case)
    if found.missing:
        pytest.skip(found.missing)
    assert not found.fails, "\n".join([row(found), *found.errors])


def test_matrix_has_400_cases_in_all_groups() -> None:
    assert len(CASES) >= 400
    assert {case.group for case in CASES} == set(GROUPS)


@pytest.mark.parametrize(
    ("on", "problem"),
    [
        (Outcome(status=1), "exit status 1 instead of 0"),
        (Outcome(status=None), "does not end"),
        (Outcome(status=0, end=100), "ends 100.0 s later"),
        (Outcome(status=0, pause=100), "stands still for 100.0 s"),
        (Outcome(status=0, output=["x"]), "other output: ['x'] instead of []"),
        (Outcome(status=0, errors=["Traceback (most recent call last):", "OSError"]), "a traceback: OSError"),
        (Outcome(status=0, errors=["one", "two"]), "2 new lines on stderr: one"),
        (Outcome(status=0, errors=["\x1b[2J"]), "a control character on stderr: '\\x1b[#J'"),
        (Outcome(status=0, left=["sleep"]), "left processes: sleep"),
        (Outcome(status=0, files={"tmp/x"}), "left files: tmp/x"),
        (Outcome(status=0, hosts=2), "2 processes reported the host instead of 1"),
        (Outcome(status=0, own=[7]), "the application's metric is [7] instead of []"),
        (Outcome(status=0, wrong=["a is nan"]), "a is nan"),
        (Outcome(status=0, notes=["1 of 2 workers answers"]), "observed: 1 of 2 workers answers"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_difference_is_found(on: Outcome, problem: str) -> None:
    on.hosts = on.hosts or 1
    assert compare(Case("name"), Outcome(status=0), on) == [problem]


def test_counter_that_falls_is_found_unless_it_begins_anew() -> None:
    def fallen(start: int) -> list[str]:
        points = [Arrived(OURS, "process.cpu.time", value, {}, at) for value, at in ((2.0, 1), (1.0, start))]
        outcome = Outcome()
        _received(outcome, [Export(1, 0.0, [point]) for point in points])
        return outcome.wrong

    assert fallen(1) == ["process.cpu.time {} of 1 fell from 2.0 to 1.0"]
    assert fallen(2) == []


def test_allowed_difference_is_equal() -> None:
    case = Case("name", lines=1, delay=5)
    on = Outcome(status=0, hosts=1, errors=["Source x is down"], end=4)
    assert compare(case, Outcome(status=0), on) == []


def test_case_that_differs_is_compared_with_a_new_run_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = iter([1.0, 40.0, 39.0, 40.0])  # the machine has become slow
    asked: list[bool] = []

    def run(case: Case, is_on: bool, patience: float) -> Outcome:
        asked.append(is_on)
        return Outcome(status=0, hosts=1, end=next(ends))

    monkeypatch.setattr(runner, "run", run)
    assert Matrix().row(Case("name")).kind == "equal"
    assert asked == [False, True, False, True]


def test_page_lists_each_group() -> None:
    text = page([])
    assert all(f"## {group}" in text for group in GROUPS)
