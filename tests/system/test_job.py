"""The job and rank of a process, from the environment of launchers."""

from __future__ import annotations

import pytest

from opentelemetry.instrumentation.hardware.system.job import Job, read_job

TASK = {
    "SLURM_JOB_ID": "42",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_NTASKS": "4",
    "SLURM_STEP_NUM_TASKS": "4",
}
RANK = {
    "TORCHELASTIC_RUN_ID": "run-7",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
    "RANK": "5",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "8",
    "GROUP_RANK": "2",
}
MPI = {"PMIX_NAMESPACE": "prterun-a-1@1", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
MPI |= {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_NODE_RANK": "7"}  # NODE_RANK is not the number of the node
HYDRA = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1"}


@pytest.mark.parametrize(
    ("environ", "job"),
    [
        ({}, Job()),
        ({"SLURM_PROCID": "", "RANK": "x", "WORLD_SIZE": "2"}, Job()),
        (TASK, Job("slurm", "42", "slurm:42", 3, 1, 4, 1)),
        # A batch script, which sees the numbers of its allocation but is not a task.
        ({name: value for name, value in TASK.items() if "STEP" not in name}, Job("slurm", "42", "slurm:42")),
        # An interactive shell, as salloc gives it, and a program that trains in it with processes of its own.
        (TASK | {"SLURM_STEP_ID": "4294967290", "SLURM_PROCID": "0"}, Job("slurm", "42", "slurm:42")),
        (RANK, Job("torchelastic", "run-7", "torchelastic:run-7:127.0.0.1:29500", 5, 1, 8, 2)),
        (
            RANK | {"TORCHELASTIC_RUN_ID": "none"},
            Job("torchelastic", "", "torchelastic:none:127.0.0.1:29500", 5, 1, 8, 2),
        ),
        (TASK | RANK, Job("slurm", "42", "slurm:42", 5, 1, 8, 2)),
        (
            {name: value for name, value in RANK.items() if name not in ("TORCHELASTIC_RUN_ID", "GROUP_RANK")},
            Job("torch", "", "torch:127.0.0.1:29500", 5, 1, 8),
        ),
        (MPI, Job("mpi", "prterun-a-1@1", "mpi:prterun-a-1@1", 1, 0, 2)),
        (TASK | MPI, Job("slurm", "42", "slurm:42", 1, 0, 2)),  # mpirun starts its daemons as tasks
        (HYDRA, Job(rank=1, local_rank=1, world_size=2)),
        (TASK | HYDRA, Job("slurm", "42", "slurm:42", 1, 1, 2)),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, Job(rank=1, world_size=2)),
        ({"RAY_JOB_ID": "01000000", "RAY_RAYLET_PID": "77"}, Job("ray", "01000000", "ray:77")),
        ({"RAY_JOB_ID": "ffffffff", "RAY_RAYLET_PID": "77"}, Job("ray", "", "ray:77")),
        ({"RAY_JOB_ID": "01000000"}, Job()),
        ({"JOB_COMPLETION_INDEX": "2"}, Job(node_rank=2)),
        # What is no number or no identifier is absent.
        ({"SLURM_JOB_ID": "4" * 300, "RANK": "-1", "WORLD_SIZE": "1"}, Job()),
        ({"SLURM_JOB_ID": "4\n2", "PMI_RANK": "1" * 5000}, Job()),
        ({"PMI_RANK": "٣"}, Job()),
    ],
)
def test_job_of_an_environment(environ: dict[str, str], job: Job) -> None:
    assert read_job(environ) == job


def test_two_runs_without_an_identifier_are_two_jobs() -> None:
    first, second = (RANK | {"TORCHELASTIC_RUN_ID": "none", "MASTER_PORT": port} for port in ("29500", "29501"))
    assert read_job(first).key != read_job(second).key
