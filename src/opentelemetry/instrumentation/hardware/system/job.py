"""The job that a process belongs to, and its rank, from the environment variables of launchers.

Launchers are nested: a SLURM task can be ``torchrun``, which starts ranks. The outermost one that has an identifier
identifies the job; the innermost one that numbers its processes gives the rank.

- SLURM: https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES
- Open MPI: https://docs.open-mpi.org/en/main/tuning-apps/environment-var.html
- MPICH and others by PMI: https://github.com/pmodels/mpich/blob/main/doc/wiki/developer_docs/PMI_v1_API.md
- torchrun: https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables
- ``RANK`` and ``MASTER_ADDR`` of other launchers: https://docs.pytorch.org/docs/stable/distributed.html
- Ray: https://github.com/ray-project/ray/blob/master/src/ray/common/constants.h
- Kubernetes: https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple

_LONGEST = 256
"""Characters of an identifier. A longer value is no identifier."""


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
    # A batch script has SLURM_PROCID=0 and the size of the whole allocation, but it is not a task.
    _Ranks(("SLURM_STEP_ID",), "SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS", ("SLURM_NODEID",)),
    _Ranks((), "PMI_RANK", "", "PMI_SIZE"),
    _Ranks((), "PMIX_RANK"),
)


def read_job(environ: Mapping[str, str]) -> Job:
    """Return the job of the process with these environment variables; an empty :class:`Job` if there is none."""
    system, identifier, key = _identity(environ)
    for ranks in _RANKS:
        rank = _number(environ, ranks.rank)
        if rank is not None and all(environ.get(name) for name in ranks.required):
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
