"""HardwareJobDetector: the resource attributes of the host, the container, the process and its place in a job.

``OTEL_EXPERIMENTAL_RESOURCE_DETECTORS=hardware_job`` selects it. The semantic conventions have no names for ranks and
batch jobs, so these names are of others:

- ``dl.rank``, ``dl.local_rank``, ``dl.world_size``, ``slurm.job.id``, ``slurm.job.name`` and ``slurm.partition``:
  NVIDIA NeMo Lens,
  https://docs.nvidia.com/nemo/lens/user-guide/resource-detection
- ``training_job.id``: ddtrace, https://github.com/DataDog/dd-trace-py/tree/main/ddtrace/contrib/internal/pytorch
- ``ray.job_id``: Ray, https://github.com/ray-project/ray/blob/master/python/ray/util/tracing/tracing_helper.py
- ``dl.node_rank``, ``training_job.system``, ``slurm.account`` and ``slurm.user``: this package

The job is in the resource, because as an attribute of metrics it would multiply the series.
"""

from __future__ import annotations

import os
import sys
import uuid

from opentelemetry.sdk import resources
from opentelemetry.sdk.resources import Resource, ResourceDetector

from opentelemetry.instrumentation.hardware.system import identity
from opentelemetry.instrumentation.hardware.system.files import LocalFiles
from opentelemetry.instrumentation.hardware.system.job import Job, read_job, text

_SLURM = {
    "slurm.job.name": "SLURM_JOB_NAME",
    "slurm.partition": "SLURM_JOB_PARTITION",
    "slurm.account": "SLURM_JOB_ACCOUNT",
    "slurm.user": "SLURM_JOB_USER",
}
"""What else SLURM tells its jobs, and the variable with it."""

_JOB_IDS = {"slurm": "slurm.job.id", "ray": "ray.job_id"}


class HardwareJobDetector(ResourceDetector):
    """Detects the host, the container, the process and its job."""

    def is_process_dependent(self) -> bool:
        """Return True: the SDK detects again in a forked child, from 1.44 on."""
        return True

    def detect(self) -> Resource:
        """Return the resource of this process, without the attributes in ``OTEL_RESOURCE_ATTRIBUTES``.

        The SDK merges those last only at its start, and not after a fork.
        """
        files = _files()
        found: dict[str, str | int] = {**identity.host(files), **identity.container(files), **of_process(os.getpid())}
        found |= _of_job(read_job(os.environ))
        if not hasattr(resources, "ServiceInstanceIdResourceDetector"):  # newer SDKs make one by themselves
            found["service.instance.id"] = str(uuid.uuid4())
        given = [pair.partition("=")[0].strip() for pair in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",")]
        return Resource({name: value for name, value in found.items() if name not in given})


def of_process(pid: int) -> dict[str, str | int]:
    """Return ``process.pid`` and ``process.creation.time`` of a process."""
    return identity.process(pid, _files())


def _files() -> LocalFiles | None:
    return LocalFiles() if sys.platform.startswith("linux") else None


def _of_job(job: Job) -> dict[str, str | int]:
    values = {
        "training_job.id": job.id,
        "training_job.system": job.system,
        _JOB_IDS.get(job.system, ""): job.id,
        "dl.rank": job.rank,
        "dl.local_rank": job.local_rank,
        "dl.world_size": job.world_size,
        "dl.node_rank": job.node_rank,
        **{name: text(os.environ, variable) for name, variable in _SLURM.items() if job.system == "slurm"},
    }
    return {name: value for name, value in values.items() if name and value not in (None, "")}
