"""Usage and limits of containers, with fabricated cgroups, and with real ones if they can be made."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from tests.sources.machines import CGROUP2, GIB, INNER, POD, ROOT, docker, kubernetes, metal, mountinfo, namespace
from tests.sources.playing import playing
from tests.sources.reading import agrees, all_of, often, opened, rises_between, series_of, value
from tests.sources.tree import Fabricated, Tree
from tests.support.children import scene, started
from tests.support.waiting import wait_for

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Metric, Unavailable
from opentelemetry.instrumentation.hardware.sources import Source
from opentelemetry.instrumentation.hardware.system import cgroup

TOP = "/sys/fs/cgroup"


def _limits(machine: Fabricated) -> tuple[float | None, float | None]:
    with opened("container", machine) as container:
        found = all_of(container)
        cpu, memory = series_of(found, c.CONTAINER_CPU_LIMIT), series_of(found, c.CONTAINER_MEMORY_LIMIT)
        return next(iter(cpu.values()), None), next(iter(memory.values()), None)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("files", "limits"),
    [
        ({}, (4.0, 8 * GIB)),
        ({POD + "/cpu.max": "max 100000\n"}, (None, 8 * GIB)),
        ({INNER + "/cpu.max": "50000 100000\n"}, (0.5, 8 * GIB)),
        ({INNER + "/cpu.max": "900000 100000\n"}, (4.0, 8 * GIB)),
        ({"/kubepods.slice/cpu.max": "20000 10000\n"}, (2.0, 8 * GIB)),
        ({INNER + "/memory.max": f"{GIB}\n"}, (4.0, GIB)),
        ({POD + "/memory.max": "max\n"}, (4.0, 60 * GIB)),
        ({POD + "/memory.max": "max\n", "/kubepods.slice/memory.max": "max\n"}, (4.0, None)),
        ({POD + "/memory.max": "0\n"}, (4.0, 0)),
        ({POD + "/memory.max": "", POD + "/cpu.max": ""}, (None, 60 * GIB)),
        ({POD + "/memory.max": "lots\n", POD + "/cpu.max": "some of it\n"}, (None, 60 * GIB)),
    ],
)
def test_tightest_limit_of_parent_groups_is_reported(files: Mapping[str, str], limits: tuple[object, object]) -> None:
    machine = kubernetes(0)
    machine.tree.files.update({TOP + path: text for path, text in files.items()})
    assert _limits(machine) == limits


SLICE, JOB = "/user.slice", "/user.slice/job"


def _usage(folder: str, throttled: int, used: int, cpus: str, memory: str) -> dict[str, str]:
    """The files of a group of version 2: seconds of throttling, GiB in use, and limits."""
    return {
        f"{folder}/cpu.stat": f"usage_usec {10 * throttled}000000\nnr_periods {100 * throttled}\n"
        f"nr_throttled {20 * throttled}\nthrottled_usec {throttled}000000\n",
        f"{folder}/cpu.max": f"{cpus} 100000\n",
        f"{folder}/memory.current": f"{used * GIB}\n",
        f"{folder}/memory.stat": f"inactive_file {GIB // 2}\n",
        f"{folder}/memory.events": f"oom 1\noom_kill {used}\n",
        f"{folder}/memory.max": f"{memory}\n",
    }


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        pytest.param({SLICE: ("200000", f"{9 * GIB}")}, (2.0, 45.0, 450.0, 9 * GIB, 8 * GIB), id="above"),
        pytest.param({JOB: ("100000", f"{2 * GIB}")}, (1.0, 3.0, 30.0, 2 * GIB, 1 * GIB), id="own"),
        pytest.param(
            {SLICE: ("200000", f"{9 * GIB}"), JOB: ("100000", f"{2 * GIB}")},
            (1.0, 3.0, 30.0, 2 * GIB, 1 * GIB),
            id="own-is-tighter",
        ),
        pytest.param(
            {SLICE: ("100000", f"{2 * GIB}"), JOB: ("100000", f"{2 * GIB}")},
            (1.0, 3.0, 30.0, 2 * GIB, 1 * GIB),
            id="equal",
        ),
        pytest.param(
            {SLICE: ("100000", "max"), JOB: ("max", f"{2 * GIB}")},
            (1.0, 45.0, 450.0, 2 * GIB, 1 * GIB),
            id="different-groups-for-cpu-and-memory",
        ),
    ],
)
def test_usage_and_throttling_are_of_the_group_with_the_limit(
    limits: Mapping[str, tuple[str, str]], expected: tuple[float, ...]
) -> None:
    """The group above was throttled for 45 s and uses 8 GiB, the process's own for 3 s and 1 GiB."""
    files: dict[str, str | bytes | OSError] = {
        "/proc/{pid}/cgroup": f"0::{JOB}\n",
        "/proc/{pid}/mountinfo": mountinfo(ROOT, CGROUP2),
        **_usage(TOP + SLICE, 45, 8, *limits.get(SLICE, ("max", "max"))),
        **_usage(TOP + JOB, 3, 1, *limits.get(JOB, ("max", "max"))),
    }
    with opened("container", Fabricated(Tree(files))) as container:
        found = all_of(container)
    metrics = (
        c.CONTAINER_CPU_LIMIT,
        c.CONTAINER_CPU_THROTTLED_TIME,
        c.CONTAINER_CPU_TIME,
        c.CONTAINER_MEMORY_LIMIT,
        c.CONTAINER_MEMORY_USAGE,
    )
    assert tuple(value(found, metric) for metric in metrics) == expected
    assert value(found, c.CONTAINER_MEMORY_WORKING_SET) == expected[-1] - GIB // 2
    assert value(found, c.CONTAINER_MEMORY_OOM_KILLS) == expected[-1] // GIB
    assert value(found, c.CONTAINER_CPU_PERIODS) == 100 * expected[1]
    assert value(found, c.CONTAINER_CPU_THROTTLED_PERIODS) == 20 * expected[1]


@pytest.mark.parametrize(
    ("accounting", "seconds"), [(JOB, 450.0), ("/other", 30.0)], ids=["same-group", "group-of-its-own"]
)
def test_cgroup_v1_usage_and_throttling_are_of_the_group_with_the_limit(accounting: str, seconds: float) -> None:
    """Version 1 can have another group for accounting, which then is the process's own."""
    cpu, cpuacct, memory = (f"{TOP}/{name}" for name in ("cpu", "cpuacct", "memory"))
    info = "".join(
        f"{60 + n} 50 0:{40 + n} / {TOP}/{name} rw - cgroup cgroup rw,{name}\n"
        for n, name in enumerate(("cpu", "cpuacct", "memory"))
    )
    files: dict[str, str | bytes | OSError] = {
        "/proc/{pid}/cgroup": f"4:cpu:{JOB}\n3:cpuacct:{accounting}\n2:memory:{JOB}\n",
        "/proc/{pid}/mountinfo": mountinfo(ROOT) + info,
        f"{cpu}{SLICE}/cpu.cfs_quota_us": "100000\n",
        f"{cpu}{SLICE}/cpu.cfs_period_us": "100000\n",
        f"{cpu}{SLICE}/cpu.stat": "nr_periods 90\nnr_throttled 9\nthrottled_time 45000000000\n",
        f"{cpu}{JOB}/cpu.cfs_quota_us": "-1\n",
        f"{cpu}{JOB}/cpu.cfs_period_us": "100000\n",
        f"{cpu}{JOB}/cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n",
        f"{cpuacct}{SLICE}/cpuacct.usage": "450000000000\n",
        f"{cpuacct}{accounting}/cpuacct.usage": "30000000000\n",
        f"{memory}{SLICE}/memory.limit_in_bytes": f"{9 * GIB}\n",
        f"{memory}{SLICE}/memory.usage_in_bytes": f"{8 * GIB}\n",
        f"{memory}{SLICE}/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 6\n",
        f"{memory}{JOB}/memory.limit_in_bytes": "9223372036854771712\n",
        f"{memory}{JOB}/memory.usage_in_bytes": f"{1 * GIB}\n",
    }
    with opened("container", Fabricated(Tree(files))) as container:
        found = all_of(container)
    assert value(found, c.CONTAINER_CPU_LIMIT) == 1.0
    assert value(found, c.CONTAINER_CPU_THROTTLED_TIME) == 45.0
    assert value(found, c.CONTAINER_CPU_PERIODS) == 90
    assert value(found, c.CONTAINER_CPU_THROTTLED_PERIODS) == 9
    assert value(found, c.CONTAINER_CPU_TIME) == seconds
    assert value(found, c.CONTAINER_MEMORY_LIMIT) == 9 * GIB
    assert value(found, c.CONTAINER_MEMORY_USAGE) == 8 * GIB
    assert value(found, c.CONTAINER_MEMORY_OOM_KILLS) == 6


def test_counters_continue_when_another_group_limits_the_process() -> None:
    """The group above has used 450 s, the process's own 30 s; each uses one more second between two collections."""

    def machine(second: int, above: str, own: str) -> Fabricated:
        files: dict[str, str | bytes | OSError] = {
            "/proc/{pid}/cgroup": f"0::{JOB}\n",
            "/proc/{pid}/mountinfo": mountinfo(ROOT, CGROUP2),
        }
        for folder, used, limit in ((SLICE, 450, above), (JOB, 30, own)):
            files[f"{TOP}{folder}/cpu.max"] = f"{limit} 100000\n"
            files[f"{TOP}{folder}/cpu.stat"] = (
                f"usage_usec {used + second}000000\nnr_periods {used + 10 * second}\n"
                f"nr_throttled {used + 5 * second}\nthrottled_usec {used + second}000000\n"
            )
        return Fabricated(Tree(files))

    def counters(lines: list[str]) -> list[float]:
        values = {line.partition("{")[0]: float(line.split()[1]) for line in lines}
        names = ("time", "throttled.time", "periods", "throttled.periods")
        return [values[f"container.cpu.{name}"] for name in names]

    limits = [("max", "100000")] * 2 + [("50000", "100000")] * 3 + [("max", "100000")] * 3
    playing_on = machine(0, *limits[0])
    with playing(lambda source: playing_on, {"sources": ["container"]}) as stage:
        for second, (above, own) in enumerate(limits):
            playing_on.become(machine(second, above, own))
            assert counters(stage.tick()) == [30 + second, 30 + second, 30 + 10 * second, 30 + 5 * second]
            stage.clock.now += 10


def test_move_to_another_group_is_noticed_at_the_next_slow_reading() -> None:
    machine = kubernetes(0)
    with opened("container", machine) as container:
        often(container)
        files = machine.tree.files
        files["/proc/{pid}/cgroup"] = "0::/docker/other\n"
        files[TOP + "/docker/other/memory.max"] = f"{7 * GIB}\n"
        files[TOP + "/docker/other/memory.current"] = "12345678\n"
        all_of(container)
        found = all_of(container)
    assert value(found, c.CONTAINER_MEMORY_LIMIT) == 7 * GIB
    assert value(found, c.CONTAINER_MEMORY_USAGE) == 12_345_678
    assert not series_of(found, c.CONTAINER_CPU_TIME), "the CPU time of the old group is not reported"


def test_cgroup_v1_unlimited_values_are_absent() -> None:
    machine = docker(0)
    memory, cpu = TOP + "/memory/memory.limit_in_bytes", TOP + "/cpu,cpuacct/cpu.cfs_quota_us"
    assert _limits(machine) == (1.5, 2 * GIB)
    machine.tree.files[memory], machine.tree.files[cpu] = "9223372036854771712\n", "-1\n"
    assert _limits(machine) == (None, None)


def test_group_outside_of_the_namespace_uses_visible_limits() -> None:
    machine = namespace(0)
    files = machine.tree.files
    files["/proc/{pid}/cgroup"] = "0::/../other\n"
    files[TOP + "/memory.max"] = f"{5 * GIB}\n"
    files[TOP + "/other/memory.max"] = f"{GIB}\n"  # a group of the same name that is ours
    assert _limits(machine) == (None, 5 * GIB)


@pytest.mark.parametrize("later", [" rw - cgroup2 cgroup rw", " rw - cgroup2 other rw,nsdelegate"])
def test_second_cgroup_mount_is_ignored(later: str) -> None:
    machine = kubernetes(0)
    files = machine.tree.files
    mounted = files["/proc/{pid}/mountinfo"]
    assert isinstance(mounted, str)
    limits = _limits(machine)
    files["/proc/{pid}/mountinfo"] = mounted + f"999 1 0:99 /system.slice /var/lib/lxc/cgroup{later}\n"
    assert _limits(machine) == limits


@pytest.mark.parametrize("odd", ["\x85", "\u2028", "\x1c", "\x0b", "\udcff"])
def test_group_with_unusual_name_is_found(odd: str) -> None:
    machine = kubernetes(0)
    files = machine.tree.files
    files["/proc/{pid}/cgroup"] = os.fsencode(f"0::/docker/a{odd}b\n")
    files[f"{TOP}/docker/a{odd}b/memory.max"] = f"{7 * GIB}\n"
    assert _limits(machine)[1] == 7 * GIB


def test_nothing_is_read_between_collections() -> None:
    machine = kubernetes(0)
    with opened("container", machine) as container:
        machine.tree.files.clear()
        assert not [*container.read()]


def test_working_set_is_not_negative() -> None:
    machine = kubernetes(0)
    machine.tree.files[TOP + POD + "/memory.current"] = "4096\n"
    with opened("container", machine) as container:
        assert value(often(container), c.CONTAINER_MEMORY_WORKING_SET) == 0


@pytest.mark.parametrize(
    ("path", "lost"), [("/cpu.stat", 4), ("/memory.current", 3), ("/memory.stat", 2), ("/memory.events", 1)]
)
@pytest.mark.parametrize("text", [None, "", "nonsense\n", "nonsense more than that\n"])
def test_unreadable_group_file_loses_only_its_metrics(path: str, lost: int, text: str | None) -> None:
    machine = kubernetes(0)
    with opened("container", machine) as container:
        whole = often(container)
        if text is None:
            del machine.tree.files[TOP + POD + path]
        else:
            machine.tree.files[TOP + POD + path] = text
        left = often(container)
    assert left.items() < whole.items()
    assert len(left) == len(whole) - lost


def test_systemd_slice_with_a_limit_is_a_container() -> None:
    machine = metal(0)
    machine.tree.files[TOP + "/user.slice/user-1000.slice/memory.max"] = f"{GIB}\n"
    assert _limits(machine) == (None, GIB)


@pytest.mark.parametrize(
    ("quota", "cpus"),
    [("200000 100000", 2), ("6400000 100000", 16), ("max 100000", 16)],
    ids=["below-affinity", "above-affinity", "no-quota"],
)
def test_exported_cpu_utilization_is_relative_to_the_smaller_of_quota_and_affinity(quota: str, cpus: int) -> None:
    """The process may run on 16 CPUs, and uses 12.5 s of user time in 10 s."""

    def at(tick: int) -> Fabricated:
        machine = kubernetes(tick)
        machine.tree.files[TOP + POD + "/cpu.max"] = f"{quota}\n"
        return machine

    machine = at(0)
    with playing(lambda source: machine, {"sources": ["process"], "sample_interval": 10}) as stage:
        stage.tick()
        stage.clock.now += 10
        machine.become(at(1))
        assert f"process.cpu.utilization{{cpu.mode=user}} {12.5 / 10 / cpus!r} 1 gauge" in stage.tick()


def test_memory_limit_above_the_hosts_memory_is_ignored() -> None:
    machine = Fabricated(kubernetes(0).tree)
    machine.tree.files[TOP + POD + "/memory.max"] = f"{4000 * GIB}\n"
    machine.tree.files[TOP + "/kubepods.slice/memory.max"] = "max\n"
    with opened("process", machine) as process:
        found = often(process)
    total = 64_000_000 << 10
    assert value(found, c.PROCESS_MEMORY_UTILIZATION) == value(found, c.PROCESS_MEMORY_USAGE) / total


def test_container_is_unavailable_without_cgroup_mounts() -> None:
    files: dict[str, str | bytes | OSError] = {
        "/proc/{pid}/cgroup": "0::/user.slice\n",
        "/proc/{pid}/mountinfo": mountinfo(ROOT),
    }
    with pytest.raises(Unavailable), opened("container", Fabricated(Tree(files))):
        pass
    files["/proc/{pid}/mountinfo"] = mountinfo(ROOT, CGROUP2)
    with pytest.raises(Unavailable), opened("container", Fabricated(Tree(files))):
        pass


NOT_MOUNTED = r"the cgroup of this container is not mounted in it"
BUSY_HOST = {TOP + "/cpu.stat": "usage_usec 77000000000\n", "/.dockerenv": ""}
OF_HOST = ("0:26", "/../../../..", TOP, "cgroup2", "cgroup2")


def test_hierarchy_of_the_host_is_not_that_of_a_container_with_a_namespace() -> None:
    """As where a pod mounts the host's /sys/fs/cgroup: its root is outside of the namespace."""
    files: dict[str, str | bytes | OSError] = {**BUSY_HOST, "/proc/{pid}/cgroup": "0::/\n"}
    files["/proc/{pid}/mountinfo"] = mountinfo(OF_HOST)
    with pytest.raises(Unavailable, match=NOT_MOUNTED), opened("container", Fabricated(Tree(files))):
        pass
    own = ("0:26", "/", "/run/own", "cgroup2", "cgroup2")
    files |= {"/proc/{pid}/mountinfo": mountinfo(OF_HOST, own), "/run/own/cpu.stat": "usage_usec 5000000\n"}
    with opened("container", Fabricated(Tree(files))) as container:
        assert value(all_of(container), c.CONTAINER_CPU_TIME) == 5.0


def test_root_groups_of_the_host_are_not_those_of_a_sandbox_with_a_namespace() -> None:
    """As in Bubblewrap with cgroup version 1, where only the memory group of its parent is not the root."""
    files: dict[str, str | bytes | OSError] = {"/.dockerenv": "", TOP + "/cpuacct/cpuacct.usage": "77000000000000\n"}
    files["/proc/{pid}/cgroup"] = "4:memory:/\n2:cpuacct:/\n1:cpu:/\n0::/\n"
    roots = {"memory": "/../..", "cpuacct": "/", "cpu": "/"}
    mounts = [("0:30", root, f"{TOP}/{name}", "cgroup", f"cgroup rw,{name}") for name, root in roots.items()]
    files["/proc/{pid}/mountinfo"] = mountinfo(*mounts)
    with pytest.raises(Unavailable, match=NOT_MOUNTED), opened("container", Fabricated(Tree(files))):
        pass
    files["/proc/{pid}/mountinfo"] = mountinfo(*mounts[1:])
    with opened("container", Fabricated(Tree(files))) as container:
        assert value(all_of(container), c.CONTAINER_CPU_TIME) == 77_000.0


def test_group_below_a_root_outside_of_the_namespace_is_found() -> None:
    files = {**BUSY_HOST, "/proc/{pid}/cgroup": "0::/../../../../batch/job\n"}
    files |= {"/proc/{pid}/mountinfo": mountinfo(OF_HOST), TOP + "/batch/job/cpu.stat": "usage_usec 3000000\n"}
    with opened("container", Fabricated(Tree(files))) as container:
        assert value(all_of(container), c.CONTAINER_CPU_TIME) == 3.0


def test_group_with_a_backslash_in_its_name_is_found_where_only_it_is_mounted() -> None:
    """As systemd escapes "-" in the name of a unit; mountinfo escapes its backslash."""
    group = "/machine.slice/machine-lxc\\x2dweb.scope"
    own = ("0:26", group.replace("\\", "\\134"), TOP, "cgroup2", "cgroup2")
    files = {"/.dockerenv": "", "/proc/{pid}/cgroup": f"0::{group}\n", "/proc/{pid}/mountinfo": mountinfo(own)}
    files[TOP + "/cpu.stat"] = "usage_usec 2000000\n"
    with opened("container", Fabricated(Tree(files))) as container:
        assert value(all_of(container), c.CONTAINER_CPU_TIME) == 2.0


def test_task_of_fargate_is_a_container() -> None:
    group = "/ecs/0a1b2c3d4e5f60718293a4b5c6d7e8f9/0a1b2c3d4e5f60718293a4b5c6d7e8f9-1234567890"
    lines = [f"9:memory:{group}", f"5:cpu,cpuacct:{group}", ""]
    mounts = [f"{n} 50 0:4{n} {group} {TOP}/{name} ro - cgroup cgroup rw,{name}" for n, name in enumerate(("memory",))]
    files = {"/proc/{pid}/cgroup": "\n".join(lines), "/proc/{pid}/mountinfo": "\n".join([*mounts, ""])}
    files |= {TOP + "/memory/memory.usage_in_bytes": f"{GIB}\n"}
    with opened("container", Fabricated(Tree(files))) as container:
        assert value(all_of(container), c.CONTAINER_MEMORY_USAGE) == GIB


# -- real groups

# Waits to be put into a group, allocates memory, and writes a file, which is cached.
HOLD = """
import mmap, sys
held, cached, file = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
sys.stdin.readline()
area = bytearray(held); area[::4096] = b"x" * len(area[::4096])
if cached:
    with open(file, "wb") as stream:
        for _ in range(cached >> 20):
            stream.write(b"x" * (1 << 20))
    with open(file, "rb") as stream:
        while stream.read(1 << 20):
            pass
print("ready", flush=True)
"""

BUSY = HOLD + "\nwhile True: pass"
IDLE = HOLD + "\nsys.stdin.readline()"

MIB = 1 << 20


def _own(controller: str) -> str:
    """The path of this process's group in a hierarchy of version 1."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            return path.rstrip("/")
    return ""


class Group:
    """A new control group, and the groups below it.

    Args:
        folders: Its folder for each controller; one folder for all in version 2.
    """

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self.folders = dict(folders)
        self.version = 2 if len({*self.folders.values()}) == 1 else 1
        self.below: list[Group] = []
        for folder in {*self.folders.values()}:
            folder.mkdir()

    def child(self, name: str) -> Group:
        if self.version == 2:
            (self.folders["cpu"] / "cgroup.subtree_control").write_text("+cpu +memory")
        self.below.append(Group({controller: folder / name for controller, folder in self.folders.items()}))
        return self.below[-1]

    def limit_memory(self, size: int) -> None:
        name = "memory.max" if self.version == 2 else "memory.limit_in_bytes"
        (self.folders["memory"] / name).write_text(str(size))

    def limit_cpu(self, quota: int) -> None:
        """Microseconds per 0.1 s."""
        if self.version == 2:
            (self.folders["cpu"] / "cpu.max").write_text(f"{quota} 100000")
        else:
            (self.folders["cpu"] / "cpu.cfs_quota_us").write_text(str(quota))

    @contextmanager
    def running(self, program: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
        """A program in the group, which is ready."""
        with started([sys.executable, "-c", program, *map(str, arguments)]) as child:
            for folder in {*self.folders.values()}:
                (folder / "cgroup.procs").write_text(str(child.pid))
            child.stdin.write("go\n")
            child.stdin.flush()
            if child.stdout.readline() == "ready\n":
                yield child
            else:
                child.wait(60)
                yield child

    def remove(self) -> None:
        for group in self.below:
            group.remove()
        for folder in {*self.folders.values()}:
            if folder.exists():
                wait_for(lambda: not (folder / "cgroup.procs").read_text(), 20, f"end of what is in {folder}")  # noqa: B023
                folder.rmdir()


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def group(request: pytest.FixtureRequest) -> Iterator[Group]:
    """A new group of either version."""
    name = f"otel-hardware-{os.getpid()}"
    if request.param == 1:
        if not Path(TOP, "memory/memory.stat").exists():
            pytest.skip("cgroup v1 is not mounted")
        folders = {each: Path(f"{TOP}/{each}{_own(each)}/{name}") for each in ("memory", "cpu", "cpuacct")}
    else:
        top = next((each for each in (Path(TOP), Path(TOP, "unified")) if (each / "cgroup.controllers").exists()), None)
        if top is None:
            pytest.skip("cgroup v2 is not mounted")
        missing = {"cpu", "memory"} - {*(top / "cgroup.controllers").read_text().split()}
        if missing:
            pytest.skip(f"cgroup v2 has no controller {', '.join(sorted(missing))} here: version 1 has them")
        with suppress(OSError):
            (top / "cgroup.subtree_control").write_text("+cpu +memory")
        folders = dict.fromkeys(("memory", "cpu", "cpuacct"), top / name)
    try:
        made = Group(folders)
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        yield made
    finally:
        made.remove()


def _wait_for_throttling(container: Source) -> None:
    def of(metric: Metric) -> float:
        return value(often(container), metric)

    before = of(c.CONTAINER_CPU_THROTTLED_TIME)
    wait_for(
        lambda: of(c.CONTAINER_CPU_THROTTLED_TIME) > before, 30, "throttling of a child that wants more than its limit"
    )
    assert 0 < of(c.CONTAINER_CPU_THROTTLED_PERIODS) <= of(c.CONTAINER_CPU_PERIODS)


@pytest.mark.whole
def test_real_group_with_limits_agrees_with_psutil(group: Group) -> None:
    """A child that computes in a group with limits, which are then changed."""
    size = 64 * MIB
    group.limit_memory(512 * MIB)
    group.limit_cpu(30_000)
    with group.running(BUSY, size, 0, "") as child:
        with opened("container", pid=child.pid) as container:
            first = all_of(container)
            assert value(first, c.CONTAINER_CPU_LIMIT) == pytest.approx(0.3)
            assert value(first, c.CONTAINER_MEMORY_LIMIT) == 512 * MIB
            assert value(first, c.CONTAINER_MEMORY_USAGE) >= size
            assert value(first, c.CONTAINER_MEMORY_WORKING_SET) <= value(first, c.CONTAINER_MEMORY_USAGE)
            _compare_with_psutil(container, child.pid)
            group.limit_cpu(1000)  # less than it gets on any machine, however busy
            _wait_for_throttling(container)
            group.limit_cpu(70_000)
            group.limit_memory(300 * MIB)
            later = all_of(container)
            assert value(later, c.CONTAINER_CPU_LIMIT) == pytest.approx(0.7)
            assert value(later, c.CONTAINER_MEMORY_LIMIT) == 300 * MIB
        with opened("process", pid=child.pid) as process:
            found = all_of(process)
            resident = value(found, c.PROCESS_MEMORY_USAGE)
            assert value(found, c.PROCESS_MEMORY_UTILIZATION) == resident / (300 * MIB)


@pytest.mark.whole
def test_real_group_is_that_of_the_limit_where_groups_are_nested(group: Group) -> None:
    """The limits are two levels above the process. Its neighbour counts against them as well."""
    group.limit_memory(256 * MIB)
    group.limit_cpu(50_000)
    pod = group.child("pod")
    neighbour, own = pod.child("neighbour"), pod.child("own")
    with (
        neighbour.running(BUSY, 64 * MIB, 0, ""),
        own.running(IDLE, 16 * MIB, 0, "") as child,
        opened("container", pid=child.pid) as container,
    ):
        found = all_of(container)
        assert value(found, c.CONTAINER_CPU_LIMIT) == pytest.approx(0.5)
        assert value(found, c.CONTAINER_MEMORY_LIMIT) == 256 * MIB
        assert value(found, c.CONTAINER_MEMORY_USAGE) >= 80 * MIB, "with the neighbour"
        group.limit_cpu(1000)
        _wait_for_throttling(container)
        own.limit_memory(128 * MIB)
        all_of(container)
        tighter = all_of(container)
        assert value(tighter, c.CONTAINER_MEMORY_LIMIT) == 128 * MIB
        assert 16 * MIB <= value(tighter, c.CONTAINER_MEMORY_USAGE) < 64 * MIB, "without the neighbour"


@pytest.mark.whole
def test_working_set_is_the_memory_that_counts_before_the_group_is_out_of_memory(group: Group, tmp_path: Path) -> None:
    """Page cache fills the group up to its limit, and is dropped when memory is needed."""
    limit, held = 96 * MIB, 32 * MIB
    group.limit_memory(limit)
    with group.running(IDLE, held, 2 * limit, tmp_path / "file") as child:
        if child.poll() is not None:
            pytest.skip(f"the file system of {tmp_path} does not drop its cache")
        with opened("container", pid=child.pid) as container:
            found = all_of(container)
        usage, working_set = value(found, c.CONTAINER_MEMORY_USAGE), value(found, c.CONTAINER_MEMORY_WORKING_SET)
        assert usage <= limit
        assert working_set >= held
        assert usage > limit * 0.8, "precondition: the cache fills the group"
        assert working_set < limit * 0.8, "what can be reclaimed is not in the working set"


@pytest.mark.whole
def test_group_that_runs_out_of_memory_is_still_reported_and_the_kill_is_counted(group: Group) -> None:
    group.limit_memory(64 * MIB)
    with (
        group.running(IDLE, 8 * MIB, 0, "") as child,
        opened("container", pid=child.pid) as container,
        opened("host") as host,
    ):
        kills = value(all_of(host), c.SYSTEM_MEMORY_OOM_KILLS)
        with group.running(IDLE, 128 * MIB, 0, "") as greedy:
            greedy.wait(60)
            assert greedy.returncode == -signal.SIGKILL
        if child.poll() is None:  # the kernel chooses the largest process
            found = all_of(container)
            assert value(found, c.CONTAINER_MEMORY_LIMIT) == 64 * MIB
            assert value(found, c.CONTAINER_MEMORY_USAGE) <= 64 * MIB
        assert value(all_of(host), c.SYSTEM_MEMORY_OOM_KILLS) > kills


@pytest.mark.whole
def test_real_group_of_version_2_agrees_with_its_file() -> None:
    """The only hierarchy that is mounted is that of version 2. It may have no controllers."""
    found = scene("machines/cgroup2")
    assert found["before"] >= 0.2, "precondition"
    assert found["before"] <= found["values"]["container.cpu.time"] <= found["after"]
    assert "container.cpu.limit" not in found["values"]
    least, ours, most = map(_seconds, found["pressure"])
    assert ours.keys() == least.keys()
    assert all(least[each] <= seconds <= most[each] for each, seconds in ours.items())


def _seconds(lines: list[tuple[str, str, float]]) -> dict[tuple[str, str], float]:
    return {(resource, kind): seconds for resource, kind, seconds in lines}


def test_kernel_without_pressure_leaves_it_out() -> None:
    machine = kubernetes(0)
    for path in [path for path in machine.tree.files if path.endswith(".pressure")]:
        machine.tree.files[path] = OSError(95, "Operation not supported", path)  # booted with psi=0
    with opened("container", machine) as container:
        found = all_of(container)
    assert series_of(found, c.CONTAINER_PRESSURE_TIME) == {}
    assert series_of(found, c.CONTAINER_CPU_TIME) != {}


def _compare_with_psutil(container: Source, pid: int) -> None:
    """The group has one process, so its time is that process's, from when it was put in."""
    process = psutil.Process(pid)

    def spent() -> float:
        times = process.cpu_times()
        return times.user + times.system

    def group() -> float:
        return value(often(container), c.CONTAINER_CPU_TIME)

    start, mine = spent(), group()
    wait_for(lambda: spent() - start > 0.3, 30, "CPU time of a busy child")
    before, ours, after = spent() - start, group() - mine, spent() - start
    rises_between(before, ours, after, "CPU time of the group", 0.05)


@pytest.mark.skipif(not Path(TOP, "memory/memory.stat").exists(), reason="cgroup v1 is not mounted")
def test_own_cgroup_agrees_with_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "_CONTAINER_FILES", ("/",))  # a machine without a container is one here, too
    folder = Path(f"{TOP}/memory{_own('memory')}")
    with opened("container") as container:
        agrees(
            lambda: int((folder / "memory.usage_in_bytes").read_text()),
            lambda: value(often(container), c.CONTAINER_MEMORY_USAGE),
            1 << 20,
            "memory of the group",
        )
        if _own("memory") and not _own("cpuacct"):  # of the machine, where the memory is a part's
            assert c.CONTAINER_CPU_TIME not in {series.metric for series in often(container)}
            return
        before = int(Path(f"{TOP}/cpuacct{_own('cpuacct')}/cpuacct.usage").read_text()) / 1e9
        ours = value(often(container), c.CONTAINER_CPU_TIME)
        after = int(Path(f"{TOP}/cpuacct{_own('cpuacct')}/cpuacct.usage").read_text()) / 1e9
        rises_between(before, ours, after, "CPU time of the group")
