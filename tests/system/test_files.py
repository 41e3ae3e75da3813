"""Files and system calls: complete contents, errors as OSError, no descriptor left open, interpreter lock released."""

from __future__ import annotations

import mmap
import os
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.children import PATIENCE, descriptors, run, started
from tests.support.waiting import wait_for

from opentelemetry.instrumentation.hardware.system.files import Files, FilesystemSpace

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux system calls")


@pytest.fixture
def files() -> Files:
    return Files()


# -- reading


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 65536, 65537, 1_000_003])
def test_file_of_any_size_is_read_whole(files: Files, tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    (tmp_path / "file").write_bytes(content)
    assert files.read(str(tmp_path / "file")) == content


def test_proc_maps_is_read_whole_page_by_page(files: Files) -> None:
    """Every mapping is a line of /proc/self/maps; one read returns at most a page."""
    areas = [mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | (mmap.PROT_WRITE if n % 2 else 0)) for n in range(400)]
    try:
        descriptor = os.open("/proc/self/maps", os.O_RDONLY)
        first = os.read(descriptor, 1 << 20)
        os.close(descriptor)
        content = files.read("/proc/self/maps")
        assert len(first) <= mmap.PAGESIZE < len(content)
        assert content.endswith(b"\n")
        assert len(content.splitlines()) >= 200
        assert b"[stack]" in content, "it is near the end"
    finally:
        for area in areas:
            area.close()


def test_vmstat_is_read_whole(files: Files) -> None:
    names = [line.split()[0] for line in Path("/proc/vmstat").read_bytes().splitlines()]
    assert [line.split()[0] for line in files.read("/proc/vmstat").splitlines()] == names


@pytest.mark.parametrize("method", ["read", "names", "link", "count", "space"])
def test_missing_path_raises_file_not_found(files: Files, tmp_path: Path, method: str) -> None:
    with pytest.raises(FileNotFoundError):
        getattr(files, method)(str(tmp_path / "nothing"))


def test_folder_and_file_are_not_confused(files: Files, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(IsADirectoryError):
        files.read(str(tmp_path))
    with pytest.raises(NotADirectoryError):
        files.names(str(tmp_path / "file"))


def test_file_of_an_ended_process_raises_os_error(files: Files) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        path = f"/proc/{child.pid}/statm"
        assert files.read(path)
        child.kill()
        child.wait()
    with pytest.raises(FileNotFoundError):
        files.read(path)


def test_no_call_leaves_a_descriptor_open(files: Files, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    before = descriptors()
    files.read(str(tmp_path / "file"))
    files.names(str(tmp_path))
    files.count("/proc/self/fd")
    files.affinity(os.getpid())
    files.online()
    with pytest.raises(IsADirectoryError):
        files.read(str(tmp_path))
    assert descriptors() == before


def test_read_that_hangs_lets_other_threads_run(files: Files, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    content: list[bytes] = []
    thread = threading.Thread(target=lambda: content.append(files.read(str(fifo))), daemon=True)
    thread.start()  # returns while the other thread waits in open()
    with open(fifo, "wb", buffering=0) as writer:  # ends the wait in open(); read() waits now
        wait_for(thread.is_alive, PATIENCE, "a thread that waits")
        writer.write(b"late")
    thread.join(PATIENCE)
    assert content == [b"late"]


# -- folders and links


@pytest.mark.parametrize("count", [0, 1, 700])
def test_folder_of_any_size_is_listed_whole(files: Files, tmp_path: Path, count: int) -> None:
    names = [f"entry-{number}-{'x' * (number % 200)}" for number in range(count)]
    for name in names:
        (tmp_path / name).write_text("")
    assert sorted(files.names(str(tmp_path))) == sorted(names)
    assert files.count(str(tmp_path)) == count


@pytest.mark.parametrize("size", ["of the folder", "counted"])
def test_descriptor_count_excludes_the_one_that_lists_them(
    files: Files, size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Since Linux 6.2 the number is the size of the folder."""
    if size == "counted":
        real = os.stat
        monkeypatch.setattr(os, "stat", lambda path: os.stat_result((*real(path)[:6], 0, *real(path)[7:])))
    elif not os.stat("/proc/self/fd").st_size:
        pytest.skip("this kernel is older than 6.2")
    before = files.count("/proc/self/fd")
    assert before == len(os.listdir("/proc/self/fd")) - 1, "listdir counts the descriptor that it lists with"
    ends = os.pipe()
    assert files.count("/proc/self/fd") == before + 2
    for end in ends:
        os.close(end)


def test_links_and_existence(files: Files, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(os.fsdecode(b"/no/such/pl\xe4ce"))
    assert files.link(str(link)) == os.readlink(link)
    assert files.exists("/proc/self/stat")
    assert not files.exists("/proc/self/nothing")


# -- system calls


def test_space_agrees_with_df(files: Files, tmp_path: Path) -> None:
    result = os.statvfs(tmp_path)
    space = files.space(str(tmp_path))
    assert isinstance(space, FilesystemSpace)
    assert space.total == result.f_blocks * result.f_frsize
    assert space.total >= space.free >= space.available
    columns = ["df", "--block-size=1", "--output=size,used", str(tmp_path)]
    size, used = subprocess.run(columns, capture_output=True, text=True, check=True).stdout.splitlines()[-1].split()
    assert space.total == int(size)
    assert abs(space.total - space.free - int(used)) < 64 << 20


def test_usage_agrees_with_getrusage(files: Files) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF)
    usage = files.usage()
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert before.ru_utime <= usage.user <= after.ru_utime
    assert before.ru_stime <= usage.system <= after.ru_stime
    assert before.ru_minflt <= usage.minor <= after.ru_minflt


@pytest.mark.parametrize(
    ("text", "number"), [(b"0\n", 1), (b"0-3\n", 4), (b"0-3,8-11,16\n", 9), (b"\n", os.cpu_count()), (b"", None)]
)
def test_online_cpus_are_counted(
    files: Files, monkeypatch: pytest.MonkeyPatch, text: bytes, number: int | None
) -> None:
    """Ranges as in cpu(4) of sysfs; without a usable file, Python's own count."""

    def read(path: str) -> bytes:
        if not text:
            raise FileNotFoundError(path)
        return text

    assert files.online() == os.cpu_count()
    monkeypatch.setattr(files, "read", read)
    assert files.online() == (number or os.cpu_count())


def test_uptime_agrees_with_proc_uptime(files: Files) -> None:
    first = float(Path("/proc/uptime").read_text().split()[0])
    uptime = files.uptime()
    assert first - 0.011 <= uptime <= float(Path("/proc/uptime").read_text().split()[0]) + 0.011


def test_uptime_includes_suspend(files: Files) -> None:
    """Simulated in a time namespace, in which only CLOCK_BOOTTIME is ahead."""
    line = ["unshare", "--time", "--boottime", "100000", "--fork"]
    if not shutil.which("unshare") or subprocess.run([*line, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not make a time namespace")
    show = "from opentelemetry.instrumentation.hardware.system.files import Files; print(Files().uptime())"
    there = float(run([*line, sys.executable, "-c", show]).stdout)
    assert 0 <= files.uptime() + 100_000 - there <= PATIENCE


# -- CPU affinity

# A program that pins its first thread to one CPU; its second thread ends after a line of input.
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

two_cpus = pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two CPUs")


@two_cpus
def test_affinity_is_of_all_threads_when_the_first_is_pinned(files: Files) -> None:
    with started([sys.executable, "-c", PINNED]) as child:
        child.stdout.readline()
        assert len(os.sched_getaffinity(child.pid)) == 1
        assert files.affinity(child.pid) == len(os.sched_getaffinity(0))
        print(file=child.stdin, flush=True)
        wait_for(lambda: len(os.listdir(f"/proc/{child.pid}/task")) == 1, PATIENCE, "end of the other thread")
        assert files.affinity(child.pid) == 1


@two_cpus
def test_affinity_ignores_a_thread_that_ends_meanwhile(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    listed: Callable[[str], list[str]] = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: [str(ended.pid), *listed(path)])
    assert files.affinity(os.getpid()) == len(os.sched_getaffinity(0))


def test_affinity_of_an_ended_process_is_an_error(files: Files) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    with pytest.raises(ProcessLookupError):
        files.affinity(child.pid)


# -- children

CHILDREN = """
import os, subprocess, sys, threading
from opentelemetry.instrumentation.hardware.system.files import Files
files = Files()
answers = [files.has_children()]
started = []
line = ["sh", "-c", "cat; exit 7"]
thread = threading.Thread(target=lambda: started.append(subprocess.Popen(line, stdin=subprocess.PIPE)))
thread.start()
thread.join()
child = started[0]
answers.append(files.has_children())  # the child of a thread that has ended
child.stdin.close()
os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
answers.append(files.has_children())  # a zombie
assert child.wait() == 7, "the zombie has been reaped by somebody else"
answers.append(files.has_children())
print(*answers)
"""


def test_has_children_does_not_reap_them() -> None:
    child = run([sys.executable, "-c", CHILDREN])
    assert (child.stdout, child.stderr) == ("False True True False\n", "")
