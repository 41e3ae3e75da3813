"""Ids of containers and pods, from the files that runtimes leave in a container."""

from __future__ import annotations

import pytest
from opentelemetry.semconv._incubating.attributes.host_attributes import HostArchValues
from tests.sources.tree import Tree

from opentelemetry.instrumentation.hardware.system import identity

ID, OTHER = "3f" * 32, "a0" * 32
UID = "0c2f7c3a-5a8f-4b6e-9d39-1c5a7d0e8f21"
SLICE = UID.replace("-", "_")


def mount(root: str, point: str) -> str:
    return f"652 640 254:1 {root} {point} rw,relatime - ext4 /dev/vda1 rw\n"


OWN_NAMESPACE = "0::/\n"
POD_MOUNTS = mount(f"/kubelet/pods/{UID}/etc-hosts", "/etc/hosts") + mount(
    f"/kubelet/pods/{UID}/containers/trainer/5d1e9c3a", "/dev/termination-log"
)
IN_POD = {"k8s.pod.uid": UID, "k8s.container.name": "trainer", "k8s.namespace.name": "team-a"}


@pytest.mark.parametrize(
    ("cgroup", "mountinfo", "expected"),
    [
        ("0::/user.slice/user-0.slice/session-4.scope\n", mount("/", "/"), {}),
        # Docker: cgroup v1, the host's namespace of v2 with systemd, and a namespace of its own.
        (f"4:memory:/docker/{ID}\n0::/docker/{ID}\n", "", {"container.id": ID}),
        (f"0::/system.slice/docker-{ID}.scope\n", "", {"container.id": ID}),
        (OWN_NAMESPACE, mount(f"/var/lib/docker/containers/{ID}/hostname", "/etc/hostname"), {"container.id": ID}),
        # Fargate.
        (f"9:memory:/ecs/{ID[:32]}/{ID[:32]}-946514567\n", "", {"container.id": f"{ID[:32]}-946514567"}),
        # Docker in Docker: the inner one.
        (f"0::/docker/{OTHER}/docker/{ID}\n", "", {"container.id": ID}),
        # Podman.
        (f"0::/machine.slice/libpod-{ID}.scope/container\n", "", {"container.id": ID}),
        (
            OWN_NAMESPACE,
            mount(f"/containers/storage/overlay-containers/{ID}/userdata/hostname", "/etc/hostname"),
            {"container.id": ID},
        ),
        (
            OWN_NAMESPACE,
            mount(f"/containers/overlay-containers/{ID}/userdata/.containerenv", "/run/.containerenv"),
            {"container.id": ID},
        ),
        # Kubernetes: cgroup v1, v2 with systemd, and a namespace of its own, where the mounts have the sandbox's id.
        (f"4:memory:/kubepods/burstable/pod{UID}/{ID}\n", POD_MOUNTS, {"container.id": ID, **IN_POD}),
        (
            f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICE}.slice/cri-containerd-{ID}.scope\n",
            POD_MOUNTS,
            {"container.id": ID, **IN_POD},
        ),
        (
            OWN_NAMESPACE,
            POD_MOUNTS + mount(f"/io.containerd.grpc.v1.cri/sandboxes/{OTHER}/hostname", "/etc/hostname"),
            IN_POD,
        ),
        (
            OWN_NAMESPACE,
            POD_MOUNTS + mount(f"/containers/storage/overlay-containers/{OTHER}/userdata/hostname", "/etc/hostname"),
            IN_POD,
        ),
        # What only looks alike.
        (f"0::/build-{ID}ff\n", mount(f"/srv/{ID}/hostname", "/srv/hostname"), {}),
        (f"0::/system.slice/run-{ID[:32]}-1.scope\n", "", {}),
    ],
)
def test_container_and_pod(cgroup: str, mountinfo: str, expected: dict[str, str]) -> None:
    files = {
        "/proc/{pid}/cgroup": cgroup,
        "/proc/{pid}/mountinfo": mountinfo,
        "/var/run/secrets/kubernetes.io/serviceaccount/namespace": "team-a\n",
    }
    assert identity.container(Tree(files)) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"/etc/machine-id": "3d1219c7c4c5404aaa1f6d2a48adfda4\n"}, "3d1219c7c4c5404aaa1f6d2a48adfda4"),
        ({"/etc/machine-id": "", "/var/lib/dbus/machine-id": "ab" * 16}, "ab" * 16),
        ({"/etc/machine-id": "uninitialized\n"}, None),
        ({}, None),
    ],
)
def test_machine_id(files: dict[str, str], expected: str | None) -> None:
    assert identity.host(Tree(files)).get("host.id") == expected


MACHINE = "3d1219c7c4c5404aaa1f6d2a48adfda4"


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        ("29 1 8:2 / / rw - ext4 /dev/sda2 rw\n", MACHINE),
        ("29 1 0:33 / / ro - overlay composefs ro,lowerdir+=/run/ostree/.private/cfsroot-lower\n", MACHINE),
        (
            "29 1 0:33 / / rw - overlay overlayroot rw,lowerdir=/media/root-ro,upperdir=/media/root-rw/overlay\n",
            MACHINE,
        ),
        ("29 1 8:2 / / rw - ext4 /dev/sda2 rw\n90 29 0:60 / /srv/x rw - overlay overlay rw,upperdir=/a\n", MACHINE),
        # Enroot, gVisor, and Apptainer in two ways: the machine id is that of the image.
        ("900 812 0:94 / / rw - overlay overlay rw,lowerdir=/a,upperdir=/b,workdir=/c\n", None),
        ("18 17 0:19 / / rw - overlay none rw\n", None),
        ("900 812 0:94 / / ro - overlay overlay ro,lowerdir=/var/apptainer/mnt/session/rootfs\n", None),
        ("900 812 0:209 /underlay / ro - tmpfs tmpfs rw,size=65536k\n", None),
        (
            "900 812 0:94 / / rw - overlay overlay rw,upperdir=/b\n"
            "901 900 8:2 /etc/machine-id /etc/machine-id ro - ext4 /a rw\n",
            MACHINE,
        ),
    ],
)
def test_machine_id_of_an_image_is_not_that_of_the_host(mounts: str, expected: str | None) -> None:
    files = {"/proc/{pid}/mountinfo": mounts, "/etc/machine-id": f"{MACHINE}\n"}
    assert identity.host(Tree(files)).get("host.id") == expected


def test_creation_time_of_a_process() -> None:
    fields = " ".join(["S", *["0"] * 18, "12345", *["0"] * 5])
    files = {"/proc/stat": "cpu 1\nbtime 1700000000\n", "/proc/77/stat": f"77 (a b) c) {fields}\n"}
    assert identity.process(77, Tree(files)) == {
        "process.pid": 77,
        "process.creation.time": "2023-11-14T22:15:23.450Z",
    }
    assert identity.process(78, Tree(files)) == {"process.pid": 78}


@pytest.mark.parametrize(
    ("machine", "value"),
    [
        ("x86_64", "amd64"),
        ("AMD64", "amd64"),
        ("aarch64", "arm64"),
        ("ARM64", "arm64"),
        ("armv8l", "arm32"),
        ("i586", "x86"),
        ("ia64", "ia64"),
        ("ppc", "ppc32"),
        ("ppc64le", "ppc64"),
        ("s390x", "s390x"),
    ],
)
def test_architecture_is_spelled_as_in_semantic_conventions(
    machine: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert identity.host(None)["host.arch"] == HostArchValues(value).value
