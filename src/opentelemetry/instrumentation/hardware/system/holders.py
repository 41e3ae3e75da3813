"""Who uses a device: the processes that its driver names, and the owners of their control groups.

``/proc/PID/cgroup`` and ``/proc/PID/status`` may be read by every user. Paths of container runtimes:
https://kubernetes.io/docs/setup/production-environment/container-runtimes/#cgroup-drivers; of SLURM:
https://slurm.schedmd.com/cgroup_v2.html; of systemd: systemd.slice(5), user@.service(5).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware.catalog.attributes import (
    CONTAINER_ID,
    K8S_POD_UID,
    SLURM_JOB_ID,
    USER_ID,
)
from opentelemetry.instrumentation.hardware.model import Attributes
from opentelemetry.instrumentation.hardware.system.files import Files, read_text
from opentelemetry.instrumentation.hardware.system.identity import CONTAINER_IN_CGROUP, POD_IN_CGROUP

Owner = Mapping[str, str]  # attributes of a pod, job or user that a process works for; empty if unknown

_JOB: Final = re.compile(r"/job_([0-9]{1,18})(?=/|$)", re.MULTILINE)
# The groups of SLURM 26.05 have an identifier of their own instead of that of the job, unless CgroupJobIdPaths is set.
_STEP: Final = re.compile(r"slurmstepd\.scope/s[0-9A-Z]+/")
_JOB_VARIABLE: Final = re.compile(r"(?:^|\0)SLURM_JOB_ID=([0-9]{1,18})(?=\0|$)")
_USER_SLICE: Final = re.compile(r"/user-([0-9]{1,10})\.slice/")
_UID: Final = re.compile(r"^Uid:\s+([0-9]+)", re.MULTILINE)


class Holder(NamedTuple):
    """A process that uses a device.

    Attributes:
        pid: Its PID, as the driver reports it.
        memory: Bytes of the device's memory that it uses; None if unknown.
        owner: Whom it works for; None if the process with this PID in ``/proc`` may be another one, as in a container.
        share: The share of the time in which it ran on the device; None if unknown.
    """

    pid: int
    memory: int | None
    owner: Owner | None
    share: float | None = None


class HeldDevice(NamedTuple):
    """A device and the processes that use it.

    Attributes:
        vendor: The name of its source.
        names: What others call it, in lower case: its id, UUID and PCI address.
        number: Its index among the devices of the vendor; -1 for a part of a device.
        attributes: ``hw.id`` and the others that identify it.
        memory: Bytes of its memory in use; None if unknown.
        users: The processes; None if the driver does not list them.
    """

    vendor: str
    names: Collection[str]
    number: int
    attributes: Attributes
    memory: int | None
    users: Sequence[Holder] | None


def owner(pid: int, files: Files) -> Owner:
    """Return pod, container, SLURM job and user of a process.

    A pod or a container has no user but that of its slice: the ids in it are mostly those of its image.
    """
    groups = read_text(files, f"/proc/{pid}/cgroup")
    if not groups:
        return {}
    containers, pods = CONTAINER_IN_CGROUP.findall(groups), POD_IN_CGROUP.findall(groups)
    jobs, users = _JOB.findall(groups), _USER_SLICE.findall(groups)
    if _STEP.search(groups):
        jobs = _JOB_VARIABLE.findall(read_text(files, f"/proc/{pid}/environ"))
    if not (users or containers or pods):
        users = _UID.findall(read_text(files, f"/proc/{pid}/status"))
    found = {
        K8S_POD_UID: pods[-1].replace("_", "-") if pods else "",
        CONTAINER_ID: containers[-1] if containers else "",
        SLURM_JOB_ID: jobs[-1] if jobs else "",
        USER_ID: users[-1] if users else "",
    }
    return {name: value for name, value in found.items() if value}
