"""NVML in real programs: old libraries, no library, calls that never return, forks, containers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from tests.sources.nvidia_gpus import OUTERMOST
from tests.support import children
from tests.support.journal import Export, exports, parsed
from tests.support.waiting import wait_for
from tests.tools import Missing, nvitop
from tests.tools.nvml import HANG, MIB, FakeNvml, Gpu, geforce, h100, listed, mig, moving, refused

from opentelemetry.instrumentation.hardware import catalog as c

GPU_ONLY = {"OTEL_PYTHON_HARDWARE_SOURCES": "nvidia", "OTEL_PYTHON_HARDWARE_NVIDIA_SMI": "off"}


# Whether this is the host's PID namespace: NVML reports PIDs of that one.
ON_HOST = os.readlink("/proc/self/ns/pid") == OUTERMOST


def machine(folder: Path, *gpus: Gpu, without: tuple[str, ...] = ()) -> FakeNvml:
    return FakeNvml(folder, *gpus, without=without)


def ran(
    env: Mapping[str, str], *cases: Mapping[str, str], before: Callable[[int], None] = lambda pid: None
) -> list[dict[str, Any]]:
    """The reports of one program with this environment, one for each case, which adds to the environment.

    Args:
        before: Called with its pid before the first case.
    """
    with children.started(children.command("machines/nvidia_run"), {**GPU_ONLY, **env}) as child:
        before(child.pid)
        out, err = child.communicate("".join(f"{json.dumps(case)}\n" for case in cases), timeout=children.PATIENCE)
    assert (child.returncode, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def value(report: Mapping[str, Any], name: str, **attributes: str) -> Any:
    """The value of a reported point by its attributes, with dots as ``_``; None without such a point."""
    for metric, about, number in report["points"]:
        if (
            metric == name
            and attributes.items() <= {key.replace(".", "_"): each for key, each in about.items()}.items()
        ):
            return number
    return None


NEWER = """
import os
from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.sources.nvidia.nvml import Nvml
nvml = Nvml(os.environ["OTEL_PYTHON_HARDWARE_NVML"])
for call in (lambda: nvml.get("0", "PowerUsage"), lambda: nvml.processes("0", "Compute")):
    try:
        call()
    except DriverError as error:
        print(error)
import nvitop
"""


def test_error_code_newer_than_the_binding_leaves_the_binding_unchanged(tmp_path: Path) -> None:
    nvitop()
    fake = machine(tmp_path, h100() | {"PowerUsage": refused(70), "ComputeRunningProcesses": refused(71)})
    answer = children.run([sys.executable, "-c", NEWER], fake.environment)
    assert answer.stdout.splitlines() == ["Unknown Error (70)", "Unknown Error (71)"]
    assert answer.returncode == 0, answer.stderr


# -- No driver, or no library.


LIBRARY = "OTEL_PYTHON_HARDWARE_NVML"


class Bare(NamedTuple):
    """The reports of a program without a driver.

    Attributes:
        reports: By case.
        calls: The calls of the library on its library path.
        file: A file that is no library.
    """

    reports: Mapping[str, dict[str, Any]]
    calls: Mapping[str, int]
    file: Path


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Bare:
    """One program runs all cases, those that must not load a library first."""
    folder = tmp_path_factory.mktemp("bare")
    fake = machine(folder, h100())
    file = folder / "libnvidia-ml.so.1"
    file.write_text("This is no library")
    cases = {
        "default": {},
        "auto": {LIBRARY: "auto"},
        "off": {LIBRARY: "off"},
        "no file": {LIBRARY: str(folder / "nowhere" / "libnvidia-ml.so.1")},
        "no library": {LIBRARY: str(file)},
    }
    env = {name: text for name, text in fake.environment.items() if name != LIBRARY}
    return Bare(dict(zip(cases, ran(env, *cases.values()))), fake.calls(), file)


@pytest.mark.parametrize("case", ["default", "auto", "off"])
def test_without_driver_no_library_is_imported_or_loaded(bare: Bare, case: str) -> None:
    if os.path.exists("/sys/module/nvidia/initstate") and case != "off":
        pytest.skip("this machine has an NVIDIA driver")
    report = bare.reports[case]
    assert not report["imported"]
    assert not report["mapped"]
    assert bare.calls == {}
    assert {name for name, *_ in report["points"] if name.startswith(("hw.", "process.gpu."))} == set()
    assert "no NVIDIA driver" in report["problem"] or "switched off" in report["problem"]
    assert "WARNING" not in report["heard"]


def test_library_path_without_file_is_the_problem(bare: Bare) -> None:
    report = bare.reports["no file"]
    assert "cannot open shared object file" in report["problem"]
    assert "WARNING" not in report["heard"]


def test_library_path_of_a_file_that_is_no_library_is_the_problem(bare: Bare) -> None:
    report = bare.reports["no library"]
    assert "NVML: " in report["problem"]
    assert str(bare.file) in report["problem"]
    assert "WARNING" not in report["heard"]


REFUSED = """
from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.sources.nvidia.binding import Binding
try:
    Binding("")
except DriverError as error:
    print(error)
"""


def test_library_that_the_loader_refuses_is_not_called_missing(tmp_path: Path) -> None:
    """As on Alpine, whose C library lacks functions that NVIDIA's library calls."""
    file = tmp_path / "libnvidia-ml.so.1"
    file.write_text("This is no library")
    answer = children.run([sys.executable, "-c", REFUSED], {"LD_LIBRARY_PATH": str(tmp_path)})
    assert file.name in answer.stdout, answer.stderr


def test_binding_is_not_imported_by_our_threads(tmp_path: Path) -> None:
    (report,) = ran(machine(tmp_path, h100()).environment, {})
    assert report["imported"]
    assert report["mapped"]
    assert report["asked"] == []
    assert value(report, "hw.power") == pytest.approx(512.6)


# -- Libraries of other versions.


def test_old_library_is_called_by_its_older_function_names(tmp_path: Path) -> None:
    lacks = (
        *(
            f"nvmlDeviceGet{kind}RunningProcesses_v{n}"
            for kind in ("Compute", "Graphics", "MPSCompute")
            for n in (2, 3)
        ),
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlGpmQueryDeviceSupport",
        "nvmlDeviceGetSamples",
        "nvmlDeviceGetFanSpeedRPM",
        "nvmlDeviceGetJpgUtilization",
        "nvmlDeviceGetOfaUtilization",
    )
    fake = machine(tmp_path, geforce(), without=lacks)
    fake.set_lines({"gpu0.CurrentClocksThrottleReasons": 0x40})
    (report,) = ran(
        fake.environment,
        {},
        before=lambda pid: fake.set_lines({"gpu0.ComputeRunningProcesses": listed((pid, 12 * MIB), (1, MIB))}),
    )
    assert value(report, "hw.gpu.memory.usage") == (10_000 + 350) * MIB
    assert value(report, "hw.gpu.utilization", hw_gpu_task="general") == pytest.approx(0.97)
    assert value(report, "hw.gpu.throttle.time", hw_gpu_throttle_reason="thermal_hw") > 0
    assert value(report, "hw.fan.speed_ratio") == 0.45
    assert value(report, "hw.fan.speed") is None
    assert value(report, "process.gpu.memory.usage") == (12 * MIB if ON_HOST else None)
    assert "Function Not Found" in " ".join(report["missing"])
    assert "WARNING" not in report["heard"]


def test_library_with_few_functions_exports_what_it_has(tmp_path: Path) -> None:
    lacks = (
        "nvmlDeviceGetFieldValues",
        "nvmlEventSetCreate",
        "nvmlDeviceGetProcessUtilization",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetPciInfo_v3",
        *(f"nvmlDeviceGetComputeRunningProcesses{version}" for version in ("", "_v2", "_v3")),
    )
    (report,) = ran(machine(tmp_path, mig(h100(), 0, {0: (1, 0)}), without=lacks).environment, {})
    assert value(report, "hw.power") == pytest.approx(512.6)
    assert value(report, "hw.energy") >= 0
    assert value(report, "hw.status", hw_state="ok") == 1
    assert "WARNING" not in report["heard"]
    assert "ERROR" not in report["heard"]


# -- A job: only its reporter exports the GPUs and registers for events.


def test_job_member_exports_only_its_own_gpu_memory(tmp_path: Path) -> None:
    fake = machine(tmp_path, h100())
    (report,) = ran(
        {**fake.environment, "OTEL_PYTHON_HARDWARE_REPORTER": "never"},
        {},
        before=lambda pid: fake.set_lines({"gpu0.ComputeRunningProcesses": listed((pid, 12 * MIB))}),
    )
    found = {name for name, *_ in report["points"] if not name.startswith("otel_hardware.")}
    assert found == ({"process.gpu.memory.usage"} if ON_HOST else set())
    calls = fake.calls()
    assert [call for call in calls if call.startswith("Event") or "RegisterEvents" in call] == []
    assert calls["gpu0.UtilizationRates"] == calls["gpu0.FieldValues"] == 0


# -- A program that runs on while the driver fails.

OFTEN = 0.2  # seconds between two exports, for a program that exports by itself

ON_COMMAND = 3600.0  # the same for a program that exports on command only


class Program:
    """A program with metrics and NVIDIA GPUs.

    Attributes:
        fake: The driver.
        child: The program.
        journal: The file that it exports to.
    """

    def __init__(self, fake: FakeNvml, child: children.Piped, journal: Path) -> None:
        self.fake = fake
        self.child = child
        self.journal = journal
        self._read = 0
        self._exports: list[Export] = []

    def exports(self) -> list[Export]:
        """All exports of the program itself so far."""
        if self.journal.exists():
            with self.journal.open("rb") as journal:
                journal.seek(self._read)
                whole = journal.read().rpartition(b"\n")[0]
            if whole:
                self._read += len(whole) + 1
                found = map(parsed, whole.decode().split("\n"))
                self._exports += [export for export in found if export.pid == self.child.pid]
        return self._exports

    def last(self) -> Export:
        return self.exports()[-1]

    def until(self, condition: Callable[[Export], object], what: str) -> None:
        """Wait until the last export fulfils the condition."""

        def holds() -> bool:
            assert self.child.poll() is None, self.child.communicate()
            return bool(self.exports()) and bool(condition(self.last()))

        wait_for(holds, children.PATIENCE, what)

    def ask(self, word: str) -> Any:
        """Send it a command; returns the JSON value that it prints when the command is done."""
        self.child.stdin.write(word + "\n")
        self.child.stdin.flush()
        return json.loads(self.child.stdout.readline())

    def export(self) -> Export:
        """Send the command `export`; returns what was exported."""
        self.ask("export")
        return self.last()

    def end(self) -> list[str]:
        """Close its input and wait for its end; returns the lines of its log."""
        self.child.end_input()
        _, err = children.end_of(self.child)
        assert self.child.returncode == 0, err
        return err.splitlines()


Start = Callable[..., Program]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def start(
            *gpus: Gpu, every: float, lines: Mapping[str, str] | None = None, library: Path | None = None
        ) -> Program:
            fake = machine(tmp_path, *gpus)
            fake.set_lines(lines or {})
            journal = tmp_path / "journal"
            env = {**fake.environment, "OTEL_PYTHON_HARDWARE_NVIDIA_SMI": "off"}
            if library is not None:
                env["OTEL_PYTHON_HARDWARE_NVML"] = str(library)
            child = stack.enter_context(
                children.started(children.command("machines/nvidia_journal", journal, every), env)
            )
            return Program(fake, child, journal)

        yield start


def powered(count: int) -> Callable[[Export], bool]:
    """The condition that so many GPUs have `hw.power`."""
    return lambda export: len(export.values("hw.power")) == count


def up(export: Export) -> list[int]:
    found: list[int] = export.values("otel_hardware.source.up", otel_hardware_source="nvidia")
    return found


def alone(export: Export) -> bool:
    """Whether the NVIDIA source is down without values while all other sources have theirs."""
    others = {"system.cpu.time", "process.cpu.time", "system.memory.usage"} <= export.names()
    host = export.values("otel_hardware.source.up", otel_hardware_source="host")
    return (up(export), export.values("hw.power"), host, others) == ([0], [], [1], True)


# Seconds without an answer after which a source counts as hanging and its readings as old, and some more.
HANGS = 5


@pytest.mark.parametrize(
    ("call", "ending"), [("gpu1.PowerUsage", "heal"), ("gpu0.UUID", "uninstrument"), ("EventSetWait", "leave")]
)
def test_hanging_nvml_call_loses_only_gpu_metrics_and_the_program_ends(start: Start, call: str, ending: str) -> None:
    program = start(h100(0), h100(1), every=OFTEN)
    program.until(powered(2), "export of both GPUs")
    device, _, name = call.partition(".")
    before = program.fake.calls()[call]
    # The UUID is read again only after the device was lost.
    lost = {device: refused(15)} if name == "UUID" else {}
    program.fake.set_lines({call: HANG, **lost})
    if lost:
        program.until(powered(1), "export without the lost device")
        program.fake.set_lines({device: None})
    wait_for(lambda: program.fake.calls()[call] > before, children.PATIENCE, "call that hangs")
    program.ask(f"later {HANGS}")
    program.until(alone, "export of all others, which reports that the driver hangs")
    steps = len(program.exports())
    program.until(lambda export: len(program.exports()) > steps + 2, "more exports")
    if ending == "heal":
        program.fake.set_lines({call: h100(1)[name]})
        program.until(lambda export: up(export) == [1] and powered(2)(export), "recovery")
    elif ending == "uninstrument":
        assert program.ask("uninstrument")["threads"] == ["otel-hardware-nvidia"]
    heard = [line for line in program.end() if "Source nvidia" in line]
    assert [line.split()[0] for line in heard] == ["WARNING", "INFO"][: 1 + (ending == "heal")], heard


def test_hanging_nvml_init_loses_only_gpu_metrics_and_the_program_ends(start: Start) -> None:
    program = start(h100(), every=OFTEN, lines={"Init": HANG})
    wait_for(lambda: program.fake.calls()["Init"], children.PATIENCE, "call that hangs")
    program.ask(f"later {HANGS}")
    program.until(alone, "export of all others, which reports that the driver hangs")
    heard = [line for line in program.end() if "nvidia" in line]
    assert [line.split()[0] for line in heard] == ["WARNING"], heard


def test_library_that_hangs_while_it_is_loaded_loses_only_gpu_metrics(start: Start, tmp_path: Path) -> None:
    fifo = tmp_path / "libnvidia-ml.so.1"
    os.mkfifo(fifo)
    program = start(h100(), every=OFTEN, library=fifo)
    program.until(alone, "export of all others, which reports that the source is down")
    assert [line.split()[0] for line in program.end() if "nvidia" in line] == ["WARNING"]


def test_uninstrument_releases_the_driver_and_instrument_opens_it_again(start: Start) -> None:
    program = start(h100(), every=ON_COMMAND)
    for round_ in range(1, 4):
        assert powered(1)(program.export())
        assert program.ask("uninstrument") == {"threads": [], "open": []}
        calls = program.fake.calls()
        assert (calls["Init"], calls["Shutdown"]) == (round_, round_)
        assert calls["EventSetCreate"] == calls["EventSetFree"] == round_
        assert calls["GpmSampleAlloc"] == calls["GpmSampleFree"] == 2 * round_
        assert powered(0)(program.export())
        program.ask("again")
    assert powered(1)(program.export())
    assert [line for line in program.end() if line.startswith(("WARNING", "ERROR"))] == []


def test_forked_child_opens_the_driver_anew_and_its_parent_goes_on(start: Start) -> None:
    program = start(h100(), every=ON_COMMAND)
    assert powered(1)(program.export())
    before = program.fake.calls()
    assert program.ask("fork") == 0
    after = program.fake.calls()
    assert after["Init"] == before["Init"] + 1, "the child's own"
    assert after["Shutdown"] == before["Shutdown"] + 1
    assert after["gpu0.ComputeRunningProcesses_v3"] > before["gpu0.ComputeRunningProcesses_v3"]
    assert any(export.pid != program.child.pid and up(export) == [1] for export in exports(program.journal))
    assert powered(1)(program.export())
    assert [line for line in program.end() if line.startswith(("WARNING", "ERROR"))] == []


# -- Containers: separate PID namespaces.

# Makes a /dev with an nvidia-uvm device, which programs that compute hold open, and runs a command.
CONTAINER = """
set -e
mount -t tmpfs dev "$1"
for name in null zero random urandom; do touch "$1/$name"; mount --bind "/dev/$name" "$1/$name"; done
touch "$1/nvidia-uvm"
mount --bind "$1" /dev
shift
exec "$@"
"""


# The flags of a container, and of a sandbox that shows the /proc of the host.
OWN_PROC, HOSTS_PROC = ("--mount-proc",), ()

ABSENT = 4_194_999  # a PID that no process has: it is above the kernel's limit

# By GPU the processes that the driver lists, with their MiB. ``ours`` and ``child`` are PIDs in the container, ``host``
# and ``child-host`` those outside of it; ``other`` is a process of somebody else outside of it.
Lists = Mapping[str, Sequence[tuple[str, int]]]


def contained(
    folder: Path, fake: FakeNvml, flags: Sequence[str], holder: str, lists: Lists, sampled: str | None = None
) -> Any:
    """The report of a program that is process 1 of a new PID namespace.

    Args:
        holder: Which process has the device open.
        sampled: The process for which the driver has a sample of utilization before a second reading; "" for none.
    """
    folder.mkdir()
    line = ["unshare", "--mount", "--pid", "--fork", "--kill-child", *flags, "sh", "-c", CONTAINER, "sh", str(folder)]
    program = children.command("machines/nvidia_container", holder, "/dev/nvidia-uvm")
    with children.started([*line, *program], {**GPU_ONLY, **fake.environment}) as child:
        inside = json.loads(child.stdout.readline() or "[]")
        assert inside, child.communicate()
        outside = [each.pid for each in psutil.Process(child.pid).children(recursive=True)]
        pids = {"ours": inside[0], "host": outside[0], "other": ABSENT, "child": inside[-1], "child-host": outside[-1]}
        fake.set_lines(
            {
                f"{gpu}.ComputeRunningProcesses": listed(*((pids[name], size * MIB) for name, size in users))
                for gpu, users in lists.items()
            }
            | {"gpu0.ProcessUtilization": ""}
        )
        child.stdin.write("open\nread\n")
        child.stdin.flush()
        report = child.stdout.readline()
        if sampled:
            fake.set_lines({"gpu0.ProcessUtilization": listed((pids[sampled], 1_000_000, 50, 10, 0, 0))})
        out, err = child.communicate("read\n", timeout=children.PATIENCE)
        assert child.returncode == 0, err
    return json.loads(report if sampled is None else out)


@pytest.fixture
def namespaces(tmp_path: Path) -> None:
    """Skips the test where pid namespaces cannot be made."""
    probe = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "mount", "-t", "tmpfs", "dev", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode:
        raise Missing(f"process namespaces cannot be made here: {probe.stderr.strip()}")


def case(name: str, flags: Sequence[str], holder: str, lists: Lists, memory: Sequence[int], is_explained: bool) -> Any:
    return pytest.param(flags, holder, lists, memory, is_explained, id=name)


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize(
    ("flags", "holder", "lists", "memory", "is_explained"),
    [
        # The driver reports PIDs of the container.
        case("ours", OWN_PROC, "program", {"gpu0": [("ours", 7)]}, [7], False),
        case("ours-on-two", OWN_PROC, "program", {"gpu0": [("ours", 7)], "gpu1": [("ours", 5)]}, [5, 7], False),
        case("ours-without-device", OWN_PROC, "nobody", {"gpu0": [("ours", 7)]}, [], False),
        case("child", OWN_PROC, "child", {"gpu0": [("child", 7)]}, [7], False),
        case("child-with-our-pid", OWN_PROC, "child", {"gpu0": [("ours", 7)]}, [], True),
        case("nothing", OWN_PROC, "program", {}, [], True),
        # The driver reports PIDs of the host. One of them is the same number as ours.
        case("host", OWN_PROC, "program", {"gpu0": [("host", 7)]}, [], True),
        case("host-and-same-number", OWN_PROC, "program", {"gpu0": [("host", 7), ("ours", 9)]}, [], True),
        case("same-number", OWN_PROC, "program", {"gpu0": [("ours", 9), ("other", 1)]}, [], True),
        case("elsewhere", OWN_PROC, "program", {"gpu0": [("ours", 9)], "gpu1": [("host", 7)]}, [], True),
        case("child-host", OWN_PROC, "child", {"gpu0": [("child-host", 7)]}, [], True),
        case("idle-same-number", OWN_PROC, "nobody", {"gpu0": [("ours", 9), ("other", 1)]}, [], False),
        # A sandbox with the /proc of the host knows the PIDs of the host.
        case("sandbox-host", HOSTS_PROC, "program", {"gpu0": [("host", 7)]}, [7], False),
        case("sandbox-same", HOSTS_PROC, "program", {"gpu0": [("host", 7), ("ours", 9)]}, [7], False),
        case("sandbox-ours", HOSTS_PROC, "program", {"gpu0": [("ours", 9)]}, [], True),
        case("sandbox-without-device", HOSTS_PROC, "nobody", {"gpu0": [("host", 7)]}, [], False),
    ],
)
def test_memory_in_a_container_is_attributed_to_its_program_or_not_at_all(
    tmp_path: Path, flags: Sequence[str], holder: str, lists: Lists, memory: Sequence[int], is_explained: bool
) -> None:
    fake = machine(tmp_path, h100(0), h100(1))
    report = contained(tmp_path / "dev", fake, flags, holder, lists)
    found = sorted(value for name, value in report["used"] if name == "process.gpu.memory.usage")
    assert found == [size * MIB for size in memory]
    explained = [sentence for sentence in report["missing"] if "--pid=host" in sentence]
    assert len(explained) == is_explained, report["missing"]
    assert all(sentence.startswith("process.gpu.*: ") for sentence in explained)


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize(("sampled", "utilization"), [("ours", [0.5]), ("host", []), ("other", []), ("", [0.0])])
def test_utilization_in_a_container_is_attributed_by_pids_of_the_container(
    tmp_path: Path, sampled: str, utilization: Sequence[float]
) -> None:
    """A driver can list processes by the PIDs of the container, and sample their utilization by those of the host."""
    fake = machine(tmp_path, h100())
    report = contained(tmp_path / "dev", fake, OWN_PROC, "program", {"gpu0": [("ours", 7)]}, sampled)
    assert ["process.gpu.memory.usage", 7 * MIB] in report["used"]
    assert [value for name, value in report["used"] if name == "process.gpu.utilization"][:1] == utilization


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize(("name", "memory"), [("ours", [7 * MIB]), ("host", [])])
def test_memory_of_a_mig_instance_in_a_container_is_attributed_likewise(
    tmp_path: Path, name: str, memory: Sequence[int]
) -> None:
    fake = machine(tmp_path, mig(h100(), 0, {0: (7, 0), 1: (8, 0)}))
    report = contained(tmp_path / "dev", fake, OWN_PROC, "program", {"gpu0.mig1": [(name, 7)]})
    assert [value for metric, value in report["used"] if metric == "process.gpu.memory.usage"] == memory


@pytest.mark.parametrize("mode", ["process", "agent"])
@pytest.mark.parametrize(("holds", "cuda", "devices"), [(True, "0,1", 2), (True, "1", 1), (False, "0,1", 0)])
def test_spans_in_a_container_have_the_energy_of_the_visible_gpus(
    tmp_path: Path, namespaces: None, mode: str, holds: bool, cuda: str, devices: int
) -> None:
    """The driver names PIDs that the program cannot see, which is usual in Docker and Kubernetes."""
    fake = FakeNvml(
        tmp_path,
        *(
            {
                **h100(index),
                "FieldValues.83": f"ullong {moving(5_000_000, 250_000.0)}",
                "ComputeRunningProcesses": listed((ABSENT, 700 * MIB)),
            }
            for index in range(2)
        ),
    )
    line = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    (tmp_path / "dev").mkdir()
    line += ["sh", "-c", CONTAINER, "sh", str(tmp_path / "dev")]
    program = children.command("spans/hidden_spans", mode, *(["/dev/nvidia-uvm"] if holds else []))
    env = {"OTEL_METRICS_EXPORTER": "none", "CUDA_VISIBLE_DEVICES": cuda, **fake.environment}
    found = json.loads(children.succeed([*line, *program], env).stdout)
    assert found.get(c.SPAN_DEVICES.name) == ("visible" if devices else None)
    assert found.get(c.SPAN_ENERGY.name, 0.0) == pytest.approx(devices * 500.0, rel=0.1)
    assert c.SPAN_CPU_TIME.name in found
