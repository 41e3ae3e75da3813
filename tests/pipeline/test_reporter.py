"""Which process of a job reports the host: real processes and a real lock."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.support.children import PATIENCE, in_pid_namespace, lives, run
from tests.support.members import members
from tests.support.stage import warnings
from tests.support.waiting import wait_for

from opentelemetry.instrumentation.hardware.pipeline import reporter as module
from opentelemetry.instrumentation.hardware.pipeline.reporter import Reporter
from opentelemetry.instrumentation.hardware.settings import JOB
from opentelemetry.instrumentation.hardware.system.job import start_time

ME = os.getpid()


# -- the lock


def test_one_process_reports_and_another_one_after_its_end(job: dict[str, str]) -> None:
    with members(job, job, job) as (first, second, third):
        assert [each.update() for each in (first, second, first, third, first)] == [True, False, True, False, True]
        assert second.ask("reporter.holder()") == first.pid
        assert first.ask("reporter.holder()") is None, "it is the holder itself"
        first.kill()
        assert [each.update() for each in (third, second, third)] == [True, False, True]
        third.child.communicate(timeout=PATIENCE)
        assert second.update()


def test_stopped_reporter_keeps_the_lock(job: dict[str, str]) -> None:
    with members(job, job) as (first, second):
        assert first.update()
        os.kill(first.pid, signal.SIGSTOP)
        assert not second.update()
        os.kill(first.pid, signal.SIGCONT)
        assert first.update()


def test_child_forked_in_c_does_not_keep_the_lock(job: dict[str, str]) -> None:
    """With flock, the child would have the lock until its end, and no process would report the host."""
    with members(job, job) as (first, second):
        assert first.update()
        child = first.ask("fork_in_c()")
        first.kill()
        assert lives(child)
        assert second.update()


def test_process_that_exports_nothing_never_has_the_lock(job: dict[str, str]) -> None:
    with members(job, job) as (first, second):
        assert not first.update("has_reader=False")
        assert second.update()
        assert not second.update("has_reader=False")
        assert first.update()


def test_idle_reporter_gives_way_to_a_process_with_collections_only(job: dict[str, str]) -> None:
    with members(job, job, job) as (first, second, third):
        assert first.update("idle=True"), "a single process reports to a scrape now and then"
        assert not second.update("idle=True")
        assert first.update("idle=True"), "neither has collections"
        assert not third.update()
        assert not first.update("idle=True")
        assert not second.update("idle=True"), "it was faster than the process that waits"
        assert third.update()
        assert not first.update()
        assert third.update()


@pytest.fixture
def folder_of_service() -> Iterator[str]:
    """A runtime directory of user 12345, below a folder that all users may search."""
    if os.geteuid():
        pytest.skip("only root can become other users")
    with TemporaryDirectory(dir="/tmp") as folder:
        os.chown(folder, 12345, 12345)
        yield folder


@pytest.mark.parametrize("user", [0, 65534])
def test_lock_counts_only_if_a_process_of_the_user_who_began_the_job_has_it(
    job: dict[str, str], folder_of_service: str, user: int
) -> None:
    """All users can read /proc/locks, and lock the same byte of another file."""
    lock = "__import__('fcntl').lockf(os.memfd_create('other'), 2, 1, reporter._byte)"
    with members(job, {**job, "XDG_RUNTIME_DIR": folder_of_service}) as (other, service):
        other.ask(f"os.setuid({user})")
        other.ask(lock)
        service.ask("os.setuid(12345)")
        assert service.update() is (user != 0)


def test_setting_always_and_never(job: dict[str, str]) -> None:
    with members(job, job) as (first, second):
        first.ask("setattr(reporter, 'mode', 'never')")
        assert not first.update()
        second.ask("setattr(reporter, 'mode', 'always')")
        assert second.update()
        first.ask("setattr(reporter, 'mode', 'auto')")
        assert not first.update(), "one that always reports keeps the others from it"
        first.ask("setattr(reporter, 'mode', 'always')")
        assert first.update()


def test_closed_descriptor_is_opened_again_and_its_new_owner_kept(job: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "file"
    with members(job, job) as (first, second):
        assert first.update()
        first.ask("os.closerange(3, 100)")
        number = first.ask(f"os.open({os.fspath(file)!r}, os.O_RDWR | os.O_CREAT)")
        assert first.update()
        assert first.ask(f"os.write({number}, b'x')") == 1, "it closed a file of the program"
        assert not second.update()
        first.ask("os.closerange(3, 100)")
        assert second.update()
        assert not first.update(), "two processes report"


def test_removed_file_is_made_again(job: dict[str, str], tmp_path: Path) -> None:
    job["XDG_RUNTIME_DIR"] = os.fspath(tmp_path)
    with members(job, job) as (first, second):
        assert first.update()
        (file,) = tmp_path.iterdir()
        assert (file.stat().st_size, file.stat().st_mode & 0o777) == (0, 0o600)
        file.unlink()
        assert first.update()
        assert not second.update()
        file.unlink()
        assert second.update()
        assert not first.update(), "two processes report"


# -- the folder and the file


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders for the file: the user's, and a public one."""
    found = [tmp_path / "run", tmp_path / "public" / "otel-hardware"]
    found[0].mkdir()
    found[1].parent.mkdir()
    monkeypatch.setattr(module, "folders", lambda environ: [(str(found[0]), False), (str(found[1]), True)])
    return found


def updated(mode: str = "auto") -> bool:
    """Get the lock twice and release it. It must be the same both times."""
    reporter = Reporter({}, mode)
    found = [reporter.update(), reporter.update()]
    reporter.release()
    assert found[0] is found[1]
    return found[0]


def test_lock_is_in_the_runtime_directory_or_in_a_folder_of_ours(folders: list[Path]) -> None:
    run_directory, public = folders
    assert updated()
    assert [path.name for path in run_directory.iterdir()] == ["otel-hardware.lock"]
    assert not public.exists()
    run_directory.rename(run_directory.with_name("elsewhere"))
    assert updated()
    assert public.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in public.iterdir()] == ["otel-hardware.lock"]


def test_lock_is_not_the_stdin_of_a_program_that_has_closed_it(tmp_path: Path) -> None:
    program = (
        "import os\n"
        f"from {module.__name__} import Reporter\n"
        "os.close(0)\n"
        "reporter = Reporter(os.environ)\n"
        "assert reporter.update()\n"
        "os.fstat(0)\n"
    )
    outcome = run([sys.executable, "-c", program], {"XDG_RUNTIME_DIR": str(tmp_path)})
    assert outcome.stderr.endswith("OSError: [Errno 9] Bad file descriptor\n")
    assert (tmp_path / "otel-hardware.lock").exists()


@pytest.mark.parametrize("kind", ["link", "pipe", "owner", "linked folder", "folder of another", "folder for all"])
def test_hostile_file_is_not_used_and_named_once(
    folders: list[Path], kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run_directory, public = folders
    victim = tmp_path / "victim"
    victim.mkdir()
    hostile = file = run_directory / "otel-hardware.lock"
    if kind in ("owner", "folder of another") and os.geteuid():
        pytest.skip("only root can make a file of another user")
    if kind == "link":
        file.symlink_to(victim / "file")
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "owner":
        file.touch()
        os.chown(file, 65534, 65534)
    elif kind == "folder for all":
        hostile = run_directory
        run_directory.chmod(0o777)
    else:
        run_directory.rmdir()
        hostile = public
        public.symlink_to(victim) if kind == "linked folder" else public.mkdir()
        os.chown(public, 65534, 65534, follow_symlinks=False)
    assert updated(), "the host is not reported"
    first, *more = warnings(caplog)
    assert first.startswith(f"{hostile} ")
    assert first.endswith("it is not used")
    assert len(more) == (hostile == public), "without a lock, a second warning"
    assert [*victim.iterdir()] == []


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EIO, errno.EOPNOTSUPP, errno.EINVAL])
def test_file_system_without_locks_reports_with_one_warning(
    folders: list[Path], number: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "lockf", refuse)
    assert updated(), "the host is not reported"
    (warning,) = warnings(caplog)
    assert os.strerror(number) in warning
    assert "OTEL_PYTHON_HARDWARE_REPORTER" in warning


def test_without_any_writable_folder_the_host_is_reported_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = [tmp_path / "no" / "run", tmp_path / "no" / "public"]
    monkeypatch.setattr(module, "folders", lambda environ: [(str(missing[0]), False), (str(missing[1]), True)])
    assert updated()
    (warning,) = warnings(caplog)
    assert all(str(folder) in warning for folder in missing)


# -- the job


def test_key_is_in_the_environment_between_join_and_leave() -> None:
    environ = {"OTHER": "x"}
    reporter = Reporter(environ)
    reporter.join()
    assert environ == {"OTHER": "x", JOB: f"{os.geteuid()}/process:{ME}.{start_time(ME)}"}
    inherited = dict(environ)
    child = Reporter(inherited)
    child.join()
    child.leave()
    assert inherited == environ, "a member changed the key"
    reporter.leave()
    assert environ == {"OTHER": "x"}


@pytest.mark.parametrize("text", ["", "x", "/", "1/", "/x", "-1/x", "²/x", "1" * 11 + "/x", "1/" + "x" * 1000])
def test_invalid_key_is_replaced(text: str) -> None:
    environ = {JOB: text}
    Reporter(environ).join()
    assert environ == {JOB: f"{os.geteuid()}/process:{ME}.{start_time(ME)}"}


SLURM = {"SLURM_JOB_ID": "4", "SLURM_PROCID": "0"}
TORCH = {"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "a", "MASTER_PORT": "1", "RANK": "0", "WORLD_SIZE": "2"}
KEY = {JOB: "0/process:1.1"}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({}, {}, False),
        (KEY, KEY, True),
        (KEY, {JOB: "0/process:1.2"}, False),
        (KEY, KEY | TORCH, True),  # an instrumented launcher
        (TORCH, TORCH | {"RANK": "1"}, True),
        (TORCH, TORCH | {"MASTER_PORT": "2"}, False),
        (SLURM, SLURM | {"SLURM_PROCID": "1"}, True),
        (SLURM | KEY, SLURM | KEY | {"SLURM_JOB_ID": "5"}, False),  # submitted by one instrumented program
        ({"PMIX_NAMESPACE": "a@1"}, {"PMIX_NAMESPACE": "a@1"}, True),
        ({"RAY_JOB_ID": "1", "RAY_RAYLET_PID": "7"}, {"RAY_JOB_ID": "1", "RAY_RAYLET_PID": "8"}, False),
        # Ranks of a launcher without an identifier, and processes that a test has started.
        ({"PMI_RANK": "0"}, {"PMI_RANK": "1"}, True),
        ({"PMI_RANK": "0"}, {}, False),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, True),
    ],
)
def test_processes_of_one_job(one: dict[str, str], other: dict[str, str], same: bool) -> None:
    with members(one, other) as (first, second):
        assert (first.ask("reporter._byte") == second.ask("reporter._byte")) is same


@pytest.mark.parametrize("flags", [("--mount-proc",), ()], ids=["own-proc", "proc-of-host"])
def test_two_containers_with_one_key_both_report(flags: tuple[str, ...]) -> None:
    before = tuple(in_pid_namespace(*flags))
    with members(KEY) as (outside,), members(KEY, before=before) as (inside,):
        assert outside.ask("reporter._byte") != inside.ask("reporter._byte")


FORKS = """
import multiprocessing, os, sys
from opentelemetry.instrumentation.hardware.pipeline.reporter import Reporter
def show():
    print(Reporter({})._byte, flush=True)
if __name__ == "__main__":
    for _ in range(2):
        if sys.argv[1] == "fork":
            pid = os.fork()
            if not pid:
                show()
                os._exit(0)
            os.waitpid(pid, 0)
        else:
            process = multiprocessing.get_context(sys.argv[1]).Process(target=show)
            process.start()
            process.join()
"""


@pytest.mark.parametrize("way", ["fork", "spawn", "forkserver"])
def test_workers_of_a_server_that_is_not_instrumented_are_one_job(way: str, tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    program.write_text(FORKS)
    bytes_of = [run([sys.executable, str(program), way]).stdout.split() for _ in range(2)]
    assert [len(each) for each in bytes_of] == [2, 2]
    assert [len({*each}) for each in bytes_of] == [1, 1]
    assert bytes_of[0] != bytes_of[1], "two servers are one job"


# -- the start time of a process


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs until its input is closed."""
    with subprocess.Popen([sys.executable, "-S", "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as made:
        yield made


def test_start_time_differs_between_processes_and_ends_with_them(child: subprocess.Popen[bytes]) -> None:
    assert start_time(ME) == start_time(ME) != start_time(child.pid)
    assert child.stdin is not None
    child.stdin.close()
    wait_for(lambda: start_time(child.pid) is None, 30, "end of the child, which is a zombie")
    child.wait(30)
    assert start_time(child.pid) is None
