"""Mounts of a Linux machine, from ``/proc/self/mountinfo`` (proc_pid_mountinfo(5))."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from opentelemetry.instrumentation.hardware.system.machine import Mount

# Folders with mounts that come and go with containers, pods, users and packages, which are snaps or Android's modules.
# Kubelets have different folders: that of MicroK8s is /var/snap/microk8s/common/var/lib/kubelet.
_TEMPORARY = re.compile(
    "/(proc|sys|dev|run|snap|apex|bootstrap-apex)(/|$)"
    "|/var/lib/(docker|containers|containerd|kubelet)/|.*/kubelet/(pods|plugins)/"
)

# Read-only images, which are always full.
_IMAGES = frozenset({"squashfs", "iso9660", "erofs", "udf", "cramfs"})

# The types of a container's root: the second is that of a rootless Podman without overlay.
_OVERLAYS = frozenset({"overlay", "fuse.fuse-overlayfs"})

# Real file systems that ``/proc/filesystems`` lists as nodev.
_UNBACKED = _OVERLAYS | {"btrfs", "zfs", "virtiofs", "fuseblk", "bcachefs"}


class _Entry(NamedTuple):
    """One line of mountinfo."""

    id: str
    parent: str
    filesystem: str  # the device number, major:minor
    root: str  # the folder of the file system that is mounted
    mount: Mount
    options: str  # of the file system

    def is_image(self) -> bool:
        """Whether it is read-only and always full: also a snapshot of ZFS, and a composefs, the root of OSTree."""
        is_snapshot = self.mount.type == "zfs" and "@" in self.mount.device
        is_lower = self.mount.type == "overlay" and self.options.startswith("ro") and "upperdir=" not in self.options
        return self.mount.type in _IMAGES or is_snapshot or is_lower


def stable(mountinfo: bytes, filesystems: str) -> Sequence[Mount]:
    """Mounts of real file systems, not of containers and images; each file system once, at its shortest path."""
    # A type without a disk is marked as nodev.
    real = _UNBACKED | {line.strip() for line in filesystems.splitlines() if not line.startswith("nodev")}
    mounts: dict[str, Mount] = {}
    for entry in _visible(list(entries(mountinfo))):
        mount = entry.mount
        if mount.type not in real or entry.is_image() or (mount.type in _OVERLAYS and mount.path != "/"):
            continue
        if mount.path != "/" and entry.root != "/" and mount.type != "btrfs":
            continue  # a bind mount of a folder
        if _TEMPORARY.match(mount.path):
            continue
        key = mount.device if mount.type == "btrfs" else entry.filesystem  # subvolumes have numbers of their own
        if key not in mounts or len(mount.path) < len(mounts[key].path):
            mounts[key] = mount
    return sorted(mounts.values())


def contains(mount: str, path: str) -> bool:
    """Whether a path is below a mount point, or is that."""
    return f"{path.rstrip(os.sep)}{os.sep}".startswith(mount.rstrip(os.sep) + os.sep)


def containing(mounts: Iterable[Mount], path: str) -> Mount:
    """The mount that contains a path; of several at one mount point the last one, which covers the others.

    Raises:
        FileNotFoundError: No mount contains it.
    """
    found = sorted((mount for mount in mounts if contains(mount.path, path)), key=lambda mount: len(mount.path))
    if not found:
        raise FileNotFoundError(f"no mounted file system contains {path}")
    return found[-1]


def entries(mountinfo: bytes) -> Iterator[_Entry]:
    """Yield the mounts, hidden ones included. Lines in another format are left out."""
    for line in mountinfo.decode(errors="surrogateescape").split("\n")[:-1]:
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")  # other whitespace is a part of names
        if len(fields) > 4 and len(kind) > 2:
            mount = Mount(_unescape(fields[4]), _unescape(kind[1]), kind[0])
            yield _Entry(fields[0], fields[1], fields[2], _unescape(fields[3]), mount, kind[2])


def _visible(entries: list[_Entry]) -> Iterator[_Entry]:
    """Yield the mounts that no later mount covers. The path of a covered mount leads to the covering one."""
    by_id = {entry.id: entry for entry in entries if entry.id != entry.parent}
    covered = {
        entry.parent
        for entry in by_id.values()
        if entry.parent in by_id and by_id[entry.parent].mount.path == entry.mount.path
    }
    for entry in entries:
        is_hidden, at = entry.id in covered, entry.id
        while not is_hidden and at in by_id:  # or inside of a covered one
            inner = by_id[at]
            at = inner.parent
            is_hidden = at in covered and by_id[at].mount.path != inner.mount.path
        if not is_hidden:
            yield entry


def _unescape(text: str) -> str:
    """Replace the octal escapes of whitespace and backslashes."""
    return re.sub(r"\\([0-7]{3})", lambda escape: chr(int(escape[1], 8)), text)
