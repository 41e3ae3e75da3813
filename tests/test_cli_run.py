"""``otel-hardware run``: the agent as a process of its own, with real signals, programs, exit codes and receivers."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import dropwhile
from pathlib import Path

import psutil
import pytest
from tests.children import PATIENCE, command, environment, in_pid_namespace, run, started
from tests.sink import Sink
from tests.waiting import wait_for

from opentelemetry.instrumentation.hardware.identity import JOB, key

AGENT = ["otel-hardware", "run"]
FAST = {"OTEL_PYTHON_HARDWARE_SAMPLE_INTERVAL": "0.5"}
NO_COLLECTOR = "no endpoint is set and nobody answers at http://localhost:4317"


@pytest.fixture
def sink() -> Iterator[Sink]:
    with Sink() as each:
        yield each


@pytest.fixture
def alone() -> list[str]:
    """How to start a command where nobody listens at the default port: in a network of its own, if we may."""
    line = ["unshare", "--user", "--map-root-user", "--net"]
    if shutil.which("unshare") and subprocess.run([*line, "true"], capture_output=True, check=False).returncode == 0:
        return line
    with socket.socket() as probe:
        if probe.connect_ex(("localhost", 4317)) == 0:
            pytest.skip("somebody listens at localhost:4317, and this user may not have a network of their own")
    return []


@pytest.fixture
def silent() -> Iterator[str]:
    """An endpoint that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def nobody() -> Iterator[str]:
    """An endpoint where nobody listens, nor can while the test lasts."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{probe.getsockname()[1]}"


def newest(sink: Sink, name: str) -> list[float]:
    """The values of a metric in the last export."""
    return [point.value for point in sink.exports[-1].points if point.name == name]


def names(sink: Sink) -> set[str]:
    return {point.name for export in sink.exports for point in export.points}


# -- the agent by itself


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_with_the_last_numbers(sink: Sink, number: signal.Signals) -> None:
    with started(AGENT, sink.environment(interval=3600) | FAST) as agent:
        assert agent.stderr is not None
        line = agent.stderr.readline()
        assert "is reported every 3600 s" in line
        agent.send_signal(number)
        out, err = agent.communicate(timeout=PATIENCE)
    assert (agent.returncode, out, err) == (0, "", "")
    assert {"system.cpu.time", "system.memory.usage", "system.filesystem.usage", "process.cpu.time"} <= names(sink)


def test_it_exports_again_and_again_until_it_is_told_to_end(sink: Sink) -> None:
    """An explicit --interval wins over OTEL_METRIC_EXPORT_INTERVAL."""

    def read() -> list[int]:  # on a busy machine some exports may come before the first reading
        counts = [sum(point.name == "system.cpu.time" for point in export.points) for export in sink.exports]
        return [*dropwhile(lambda count: count == 0, counts)]

    with started([*AGENT, "--interval", "0.2"], sink.environment() | FAST) as agent:
        wait_for(lambda: len(read()) >= 3, PATIENCE, "third export")
        agent.terminate()
        _, err = agent.communicate(timeout=PATIENCE)
    assert agent.returncode == 0, err
    assert len(set(read())) == 1, "every export has every series once"


def test_its_resource_names_the_host_and_the_service() -> None:
    answer = run([*AGENT, "--duration", "0.1"], {"OTEL_METRICS_EXPORTER": "console"})
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)["resource_metrics"][0]["resource"]["attributes"]
    assert found["host.name"] == socket.gethostname()
    assert found["service.name"] == "otel-hardware"
    machine = Path("/etc/machine-id")
    if machine.exists() and _sdk() >= (1, 45):
        assert found["host.id"] == machine.read_text().strip()


def _sdk() -> tuple[int, ...]:
    from opentelemetry.sdk.version import __version__

    return tuple(map(int, re.findall(r"\d+", __version__)[:2]))


@pytest.mark.parametrize(
    ("variable", "value", "service"),
    [
        ("OTEL_SERVICE_NAME", "mine", "mine"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=theirs,team=a", "theirs"),
        ("OTEL_EXPERIMENTAL_RESOURCE_DETECTORS", "process", "otel-hardware"),
    ],
)
def test_what_the_environment_says_of_the_resource_stays(variable: str, value: str, service: str) -> None:
    answer = run([*AGENT, "--duration", "0.1"], {"OTEL_METRICS_EXPORTER": "console", variable: value})
    found = json.loads(answer.stdout)["resource_metrics"][0]["resource"]["attributes"]
    assert found["service.name"] == service
    assert found["host.name"] == socket.gethostname()
    assert ("process.pid" in found) == (value == "process")


def test_without_a_collector_it_says_so_once_and_shows_tables(alone: list[str]) -> None:
    with started([*alone, *AGENT, "--interval", "0.2"], FAST) as agent:
        assert agent.stdout is not None
        shown = ""
        while shown.count("system.cpu\n") < 3:
            shown += agent.stdout.readline()
        agent.send_signal(signal.SIGINT)
        rest, err = agent.communicate(timeout=PATIENCE)
    assert agent.returncode == 0
    assert err.count(NO_COLLECTOR) == len(err.splitlines()) == 1
    assert "\x1b" not in shown + rest, "control sequences are for terminals"
    assert re.search(r"^  utilization +user [\d.<]+ %", shown, re.MULTILINE)


def test_on_a_terminal_the_table_is_redrawn_in_place(alone: list[str]) -> None:
    ours, theirs = pty.openpty()
    env = environment(FAST | {"TERM": "xterm", "COLUMNS": "80", "LINES": "30"})
    line = [*alone, *AGENT, "--interval", "0.2"]
    with subprocess.Popen(line, env=env, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL) as agent:
        os.close(theirs)
        shown = b""
        while shown.count(b"\x1b[H") < 3:
            shown += os.read(ours, 65536)
        agent.terminate()
        screen, _, after = _all(ours, shown).partition("\x1b[?1049l")
        assert agent.wait(PATIENCE) == 0
    assert screen.startswith("\x1b[?1049h")
    frames = screen.split("\x1b[H")[1:]
    assert all(frame.count("\n") < 30 for frame in frames), "a frame never scrolls"
    assert "a taller window" in frames[0]
    assert "system.cpu" in after, "the last table stays behind"


def _all(descriptor: int, shown: bytes = b"") -> str:
    """What a terminal has shown when its last program has ended."""
    while True:
        try:
            more = os.read(descriptor, 65536)
        except OSError:  # nobody has it open any more
            more = b""
        if not more:
            os.close(descriptor)
            return shown.decode().replace("\r\n", "\n")
        shown += more


def test_the_live_table_can_stand_beside_the_export(sink: Sink) -> None:
    with started([*AGENT, "--console", "--interval", "0.3"], sink.environment() | FAST) as agent:
        assert agent.stdout is not None
        while "system.memory" not in agent.stdout.readline():
            assert agent.poll() is None
        wait_for(lambda: "system.memory.usage" in names(sink), PATIENCE, "export of what the table shows")
        agent.terminate()
        _, err = agent.communicate(timeout=PATIENCE)
    assert agent.returncode == 0, err


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_an_endpoint_where_nobody_answers_is_said_once_and_tried_on(nobody: str, protocol: str) -> None:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": nobody, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol} | FAST
    answer = run([*AGENT, "--interval", "0.3", "--duration", "2"], env)
    assert answer.returncode == 0
    said = answer.stderr.splitlines()
    assert len(said) <= 4, "the SDK repeats itself, we do not"
    assert "nobody answers at" in said[0]
    assert "the last numbers are lost" in said[-1]
    assert "Traceback" not in answer.stderr


def test_an_endpoint_that_never_answers_does_not_hold_the_end(silent: str) -> None:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": silent, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
    answer = run([*AGENT, "--duration", "0.2"], env | {"OTEL_EXPORTER_OTLP_TIMEOUT": str(10 * PATIENCE)})
    assert answer.returncode == 0


def test_below_a_program_that_reports_the_host_it_reports_its_process_alone(sink: Sink) -> None:
    answer = run([*AGENT, "--duration", "0.3"], sink.environment() | {JOB: key(os.getpid())})
    assert answer.returncode == 0
    assert f"process {os.getpid()}" in answer.stderr
    assert not any(name.startswith("system.") for name in names(sink))
    assert "process.cpu.time" in names(sink)


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        ({"OTEL_METRICS_EXPORTER": "none"}, "OTEL_METRICS_EXPORTER=none leaves nothing to report to"),
        ({"OTEL_SDK_DISABLED": "true"}, "OTEL_SDK_DISABLED=true leaves nothing to report to"),
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "carrier/pigeon", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
            "carrier/pigeon",
        ),
        ({"OTEL_METRICS_EXPORTER": "abacus"}, "abacus"),
        (
            {"OTEL_METRIC_EXPORT_INTERVAL": "-5", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
            "OTEL_METRIC_EXPORT_INTERVAL=-5",
        ),
    ],
)
def test_a_configuration_that_cannot_work_is_one_sentence(env: dict[str, str], sentence: str) -> None:
    answer = run([*AGENT, "--duration", "5"], env)
    assert answer.returncode == 2
    assert sentence in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--interval", "fast"],
        ["--sources", "gpu"],
        ["--sources", "host,-gpu"],
        ["--duration", "-1"],
        ["--detail", "everything"],
        ["--duration", "1", "--", "true"],
    ],
)
def test_a_mistake_in_the_arguments_is_one_sentence(arguments: list[str]) -> None:
    answer = run([*AGENT, *arguments])
    assert answer.returncode == 2
    assert "Traceback" not in answer.stderr
    assert arguments[0] in answer.stderr


@pytest.mark.parametrize("columns", [50, 90])
def test_what_is_said_is_wrapped_on_a_terminal(nobody: str, columns: int) -> None:
    ours, theirs = pty.openpty()
    env = environment({"OTEL_EXPORTER_OTLP_ENDPOINT": nobody, "COLUMNS": str(columns)})
    with subprocess.Popen([*AGENT, "--duration", "0.1"], env=env, stdin=theirs, stdout=theirs, stderr=theirs) as agent:
        os.close(theirs)
        lines = _all(ours).splitlines()
        assert agent.wait(PATIENCE) == 0
    assert max(map(len, lines)) <= columns
    assert lines[0].startswith("otel-hardware: nobody answers at")
    assert "exporting goes on trying" in " ".join(" ".join(lines).split())


def test_the_wrong_protocol_for_a_port_is_said() -> None:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    answer = run([*AGENT, "--duration", "0.1"], env)
    assert "port 4318 is usually http/protobuf" in answer.stderr


# -- around a program


def around(*program: str) -> list[str]:
    return [*AGENT, "--", *program]


def python(code: str) -> list[str]:
    return around(sys.executable, "-c", code)


@pytest.mark.parametrize(("code", "status"), [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137)])
def test_the_programs_exit_code_is_ours(sink: Sink, code: str, status: int) -> None:
    assert run(python(code), sink.environment()).returncode == status
    assert sink.exports, "even so short a program is reported"


def test_a_program_that_cannot_be_started_is_said_as_shells_do(sink: Sink, tmp_path: Path) -> None:
    answer = run(around("/no/such/program"), sink.environment())
    assert (answer.returncode, len(answer.stderr.splitlines())) == (127, 1)
    (tmp_path / "text").write_text("no program")
    answer = run(around(str(tmp_path / "text")), sink.environment())
    assert (answer.returncode, len(answer.stderr.splitlines())) == (126, 1)


def test_its_numbers_are_those_at_its_end(sink: Sink) -> None:
    code = """
import time
held = bytearray(150_000_000)
input()
while time.process_time() < 0.7:
    pass
print(time.process_time())
"""
    with started(python(code), sink.environment(interval=0.2) | FAST) as agent:
        taken = "reading of the memory that it has taken"
        wait_for(lambda: sink.exports and sum(newest(sink, "process.memory.peak")) >= 150_000_000, PATIENCE, taken)
        out, err = agent.communicate("\n", timeout=PATIENCE)
    assert agent.returncode == 0, err
    own = float(out)
    seen = sum(newest(sink, "process.cpu.time"))
    assert own - 0.02 <= seen <= own + 0.3, "CPU time of the whole program, the end of it included"
    assert newest(sink, "process.memory.usage")[0] >= 1_000_000, "not the empty shell that it leaves behind"


def test_its_children_count_as_its_tree(sink: Sink) -> None:
    code = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
input()
child.communicate(b"\\n")
"""
    with started(python(code), sink.environment(interval=0.2) | FAST) as agent:
        wait_for(lambda: sink.exports and newest(sink, "process.tree.count") == [2], PATIENCE, "tree of two processes")
        agent.communicate("\n", timeout=PATIENCE)
    assert agent.returncode == 0


def test_it_has_its_own_environment_and_streams(sink: Sink) -> None:
    code = "import json, os, sys; print(json.dumps([dict(os.environ), sys.stdin.read()])); sys.stderr.write('heard')"
    env = sink.environment()
    with started(python(code), env) as agent:
        out, err = agent.communicate("said", timeout=PATIENCE)
    theirs, said = json.loads(out)
    assert theirs.pop(JOB).startswith(f"{agent.pid}.")
    theirs.pop("LC_CTYPE", None)  # Python sets it for itself
    assert theirs == {name: value for name, value in environment(env).items() if name != "LC_CTYPE"}
    assert (said, err) == ("said", "heard")


def test_an_instrumented_program_leaves_the_host_to_us(sink: Sink) -> None:
    program = ["opentelemetry-instrument", "--service_name", "inner", sys.executable, "-c", "input()"]

    def of(name: str) -> set[int]:
        """The processes that report a metric."""
        return {export.pid for export in sink.exports if name in {point.name for point in export.points}}

    with started(around(*program), sink.environment(interval=0.2) | FAST) as agent:
        wait_for(lambda: of("system.cpu.time") and len(of("process.thread.count")) == 2, PATIENCE, "exports of both")
        agent.communicate("\n", timeout=PATIENCE)
    assert agent.returncode == 0
    assert of("system.cpu.time") == {agent.pid}
    (inner,) = of("process.thread.count") - {agent.pid}
    own = {point.name for export in sink.exports if export.pid == inner for point in export.points}
    assert all(name.startswith(("process.", "otel_hardware.")) for name in own)


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2]
)
def test_signals_reach_the_program(sink: Sink, number: signal.Signals) -> None:
    code = f"""
import signal, sys, time
signal.signal({int(number)}, lambda *_: sys.exit(5))
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""

    def heeded() -> None:  # whoever runs the tests under nohup has SIGHUP ignored, which we would respect
        signal.signal(number, signal.SIG_DFL)

    with started(python(code), sink.environment(), preexec_fn=heeded) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == "ready\n"
        agent.send_signal(number)
        agent.communicate(timeout=PATIENCE)
    assert agent.returncode == 5
    assert sink.exports


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_a_program_of_another_user_that_cannot_be_told_is_waited_for_all_the_same() -> None:
    code = """
import os, signal, subprocess
from opentelemetry.instrumentation.hardware.cli.run import _ended
from opentelemetry.instrumentation.hardware.cli.signals import Signals
child = subprocess.Popen(["sleep", "3600"])
with Signals([signal.SIGTERM]) as signals:
    os.setresuid(65534, 65534, 0)
    signal.raise_signal(signal.SIGTERM)
    print(_ended(child, signals, 0.0))
    os.setresuid(0, 0, 0)
child.kill()
child.wait()
"""
    answer = run([sys.executable, "-c", code])
    assert answer.stdout == "False\n"
    assert answer.stderr == "otel-hardware: signal 15 cannot be passed on: the program is another user's by now\n"


@pytest.mark.skipif(shutil.which("setsid") is None, reason="setsid of util-linux gives a terminal to a program")
@pytest.mark.parametrize(("key", "number"), [(b"\x03", signal.SIGINT), (b"\x1c", signal.SIGQUIT)])
def test_a_key_on_a_terminal_reaches_the_program_once(nobody: str, key: bytes, number: signal.Signals) -> None:
    code = f"""
import signal, sys, threading
seen = []
signal.signal({int(number)}, lambda *_: seen.append(1))
print("ready", flush=True)
while not seen:
    threading.Event().wait(0.01)
threading.Event().wait(1.0)
sys.exit(40 + len(seen))
"""
    ours, theirs = pty.openpty()
    env = environment({"OTEL_EXPORTER_OTLP_ENDPOINT": nobody})
    line = ["setsid", "--ctty", "--wait", *python(code)]
    with subprocess.Popen(line, env=env, stdin=theirs, stdout=theirs, stderr=theirs) as agent:
        os.close(theirs)
        shown = b""
        while b"ready" not in shown:
            shown += os.read(ours, 1024)
        os.write(ours, key)
        rest = _all(ours)
        assert agent.wait(PATIENCE) == 41, rest


def test_without_a_collector_a_table_of_what_it_used_follows(alone: list[str]) -> None:
    answer = run([*alone, *python("print('its own output')")], FAST)
    assert answer.returncode == 0
    assert answer.stdout == "its own output\n", "standard output belongs to the program"
    assert NO_COLLECTOR in answer.stderr.splitlines()[0]
    assert re.search(r"^process   pid \d+", answer.stderr, re.MULTILINE)
    assert re.search(r"^  cpu.time +user [\d.]+ s", answer.stderr, re.MULTILINE)


def test_telemetry_that_cannot_start_does_not_cost_the_program() -> None:
    answer = run(python("print('ran'); raise SystemExit(3)"), {"OTEL_METRICS_EXPORTER": "none"})
    assert (answer.returncode, answer.stdout) == (3, "ran\n")
    assert "OTEL_METRICS_EXPORTER=none" in answer.stderr


def test_a_backend_that_never_answers_does_not_hold_the_programs_end(silent: str) -> None:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": silent, "OTEL_EXPORTER_OTLP_TIMEOUT": str(10 * PATIENCE)}
    assert run(python("raise SystemExit(4)"), env).returncode == 4


# -- the first process of a container

QUIET = {"OTEL_METRICS_EXPORTER": "none"}
CONSOLE = [*AGENT, "--console", "--sources", "process"]


def test_the_first_process_of_a_container_reaps_what_others_leave_behind() -> None:
    answer = run([*in_pid_namespace("--mount-proc"), *CONSOLE, "--", *command("orphans")], QUIET)
    assert (answer.returncode, answer.stdout) == (7, "5\n"), answer.stderr
    # The program itself is left for its last numbers; they are only times where it ended before there were others.
    assert re.search(r"^  cpu.time +user [\d.]+ s", answer.stderr, re.MULTILINE), answer.stderr


@pytest.mark.parametrize(("code", "status"), [("os.kill(os.getpid(), 9)", 137), ("sys.exit(5)", 5)])
def test_the_first_process_of_a_container_passes_signals_on_and_ends_as_the_program(code: str, status: int) -> None:
    waits = "signal.pthread_sigmask(0, [15]); print('ready', flush=True); signal.sigwait([15])"
    program = [sys.executable, "-c", f"import os, signal, sys; {waits}; {code}"]
    with started([*in_pid_namespace("--mount-proc"), *CONSOLE, "--", *program], QUIET) as outer:
        assert outer.stdout is not None
        assert outer.stdout.readline() == "ready\n"
        (first,) = psutil.Process(outer.pid).children()
        first.terminate()
        outer.communicate(timeout=PATIENCE)
    assert outer.returncode == status


def test_a_signal_that_comes_while_the_first_process_of_a_container_still_starts_reaches_the_program(
    tmp_path: Path,
) -> None:
    """It starts the agent, and gets no time of its own until the program is there."""
    ready = str(tmp_path / "ready")
    line = f"""
import os, signal, sys, time
from opentelemetry.instrumentation.hardware.cli import main
fork = os.fork
def late():
    agent = fork()
    if agent:
        while not os.path.exists({ready!r}):
            time.sleep(0.01)
        os.kill(1, signal.SIGTERM)
    return agent
os.fork = late
sys.exit(main(sys.argv[1:]))
"""
    waits = f"signal.pthread_sigmask(0, [15]); open({ready!r}, 'w').close(); signal.sigwait([15])"
    program = [sys.executable, "-c", f"import signal, sys; {waits}; sys.exit(5)"]
    outer = [*in_pid_namespace("--mount-proc"), sys.executable, "-c", line, *CONSOLE[1:], "--", *program]
    answer = run(outer, QUIET)
    assert answer.returncode == 5, answer.stderr


def test_a_program_that_cannot_be_told_in_the_hosts_proc_is_not_reported_and_runs() -> None:
    answer = run([*in_pid_namespace(), *CONSOLE, "--", "sh", "-c", "exit 3"], QUIET)
    assert answer.returncode == 3
    assert "cannot be told here: this is a pid namespace" in answer.stderr
    assert "uptime" not in answer.stderr


def test_beside_an_export_one_sentence_says_that_the_program_cannot_be_told(sink: Sink) -> None:
    env = sink.environment() | FAST
    answer = run([*in_pid_namespace(), *AGENT, "--", "sh", "-c", "exit 3"], env)
    assert answer.returncode == 3
    (said,) = answer.stderr.splitlines()
    assert said.startswith("otel-hardware: the program itself is not reported: process ")
    assert said.endswith("(mount a /proc of its own: unshare --mount-proc, bwrap --proc /proc)")
    assert {name.partition(".")[0] for name in names(sink)} >= {"system"}
    assert not [name for name in names(sink) if name.startswith("process.")]


def test_an_agent_that_is_killed_ends_its_container_as_such() -> None:
    program = [sys.executable, "-c", "print('ready', flush=True); input()"]
    with started([*in_pid_namespace("--mount-proc"), *CONSOLE, "--", *program], QUIET) as outer:
        assert outer.stdout is not None
        assert outer.stdout.readline() == "ready\n"
        (first,) = psutil.Process(outer.pid).children()
        (agent,) = first.children()
        agent.kill()
        outer.communicate(timeout=PATIENCE)
    assert outer.returncode == 137
