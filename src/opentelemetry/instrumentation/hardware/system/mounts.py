"""Which file systems of a Linux machine stay: no container's, no image's, none that is only a part of another."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from opentelemetry.instrumentation.hardware.system.machine import Mount

# Mounts that come and go with containers, pods, snaps and users.
_PASSING = (
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/snap",
    "/var/lib/docker",
    "/var/lib/containers",
    "/var/lib/containerd",
    "/var/lib/kubelet",
)
_IMAGES = frozenset({"squashfs", "iso9660", "erofs", "udf", "cramfs"})
_UNBACKED = frozenset({"btrfs", "zfs", "overlay", "virtiofs", "fuseblk", "bcachefs"})
"""Real file systems that /proc/filesystems calls nodev, or that a container's root is."""


def stable(mountinfo: bytes, filesystems: str) -> Sequence[Mount]:
    """The mounts that stay, each file system once, where its path is shortest.

    Args:
        mountinfo: ``/proc/self/mountinfo``.
        filesystems: ``/proc/filesystems``, which says what has a disk behind it.
    """
    real = _UNBACKED | {line.strip() for line in filesystems.splitlines() if not line.startswith("nodev")}
    found: dict[str, Mount] = {}
    for number, root, mount in _seen(mountinfo):
        if mount.type not in real or mount.type in _IMAGES or (mount.type == "overlay" and mount.path != "/"):
            continue
        if mount.path != "/" and (root != "/" and mount.type != "btrfs"):
            continue  # a part of a file system bound somewhere else
        if any(mount.path == passing or mount.path.startswith(passing + "/") for passing in _PASSING):
            continue
        key = mount.device if mount.type == "btrfs" else number
        if key not in found or len(mount.path) < len(found[key].path):
            found[key] = mount
    return sorted(found.values())


def below(mountinfo: bytes, path: str) -> Mount:
    """The mount that a path lies on.

    Raises:
        FileNotFoundError: where there is none.
    """
    best = None
    for _, _, _, _, mount in _mounted(mountinfo):
        inside = mount.path in ("/", path) or path.startswith(mount.path + "/")
        if inside and (best is None or len(mount.path) >= len(best.path)):  # a later mount covers an earlier one
            best = mount
    if best is None:
        raise FileNotFoundError(f"no file system is mounted on the way to {path}")
    return best


def _mounted(mountinfo: bytes) -> Iterator[tuple[str, str, str, str, Mount]]:
    """Of each line: its number, that of the mount on which it stands, the file system, what of that it shows, where."""
    for line in mountinfo.decode(errors="surrogateescape").split("\n")[:-1]:
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")  # other blanks are a part of names
        mount = Mount(_unescape(fields[4]), _unescape(kind[1]), kind[0])
        yield fields[0], fields[1], fields[2], _unescape(fields[3]), mount


def _seen(mountinfo: bytes) -> Iterator[tuple[str, str, Mount]]:
    """File system, root and mount of those that no other mount covers: asked by its path, that one would answer."""
    lines = [*_mounted(mountinfo)]
    places = {number: (parent, mount.path) for number, parent, _, _, mount in lines if number != parent}
    covered = {parent for parent, path in places.values() if parent in places and places[parent][1] == path}
    for number, _, system, root, mount in lines:
        hidden, at = number in covered, number
        while not hidden and at in places:
            at, path = places[at]
            hidden = at in covered and places[at][1] != path
        if not hidden:
            yield system, root, mount


def _unescape(text: str) -> str:
    """Blanks and the like are octal in mountinfo."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
