"""The CPU time of a tree: it counts what ended processes have used, once, and never falls."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from opentelemetry.instrumentation.hardware.system.machine import TreeProcess
from opentelemetry.instrumentation.hardware.system.tree import TreeCpuTime

# By process its CPU time and that of the children it waited for, in a tree without the root.
Walk = Sequence[tuple[str, float, float]]

PARENTS = {"root": "", "a": "root", "b": "root", "a1": "a", "a2": "a", "reused": "root", "old": "root"}
PIDS = {"": 1, "root": 10, "a": 11, "b": 12, "a1": 13, "a2": 14, "reused": 11, "old": 15}


def seconds(*walks: Walk, every: float = 10.0) -> list[float]:
    """The CPU time after each walk. Process ``old`` has been there since long before the first."""
    time, found = TreeCpuTime(), []
    for number, walk in enumerate(walks):
        now = 1000.0 + every * number
        tree = []
        for name, used, reaped in walk:
            first = next(at for at, each in enumerate(walks) if name in [row[0] for row in each])
            started = {"root": 0.0, "old": 1.0}.get(name, 995.0 + every * first)
            parent = PIDS[PARENTS[name]]
            tree.append(TreeProcess(PIDS[name], parent, started, now - started, used, reaped, 1, 1))
        time.add(tree)
        found.append(time.seconds)
    return found


@pytest.mark.parametrize(
    ("walks", "expected"),
    [
        pytest.param([[("root", 5, 7)], [("root", 6, 7)]], [0, 1], id="what was used before counts not"),
        pytest.param([[("root", 5, 0)], [("root", 5, 0), ("a", 4, 0)]], [0, 4], id="new child counts in full"),
        pytest.param([[("root", 5, 0)], [("root", 5, 0), ("old", 900, 9)]], [0, 0], id="child that was missed"),
        pytest.param(
            [[("root", 0, 0), ("a", 3, 0)], [("root", 0, 0), ("a", 5, 0)], [("root", 0, 6)]],
            [0, 2, 3],
            id="ended and waited for",
        ),
        pytest.param([[("root", 0, 0)], [("root", 0, 8)]], [0, 8], id="begun and ended between two walks"),
        pytest.param(
            [[("root", 0, 0), ("a", 3, 0)], [("root", 0, 0), ("a", 5, 0)], [("root", 0, 0)], [("root", 1, 0)]],
            [0, 2, 2, 3],
            id="ended and never waited for",
        ),
        pytest.param(
            [[("root", 0, 0), ("a", 3, 0)], [("root", 0, 0)], [("root", 0, 4)], [("root", 0, 6)]],
            [0, 0, 1, 3],
            id="waited for after the parent was read",
        ),
        pytest.param(
            [[("root", 0, 0), ("a", 3, 0)], [("root", 0, 0)], [("root", 0, 0)], [("root", 0, 6)]],
            [0, 0, 0, 6],
            id="an expected time is forgotten after one walk",
        ),
        pytest.param(
            [[("root", 0, 0), ("a", 1, 2), ("a1", 3, 0), ("a2", 4, 0)], [("root", 0, 15)]],
            [0, 5],
            id="child and grandchildren ended",
        ),
        pytest.param(
            [[("root", 0, 0), ("a", 1, 0), ("a1", 3, 0)], [("root", 0, 0), ("a", 2, 4)], [("root", 0, 7)]],
            [0, 2, 3],
            id="grandchild first, then its parent",
        ),
        pytest.param(
            [[("root", 0, 0), ("a", 9, 0)], [("root", 0, 10), ("reused", 2, 0)]],
            [0, 3],
            id="another process with the PID of an ended one",
        ),
        pytest.param(
            [[("root", 0, 0), ("a", 9, 0), ("b", 5, 0)], [("root", 0, 9), ("b", 8, 0)]], [0, 3], id="others go on"
        ),
        pytest.param([[("root", 4, 4)], [("root", 3, 2)], [("root", 5, 2)]], [0, 0, 2], id="kernel counts backwards"),
    ],
)
def test_cpu_time_of_ended_processes_is_counted_once(walks: Sequence[Walk], expected: list[float]) -> None:
    assert seconds(*walks) == expected
