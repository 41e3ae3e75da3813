"""File systems against psutil and against mount tables; hanging ones are in test_faults."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from errno import EACCES, EIO, EMFILE
from pathlib import Path

import psutil
import pytest
from tests.sources.machines import FILESYSTEMS, metal, mounts, unmounted
from tests.sources.reading import agrees, often, opened, series_of, value
from tests.sources.tree import Fabricated, Tree

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Series, Unavailable, Value
from opentelemetry.instrumentation.hardware.sources import Source
from opentelemetry.instrumentation.hardware.system.files import FilesystemSpace

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the Linux kernel")


def _points(found: dict[Series, Value]) -> set[str]:
    return {str(series.attributes[c.FILESYSTEM_MOUNTPOINT]) for series in found}


@linux
def test_space_and_device_agree_with_psutil(tmp_path: Path) -> None:
    with opened("filesystem", disk_paths=[str(tmp_path)]) as source:
        (limit,) = series_of(often(source), c.SYSTEM_FILESYSTEM_LIMIT)
        point = str(limit.attributes[c.FILESYSTEM_MOUNTPOINT])
        assert os.path.ismount(point)
        (part,) = [each for each in psutil.disk_partitions(all=True) if each.mountpoint == point][-1:]
        assert limit.attributes[c.DEVICE] == part.device
        assert limit.attributes[c.FILESYSTEM_TYPE] == part.fstype
        assert often(source)[limit] == psutil.disk_usage(str(tmp_path)).total
        for state, theirs in (("used", "used"), ("free", "free")):
            where = {**limit.attributes, c.FILESYSTEM_STATE: state}
            agrees(
                lambda theirs=theirs: getattr(psutil.disk_usage(str(tmp_path)), theirs),  # type: ignore[misc]
                lambda where=where: value(often(source), c.SYSTEM_FILESYSTEM_USAGE, where),  # type: ignore[misc]
                1 << 20,
                f"{state} of {point}",
            )


@linux
def test_usage_is_that_of_statvfs_before_and_after_a_file_is_written(tmp_path: Path) -> None:
    with opened("filesystem", disk_paths=[str(tmp_path)]) as source:
        (limit,) = series_of(often(source), c.SYSTEM_FILESYSTEM_LIMIT)
        where = {**limit.attributes, c.FILESYSTEM_STATE: "used"}

        def used() -> int:
            of_system = os.statvfs(tmp_path)
            return (of_system.f_blocks - of_system.f_bfree) * of_system.f_frsize

        def reported() -> int:
            for _ in range(1000):  # others write and delete meanwhile
                before, found, after = used(), value(often(source), c.SYSTEM_FILESYSTEM_USAGE, where), used()
                if before == after:
                    assert found == before
                    return before
            raise AssertionError("the file system is never quiet for as long as a reading takes")

        empty = reported()
        with open(tmp_path / "file", "wb") as file:
            file.write(os.urandom(32 << 20))
            os.fsync(file.fileno())
        assert reported() != empty


@linux
def test_usage_states_sum_to_the_limit() -> None:
    with opened("filesystem", include_metrics="system.filesystem.utilization") as source:
        found = often(source)
    limits = series_of(found, c.SYSTEM_FILESYSTEM_LIMIT)
    assert limits
    for limit, size in limits.items():
        states = [dict(limit.attributes, **{c.FILESYSTEM_STATE: state}) for state in ("used", "free", "reserved")]
        assert sum(value(found, c.SYSTEM_FILESYSTEM_USAGE, state) for state in states) == size
        assert sum(value(found, c.SYSTEM_FILESYSTEM_UTILIZATION, state) for state in states) == pytest.approx(1)


def test_disk_path_inside_a_mount_is_reported_as_the_mount() -> None:
    machine = mounts(0)
    machine.tree.spaces["/data/run/7"] = machine.tree.spaces["/data"]
    machine.tree.spaces["/database"] = machine.tree.spaces["/"]
    with opened("filesystem", machine, disk_paths="/data/run/7,/data,/database") as source:
        assert _points(often(source)) == {"/data", "/"}, "/database is on /, not on /data"


def test_disk_path_under_two_mounts_is_the_later_one() -> None:
    machine = metal(0)
    mounted = machine.tree.files["/proc/{pid}/mountinfo"]
    assert isinstance(mounted, str)
    machine.tree.files["/proc/{pid}/mountinfo"] = mounted + "999 1 0:99 / /data rw - xfs /dev/later rw\n"
    with opened("filesystem", machine, disk_paths="/data") as source:
        assert {series.attributes[c.DEVICE] for series in often(source)} == {"/dev/later"}


def _of(*lines: str) -> Fabricated:
    """A machine with these mounts; each has its own size."""
    spaces = {line.split(" ")[4]: FilesystemSpace(100 + number, 40, 30) for number, line in enumerate(lines)}
    files = {"/proc/filesystems": FILESYSTEMS, "/proc/{pid}/mountinfo": "\n".join([*lines, ""])}
    return Fabricated(
        Tree(files, {path.replace("\\134", "\\").replace("\\011", "\t"): space for path, space in spaces.items()})
    )


def test_covered_mount_is_not_reported() -> None:
    machine = _of(
        "20 27 0:21 / /dev rw - devtmpfs udev rw",
        "27 1 8:1 / / rw - ext4 /dev/root rw",  # mounted after what stands on it, as after an initial ram disk
        "30 27 8:2 / /data rw - ext4 /dev/covered rw",
        "31 30 8:3 / /data/old rw - ext4 /dev/below rw",
        "32 30 8:4 / /data rw - ext4 /dev/above rw",
        "33 32 8:5 / /data/new rw - ext4 /dev/upon rw",
        "34 27 8:6 / /srv rw - ext4 /dev/emptied rw",
        "35 34 0:50 / /srv rw - tmpfs tmpfs rw",
    )
    with opened("filesystem", machine) as source:
        found = {
            series.attributes[c.DEVICE]: value
            for series, value in series_of(often(source), c.SYSTEM_FILESYSTEM_LIMIT).items()
        }
    assert found == {"/dev/root": 101, "/dev/above": 104, "/dev/upon": 105}


def test_root_mount_may_be_its_own_parent() -> None:
    with opened("filesystem", _of("1 1 8:1 / / rw - ext4 /dev/root rw", "2 1 8:2 / /a rw - xfs /dev/a rw")) as source:
        assert _points(often(source)) == {"/", "/a"}


@pytest.mark.parametrize(
    "path", ["/media/My\u00a0Disk", "/media/a\\011tab", "/media/back\\134slash", "/media/\u2003\x85"]
)
def test_mount_point_with_unusual_name_is_decoded(path: str) -> None:
    with opened("filesystem", _of("27 1 8:1 / / rw - ext4 /dev/root rw", f"28 27 8:2 / {path} rw - xfs  rw")) as source:
        assert _points(often(source)) == {"/", path.replace("\\011", "\t").replace("\\134", "\\")}


@pytest.mark.parametrize("others", ["", "/data,"])
def test_named_path_that_cannot_be_read_at_start_is_read_later(others: str, caplog: pytest.LogCaptureFixture) -> None:
    machine = metal(0)
    with opened("filesystem", machine, disk_paths=f"{others}/later") as source:
        if others:
            assert _points(often(source)) == {"/data"}
            assert _points(often(source)) == {"/data"}
            (warning,) = caplog.messages
            assert "disk_paths: /later cannot be read" in warning
        else:
            with pytest.raises(Unavailable, match="disk_paths: /later: No such file"):
                often(source)
        _mounting(machine, LATER)
        assert _points(often(source)) == {"/later", *({"/data"} if others else ())}
        assert source.unsupported == []


def test_file_system_of_size_zero_is_left_out() -> None:
    machine = metal(0)
    machine.tree.spaces["/data"] = FilesystemSpace(0, 0, 0)
    with opened("filesystem", machine) as source:
        assert _points(often(source)) == {"/"}


@pytest.mark.parametrize("trouble", [PermissionError(EACCES, "Permission denied"), OSError(EIO, "Input/output error")])
def test_unreadable_file_system_loses_only_its_metrics(trouble: OSError, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = mounts(0)
    space, broken = machine.tree.space, {"/data"}

    def asked(path: str) -> FilesystemSpace:
        if path in broken:
            raise trouble
        return space(path)

    monkeypatch.setattr(machine.tree, "space", asked)
    others = {"/", "/boot/efi", "/media/with a blank", "/srv/tree"}
    with opened("filesystem", machine) as source:
        assert _points(often(source)) == others
        assert source.unsupported == [f"/data: {trouble.strerror}"]
        broken.clear()
        assert _points(often(source)) == {*others, "/data"}
        assert source.unsupported == []
        broken |= {*others, "/data"}
        with pytest.raises(OSError, match=str(trouble.strerror)):
            often(source)


@pytest.mark.skipif(not sys.platform.startswith("linux") or os.geteuid() != 0, reason="mounts a file system")
def test_non_utf8_mount_point_is_escaped(tmp_path: Path) -> None:
    place = tmp_path / os.fsdecode(b"caf\xe9")
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=10m", "small", place], check=True)
    try:
        with opened("filesystem", disk_paths=[str(place)]) as source:
            assert sizes(source) == {f"{tmp_path}/caf\\xe9": 10 << 20}
    finally:
        subprocess.run(["umount", place], check=True)


@pytest.mark.parametrize("cut", range(0, 160, 8))
def test_truncated_mountinfo_gives_no_wrong_mount(cut: int) -> None:
    machine = metal(0)
    with opened("filesystem", machine) as source:
        whole = often(source)
    text = machine.tree.files["/proc/{pid}/mountinfo"]
    assert isinstance(text, str)
    machine.tree.files["/proc/{pid}/mountinfo"] = text[:cut]
    try:
        with opened("filesystem", machine) as source:
            assert often(source).items() <= whole.items()
    except Unavailable:
        pass


def test_overlay_is_counted_as_root_only() -> None:
    lines = [
        "90 80 0:60 / / rw - overlay overlay rw,lowerdir=/a",
        "91 90 0:61 / /opt/x rw - overlay overlay rw,lowerdir=/b",
        "92 90 0:62 / /etc/hosts rw - tmpfs tmpfs rw",
    ]
    files = {"/proc/filesystems": FILESYSTEMS, "/proc/{pid}/mountinfo": "\n".join([*lines, ""])}
    with opened("filesystem", Fabricated(Tree(files, {"/": FilesystemSpace(100, 40, 30)}))) as source:
        found = often(source)
    assert _points(found) == {"/"}
    where = {c.DEVICE: "overlay", c.FILESYSTEM_TYPE: "overlay", c.FILESYSTEM_MOUNTPOINT: "/"}
    assert value(found, c.SYSTEM_FILESYSTEM_USAGE, {**where, c.FILESYSTEM_STATE: "reserved"}) == 10


def test_root_of_a_rootless_podman() -> None:
    lines = [
        "612 560 0:60 / / rw,nodev,relatime - fuse.fuse-overlayfs fuse-overlayfs rw,user_id=0,group_id=0",
        "613 612 0:61 / /a/overlay/b/merged rw,nodev - fuse.fuse-overlayfs fuse-overlayfs rw,user_id=0,group_id=0",
    ]
    with opened("filesystem", _of(*lines)) as source:
        assert _points(often(source)) == {"/"}


def test_read_only_root_of_an_ostree_and_snapshots_of_zfs_are_left_out() -> None:
    """They are always full; the files of the machine are below /sysroot, and in the file system of the snapshot."""
    machine = _of(
        "60 1 0:33 / / ro,relatime - overlay composefs ro,seclabel,lowerdir+=/run/a,datadir+=/sysroot/b,metacopy=on",
        "61 60 253:4 / /sysroot ro,relatime - xfs /dev/vda4 rw,seclabel",
        "62 60 253:4 /ostree/deploy/x/var /var rw,relatime - xfs /dev/vda4 rw,seclabel",
        "63 60 0:51 / /tank rw,relatime - zfs tank rw,xattr,posixacl",
        "64 63 0:77 / /tank/.zfs/snapshot/monday ro,relatime - zfs tank@monday ro,xattr,posixacl",
    )
    with opened("filesystem", machine) as source:
        assert _points(often(source)) == {"/sysroot", "/tank"}


def test_root_of_a_read_only_container_is_reported() -> None:
    line = "60 1 0:33 / / ro,relatime - overlay overlay ro,lowerdir=/a:/b,upperdir=/c,workdir=/d"
    with opened("filesystem", _of(line)) as source:
        assert _points(often(source)) == {"/"}


@pytest.mark.parametrize(
    "kubelet",
    ["/var/snap/microk8s/common/var/lib/kubelet", "/home/kubernetes/containerized_mounter/rootfs/var/lib/kubelet"],
)
def test_mounts_of_a_kubelet_with_another_folder_are_left_out(kubelet: str) -> None:
    machine = _of(
        "27 1 8:1 / / rw - ext4 /dev/sda1 rw",
        f"80 27 8:32 / {kubelet}/pods/8c1/volumes/kubernetes.io~csi/pvc-1/mount rw - ext4 /dev/sdc rw",
        f"81 27 8:48 / {kubelet}/plugins/kubernetes.io/csi/x/globalmount rw - xfs /dev/sdd rw",
    )
    with opened("filesystem", machine) as source:
        assert _points(often(source)) == {"/"}


@pytest.mark.parametrize("folder", ["containerd", "containers", "docker", "kubelet"])
def test_disk_of_its_own_for_containers_is_reported_without_what_they_mount_in_it(folder: str) -> None:
    machine = _of(
        "27 1 8:1 / / rw - ext4 /dev/sda1 rw",
        f"80 27 259:1 / /var/lib/{folder} rw - xfs /dev/nvme1n1 rw",
        f"81 80 7:9 / /var/lib/{folder}/pods/8c1/mount rw - ext4 /dev/loop9 rw",
    )
    with opened("filesystem", machine) as source:
        assert _points(often(source)) == {"/", f"/var/lib/{folder}"}


def test_modules_of_android_are_left_out() -> None:
    """They are images, of ext4 on most phones, and always full."""
    machine = _of(
        "30 29 253:9 / / ro - ext4 /dev/block/dm-9 ro,seclabel",
        "61 30 7:160 / /bootstrap-apex/com.android.i18n@1 ro - ext4 /dev/block/loop0 ro,seclabel",
        "62 30 7:320 / /apex/com.android.runtime@1 ro - ext4 /dev/block/loop40 ro,seclabel",
        "63 30 7:320 / /apex/com.android.runtime ro - ext4 /dev/block/loop40 ro,seclabel",
        "64 30 254:26 / /data rw - xfs /dev/block/dm-26 rw,seclabel",
    )
    with opened("filesystem", machine) as source:
        assert _points(often(source)) == {"/", "/data"}


def _mounting(machine: Fabricated, *lines: str) -> Tree:
    """Add lines to the mount table of a fabricated machine."""
    table = machine.tree.files[TABLE]
    assert isinstance(table, str)
    machine.tree.files[TABLE] = "\n".join([table.rstrip("\n"), *lines, ""])
    machine.tree.spaces["/later"] = FilesystemSpace(100, 40, 30)
    return machine.tree


TABLE, LATER = "/proc/{pid}/mountinfo", "999 1 0:99 / /later rw - xfs /dev/later rw"
NAMED: list[Mapping[str, str]] = [{}, {"disk_paths": "/,/data,/later"}]


@pytest.mark.parametrize("named", NAMED)
def test_later_mount_and_unmount_are_noticed(named: Mapping[str, str]) -> None:
    machine = metal(0)
    before = _mounting(machine).files[TABLE]
    with opened("filesystem", machine, settings=named) as source:
        assert _points(often(source)) == {"/", "/data"}
        tree = _mounting(machine, LATER)
        assert _points(often(source)) == {"/", "/data", "/later"}
        tree.files[TABLE] = before
        assert _points(often(source)) == {"/", "/data"}


def test_no_values_when_everything_is_unmounted() -> None:
    machine, bare = metal(0), unmounted(0)
    tree = _mounting(machine)
    with opened("filesystem", machine) as source:
        tree.files[TABLE] = bare.tree.files[TABLE]
        assert often(source) == {}


@pytest.mark.parametrize("named", NAMED)
def test_unreadable_mountinfo_keeps_known_mounts(named: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    machine = metal(0)
    _mounting(machine)
    with opened("filesystem", machine, settings=named) as source:
        tree = _mounting(machine, LATER)
        with monkeypatch.context() as patch:

            def read(path: str) -> bytes:
                raise OSError(EMFILE, os.strerror(EMFILE), path)

            patch.setattr(tree, "read", read)
            assert _points(often(source)) == {"/", "/data"}
        assert _points(often(source)) == {"/", "/data", "/later"}


@pytest.mark.skipif(not sys.platform.startswith("linux") or os.geteuid() != 0, reason="mounts a file system")
def test_real_mount_and_unmount_are_noticed(tmp_path: Path) -> None:
    with opened("filesystem", disk_paths=[str(tmp_path)]) as source:
        (below,) = sizes(source)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=10m", "small", tmp_path], check=True)
        try:
            assert sizes(source) == {str(tmp_path): 10 << 20}
        finally:
            subprocess.run(["umount", tmp_path], check=True)
        assert [*sizes(source)] == [below]


def sizes(source: Source) -> dict[str, object]:
    """The size of each file system by its mount point."""
    return {
        str(series.attributes[c.FILESYSTEM_MOUNTPOINT]): value
        for series, value in source.read()
        if series.metric is c.SYSTEM_FILESYSTEM_LIMIT
    }
