"""The resource attributes of a host, a container, a pod and a process. An unknown attribute is absent.

Names and values follow https://opentelemetry.io/docs/specs/semconv/resource/. The ids of a container and a pod are read
from the control group of this process, or from the mounts that the container runtime made. No runtime or API is called.
``files`` is None where the system is not Linux.
"""

from __future__ import annotations

import os
import platform
import re
import socket
from contextlib import suppress
from datetime import datetime, timezone
from typing import Final

from opentelemetry.instrumentation.hardware.system.files import Files, read_text, utf8
from opentelemetry.instrumentation.hardware.system.procfs import TICKS, entry, stat

# What platform.machine() returns, lower case, where ``host.arch`` has another word for it.
_ARCHITECTURES: Final = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "i386": "x86",
    "i586": "x86",
    "i686": "x86",
    "armv6l": "arm32",
    "armv7l": "arm32",
    "armv8l": "arm32",
    "ppc": "ppc32",
    "ppc64le": "ppc64",
}

# The second form is that of Fargate.
_ID: Final = r"(?<![0-9a-f])([0-9a-f]{64}|(?<=/)[0-9a-f]{32}-[0-9]{1,10})(?![0-9a-f])"
_UID: Final = r"([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})"
CONTAINER_IN_CGROUP: Final = re.compile(_ID)
_CONTAINER_IN_MOUNTS: Final = re.compile(
    rf"{_ID}/(?:userdata/)?(?:hostname /etc/hostname|\.containerenv /run/\.containerenv) "
)
POD_IN_CGROUP: Final = re.compile(rf"/(?:[^/]*kubepods[^/]*-)?pod{_UID}")
_POD_IN_MOUNTS: Final = re.compile(rf"/pods/{_UID}/etc-hosts /etc/hosts ")
_CONTAINER_NAME: Final = re.compile(rf"/pods/{_UID}/containers/([^/ ]+)/[0-9a-f]+ /dev/termination-log ")
# The root of a container that has none of these, such as of Enroot, gVisor, or Apptainer: an overlay, or its underlay.
# The overlays of hosts are called composefs, of an image that is booted, and overlayroot, over the host's own disk.
_IMAGE_ROOT: Final = re.compile(r" (?:/ / .* - overlay (?!composefs|overlayroot)|/underlay / )")
_NAMESPACE: Final = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


def host_name() -> str:
    """Return the name of this host."""
    return utf8(socket.gethostname())


def host(files: Files | None) -> dict[str, str]:
    """Return ``host.name``, ``host.arch`` and, on Linux, ``host.id``: the machine id.

    In a container, it is that of the host only if it is mounted. All containers of an image have the image's.
    """
    machine = platform.machine().lower()
    paths = ["/etc/machine-id", "/var/lib/dbus/machine-id"]
    mounts = _text(files, "/proc/self/mountinfo")
    if container(files) or _IMAGE_ROOT.search(mounts):
        paths = ["/host/etc/machine-id", *(path for path in paths if f" {path} " in mounts)]
    ids = (_text(files, path) for path in paths)
    found = {
        "host.name": host_name(),
        "host.arch": _ARCHITECTURES.get(machine, machine),
        # systemd writes "uninitialized" into the images that it prepares.
        "host.id": next((each for each in ids if re.fullmatch("[0-9a-f]{32}", each)), ""),
    }
    return {name: value for name, value in found.items() if value}


def container(files: Files | None) -> dict[str, str]:
    """Return ``container.id``, and in Kubernetes the uid of the pod, the name of the container and the namespace."""
    groups, mounts = _text(files, "/proc/self/cgroup"), _text(files, "/proc/self/mountinfo")
    pods = [*POD_IN_CGROUP.findall(groups), *_POD_IN_MOUNTS.findall(mounts)]
    ids = CONTAINER_IN_CGROUP.findall(groups)
    if not ids and not pods:  # in a pod, the mounts have the id of its sandbox
        ids = _CONTAINER_IN_MOUNTS.findall(mounts)
    found = {"container.id": ids[-1] if ids else ""}
    if pods:
        names = _CONTAINER_NAME.findall(mounts)
        found["k8s.pod.uid"] = pods[-1].replace("_", "-")
        found["k8s.container.name"] = names[-1][1] if names else ""
        found["k8s.namespace.name"] = _text(files, _NAMESPACE)
    return {name: value for name, value in found.items() if value}


def process(pid: int, files: Files | None) -> dict[str, str | int]:
    """Return ``process.pid`` and ``process.creation.time`` (ISO 8601) of a process."""
    found: dict[str, str | int] = {"process.pid": pid}
    seconds = None  # Unix seconds
    if files is None:
        import psutil

        with suppress(psutil.Error):
            seconds = float(psutil.Process(pid).create_time())
    else:
        # Our own not by number: /proc can belong to another PID namespace.
        path = "/proc/self/stat" if pid == os.getpid() else f"/proc/{pid}/stat"
        with suppress(OSError, IndexError, ValueError):
            booted = entry(files.read("/proc/stat"), b"\nbtime ")
            seconds = None if booted is None else booted + int(stat(files.read(path))[19]) / TICKS
    if seconds is not None:
        found["process.creation.time"] = timestamp(seconds)
    return found


def timestamp(seconds: float) -> str:
    """Format a time in UTC as in RFC 3339."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(files: Files | None, path: str) -> str:
    return "" if files is None else read_text(files, path)
