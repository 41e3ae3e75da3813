"""The Linux kernel: files are read whole and fresh, nothing stays open, and its other answers are right."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.children import PATIENCE, descriptors, run, scene, started
from tests.stage import Clock
from tests.waiting import wait_for

from opentelemetry.instrumentation.hardware.system import files as kernel_module
from opentelemetry.instrumentation.hardware.system.files import LocalFiles, Space

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks the Linux kernel")


@pytest.fixture
def kernel() -> Iterator[LocalFiles]:
    each = LocalFiles()
    yield each
    each.close()


@pytest.fixture
def lacking(monkeypatch: pytest.MonkeyPatch) -> Callable[..., LocalFiles]:
    """Makes a kernel whose C library lacks some functions."""
    real = ctypes.PyDLL

    class Lacking:
        def __init__(self, names: tuple[str, ...], library: Any) -> None:
            self._names, self._library = names, library

        def __getattr__(self, name: str) -> Any:
            if name in self._names:
                raise AttributeError(name)
            return getattr(self._library, name)

    def make(*names: str) -> LocalFiles:
        with monkeypatch.context() as patch:
            patch.setattr(ctypes, "PyDLL", lambda *path, **options: Lacking(names, real(*path, **options)))
            return LocalFiles()

    return make


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The kernel's monotonic clock, which stands still."""
    made = Clock()
    monkeypatch.setattr(kernel_module, "time", SimpleNamespace(monotonic=made))
    return made


# -- files


@linux
@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 16384, 65536, 1_000_003])
@pytest.mark.parametrize("way", ["read", "once"])
def test_file_of_any_size_is_read_whole(kernel: LocalFiles, tmp_path: Path, size: int, way: str) -> None:
    content = os.urandom(size)
    (tmp_path / "file").write_bytes(content)
    assert getattr(kernel, way)(str(tmp_path / "file")) == content


@linux
@pytest.mark.parametrize("way", ["read", "once"])
def test_proc_maps_is_read_whole_page_by_page(kernel: LocalFiles, way: str) -> None:
    """Every mapping is a line of /proc/self/maps; one read returns at most a page."""
    areas = [mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | (mmap.PROT_WRITE if n % 2 else 0)) for n in range(400)]
    try:
        descriptor = os.open("/proc/self/maps", os.O_RDONLY)
        first = os.read(descriptor, 1 << 20)
        os.close(descriptor)
        ours = getattr(kernel, way)("/proc/self/maps")
        assert len(first) <= mmap.PAGESIZE < len(ours)
        assert ours.endswith(b"\n")
        assert len(ours.splitlines()) >= 200
        assert b"[stack]" in ours, "it is near the end"
    finally:
        for area in areas:
            area.close()


@linux
def test_vmstat_is_read_up_to_the_last_wanted_line(kernel: LocalFiles) -> None:
    whole = kernel.once("/proc/vmstat")
    for _ in range(3):
        beginning = kernel.read("/proc/vmstat")
        assert [line.split()[0] for line in whole.splitlines()][: beginning.count(b"\n")] == [
            line.split()[0] for line in beginning[: beginning.rindex(b"\n")].splitlines()
        ]
        assert re.search(rb"\npgmajfault \d+\n", beginning)
    assert len(beginning) < len(whole) or len(whole) - whole.index(b"\npgmajfault ") < 100


@linux
def test_table_is_read_whole_when_its_last_wanted_line_moves_or_is_missing(
    kernel: LocalFiles, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "table"
    monkeypatch.setattr(LocalFiles, "_LAST", {str(path): b"\nlast "})
    for before, number, there in [(10, 7, True), (11, 7, True), (60, 8, True), (700, 9, True), (10, 9, False)]:
        text = "line 12345\n" * before + (f"last {number}\n" if there else "") + "more 1\n" * 700
        path.write_text(text, encoding="ascii")
        found = kernel.read(str(path)).decode()
        assert text.startswith(found)
        assert (f"\nlast {number}\n" in found) is there
        assert there or found == text


@linux
def test_repeated_read_reuses_the_descriptor(kernel: LocalFiles, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("first, and longer")
    assert kernel.read(str(path)) == b"first, and longer"
    open_now = [name for name, target in descriptors().items() if target == str(path)]
    assert len(open_now) == 1
    path.write_text("second")
    assert kernel.read(str(path)) == b"second"
    assert [name for name, target in descriptors().items() if target == str(path)] == open_now


@linux
def test_read_once_leaves_no_descriptor_open(kernel: LocalFiles, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    before = descriptors()
    kernel.once(str(path))
    kernel.names(str(tmp_path))
    assert descriptors() == before


@linux
@pytest.mark.parametrize("way", ["read", "once", "names"])
def test_missing_file_raises_os_error(kernel: LocalFiles, tmp_path: Path, way: str) -> None:
    before = descriptors()
    with pytest.raises(FileNotFoundError) as caught:
        getattr(kernel, way)(str(tmp_path / "nothing"))
    assert caught.value.filename == str(tmp_path / "nothing")
    if way != "names":
        with pytest.raises(IsADirectoryError):
            getattr(kernel, way)(str(tmp_path))
    else:
        (tmp_path / "file").write_text("x")
        with pytest.raises(NotADirectoryError):
            kernel.names(str(tmp_path / "file"))
    assert descriptors() == before


@linux
def test_link_equals_os_readlink(kernel: LocalFiles, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(os.fsdecode(b"/no/such/pl\xe4ce"))
    assert kernel.link(str(link)) == os.readlink(link)
    with pytest.raises(FileNotFoundError) as caught:
        kernel.link(str(tmp_path / "nothing"))
    assert caught.value.filename == str(tmp_path / "nothing")


@linux
def test_file_of_an_ended_process_is_an_error_and_is_closed(kernel: LocalFiles) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        path = f"/proc/{child.pid}/statm"
        assert kernel.read(path)
        child.kill()
        child.wait()
    with pytest.raises(ProcessLookupError):
        kernel.read(path)
    assert path not in descriptors().values()
    with pytest.raises(FileNotFoundError):
        kernel.read(path)


@linux
def test_close_closes_everything_and_forget_a_prefix(tmp_path: Path) -> None:
    kernel = LocalFiles()
    for name in ("a1", "a2", "b"):
        (tmp_path / name).write_text(name)
        kernel.read(str(tmp_path / name))
    kernel.forget(str(tmp_path / "a"))
    left = [target for target in descriptors().values() if target.startswith(str(tmp_path))]
    assert left == [str(tmp_path / "b")]
    kernel.close()
    assert not [target for target in descriptors().values() if target.startswith(str(tmp_path))]
    assert kernel.read(str(tmp_path / "b")) == b"b", "it can be used again"
    kernel.close()


@linux
def test_descriptors_are_not_inherited_by_programs(kernel: LocalFiles, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    kernel.read(str(path))
    code = (
        "import os\n"
        "for name in os.listdir('/proc/self/fd'):\n"
        "    if os.path.exists(f'/proc/self/fd/{name}'): print(os.readlink(f'/proc/self/fd/{name}'))"
    )
    listed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, close_fds=False, check=True)
    assert str(path) not in listed.stdout


# -- a program that closes descriptors of others


@linux
@pytest.mark.parametrize("closed", ["all", "the lowest", "the highest"])
@pytest.mark.parametrize("theirs", ["nothing", "a socket", "a file"])
def test_descriptors_closed_by_the_program_are_reopened_and_its_own_left_alone(
    clock: Clock, kernel: LocalFiles, tmp_path: Path, closed: str, theirs: str
) -> None:
    paths = [tmp_path / name for name in ("a", "b", "c")]
    for path in paths:
        path.write_text(path.name)
        kernel.read(str(path))
    (tmp_path / "theirs").write_text("theirs")
    numbers = {target: int(number) for number, target in descriptors().items()}
    ours = sorted(numbers[str(path)] for path in paths)
    ours = {"all": ours, "the lowest": ours[:1], "the highest": ours[-1:]}[closed]
    one, other = socket.socketpair()
    with one, other, open(tmp_path / "theirs", encoding="utf-8") as file:
        for number in ours:
            os.close(number)
            if theirs != "nothing":
                os.dup2(one.fileno() if theirs == "a socket" else file.fileno(), number)
        clock.now += 1.0  # a round of readings later
        before = descriptors()
        for _ in range(2):
            assert [kernel.read(str(path)) for path in paths] == [b"a", b"b", b"c"]
        kernel.close()
        after = descriptors()
        if theirs != "nothing":
            assert {number: after.get(str(number)) for number in ours} == {
                number: before[str(number)] for number in ours
            }
            for number in ours:
                os.close(number)
        assert not {str(path) for path in paths} & set(descriptors().values()), "nothing of ours is left open"


@linux
@pytest.mark.parametrize("way", ["forget", "close"])
def test_descriptor_that_now_belongs_to_the_program_is_not_closed(kernel: LocalFiles, tmp_path: Path, way: str) -> None:
    path, theirs = tmp_path / "ours", tmp_path / "theirs"
    path.write_text("ours")
    theirs.write_text("theirs")
    kernel.read(str(path))
    number = next(int(number) for number, target in descriptors().items() if target == str(path))
    with open(theirs, encoding="utf-8") as file:
        os.dup2(file.fileno(), number)
        if way == "forget":
            kernel.forget(str(path))
        else:
            kernel.close()
        assert descriptors().get(str(number)) == str(theirs)
        os.close(number)


@linux
def test_descriptor_reused_by_another_of_our_files_is_not_confused(kernel: LocalFiles, tmp_path: Path) -> None:
    """Noticed at the first failed read, not a round of readings later."""
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
        kernel.read(str(tmp_path / name))
    numbers = {target: int(number) for number, target in descriptors().items()}
    for name in ("a", "b"):
        os.close(numbers[str(tmp_path / name)])
    assert kernel.read(str(tmp_path / "b")) == b"b"
    assert descriptors()[str(numbers[str(tmp_path / "a")])] == str(tmp_path / "b")
    assert kernel.read(str(tmp_path / "a")) == b"a"


@linux
def test_old_glibc_with_fxstat64_only_tells_files_apart(lacking: Callable[..., LocalFiles], tmp_path: Path) -> None:
    """glibc before 2.33."""
    if not hasattr(ctypes.CDLL(None), "__fxstat64"):
        pytest.skip("this C library has no versioned fstat")
    kernel = lacking("fstat64", "fstat")
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for path in (ours, theirs):
        path.write_text(path.name)
    kernel.read(str(ours))
    number = next(int(number) for number, target in descriptors().items() if target == str(ours))
    kernel.close()
    assert str(number) not in descriptors(), "its own file is known again, and closed"
    kernel.read(str(ours))
    with open(theirs, encoding="utf-8") as file:
        os.dup2(file.fileno(), number)
    kernel.close()
    assert descriptors()[str(number)] == str(theirs), "another file is not"
    os.close(number)


# -- changes of a file, as the kernel reports them

TOLD = {
    "nothing yet": [True, False],
    "a mount": [True, False],
    "the table was read": [False, False],
    "an unmount": [True, False],
    "two mounts": [True, False],
    "its number was closed": [True, False],
    "a mount after that": [True, False],
    "its number is a socket's": [True, False],
    "a mount after that too": [True, False],
    "it was forgotten": [True, False],
    "the call fails": [True, True],
    "a mount in another namespace, which we entered": [False, False],
}


@linux
def test_mountinfo_change_is_reported_once(tmp_path: Path) -> None:
    assert scene("mount_table", tmp_path) == TOLD


@linux
def test_changed_keeps_the_file_open_and_raises_for_a_missing_one(kernel: LocalFiles, tmp_path: Path) -> None:
    before = descriptors()
    with pytest.raises(FileNotFoundError):
        kernel.changed(str(tmp_path / "nothing"))
    assert descriptors() == before
    kernel.changed("/proc/self/mountinfo")
    opened = descriptors()
    assert opened != before
    kernel.changed("/proc/self/mountinfo")
    assert descriptors() == opened
    kernel.close()
    assert descriptors() == before


@linux
def test_changed_file_reopened_under_another_number_is_not_confused(
    clock: Clock, kernel: LocalFiles, tmp_path: Path
) -> None:
    """In the same round of readings: the clock stands still."""
    path, table = tmp_path / "file", "/proc/self/mountinfo"
    path.write_text("x")
    kernel.read(str(path))
    assert kernel.changed(table)
    numbers = {os.path.basename(target): int(number) for number, target in descriptors().items()}
    for name in ("file", "mountinfo"):
        os.close(numbers[name])
    assert kernel.changed(table)
    assert os.path.basename(descriptors()[str(numbers["file"])]) == "mountinfo"
    assert kernel.read(str(path)) == b"x"


# -- folders


@linux
@pytest.mark.parametrize("count", [0, 1, 50, 700])
def test_folder_of_any_size_is_listed_whole(kernel: LocalFiles, tmp_path: Path, count: int) -> None:
    names = [f"entry-{number}-{'x' * (number % 200)}" for number in range(count)]
    for name in names:
        (tmp_path / name).write_text("")
    assert sorted(kernel.names(str(tmp_path))) == sorted(names)
    assert kernel.count(str(tmp_path)) == count


@linux
def test_non_utf8_names_equal_os_listdir(kernel: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9")).write_text("")
    assert list(kernel.names(str(tmp_path))) == os.listdir(tmp_path)


@linux
def test_folder_is_listed_without_getdents64(lacking: Callable[..., LocalFiles], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert list(lacking("getdents64").names(str(tmp_path))) == ["file"]


@linux
@pytest.mark.parametrize("size", ["from-statx", "from-stat", "counted"])
def test_descriptor_count_excludes_the_listing_one(
    lacking: Callable[..., LocalFiles], size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels from 6.2 on give the number as the size of the folder."""
    kernel = lacking(*(["statx"] if size != "from-statx" else []))
    if size == "counted":
        real = os.stat
        monkeypatch.setattr(os, "stat", lambda path: os.stat_result((*real(path)[:6], 0, *real(path)[7:])))
    elif not os.stat("/proc/self/fd").st_size:
        pytest.skip("this kernel is older than 6.2")
    before = kernel.count("/proc/self/fd")
    assert before == len(os.listdir("/proc/self/fd")) - 1, "listdir sees the descriptor that it lists by"
    ends = os.pipe()
    assert kernel.count("/proc/self/fd") == before + 2
    for end in ends:
        os.close(end)


# -- other answers


@linux
def test_space_agrees_with_df(kernel: LocalFiles, tmp_path: Path) -> None:
    answer = os.statvfs(tmp_path)
    space = kernel.space(str(tmp_path))
    assert space.total == answer.f_blocks * answer.f_frsize
    assert space.total >= space.free >= space.available
    with pytest.raises(FileNotFoundError):
        kernel.space(str(tmp_path / "nothing"))
    columns = ["df", "--block-size=1", "--output=size,used", str(tmp_path)]
    size, used = subprocess.run(columns, capture_output=True, text=True, check=True).stdout.splitlines()[-1].split()
    assert space.total == int(size)
    assert abs(space.total - space.free - int(used)) < 64 << 20
    assert isinstance(space, Space)


@linux
def test_usage_affinity_online_and_uptime_agree_with_the_system(kernel: LocalFiles) -> None:
    before, ours, after = (
        resource.getrusage(resource.RUSAGE_SELF),
        kernel.usage(),
        resource.getrusage(resource.RUSAGE_SELF),
    )
    assert before.ru_utime <= ours.user <= after.ru_utime
    assert before.ru_stime <= ours.system <= after.ru_stime
    assert before.ru_minflt <= ours.minor <= after.ru_minflt
    assert kernel.affinity(os.getpid()) == len(os.sched_getaffinity(0))
    assert kernel.online() == os.cpu_count()
    first = float(Path("/proc/uptime").read_text().split()[0])
    assert first <= kernel.uptime() + 0.011
    assert kernel.uptime() <= float(Path("/proc/uptime").read_text().split()[0]) + 0.011
    assert kernel.exists("/proc/self/stat")
    assert not kernel.exists("/proc/self/nothing")


@linux
def test_uptime_includes_suspend(kernel: LocalFiles) -> None:
    """Simulated in a time namespace, in which only CLOCK_BOOTTIME is ahead."""
    line = ["unshare", "--time", "--boottime", "100000", "--fork"]
    if not shutil.which("unshare") or subprocess.run([*line, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not make a time namespace")
    show = "from opentelemetry.instrumentation.hardware.system.files import LocalFiles; print(LocalFiles().uptime())"
    there = float(run([*line, sys.executable, "-c", show]).stdout)
    assert 0 <= kernel.uptime() + 100_000 - there <= PATIENCE


PINNED = """
import os, sys, threading
every = os.sched_getaffinity(0)
other = threading.Thread(target=sys.stdin.readline)
other.start()
os.sched_setaffinity(0, {min(every)})
print(flush=True)
other.join()
sys.stdin.read()
"""


@linux
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two CPUs")
def test_affinity_is_of_all_threads_when_the_first_is_pinned(
    clock: Clock, kernel: LocalFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []
    names = kernel.names

    def noted(path: str) -> Any:
        listed.append(path)
        return names(path)

    monkeypatch.setattr(kernel, "names", noted)
    with started([sys.executable, "-c", PINNED]) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        child.stdout.readline()
        assert len(os.sched_getaffinity(child.pid)) == 1
        for times in (1, 1, 2):
            assert kernel.affinity(child.pid) == len(os.sched_getaffinity(0))
            assert len(listed) == times
            clock.now += 300.0
        child.stdin.write("\n")
        child.stdin.flush()
        wait_for(lambda: len(os.listdir(f"/proc/{child.pid}/task")) == 1, PATIENCE, "end of the other thread")
        assert kernel.affinity(child.pid) == 1


@linux
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two CPUs")
def test_affinity_ignores_a_thread_that_ends_meanwhile(kernel: LocalFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    names = kernel.names
    monkeypatch.setattr(kernel, "names", lambda path: [str(ended.pid), *names(path)])
    with started([sys.executable, "-c", PINNED]) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert kernel.affinity(child.pid) == len(os.sched_getaffinity(0))


@linux
def test_affinity_of_an_ended_process_is_an_error(kernel: LocalFiles) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    with pytest.raises(ProcessLookupError):
        kernel.affinity(child.pid)


# -- children

CHILDREN = """
import os, subprocess, sys, threading
from opentelemetry.instrumentation.hardware.system.files import LocalFiles
kernel = LocalFiles()
said = [kernel.has_children()]
started = []
line = ["sh", "-c", "cat; exit 7"]
thread = threading.Thread(target=lambda: started.append(subprocess.Popen(line, stdin=subprocess.PIPE)))
thread.start()
thread.join()
child = started[0]
said.append(kernel.has_children())  # another thread's, which has ended
child.stdin.close()
os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
said.append(kernel.has_children())  # it has ended, and is still to be waited for
assert child.wait() == 7, "somebody else has waited for it"
said.append(kernel.has_children())
print(*said)
"""


@linux
def test_has_children_does_not_reap_them() -> None:
    answer = run([sys.executable, "-c", CHILDREN])
    assert (answer.stdout, answer.stderr) == ("False True True False\n", "")
