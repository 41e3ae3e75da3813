"""The benchmarks measure, compare and judge; and what can be counted instead of timed stays within its bounds."""

from __future__ import annotations

import io
import itertools
import json
import math
import re
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.slow.benchmarks import __main__ as benchmarks
from tests.slow.benchmarks import fresh
from tests.slow.benchmarks.figure import Figure
from tests.slow.benchmarks.growth import PROCESSES, SOCKETS, crowd
from tests.slow.benchmarks.steady import ENOUGH, REFERENCE, Rounds, in_turn, milliseconds, work

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the benchmarks need Linux")

HELD = Figure("held", 2.0, "ms of CPU", "bare SDK", 4.0, bound=0.75, relative=True)
MISSED = Figure("missed", 2.0, "ms of CPU", bound=1.5)


class Run(NamedTuple):
    """The output of a run of the command."""

    status: int
    output: str

    def row(self, name: str) -> str:
        """The line of a figure."""
        return next(line for line in self.output.splitlines() if line.startswith(f"  {name} "))


def command(*arguments: object) -> Run:
    """Run the command with as little measuring as possible."""
    with redirect_stdout(io.StringIO()) as output:
        status = benchmarks.main(["--seconds", "0", *map(str, arguments)])
    return Run(status, output.getvalue())


@pytest.fixture(autouse=True)
def _reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REFERENCE, "1.0")  # the command sets it


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes the command measure these figures, and nothing else."""

    def replace(*figures: Figure) -> None:
        monkeypatch.setattr(benchmarks, "PARTS", {"part": ("Heading of the part", 1)})
        monkeypatch.setattr(benchmarks, "measure", lambda name, seconds: list(figures))

    return replace


@pytest.mark.parametrize("part", benchmarks.PARTS)
def test_shortest_run_measures_every_figure(part: str, tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    run = command("--only", part, "--json", file)
    parts = json.loads(file.read_text())["parts"]
    assert list(parts) == [part]
    assert max(map(len, run.output.splitlines())) <= 100
    assert benchmarks.PARTS[part][0] in run.output
    assert parts[part]
    for row in parts[part]:
        assert row["unit"] in run.row(row["name"])
        numbers = [row[key] for key in ("ours", "beside", "bound", "ratio") if row[key] is not None]
        assert all(math.isfinite(number) and number >= 0 for number in numbers), row
        counted = row["unit"] in ("calls", "points", "KiB")
        assert row["noisy"] is not counted, "a single round is too few for a time"


def test_all_parts_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmarks, "measure", lambda name, seconds: [HELD])
    command("--json", tmp_path / "figures.json")
    assert list(json.loads((tmp_path / "figures.json").read_text())["parts"]) == list(benchmarks.PARTS)


# -- the table and the file


def test_table_is_at_most_100_columns_wide(measured: Callable[..., None]) -> None:
    numbers = (0.00012, 0.0123, 0.123, 1.23, 123.4, 12345.6, 123456.7)
    worst = Figure("a name of twenty-six chars", 1.0, "ms of CPU", "system-metrics")
    measured(
        *(
            worst._replace(ours=ours, beside=beside, bound=bound, relative=relative, noisy=relative)
            for ours, beside, bound in itertools.product(numbers, numbers, numbers)
            for relative in (True, False)
        )
    )
    assert max(map(len, command().output.splitlines())) <= 100


# -- measuring in turn


def scripted(*rounds: tuple[float, float, float]) -> Rounds:
    """Measure in turn; each round takes a second, and has our number, theirs, and the time of the yardstick."""
    done = 0

    def ours() -> float:
        return rounds[done][0]

    def theirs() -> float:
        nonlocal done
        done += 1
        return rounds[done - 1][1]

    def stick() -> float:
        return rounds[min(done, len(rounds) - 1)][2]

    return in_turn({"ours": ours, "theirs": theirs}, len(rounds), stick, clock=lambda: float(done))


def test_slower_function_is_shown_as_slower(measured: Callable[..., None]) -> None:
    runs = {"slow": lambda: milliseconds(lambda: work(60_000)), "fast": lambda: milliseconds(lambda: work(20_000))}
    rounds = in_turn(runs, 20.0, clock=itertools.count(0.0).__next__)  # so many, however slow the machine is
    measured(rounds.figure("slow", "slow", "ms of CPU", "fast", "fast", bound=1.2, relative=True))
    run = command()
    assert run.status == 1
    ratio = float(run.row("slow").split(" x fast")[0].split()[-1])
    assert ratio > 1.5
    assert "MISSED" in run.row("slow")


def test_time_is_that_at_the_best_speed_of_the_machine() -> None:
    cost = scripted(*[(20.0, 10.0, 2.0)] * ENOUGH)  # twice as long as the reference
    assert cost.figure("run", "ours", "ms of CPU").ours == 10.0


def test_number_that_is_no_time_stays_as_it_is() -> None:
    (found,) = in_turn({"bytes": lambda: 7.0}, 0.0, lambda: 2.0, plain=["bytes"])
    assert found == {"bytes": 7.0}


def test_alternative_is_compared_within_each_round() -> None:
    """The ratio of the medians is 0.2, the median of the ratios is 2."""
    cost = scripted((2.0, 1.0, 1.0), (20.0, 10.0, 1.0), (1.0, 100.0, 1.0))
    figure = cost.figure("run", "ours", "ms of CPU", "peer", "theirs")
    assert (figure.ours, figure.beside, figure.ratio) == (2.0, 10.0, 2.0)


@pytest.mark.parametrize(
    ("values", "bound", "is_noisy", "is_missed"),
    [
        pytest.param([10.0, 10.1, 10.2, 10.3, 10.4], 11.0, False, False, id="held"),
        pytest.param([10.0, 10.1, 10.2, 10.3, 10.4], 9.0, False, True, id="missed"),
        pytest.param([10.0, 10.1, 10.2, 10.3, 10.4], 10.2, True, False, id="open"),
        pytest.param([10.0, 10.1, 10.2, 10.3, 10.4], None, False, False, id="no-bound"),
        pytest.param([8.0, 9.0, 10.0, 11.0, 12.0], None, True, False, id="no-bound-noisy"),
        pytest.param([10.0, 10.0], 9.0, True, False, id="too-few"),
        pytest.param([10.0] * 5, 10.0, False, False, id="counted"),
    ],
)
def test_figure_is_noisy_if_its_interval_has_the_bound(
    values: list[float], bound: float | None, is_noisy: bool, is_missed: bool
) -> None:
    cost = scripted(*((value, 1.0, 1.0) for value in values))
    figure = cost.figure("run", "ours", "ms of CPU", bound=bound)
    assert (figure.noisy, figure.missed) == (is_noisy, is_missed)


# -- judging


@pytest.mark.parametrize(
    ("figure", "status", "verdict"),
    [
        pytest.param(HELD, 0, "yes", id="held"),
        pytest.param(MISSED, 1, "MISSED", id="missed"),
        pytest.param(HELD._replace(noisy=True), 0, "yes ~", id="held-noisy"),
        pytest.param(MISSED._replace(noisy=True), 0, "no ~", id="missed-noisy"),
        pytest.param(HELD._replace(ours=3.1), 1, "MISSED", id="missed-ratio"),
        pytest.param(MISSED._replace(bound=None), 0, "ms of CPU", id="no-bound"),
        pytest.param(MISSED._replace(bound=None, noisy=True), 0, "~", id="no-bound-noisy"),
    ],
)
def test_missed_bound_fails_the_run_unless_it_is_noisy(
    figure: Figure, status: int, verdict: str, measured: Callable[..., None]
) -> None:
    measured(figure)
    run = command()
    assert run.status == status
    assert run.row(figure.name).endswith(f"  {verdict}" if "CPU" not in verdict else verdict)
    assert ("A bound missed in noise does not count" in re.sub(r"\s+", " ", run.output)) == figure.noisy


def test_row_shows_ours_the_ratio_the_alternative_and_the_bound(measured: Callable[..., None]) -> None:
    measured(HELD)
    assert " ".join(command().row("held").split()) == "held 2 ms of CPU 0.50 x bare SDK 4 0.75 x yes"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seconds", "nan"], "'nan' is no number of seconds"),
        (["--seconds", "-1"], "'-1' is no number of seconds"),
        (["--json", "missing-folder/figures.json"], "missing-folder/figures.json"),
    ],
)
def test_wrong_arguments_are_refused_before_measuring(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        benchmarks.main(arguments)
    assert end.value.code == 2
    assert message in capsys.readouterr().err


# -- what can be counted


@pytest.fixture(scope="module")
def plain() -> dict[str, int]:
    return _counted()


def _counted(*arguments: Any) -> dict[str, int]:
    counted: dict[str, int] = fresh.call("tests.slow.benchmarks.counted:reading", *arguments)
    return counted


@pytest.mark.alone  # a mount that another test makes is one more file to read
def test_reading_makes_no_more_system_calls_with_many_sockets(plain: dict[str, int]) -> None:
    assert _counted(SOCKETS) == plain


@pytest.mark.alone
def test_reading_makes_no_more_system_calls_beside_many_processes(plain: dict[str, int]) -> None:
    with crowd(PROCESSES):
        assert _counted() == plain
