"""The process's numbers, and its tree's, against psutil and against what real children do."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from tests.sources.machines import STRANGER, foreign, metal, tree
from tests.sources.reading import agrees, all_of, often, opened, rises_between, series_of, value
from tests.support.children import command, in_pid_namespace, started, succeed
from tests.support.waiting import wait_for

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import CounterRatio, Series, Unavailable, Value
from opentelemetry.instrumentation.hardware.sources import Source

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the Linux kernel")

IDLE = "import sys; print('ready', flush=True); sys.stdin.read()"
BUSY = "print('ready', flush=True)\nwhile True: pass"
NEST = (
    "import subprocess, sys\n"
    f"child = subprocess.Popen([sys.executable, '-c', {BUSY!r}], stdout=subprocess.PIPE)\n"
    "child.stdout.readline(); print('ready', flush=True)\n"
    "try:\n    sys.stdin.read()\nfinally:\n    child.kill(); child.wait()\n"
)


@contextmanager
def _child(program: str) -> Iterator[psutil.Process]:
    """A child that has begun its work."""
    with started([sys.executable, "-c", program]) as child:
        assert child.stdout.readline() == "ready\n"
        yield psutil.Process(child.pid)


def _now(source: Source, row: object, **attributes: str) -> Callable[[], float]:
    names = {
        "mode": c.CPU_MODE,
        "direction": c.DISK_DIRECTION,
        "kind": c.SWITCH_TYPE,
        "fault": c.FAULT_TYPE,
    }
    where = {names[name]: word for name, word in attributes.items()}
    return lambda: value(often(source), row, where)  # type: ignore[arg-type]


def _part(found: dict[Series, Value]) -> float:
    """The CPU time that shares are made of."""
    return sum(share.part for share in found.values() if isinstance(share, CounterRatio))


def _spent(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


# -- one process


@pytest.mark.parametrize("process_of", ["this", "another"])
def test_cpu_time_agrees_with_psutil(process_of: str) -> None:
    """psutil counts in ticks of 10 ms, getrusage to the microsecond."""
    with _child(BUSY) as child:
        process = psutil.Process() if process_of == "this" else child
        with opened("process", pid=process.pid) as source:
            wait_for(lambda: _spent(child) > 0.2, 30, "CPU time of a busy child")
            before, ours, after = process.cpu_times(), often(source), process.cpu_times()
    for mode in ("user", "system"):
        mine = value(ours, c.PROCESS_CPU_TIME, {c.CPU_MODE: mode})
        rises_between(getattr(before, mode), mine, getattr(after, mode), mode, 0.021)


def test_cpu_utilization_is_relative_to_the_cpu_affinity() -> None:
    with _child(BUSY) as child:
        cpus = child.cpu_affinity()
        assert cpus is not None
        child.cpu_affinity(cpus[:1])
        with opened("process", pid=child.pid) as source:
            first = series_of(often(source), c.PROCESS_CPU_UTILIZATION)
            start, begun = _spent(child), _part(first)
            wait_for(lambda: _spent(child) - start > 0.2, 60, "CPU time of a busy child")
            last = series_of(often(source), c.PROCESS_CPU_UTILIZATION)
    part = _part(last) - begun
    whole = {share.whole for share in last.values() if isinstance(share, CounterRatio)} - {0.0}
    assert len(whole) == 1, "both modes are shares of the same time"
    assert part >= 0.2 - 0.03
    assert part <= whole.pop() + 0.03, "one CPU cannot be used more than all of the time"


@pytest.mark.parametrize("process_of", ["this", "another"])
def test_memory_threads_and_descriptors_agree_with_psutil(process_of: str) -> None:
    with _child(IDLE) as child:
        process = psutil.Process() if process_of == "this" else child
        with opened("process", pid=process.pid) as source:
            agrees(lambda: process.memory_info().rss, _now(source, c.PROCESS_MEMORY_USAGE), 1 << 18, "resident")
            agrees(lambda: process.memory_info().vms, _now(source, c.PROCESS_MEMORY_VIRTUAL), 1 << 20, "virtual")
            agrees(process.num_threads, _now(source, c.PROCESS_THREAD_COUNT), 0, "threads")
            agrees(lambda: process.memory_percent() / 100, _now(source, c.PROCESS_MEMORY_UTILIZATION), 1e-4, "share")
            listing = process_of == "this"  # psutil has the folder open while it counts
            agrees(
                lambda: process.num_fds() - listing,
                _now(source, c.PROCESS_FILE_DESCRIPTOR_COUNT),
                0,
                "descriptors",
            )
            found = often(source)  # one reading: memory may have grown by the next
            assert value(found, c.PROCESS_MEMORY_PEAK) == value(found, c.PROCESS_MEMORY_USAGE)


def test_context_switches_agree_with_getrusage() -> None:
    import resource

    with opened("process") as source:
        before, ours, after = (
            resource.getrusage(resource.RUSAGE_SELF),
            often(source),
            resource.getrusage(resource.RUSAGE_SELF),
        )
    for kind, word in (("voluntary", "ru_nvcsw"), ("involuntary", "ru_nivcsw")):
        mine = value(ours, c.PROCESS_CONTEXT_SWITCHES, {c.SWITCH_TYPE: kind})
        rises_between(getattr(before, word), mine, getattr(after, word), kind)


def test_disk_io_agrees_with_psutil(tmp_path: Path) -> None:
    """psutil includes the children of this process that have ended, which getrusage(2) counts separately."""
    import resource

    size = 4 << 20
    process = psutil.Process()
    with opened("process", include_metrics="process.disk.*") as source:
        start = value(often(source), c.PROCESS_DISK_IO, {c.DISK_DIRECTION: "write"})
        with open(tmp_path / "file", "wb") as file:
            file.write(os.urandom(size))
            os.fsync(file.fileno())
        before, ours, after = process.io_counters(), often(source), process.io_counters()
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    for row, word, way, others in (
        (c.PROCESS_DISK_IO, "read_bytes", "read", ended.ru_inblock * 512),
        (c.PROCESS_DISK_IO, "write_bytes", "write", ended.ru_oublock * 512),
        (c.PROCESS_DISK_OPERATIONS, "read_count", "read", 0),
        (c.PROCESS_DISK_OPERATIONS, "write_count", "write", 0),
    ):
        mine = value(ours, row, {c.DISK_DIRECTION: way}) + others
        rises_between(getattr(before, word), mine, getattr(after, word), word)
    if _is_on_a_disk(tmp_path):
        assert value(ours, c.PROCESS_DISK_IO, {c.DISK_DIRECTION: "write"}) - start >= size


def _is_on_a_disk(path: Path) -> bool:
    return os.stat(path).st_dev == os.stat("/").st_dev and Path("/sys/dev/block").exists()


def test_disk_io_of_ended_children_is_not_ours(tmp_path: Path) -> None:
    """The kernel adds it to /proc/self/io when we wait for them (wait_task_zombie() in kernel/exit.c)."""
    if not _is_on_a_disk(tmp_path):
        pytest.skip("the temporary folder is not on a disk")
    size = 4 << 20
    program = (
        f"import os; file = os.open('file', os.O_CREAT | os.O_WRONLY); os.write(file, bytes({size})); os.fsync(file)"
    )
    with opened("process") as source:
        written = _now(source, c.PROCESS_DISK_IO, direction="write")
        before, theirs = written(), psutil.Process().io_counters().write_bytes
        subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
        assert psutil.Process().io_counters().write_bytes - theirs >= size
        assert written() - before < size


def test_uptime_agrees_with_psutil() -> None:
    with _child(IDLE) as child, opened("process", pid=child.pid) as source:
        agrees(lambda: time.time() - child.create_time(), _now(source, c.PROCESS_UPTIME), 1.5, "uptime")


def _boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def test_zombie_process_keeps_its_values_and_uptime() -> None:
    """The totals of a zombie can be read until its parent reaps it; its uptime stops when its end is noticed."""
    with _child(NEST) as child, opened("process", pid=child.pid) as source:
        alive = all_of(source)
        (below,) = child.children()
        child.kill()
        below.kill()
        wait_for(lambda: child.status() == psutil.STATUS_ZOMBIE, 30, "zombie")
        seen = all_of(source)
        then = _boottime()
        wait_for(lambda: _boottime() > then + 0.2, 30, "later time")
        later = all_of(source)
        with opened("process", pid=child.pid) as other:
            late = often(other)
    assert value(seen, c.PROCESS_UPTIME) >= value(alive, c.PROCESS_UPTIME)
    assert later == seen, "the values of a zombie do not change"
    for row in (
        c.PROCESS_MEMORY_USAGE,
        c.PROCESS_THREAD_COUNT,
        c.PROCESS_FILE_DESCRIPTOR_COUNT,
        c.PROCESS_TREE_COUNT,
    ):
        assert series_of(seen, row) == series_of(alive, row) != {}, f"{row.name} has changed"
    assert series_of(late, c.PROCESS_CPU_TIME) == series_of(seen, c.PROCESS_CPU_TIME)
    assert not series_of(late, c.PROCESS_UPTIME), "the time of its end is unknown"


def test_process_that_is_reaped_during_a_reading_keeps_its_tree() -> None:
    with _child(NEST) as child, opened("process", pid=child.pid) as source:
        alive = all_of(source)
        (below,) = child.children()
        child.kill()
        below.kill()
        child.wait()
        late = dict(source.read_slow())
    assert series_of(late, c.PROCESS_TREE_COUNT) == series_of(alive, c.PROCESS_TREE_COUNT) != {}


def test_ending_process_without_memory_has_no_memory_metrics() -> None:
    """A process that ends has no memory any more for a moment before it is a zombie."""
    machine = foreign(0)
    machine.tree.files[f"/proc/{STRANGER}/statm"] = "0 0 0 0 0 0 0\n"
    with opened("process", machine, pid=STRANGER) as source:
        points = often(source)
    assert series_of(points, c.PROCESS_CPU_TIME)
    for row in (c.PROCESS_MEMORY_USAGE, c.PROCESS_MEMORY_VIRTUAL, c.PROCESS_MEMORY_UTILIZATION, c.PROCESS_THREAD_COUNT):
        assert not series_of(points, row), row.name


def test_gc_metrics_agree_with_gc_get_stats() -> None:
    with opened("process", include_metrics="cpython.gc.*") as source:
        gc.collect()
        before, ours, after = gc.get_stats(), often(source), gc.get_stats()
    for row, key in (
        (c.GC_COLLECTIONS, "collections"),
        (c.GC_COLLECTED, "collected"),
        (c.GC_UNCOLLECTABLE, "uncollectable"),
    ):
        assert len(series_of(ours, row)) == len(before)
        for generation, (first, last) in enumerate(zip(before, after)):
            rises_between(first[key], value(ours, row, {c.GC_GENERATION: generation}), last[key], key)


def test_gc_metrics_are_absent_for_another_process() -> None:
    with _child(IDLE) as child, opened("process", pid=child.pid, include_metrics="cpython.gc.*") as source:
        assert not series_of(all_of(source), c.GC_COLLECTIONS)


# -- the tree


def test_tree_metrics_agree_with_psutil() -> None:
    """The tree is the test process, an idle child, and a child with a busy child."""
    me = psutil.Process()

    def family() -> list[psutil.Process]:
        return [me, *me.children(recursive=True)]

    before = len(family())
    with _child(IDLE), _child(NEST), opened("process") as source:
        assert len(family()) == before + 3
        for row, theirs, allowed in (
            (c.PROCESS_TREE_COUNT, lambda: len(family()), 0),
            (c.PROCESS_TREE_MEMORY_USAGE, lambda: sum(each.memory_info().rss for each in family()), 1 << 20),
            (c.PROCESS_TREE_THREAD_COUNT, lambda: sum(each.num_threads() for each in family()), 0),
        ):
            agrees(theirs, lambda row=row: value(all_of(source), row), allowed, row.name)  # type: ignore[misc]


def test_tree_cpu_time_counts_workers_that_come_and_go_once() -> None:
    """As the kernel counts them: most of these workers begin and end between two walks."""
    with started(command("processes/churn")) as program, opened("process", pid=program.pid) as source:
        spent, ours = [], []
        for word in ("nothing", "work", "begin", "nested", "end", "begin", "end", "work"):
            program.stdin.write(f"{word}\n")
            program.stdin.flush()
            spent.append(float(program.stdout.readline()))
            ours.append(_part(series_of(all_of(source), c.PROCESS_TREE_CPU_UTILIZATION)))
    assert ours == sorted(ours), "it falls"
    assert spent[-1] - spent[0] > 1.0, "precondition"
    assert ours[-1] - ours[0] == pytest.approx(spent[-1] - spent[0], abs=0.2)


def test_tree_cpu_time_is_not_that_of_an_earlier_process_with_the_same_pid() -> None:
    found = json.loads(succeed([*in_pid_namespace("--mount-proc"), *command("processes/reused")]).stdout)
    assert len({*found["pids"]}) == 1, "precondition: the PID is used again"
    before, with_next, after = found["seconds"]
    assert before >= 0.27
    assert before <= with_next < before + 0.27
    assert with_next + 0.27 <= after


@pytest.mark.parametrize("ended", [False, True], ids=["that lives", "that has ended"])
def test_child_of_a_thread_is_in_the_tree(ended: bool) -> None:
    """The kernel keeps children under the thread that started them, until that thread ends."""
    release, children = threading.Event(), []

    def begin() -> None:
        children.append(subprocess.Popen([sys.executable, "-c", IDLE], stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        if not ended:
            release.wait()

    with opened("process") as source:
        before = value(all_of(source), c.PROCESS_TREE_COUNT)
        thread = threading.Thread(target=begin)
        thread.start()
        try:
            wait_for(lambda: children, 30, "child of a thread")
            if ended:
                thread.join()
                wait_for(lambda: not os.path.exists(f"/proc/self/task/{thread.native_id}"), 30, "end of the thread")
            assert value(all_of(source), c.PROCESS_TREE_COUNT) == before + 1
        finally:
            release.set()
            thread.join()
            for child in children:
                child.kill()
                child.communicate()
        assert value(all_of(source), c.PROCESS_TREE_COUNT) == before


def test_children_without_proc_files_are_left_out() -> None:
    machine = tree(1)
    with opened("process", machine) as source:
        assert value(all_of(source), c.PROCESS_TREE_COUNT) == 4
        del machine.tree.files[f"/proc/{STRANGER + 1}/stat"]  # it ended between the walk and the look
        assert value(all_of(source), c.PROCESS_TREE_COUNT) == 3


def test_pid_namespace_with_the_hosts_proc_reports_our_process() -> None:
    line = in_pid_namespace()
    found = json.loads(succeed([*line, *command("processes/pid_namespace")]).stdout)
    assert found["another"], "precondition: in /proc, our pid is another process"
    assert (found["alone"], found["tree"], found["threads"], found["larger"]) == (1, 2, 2, True)
    number = found["number"]
    assert found["ours"] == [[number], [], [number], []], "the PID in /proc is ours; our own is another process there"
    assert found["computing"]
    assert (
        found["silent"]
        == [
            f"process {found['child']} cannot be identified: this is a PID namespace, "
            "and /proc shows the pids of the host"
        ]
        * 2
    )
    assert found["theirs"] == []
    assert found["key"].endswith(f"/process:{found['number']}.{found['start_time']}")


# -- made-up processes


@pytest.mark.parametrize("path", ["/proc/{pid}/io", "/proc/{pid}/cgroup", "/proc/{pid}/mountinfo", "/proc/meminfo"])
@pytest.mark.parametrize("damage", ["gone", "empty", "forbidden"])
def test_unreadable_proc_file_loses_only_its_metrics(path: str, damage: str) -> None:
    with opened("process", metal(0)) as source:
        whole = all_of(source)
    machine = metal(0)
    machine.tree.files[path] = PermissionError(13, "Permission denied") if damage == "forbidden" else b""
    if damage == "gone":
        del machine.tree.files[path]
    with opened("process", machine) as source:
        left = all_of(source)
    assert left.items() <= whole.items()
    assert len(whole) - len(left) <= 4


def test_process_that_has_ended_is_unavailable() -> None:
    machine = foreign(0)
    del machine.tree.files[f"/proc/{STRANGER}/stat"]
    with pytest.raises(Unavailable, match=f"process {STRANGER} has ended"), opened("process", machine, pid=STRANGER):
        pass


def test_process_that_ends_before_its_first_reading_has_the_values_of_the_opening() -> None:
    machine = foreign(0)
    with opened("process", machine, pid=STRANGER) as source:
        whole = all_of(source)
    with opened("process", machine, pid=STRANGER) as source:
        for path in [each for each in machine.tree.files if each.startswith(f"/proc/{STRANGER}/")]:
            del machine.tree.files[path]
        late = all_of(source)
    missing = whole.keys() - late.keys()
    assert {series.metric for series in missing} == {c.PROCESS_TREE_COUNT}
    assert late == {series: whole[series] for series in late}


def test_only_resident_memory_is_read_between_collections() -> None:
    machine = metal(0)
    with opened("process", machine) as source:
        machine.tree.asked.clear()
        metrics = {series.metric for series, _ in source.read()}
    limit = {c.PROCESS_CPU_LIMIT}  # known from the last complete reading
    assert metrics == {c.PROCESS_MEMORY_USAGE, c.PROCESS_MEMORY_PEAK, c.PROCESS_MEMORY_UTILIZATION} | limit
    assert machine.tree.asked == ["/proc/self/statm"]
