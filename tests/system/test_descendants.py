"""The process tree of real programs: wide, deep, with many threads, and with processes that cannot be read."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from errno import ENOENT
from math import inf

import psutil
import pytest
from tests.sources.tree import Tree
from tests.support.children import command, scene, started
from tests.support.waiting import wait_for

from opentelemetry.instrumentation.hardware.system import tree as module
from opentelemetry.instrumentation.hardware.system.files import Files
from opentelemetry.instrumentation.hardware.system.linux import LinuxMachine
from opentelemetry.instrumentation.hardware.system.tree import SharedWalk, Walk, descendants

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the Linux kernel")


class Read(Files):
    """This machine, and which files were read of it. ``lists`` is whether its kernel lists the children of a thread."""

    def __init__(self, lists: bool = True) -> None:
        super().__init__()
        self.lists = lists
        self.paths: list[str] = []

    def read(self, path: str) -> bytes:
        self.paths.append(path)
        if path.endswith("/children") and not self.lists:
            raise FileNotFoundError(ENOENT, "no such file", path)
        return super().read(path)


@contextmanager
def family(children: int, depth: int = 1, threads: int = 1) -> Iterator[psutil.Process]:
    with started(command("processes/family", children, depth, threads)) as program:
        assert program.stdout.readline() == "ready\n"
        yield psutil.Process(program.pid)


@pytest.mark.parametrize("lists", [True, False], ids=["kernel-lists-children", "kernel-lists-no-children"])
@pytest.mark.parametrize(
    ("children", "depth", "threads"),
    [
        pytest.param(500, 1, 1, id="wide"),
        pytest.param(1, 60, 1, id="deep"),
        pytest.param(3, 4, 2, id="mixed"),
        pytest.param(2, 1, 600, id="threads"),
    ],
)
def test_tree_has_the_processes_memory_and_threads_that_psutil_finds(
    children: int, depth: int, threads: int, lists: bool
) -> None:
    with family(children, depth, threads) as program:
        theirs = {each.pid: each for each in [program, *program.children(recursive=True)]}
        tree = LinuxMachine(Read(lists)).tree(program.pid)
        assert len(tree) == len(theirs) == 1 + children * depth
        assert {each.pid for each in tree} == set(theirs)
        assert sum(each.threads for each in tree) == threads * len(tree)
        resident = sum(each.memory_info().rss for each in theirs.values())
    assert sum(each.resident for each in tree) == pytest.approx(resident, rel=0.05)
    seen = set()
    for each in tree:
        assert each is tree[0] or each.parent in seen, "parents come before their children"
        seen.add(each.pid)


def test_small_tree_costs_no_file_of_another_process() -> None:
    with family(2, 2) as program:
        files = Read()
        pids = descendants(files, program.pid)
        assert len(files.paths) == 1 + len(pids)


def test_tree_of_many_threads_costs_at_most_a_file_per_process_of_the_machine() -> None:
    """Otherwise a walk would cost a file per thread: 3,000 here, and 100,000 on a large machine."""

    def running() -> int:
        return len([name for name in os.listdir("/proc") if name.isdigit()])

    with family(5, 1, 500) as program:
        files = Read()
        before = running()  # other tests start and end processes meanwhile
        assert len(descendants(files, program.pid)) == 5
        processes = max(before, running())
        if processes > 1500:
            pytest.skip(f"{processes} processes run here: more than the tree has threads")
        assert len(files.paths) <= 2 * processes


def _stat(pid: int, parent: int) -> str:
    return f"{pid} (x) S {parent} {'0 ' * 15}1 {'0 ' * 31}0\n"  # with one thread


@pytest.mark.parametrize(
    ("parent", "found"), [(7, [7, 8]), (1, [7]), (4242, [7])], ids=["ours", "orphan", "reused-pid"]
)
def test_process_whose_parent_is_not_in_the_tree_is_left_out(parent: int, found: Sequence[int]) -> None:
    """Between the walk and the reading, a child can end, and its PID be given to another process."""
    files = {
        "/proc/7/stat": _stat(7, 1),
        "/proc/7/task/7/children": "8 ",
        "/proc/8/stat": _stat(8, parent),
        "/proc/8/task/8/children": "",
    }
    machine = LinuxMachine(Tree(files))
    assert [each.pid for each in machine.tree(7)] == found


def test_own_child_of_another_user_is_left_out_where_proc_hides_it() -> None:
    found = scene("machines/hidden")
    assert found["all"] == 4, "precondition: the tree has four processes"
    assert found["hidden"] == [2, 2], "the process itself and the child of the same user, whichever way it is read"


@pytest.mark.parametrize("threads", [1, 300], ids=["by-children", "by-parents"])
def test_sources_that_are_read_in_one_round_walk_over_the_tree_once(threads: int) -> None:
    walk = SharedWalk()
    with family(3, 2, threads) as program:
        first, second = Read(), Read()
        tree = LinuxMachine(first, walk).tree(program.pid, inf)
        pids = {each.pid for each in tree}
        stats = [path for path in first.paths if path in {f"/proc/{pid}/stat" for pid in pids}]
        assert len(stats) == len(pids) == 7, "each file is read once"
        other = LinuxMachine(second, walk)
        assert {program.pid, *other.descendants(program.pid, inf)} == pids
        assert second.paths == []
        assert {*other.descendants(program.pid)} == pids - {program.pid}
        assert second.paths != [], "a new walk was requested"


def test_shared_walk_is_not_waited_for_if_it_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.01)
    shared, goes_on = SharedWalk(), threading.Event()
    hanging = threading.Thread(target=shared.get, args=(1, 0.0, lambda: goes_on.wait() and Walk(0.0, {}), 0.0))
    hanging.start()
    try:
        wait_for(shared._lock.locked, 60, "walk")
        assert shared.get(1, 0.0, lambda: Walk(5.0, {2: b""}), 5.0).stats == {2: b""}
    finally:
        goes_on.set()
        hanging.join()
