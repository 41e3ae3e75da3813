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
from contextlib import suppress
from typing import Any

from opentelemetry.sdk import resources
from opentelemetry.sdk.resources import OTELResourceDetector, Resource, ResourceDetector

from opentelemetry.instrumentation.hardware.settings import PREFIX
from opentelemetry.instrumentation.hardware.system import identity
from opentelemetry.instrumentation.hardware.system.files import Files
from opentelemetry.instrumentation.hardware.system.job import read_job, text

# What else SLURM tells its jobs, and the variable with it.
_SLURM = {
    "slurm.job.name": "SLURM_JOB_NAME",
    "slurm.partition": "SLURM_JOB_PARTITION",
    "slurm.account": "SLURM_JOB_ACCOUNT",
    "slurm.user": "SLURM_JOB_USER",
}

_AGENTS = uuid.UUID("6d2a0c1e-5b7f-5d0e-9b1c-0f4c8e3a7d52")  # the namespace of the UUIDs of agents

SIMULATED = "otel_hardware.simulated"  # whether the GPUs are simulated

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
        if simulated := os.environ.get(f"{PREFIX}SIMULATE", ""):
            from opentelemetry.instrumentation.hardware.simulator.machine import Spec  # rarely needed

            with suppress(ValueError):  # "none", or an invalid value: nothing is simulated
                Spec.parse(simulated)
                found[SIMULATED] = True
        job = read_job(os.environ)
        of_job = {
            "training_job.id": job.id,
            "training_job.system": job.system,
            _JOB_IDS.get(job.system, ""): job.id,
            "dl.rank": job.rank,
            "dl.local_rank": job.local_rank,
            "dl.world_size": job.world_size,
            "dl.node_rank": job.node_rank,
            **{name: text(os.environ, variable) for name, variable in _SLURM.items() if job.system == "slurm"},
        }
        found |= {name: value for name, value in of_job.items() if name and value not in (None, "")}
        if not hasattr(resources, "ServiceInstanceIdResourceDetector"):  # newer SDKs make one by themselves
            found["service.instance.id"] = str(uuid.uuid4())
        given = [pair.partition("=")[0].strip() for pair in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",")]
        return Resource({name: value for name, value in found.items() if name not in given})


def of_process(pid: int) -> dict[str, str | int]:
    """Return ``process.pid`` and ``process.creation.time`` of a process."""
    return identity.process(pid, _files())


def of_agent(pid: int, is_simulated: bool = False) -> dict[str, str | int]:
    """Return the resource of an agent. A restart does not change it, so that it continues every series.

    It has no PID, container or pod of its own, but the PID of a program that it follows. ``service.instance.id`` is a
    UUID of the host, the service, the place in a job, and that program; its own PID stands for none.
    """
    found: dict[str, Any] = dict(HardwareJobDetector().detect().attributes)
    if is_simulated:
        found[SIMULATED] = True
    is_alone = pid == os.getpid()
    of_its_own = {"process.pid", "process.creation.time", *(identity.container(_files()) if is_alone else ())}
    found = {name: value for name, value in found.items() if name not in of_its_own}
    if not is_alone:
        found |= of_process(pid)
    service = OTELResourceDetector().detect().attributes.get("service.name", "")
    host = found.get("host.id") or found.get("host.name", "")
    parts = (found.get(name, "") for name in ("training_job.id", "dl.rank", "process.pid", "process.creation.time"))
    if "service.instance.id=" not in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        found["service.instance.id"] = str(uuid.uuid5(_AGENTS, "/".join(map(str, (host, service, *parts)))))
    return found


def _files() -> Files | None:
    return Files() if sys.platform.startswith("linux") else None
