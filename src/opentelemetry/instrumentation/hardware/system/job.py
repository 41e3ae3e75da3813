"""The job that a process belongs to, its rank, and its key, which all processes of the job on this host have.

All but the key is in the environment variables of launchers. They are nested: a SLURM task can be ``torchrun``, which
starts ranks. The outermost one that has an identifier identifies the job; the innermost one that numbers its processes
gives the rank.

- SLURM: https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES
- Open MPI: https://docs.open-mpi.org/en/main/tuning-apps/environment-var.html
- MPICH and others by PMI: https://github.com/pmodels/mpich/blob/main/doc/wiki/developer_docs/PMI_v1_API.md
- torchrun: https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables
- ``RANK`` and ``MASTER_ADDR`` of other launchers: https://docs.pytorch.org/docs/stable/distributed.html
- Ray: https://github.com/ray-project/ray/blob/master/src/ray/common/constants.h
- Kubernetes: https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware.settings import JOB

# A container has at least one of these namespaces of its own. Mount namespaces do not count: ranks of one job may each
# have one, for example with Apptainer.
_NAMESPACES = ("pid", "uts", "cgroup")

_LONGEST = 256  # characters of an identifier. A longer value is no identifier.


class Job(NamedTuple):
    """A job, and the place of a process in it. None and "" are unknown.

    Attributes:
        system: ``slurm``, ``ray``, ``mpi``, ``torchelastic`` or ``torch``: the launcher that identifies the job.
        id: Its identifier.
        key: Distinguishes the job from all other jobs on the host, and is the same in all its processes there.
        rank: Number of the process among all processes of the job.
        local_rank: Its number on its node.
        world_size: Number of processes of the job.
        node_rank: Number of the node.
    """

    system: str = ""
    id: str = ""
    key: str = ""
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    node_rank: int | None = None


class _Ranks(NamedTuple):
    """The variables with which a launcher numbers its processes. They count only together with ``required``."""

    required: tuple[str, ...]
    rank: str
    local_rank: str = ""
    world_size: str = ""
    node_rank: tuple[str, ...] = ()


_RANKS: Final = (  # innermost first
    _Ranks(("WORLD_SIZE",), "RANK", "LOCAL_RANK", "WORLD_SIZE", ("GROUP_RANK", "NODE_RANK")),
    _Ranks((), "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
    _Ranks(("MPI_LOCALRANKID",), "PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"),  # mpiexec of MPICH and Intel
    # A batch script and an interactive shell have SLURM_PROCID=0, but are no tasks: the script has no step, and that of
    # the shell is 4294967290, which is no number here.
    _Ranks(("SLURM_STEP_ID",), "SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS", ("SLURM_NODEID",)),
    _Ranks((), "PMI_RANK", "", "PMI_SIZE"),
    _Ranks((), "PMIX_RANK"),
)


def read_job(environ: Mapping[str, str]) -> Job:
    """Return the job of the process with these environment variables; an empty :class:`Job` if there is none."""
    system, identifier, key = _identity(environ)
    for ranks in _RANKS:
        rank = _number(environ, ranks.rank)
        if rank is not None and all(_number(environ, name) is not None for name in ranks.required):
            local_rank, world_size = _number(environ, ranks.local_rank), _number(environ, ranks.world_size)
            return Job(system, identifier, key, rank, local_rank, world_size, _number(environ, *ranks.node_rank))
    return Job(system, identifier, key, node_rank=_number(environ, "JOB_COMPLETION_INDEX"))  # Kubernetes


def _identity(environ: Mapping[str, str]) -> tuple[str, str, str]:
    """Return system, identifier and key of the outermost launcher that has an identifier."""
    read = partial(text, environ)
    if job := read("SLURM_JOB_ID"):
        # The batch script and all steps of a job are one job, so the step is not part of the key.
        return "slurm", job, f"slurm:{job}"
    if raylet := read("RAY_RAYLET_PID"):
        # Most workers are started before they get a job; until then the id is all ones. So the node is the key.
        job = read("RAY_JOB_ID")
        return "ray", "" if job.strip("f") == "" else job, f"ray:{raylet}"
    if job := read("PMIX_NAMESPACE") or read("OMPI_MCA_ess_base_jobid"):
        return "mpi", job, f"mpi:{job}"
    main = f"{read('MASTER_ADDR')}:{read('MASTER_PORT')}"
    if run := read("TORCHELASTIC_RUN_ID"):
        # Without --rdzv-id it is "none" in every job. Jobs on one host have different ports.
        return "torchelastic", "" if run == "none" else run, f"torchelastic:{run}:{main}"
    if len(main) > 1 and read("RANK") and read("WORLD_SIZE"):
        return "torch", "", f"torch:{main}"
    return "", "", ""


def text(environ: Mapping[str, str], name: str) -> str:
    """Return the text of a variable; "" if it is missing or cannot be a name."""
    value = environ.get(name, "").strip()
    return value if len(value) <= _LONGEST and value.isprintable() else ""


def _number(environ: Mapping[str, str], *names: str) -> int | None:
    """Return the first of these variables that is a number."""
    values = (environ.get(name, "").strip() for name in names if name)
    return next((int(value) for value in values if value.isascii() and value.isdecimal() and len(value) < 10), None)


# -- the key


def job_of(environ: Mapping[str, str], pid: int) -> tuple[int, str]:
    """Return the user who began the job of a process, and the key of the job."""
    job = read_job(environ)
    user, slash, inherited = environ.get(JOB, "").partition("/")
    if not (slash and user.isascii() and user.isdecimal() and len(user) < 11 and 0 < len(inherited) < 1000):
        user, inherited = str(_owner(pid)), ""
    if job.system == "slurm":  # jobs that were submitted by one instrumented program inherit its key
        return int(user), job.key
    if inherited or job.key:
        return int(user), inherited or job.key
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return int(user), "container"
    root = _root(pid, job.rank is not None)
    return int(user), f"process:{root}.{start_time(root)}"  # which no other process ever has


def _owner(pid: int) -> int:
    """Return the effective user of a process; 0 on Windows."""
    if pid != os.getpid():
        with suppress(OSError):
            return os.stat(f"/proc/{pid}").st_uid
    return os.geteuid() if hasattr(os, "geteuid") else 0


def byte_of(key: str) -> int:
    """Return the byte that stands for a job on this host and in this container; the next one is free."""
    parts = [key]
    for name in _NAMESPACES:
        with suppress(OSError):
            parts.append(os.readlink(f"/proc/self/ns/{name}"))
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        parts.append(file.read())
    number = 0xCBF29CE484222325  # FNV-1a; hashlib would load OpenSSL: 1 ms and 0.7 MiB
    for byte in "\0".join(parts).encode(errors="replace"):
        number = (number ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return number >> 2 << 1


def start_time(pid: int) -> str | None:
    """Return the start time of a process, which identifies it if its PID is reused; None if it does not run."""
    process = _stat(pid)
    if process is not None:
        return None if process.state in "ZX" else process.start_time
    if os.path.exists("/proc/self/stat"):
        return None
    import psutil

    try:
        return str(psutil.Process(pid).create_time())
    except psutil.Error:
        return None


class _Stat(NamedTuple):
    """A process in ``/proc``. Its memory has been laid out at random addresses when its program was started."""

    pid: int
    state: str
    parent: int
    start_time: str
    layout: list[str]


def _stat(pid: int | str) -> _Stat | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read().decode(errors="replace")
        fields = text.rpartition(")")[2].split()
        return _Stat(int(text.split(maxsplit=1)[0]), fields[0], int(fields[1]), fields[19], fields[23:26])
    except (OSError, ValueError, IndexError):
        return None


def _root(pid: int, is_rank: bool) -> int:
    """Return the process that began the job of a process without a key.

    The ranks of a launcher are one job; so are the workers of a server that forks, even if the server itself is not
    instrumented.
    """
    begun_by = None
    if pid == os.getpid():
        begun_by = getattr(sys.modules.get("multiprocessing"), "parent_process", lambda: None)()
    if begun_by is not None and begun_by.pid is not None:
        pid = begun_by.pid
    process = _stat("self" if pid == os.getpid() else pid)  # /proc may be of another PID namespace
    if process is None:
        return os.getppid() if is_rank and pid == os.getpid() else pid
    while (parent := _stat(process.parent)) is not None and _is_fork(process, parent):
        process = parent
    return process.parent if is_rank else process.pid


def _is_fork(process: _Stat, parent: _Stat) -> bool:
    """Whether a process was forked, and still has the program of its parent."""
    if process.layout == parent.layout and process.layout[-1] != "0":  # 0: hidden from us
        return True
    try:
        with open(f"/proc/{process.pid}/cmdline", "rb") as own, open(f"/proc/{parent.pid}/cmdline", "rb") as theirs:
            return own.read() == theirs.read() != b""
    except OSError:
        return False
