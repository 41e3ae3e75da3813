"""The alert for stragglers on a recorded training, evaluated by a real Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.slow import stragglers
from tests.tools import program


def test_stragglers_of_a_recorded_training(tmp_path: Path) -> None:
    """In the format of the published files: two workers are slow, one varies, and one is slow for a while."""
    program("prometheus")
    program("promtool")
    lengths: dict[str, Callable[[int], int]] = {
        "0": lambda at: 100 + at % 7,
        "1": lambda at: 104 + at % 5,
        "2": lambda at: 250,
        "3": lambda at: 160 + at % 20,
        "4": lambda at: 60 + 80 * (at % 2),
        "5": lambda at: 300 if 60 <= at < 66 else 100,
        "6": lambda at: 98,
    }
    path = tmp_path / "job.csv"
    rows = [f"{at},{worker},50,{10 * at},{length(at)}" for at in range(120) for worker, length in lengths.items()]
    path.write_text("\n".join([",worker,gpu,time,batch_time_norm", *rows]))
    shares = stragglers.found(path)
    assert shares["2"] > 0.9
    assert shares["3"] > 0.9
    assert {worker for worker, share in shares.items() if share} == {"2", "3"}, "six slow minutes are not three windows"
