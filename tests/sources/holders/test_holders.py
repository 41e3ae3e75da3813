"""Who uses devices: cgroups as runtimes name them, the kubelet, job files, and memory that nobody has."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.sources.tree import Fabricated, Tree
from tests.support.children import environment
from tests.tools.kubelet import Given, Kubelet, serving

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import SourceContext
from opentelemetry.instrumentation.hardware.sources.holders import Holders
from opentelemetry.instrumentation.hardware.system.holders import HeldDevice, Holder, Owner, owner

ID = "4f9c0c1d7d2c8f7ab1a4e5d3c2b1a09f8e7d6c5b4a3928170615243342516070"
POD = "8f3a1b2c-4d5e-6f70-8192-a3b4c5d6e7f8"
SYSTEMD = POD.replace("-", "_")
GIB = 1 << 30

PATHS: Mapping[str, tuple[str, dict[str, str]]] = {
    "cgroupfs, version 1": (
        f"11:pids:/kubepods/burstable/pod{POD}/{ID}\n1:name=systemd:/kubepods/burstable/pod{POD}/{ID}\n0::/\n",
        {c.K8S_POD_UID: POD, c.CONTAINER_ID: ID},
    ),
    "systemd, version 2": (
        f"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{SYSTEMD}.slice/"
        f"cri-containerd-{ID}.scope\n",
        {c.K8S_POD_UID: POD, c.CONTAINER_ID: ID},
    ),
    "guaranteed, CRI-O": (
        f"0::/kubepods.slice/kubepods-pod{SYSTEMD}.slice/crio-{ID}.scope/container\n",
        {c.K8S_POD_UID: POD, c.CONTAINER_ID: ID},
    ),
    "containerd without systemd": (
        f"4:devices:/system.slice/containerd.service/kubepods-burstable-pod{SYSTEMD}.slice:cri-containerd:{ID}\n",
        {c.K8S_POD_UID: POD, c.CONTAINER_ID: ID},
    ),
    "another pod, from a cgroup namespace": (
        f"0::/../../kubepods-burstable.slice/kubepods-burstable-pod{SYSTEMD}.slice/cri-containerd-{ID}.scope\n",
        {c.K8S_POD_UID: POD, c.CONTAINER_ID: ID},
    ),
    "kind: a node that is a container": (
        f"0::/docker/{'a' * 64}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{SYSTEMD}.slice/"
        f"cri-containerd-{ID}.scope\n",
        {c.K8S_POD_UID: POD, c.CONTAINER_ID: ID},
    ),
    "Docker, cgroupfs": (f"5:memory:/docker/{ID}\n0::/docker/{ID}\n", {c.CONTAINER_ID: ID}),
    "Docker, systemd": (f"0::/system.slice/docker-{ID}.scope\n", {c.CONTAINER_ID: ID}),
    "Podman": (f"0::/machine.slice/libpod-{ID}.scope/container\n", {c.CONTAINER_ID: ID}),
    "Podman without root": (
        f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container\n",
        {c.CONTAINER_ID: ID, c.USER_ID: "1000"},
    ),
    "SLURM, version 1": (
        "8:devices:/slurm_n1/uid_4242/job_77/step_0/task_1\n1:name=systemd:/system.slice/slurmd.service\n",
        {c.SLURM_JOB_ID: "77", c.USER_ID: "4242"},
    ),
    "SLURM, version 2": (
        "0::/system.slice/slurmstepd.scope/job_77/step_batch/user/task_0\n",
        {c.SLURM_JOB_ID: "77", c.USER_ID: "4242"},
    ),
    "SLURM, version 2, multiple slurmd": (
        "0::/system.slice/n1_slurmstepd.scope/job_77/step_0/user/task_0\n",
        {c.SLURM_JOB_ID: "77", c.USER_ID: "4242"},
    ),
    "SLURM from 26.05 on": (
        "0::/system.slice/slurmstepd.scope/s6Q2MMAZBH7E11/step_0/user/task_0\n",
        {c.SLURM_JOB_ID: "78", c.USER_ID: "4242"},
    ),
    "a session": ("0::/user.slice/user-1001.slice/session-3.scope\n", {c.USER_ID: "1001"}),
    "a service": ("0::/system.slice/ollama.service\n", {c.USER_ID: "4242"}),
    "no group": ("0::/\n", {c.USER_ID: "4242"}),
    "LXC": ("0::/lxc.payload.gpu1/system.slice/job_runner.service\n", {c.USER_ID: "4242"}),
}
ENVIRON = "MY_SLURM_JOB_ID=1\0SLURM_JOB_ID=78\0SLURM_JOB_ID_OF=3\0"
STATUS = "Name:\tpython\nUmask:\t0022\nPid:\t7\nUid:\t4242\t0\t0\t0\nGid:\t1\t1\t1\t1\n"


@pytest.mark.parametrize("name", PATHS)
def test_owner_of_a_process(name: str) -> None:
    groups, expected = PATHS[name]
    files = {"/proc/7/cgroup": groups, "/proc/7/status": STATUS, "/proc/7/environ": ENVIRON}
    assert owner(7, Tree(files)) == expected


def test_owner_of_a_hidden_process_is_unknown() -> None:
    assert owner(7, Tree({})) == {}
    assert owner(7, Tree({"/proc/7/cgroup": "0::/\n"})) == {}


@pytest.mark.whole
@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="another user needs root")
def test_owner_needs_no_privilege() -> None:
    """A process of another user is read by nobody, who may not read its environment."""
    program = """
from opentelemetry.instrumentation.hardware.system.files import Files
from opentelemetry.instrumentation.hardware.system.holders import owner
import os, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
pid = int(sys.argv[1])
try:
    open(f"/proc/{pid}/environ").close()
except PermissionError:
    print(owner(pid, Files()))
"""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, user=54321) as child:
        line = [sys.executable, "-c", program, str(child.pid)]
        done = subprocess.run(line, env=environment(), capture_output=True, text=True, check=False)
        child.communicate()
    assert ("'user.id': '54321'" in done.stdout) or "container.id" in done.stdout, done.stderr


# -- the source


def device(
    number: int = 0, memory: int | None = 50 * GIB, users: Sequence[tuple[Owner, int | None]] | None = None
) -> HeldDevice:
    uuid = f"GPU-{number}f"
    attributes = {c.HW_ID: uuid, c.HW_NAME: f"GPU {number}", c.HW_TYPE: "gpu"}
    listed = None if users is None else [Holder(7, size, owner) for owner, size in users]
    return HeldDevice("nvidia", {uuid.lower(), f"0000:0{number}:00.0"}, number, attributes, memory, listed)


def opened(devices: list[HeldDevice], tree: Tree, environ: Mapping[str, str] | None = None, **settings: Any) -> Holders:
    context = SourceContext(Config.read(settings, {}), Fabricated(tree), 1, environ=environ or {})
    source = Holders(context._replace(held={"nvidia": devices}))
    source.open()
    return source


def rows(source: Holders) -> dict[str, float]:
    """The values, by metric and attributes without those of the device but its name."""
    found = {}
    for series, value in source.read():
        attributes = {name: text for name, text in series.attributes.items() if name not in (c.HW_ID, c.HW_TYPE)}
        words = ", ".join(f"{text}" for _, text in sorted(attributes.items()))
        assert isinstance(value, (int, float))
        found[f"{series.metric.name.removeprefix('hw.holder.')}: {words}"] = value
    return found


def test_memory_of_each_holder_and_of_none() -> None:
    job, pod = {c.SLURM_JOB_ID: "77"}, {c.K8S_POD_UID: POD}
    source = opened([device(users=[(job, 10 * GIB), (pod, 20 * GIB), (job, 5 * GIB)])], Tree())
    assert rows(source) == {
        "info: used, GPU 0, 77": 1,
        "memory.usage: used, GPU 0, 77": 15 * GIB,
        f"info: used, GPU 0, {POD}": 1,
        f"memory.usage: used, GPU 0, {POD}": 20 * GIB,
        "memory.usage: none, GPU 0": 15 * GIB,
    }


def test_unknown_holder_is_counted_without_a_name() -> None:
    assert rows(opened([device(users=[({}, 50 * GIB)])], Tree())) == {
        "info: used, GPU 0": 1,
        "memory.usage: used, GPU 0": 50 * GIB,
        "memory.usage: none, GPU 0": 0,
    }


def test_unknown_memory_is_absent() -> None:
    job = {c.SLURM_JOB_ID: "77"}
    assert rows(opened([device(users=[(job, None), (job, GIB)])], Tree())) == {"info: used, GPU 0, 77": 1}
    assert rows(opened([device(memory=None, users=[])], Tree())) == {}
    assert rows(opened([device(users=None)], Tree())) == {}, "the processes are not known"
    assert rows(opened([device(users=[])], Tree())) == {"memory.usage: none, GPU 0": 50 * GIB}


def test_utilization_of_each_holder() -> None:
    job, pod = {c.SLURM_JOB_ID: "77"}, {c.K8S_POD_UID: POD}
    held = device(memory=None, users=[(job, None), (pod, None), (job, None)])
    assert held.users is not None
    users = [user._replace(share=share) for user, share in zip(held.users, (0.5, 0.0, 0.75))]
    found = rows(opened([held._replace(users=users)], Tree()))
    assert {name: value for name, value in found.items() if name.startswith("utilization")} == {
        "utilization: used, GPU 0, 77": 1.0,
        f"utilization: used, GPU 0, {POD}": 0.0,
    }


def test_memory_of_none_is_never_negative() -> None:
    assert rows(opened([device(memory=GIB, users=[({}, 2 * GIB)])], Tree()))["memory.usage: none, GPU 0"] == 0


def test_pod_has_its_name_where_the_folder_of_logs_is_mounted() -> None:
    tree = Tree({f"/var/log/pods/ml_train-0_{POD}/main/0.log": "", "/var/log/pods/other/0.log": ""})
    source = opened([device(memory=None, users=[({c.K8S_POD_UID: POD}, None)])], tree)
    assert rows(source) == {f"info: used, GPU 0, ml, train-0, {POD}": 1}


def test_user_has_a_name_outside_of_containers() -> None:
    users: list[tuple[Owner, int | None]] = [({c.USER_ID: "0"}, None), ({c.USER_ID: "4294967290"}, None)]
    tree = Tree({"/proc/{pid}/cgroup": "0::/\n"})
    assert [*rows(opened([device(users=users)], tree))] == [
        "info: used, GPU 0, 0, root",
        "info: used, GPU 0, 4294967290",
    ]
    tree = Tree({"/proc/{pid}/cgroup": f"0::/docker/{ID}\n"})
    assert [*rows(opened([device(users=users)], tree))] == ["info: used, GPU 0, 0", "info: used, GPU 0, 4294967290"]


def test_holders_of_one_device_have_a_limit() -> None:
    users: list[tuple[Owner, int | None]] = [({c.SLURM_JOB_ID: str(number)}, 1) for number in range(100)]
    found = rows(opened([device(memory=None, users=users)], Tree()))
    assert len(found) == 2 * 65
    assert found["memory.usage: used, GPU 0"] == 36


# -- job files


JOBS = {"/jobs/0": "77\n78\n", "/jobs/GPU-1f": "79 4242\n", "/jobs/2": "", "/jobs/9": "80\n", "/jobs/readme": "x y z\n"}


@pytest.mark.parametrize("by", ["setting", "variable of dcgm-exporter"])
def test_job_files(by: str) -> None:
    options: dict[str, Any] = {"job_files": "/jobs"} if by == "setting" else {}
    environ = {} if by == "setting" else {"DCGM_HPC_JOB_MAPPING_DIR": "/jobs"}
    devices = [device(number, users=None) for number in range(3)]
    source = opened(devices, Tree(JOBS), environ, **options)
    assert rows(source) == {
        "info: allocated, GPU 0, 77": 1,
        "info: allocated, GPU 0, 78": 1,
        "info: allocated, GPU 1, 79, 4242": 1,
    }
    assert source.errors == []


def test_job_files_are_read_again() -> None:
    tree = Tree({"/jobs/0": "77\n"})
    source = opened([device()], tree, job_files="/jobs")
    tree.files["/jobs/0"] = "78\n"
    source.read_slow()
    assert rows(source) == {"info: allocated, GPU 0, 78": 1}


def test_job_files_may_be_off_or_missing() -> None:
    environ = {"DCGM_HPC_JOB_MAPPING_DIR": "/jobs"}
    assert rows(opened([device()], Tree(JOBS), environ, job_files="off")) == {}
    assert rows(opened([device()], Tree(), job_files="/jobs")) == {}


# -- the kubelet


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    with serving(Kubelet(), tmp_path / "kubelet.sock") as started:
        yield started


def asked(tmp_path: Path, devices: list[HeldDevice]) -> Holders:
    config = Config.read({"pod_resources": str(tmp_path / "kubelet.sock")}, {})
    source = Holders(SourceContext(config, Drivers(), 1, environ={})._replace(held={"nvidia": devices}))
    source.open()
    return source


@pytest.mark.whole
@pytest.mark.parametrize(
    ("resource", "name"),
    [
        ("nvidia.com/gpu", "GPU-1f"),
        ("nvidia.com/gpu.shared", "GPU-1f::3"),
        ("nvidia.com/gpu", "1"),
        ("nvidia.com/gpu", "nvidia1"),
        ("acme.com/gpu", "0000:01:00.0"),
    ],
)
def test_kubelet_names_the_pod_of_a_device(tmp_path: Path, kubelet: Kubelet, resource: str, name: str) -> None:
    kubelet.give(Given("ml", "train-0", "main", resource, [name, "GPU-unknown"]), Given("ml", "web", "x", "cpu", ["0"]))
    source = asked(tmp_path, [device(0), device(1)])
    assert (rows(source), source.errors) == ({"info: allocated, GPU 1, main, ml, train-0": 1}, [])
    source.close()


@pytest.mark.whole
def test_index_counts_the_devices_of_its_vendor(tmp_path: Path, kubelet: Kubelet) -> None:
    kubelet.give(
        Given("ml", "train-0", "main", "amd.com/gpu", ["1"]), Given("ml", "nic", "main", "acme.com/nic", ["1"])
    )
    source = asked(tmp_path, [device(0), device(1)])
    assert rows(source) == {}
    source.close()


@pytest.mark.whole
@pytest.mark.parametrize("answer", [grpc.StatusCode.PERMISSION_DENIED, b"\xff\xff", b"\x0a\x05"])
def test_kubelet_that_fails_is_named(tmp_path: Path, kubelet: Kubelet, answer: Any) -> None:
    kubelet.answer = answer
    source = asked(tmp_path, [device(users=[({c.SLURM_JOB_ID: "77"}, 1)])])
    assert "info: used, GPU 0, 77" in rows(source), "what processes say is reported all the same"
    assert len(source.errors) == 1
    assert "PodResources" in source.errors[0]
    kubelet.give(Given("ml", "train-0", "main", "nvidia.com/gpu", ["GPU-0f"]))
    source.read_slow()
    assert ("info: allocated, GPU 0, main, ml, train-0" in rows(source), source.errors) == (True, [])
    source.close()


def test_kubelet_that_a_setting_names_is_missed(tmp_path: Path) -> None:
    source = asked(tmp_path, [])
    assert "does not exist" in source.errors[0]


def test_only_a_process_that_observes_no_program_reports_holders() -> None:
    with pytest.raises(Unavailable, match="otel-hardware run"):
        Holders(SourceContext(Config(), Drivers(), 1)).open()
