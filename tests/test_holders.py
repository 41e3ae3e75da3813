"""Who uses a device, end to end: processes in real cgroups, a simulated driver, a Collector and a Prometheus."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest
from tests.support.children import PATIENCE, ROOT, started
from tests.tools.collector import Collector
from tests.tools.daemon import Prometheus, wait
from tests.tools.kubelet import Given, Kubelet, serving
from tests.tools.nvml import MIB, FakeNvml, Gpu, h100, listed

POD = "8f3a1b2c-4d5e-6f70-8192-a3b4c5d6e7f8"
ID = "4f9c0c1d7d2c8f7ab1a4e5d3c2b1a09f8e7d6c5b4a3928170615243342516070"
PAGE = ROOT / "docs" / "holders.md"
DEPLOY = ROOT / "examples" / "deploy"
GPUS = [str(h100(number)["UUID"]) for number in range(3)]


def query(text: str) -> str:
    """The query of the page that has a text."""
    blocks = PAGE.read_text().split("```text\n")[1:]
    (found,) = [block.partition("```")[0] for block in blocks if text in block]
    return found


@contextmanager
def cgroup(path: str) -> Iterator[Path]:
    """A real control group, in a folder of this test's own."""
    roots = [Path("/sys/fs/cgroup", name) for name in ("pids", "unified", "")]
    top = f"otel-hardware-test-{os.getpid()}"
    root = next((each for each in roots if (each / "cgroup.procs").exists() and os.access(each, os.W_OK)), None)
    if root is None:
        pytest.skip("no control group can be made here")
    folder = root / top / path
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        yield folder
    finally:
        while folder != root:
            with suppress(OSError):  # another one is in it
                folder.rmdir()
            folder = folder.parent


@contextmanager
def process_in(group: Path) -> Iterator[int]:
    """A process without privileges in a control group."""
    user = {"user": 65534} if os.geteuid() == 0 else {}
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, **user) as child:  # type: ignore[call-overload]
        try:
            (group / "cgroup.procs").write_text(str(child.pid))
            yield child.pid
        finally:
            child.communicate()


def slurm(script: str, folder: Path, job: int, gpus: str, shell: Sequence[str] = ("sh",)) -> None:
    env = {**os.environ, "DCGM_HPC_JOB_MAPPING_DIR": str(folder), "SLURM_JOB_ID": str(job), "SLURM_JOB_GPUS": gpus}
    subprocess.run([*shell, DEPLOY / f"slurm-{script}.sh"], env=env, check=True, timeout=PATIENCE)


@pytest.mark.skipif(not os.path.exists("/proc/self/ns/pid"), reason="needs Linux")
def test_prometheus_answers_who_uses_what(tmp_path: Path) -> None:
    if os.readlink("/proc/self/ns/pid") != "pid:[4026531836]":
        pytest.skip("in a PID namespace, the PIDs of a driver name no process")
    idle: Gpu = {"UtilizationRates": (0, 0), "Samples.1": "uint"}
    fake = FakeNvml(tmp_path, h100(0), {**h100(1), **idle}, {**h100(2), **idle})
    jobs = tmp_path / "jobs"
    slurm("prolog", jobs, 43, "2")
    kubelet = Kubelet(Given("ml", "train-0", "main", "nvidia.com/gpu", [GPUS[1]]))
    with ExitStack() as stack:
        enter = stack.enter_context
        job = enter(process_in(enter(cgroup("slurm/uid_65534/job_42/step_0"))))
        pod = enter(process_in(enter(cgroup(f"kubepods/burstable/pod{POD}/{ID}"))))
        for number, pid in enumerate((job, pod)):
            fake.set_lines({f"gpu{number}.ComputeRunningProcesses": listed((pid, 20_000 * MIB))})
        enter(serving(kubelet, tmp_path / "kubelet.sock"))
        collector = enter(Collector(tmp_path))
        server = enter(Prometheus(tmp_path, {"agent": collector.prometheus.split("/")[2]}))
        env = {
            **fake.environment,
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.grpc,
            "OTEL_PYTHON_HARDWARE_SOURCES": "nvidia,holders",
            "OTEL_PYTHON_HARDWARE_DETAIL": "holders",
            "OTEL_PYTHON_HARDWARE_JOB_FILES": str(jobs),
            "OTEL_PYTHON_HARDWARE_POD_RESOURCES": str(tmp_path / "kubelet.sock"),
        }
        enter(started(["otel-hardware", "run", "--interval", "1"], env))

        def answer(text: str, *labels: str) -> dict[tuple[str, ...], float]:
            """The values of a query of the page, by labels."""
            found = server.query(query(text))
            return {tuple(series.get(label, "") for label in labels): value for series, value in found}

        joules = wait(lambda: answer("[1h]", "slurm_job_id"), PATIENCE, "energy by job")
        assert [*joules] == [("42",)]
        wait(lambda: answer("[1h]", "slurm_job_id")[("42",)] > 0, PATIENCE, "energy of the job")
        watts = answer("hw_power_watts", "slurm_job_id")
        assert watts[("42",)] == pytest.approx(512.6)

        found = server.query('sum by (hw_id, slurm_job_id, k8s_pod_name) (hw_power_watts{hw_type="gpu"})')
        assert {(labels["hw_id"], labels.get("slurm_job_id"), labels.get("k8s_pod_name")) for labels, _ in found} >= {
            (GPUS[0], "42", None),
            (GPUS[1], None, "train-0"),
            (GPUS[2], "43", None),
        }, "DETAIL=holders"

        times = count(1_000_000_000, 1_000_000)

        def shares() -> list[float]:
            """The utilization by the job, after another sample of the driver."""
            fake.set_lines({"gpu0.ProcessUtilization": listed((job, next(times), 75, 20, 0, 0))})
            found = server.query('hw_holder_utilization_ratio{slurm_job_id="42",hw_holder_state="used"}')
            return [value for _, value in found if value]

        assert wait(shares, PATIENCE, "utilization by the job") == [0.75]

        held = answer("[15m]", "hw_id", "k8s_pod_uid", "k8s_pod_name", "slurm_job_id")
        assert {holder for holder, share in held.items() if share == 1} == {
            (GPUS[1], POD, "", ""),
            (GPUS[1], "", "train-0", ""),
            (GPUS[2], "", "", "43"),
        }
        assert [*answer("unless", "hw_id", "slurm_job_id")] == [(GPUS[2], "43")]
        memory = server.query('hw_holder_memory_usage_bytes{slurm_job_id="42"}')
        assert [value for _, value in memory] == [20_000 * MIB]
        assert {labels["hw_id"] for labels, _ in server.query(query("> 1e9"))} == {*GPUS}
        used = {labels["hw_id"]: value for labels, value in server.query(query("> 1e9"))}
        assert used == {GPUS[0]: 30_000 * MIB, GPUS[1]: 30_000 * MIB, GPUS[2]: 50_000 * MIB}


def test_prolog_and_epilog_write_the_files_of_dcgm_exporter(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    slurm("prolog", jobs, 42, "0,2-3")
    slurm("prolog", jobs, 7, "3")
    slurm("prolog", jobs, 8, "")
    assert {file.name: file.read_text() for file in jobs.iterdir()} == {"0": "42\n", "2": "42\n", "3": "42\n7\n"}
    slurm("epilog", jobs, 42, "0,2-3")
    assert {file.name: file.read_text() for file in jobs.iterdir()} == {"3": "7\n"}


@pytest.mark.parametrize("shell", [("sh",), ("bash",), ("bash", "--posix")], ids=" ".join)
@pytest.mark.parametrize("script", ["prolog", "epilog"])
def test_prolog_and_epilog_succeed_without_their_folder(script: str, shell: Sequence[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    slurm(script, tmp_path / "file" / "jobs", 42, "0,2-3", shell)  # not even root can make it
    slurm(script, tmp_path / "missing" / "jobs", 42, "0,2-3", shell)
