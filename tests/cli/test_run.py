"""`otel-hardware run` as a process, with real signals, programs, exit codes and receivers.

Its messages and tables are in `cli/run*.txt` and `cli/mistakes.txt`; see cli/test_transcripts.py.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import pty
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from itertools import dropwhile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.version import __version__
from opentelemetry.semconv._incubating.attributes.host_attributes import HostArchValues
from tests.support.children import PATIENCE, command, environment, in_pid_namespace, run, scene, started, succeed
from tests.support.commands import otel_hardware, simulated
from tests.support.members import members
from tests.support.sink import Sink
from tests.support.stage import Clock
from tests.support.waiting import wait_for

from opentelemetry.instrumentation.hardware.cli import exporters, reporting
from opentelemetry.instrumentation.hardware.cli.failures import Failure
from opentelemetry.instrumentation.hardware.cli.messages import printed_logs, say
from opentelemetry.instrumentation.hardware.cli.run import DETAILS
from opentelemetry.instrumentation.hardware.resource_detector import of_agent
from opentelemetry.instrumentation.hardware.settings import JOB

AGENT = ["otel-hardware", "run"]
FAST = {"OTEL_PYTHON_HARDWARE_SAMPLE_INTERVAL": "0.5"}
QUIET = {"OTEL_METRICS_EXPORTER": "none"}
CONSOLE = [*AGENT, "--console", "--sources", "process"]
NO_COLLECTOR = re.compile(
    r"otel-hardware: cannot connect to http://localhost:4317 \([\w ]+\); waiting for a Collector; "
    "OTEL_EXPORTER_OTLP_ENDPOINT sets another endpoint"
)


@pytest.fixture
def no_collector() -> list[str]:
    """What starts a command where nothing listens at the default port: in a network namespace, where permitted."""
    line = ["unshare", "--user", "--map-root-user", "--net"]
    if shutil.which("unshare") and subprocess.run([*line, "true"], capture_output=True, check=False).returncode == 0:
        return line
    with socket.socket() as probe:
        if probe.connect_ex(("localhost", 4317)) == 0:
            pytest.skip("something listens at localhost:4317, and network namespaces are not permitted")
    return []


@pytest.fixture
def silent() -> Iterator[str]:
    """An endpoint that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def newest(sink: Sink, name: str) -> list[float]:
    """The values of a metric in the last export."""
    return [point.value for point in sink.exports[-1].points if point.name == name]


# -- the agent by itself


def test_sigterm_ends_the_agent_after_a_last_export(sink: Sink) -> None:
    with started(AGENT, sink.environment(interval=3600) | FAST) as agent:
        line = agent.stderr.readline()
        assert "every 3600 s to " in line
        agent.terminate()
        out, err = agent.communicate(timeout=PATIENCE)
    assert (agent.returncode, out, err) == (0, "", "")
    assert {"system.cpu.time", "system.memory.usage", "system.filesystem.usage", "process.cpu.time"} <= sink.names


def test_interval_flag_exports_until_sighup(sink: Sink) -> None:
    """An explicit --interval overrides OTEL_METRIC_EXPORT_INTERVAL."""

    def read() -> list[int]:  # on a busy machine some exports may come before the first reading
        counts = [sum(point.name == "system.cpu.time" for point in export.points) for export in sink.exports]
        return [*dropwhile(lambda count: count == 0, counts)]

    line = ["env", "--default-signal=HUP", *AGENT, "--interval", "0.05"]  # the tests may run under nohup
    with started(line, sink.environment() | FAST) as agent:
        wait_for(lambda: len(read()) >= 3, PATIENCE, "third export")
        agent.send_signal(signal.SIGHUP)
        _, err = agent.communicate(timeout=PATIENCE)
    assert agent.returncode == 0, err
    assert len(set(read())) == 1, "every export has every series once"


def test_agent_under_nohup_outlives_a_hangup_and_ends_at_sigterm(sink: Sink) -> None:
    env = sink.environment(interval=0.05) | FAST
    with started(["env", "--ignore-signal=INT,TERM,HUP", *AGENT], env) as agent:
        wait_for(lambda: sink.exports, PATIENCE, "first export")
        agent.send_signal(signal.SIGHUP)
        count = len(sink.exports)
        wait_for(lambda: len(sink.exports) >= count + 3, PATIENCE, "exports after SIGHUP")
        agent.terminate()
        _, err = agent.communicate(timeout=PATIENCE)
    assert agent.returncode == 0, err


def test_exported_resource_has_host_and_service_name() -> None:
    answer = succeed([*AGENT, "--duration", "0.1"], {"OTEL_METRICS_EXPORTER": "console"})
    found = json.loads(answer.stdout)["resource_metrics"][0]["resource"]["attributes"]
    assert found["host.name"] == socket.gethostname()
    assert found["service.name"] == "otel-hardware"
    assert found["host.arch"] in {value.value for value in HostArchValues}
    machine = Path("/etc/machine-id")
    if machine.exists() and _sdk() >= (1, 45):
        assert found["host.id"] == machine.read_text().strip()


def test_console_exporter_ends_with_its_reader() -> None:
    line = "otel-hardware run --sources process --interval 0.1 | head -1"
    answer = run(["sh", "-c", line], {"OTEL_METRICS_EXPORTER": "console"})
    assert (answer.returncode, answer.stdout) == (0, "{\n")
    assert "Traceback" not in answer.stderr


def _sdk() -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", __version__)[:2]))


@pytest.mark.parametrize(
    ("variable", "value", "service"),
    [
        ("OTEL_SERVICE_NAME", "mine", "mine"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=theirs,team=a", "theirs"),
        ("OTEL_EXPERIMENTAL_RESOURCE_DETECTORS", "process", "otel-hardware"),
    ],
)
def test_resource_variables_of_the_environment_are_kept(variable: str, value: str, service: str) -> None:
    with patch.dict(os.environ, environment({variable: value}), clear=True):
        exporters.set_defaults(os.environ, None)
        found = Resource.create(of_agent(os.getpid())).attributes
    assert found["service.name"] == service
    assert found["host.name"] == socket.gethostname()
    assert ("process.pid" in found) == (value == "process")
    assert ("process.runtime.name" in found) == (value == "process")


@pytest.mark.parametrize("variables", [{}, {"OTEL_SERVICE_NAME": "mine"}, {"RANK": "1", "MASTER_ADDR": "a"}])
def test_resource_of_an_agent_is_the_same_after_a_restart(variables: dict[str, str]) -> None:
    code = "import json, os; from opentelemetry.instrumentation.hardware.resource_detector import of_agent; "
    code += "print(json.dumps(of_agent(PID or os.getpid())))"

    def started_now(pid: int = 0) -> dict[str, Any]:
        answer = run([sys.executable, "-c", code.replace("PID", str(pid))], variables)
        found: dict[str, Any] = json.loads(answer.stdout)
        return found

    alone, followed = started_now(), started_now(os.getpid())
    assert alone == started_now()
    assert not {"process.pid", "process.creation.time", "container.id", "k8s.pod.uid"} & alone.keys()
    assert followed == started_now(os.getpid())
    assert followed["process.pid"] == os.getpid()
    assert followed["service.instance.id"] != alone["service.instance.id"]


def test_services_and_ranks_on_one_host_are_told_apart() -> None:
    ids = set()
    rank = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a"}
    for variables in ({}, {"OTEL_SERVICE_NAME": "a"}, {"OTEL_SERVICE_NAME": "b"}, rank):
        with patch.dict(os.environ, environment(variables), clear=True):
            ids.add(of_agent(os.getpid())["service.instance.id"])
    assert len(ids) == 4


def test_without_collector_tables_are_printed_until_sigint(no_collector: list[str]) -> None:
    with started([*no_collector, *AGENT, "--console", "--interval", "0.2"], FAST) as agent:
        shown = ""
        while shown.count("\nsystem.cpu.time ") < 3:
            shown += agent.stdout.readline()
        agent.send_signal(signal.SIGINT)
        rest, err = agent.communicate(timeout=PATIENCE)
    assert agent.returncode == 1, "nothing arrived"
    assert len(NO_COLLECTOR.findall(err)) == 1
    assert "\x1b" not in shown + rest, "control sequences are for terminals"
    assert re.search(r"^system.cpu.utilization +user +[\d.<]+ %", shown, re.MULTILINE)


def test_without_terminal_a_sentence_is_printed_once_and_the_exit_status_is_1(no_collector: list[str]) -> None:
    answer = run([*no_collector, *AGENT, "--interval", "0.1", "--duration", "0.3"], FAST)
    assert (answer.returncode, answer.stdout) == (1, "")
    first, second, last = answer.stderr.splitlines()
    assert NO_COLLECTOR.fullmatch(first)
    assert "every 0.1 s to http://localhost:4317 (grpc)" in second
    start = "otel-hardware: no metrics were delivered to http://localhost:4317: "
    assert re.match(start + r"(\d+ exports? failed: )?\w+", last)


@pytest.mark.parametrize("variable", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TIMEOUT"])
def test_empty_variable_of_otlp_counts_as_unset(no_collector: list[str], variable: str) -> None:
    """The exporter for gRPC would export to no address, and reject a timeout that is no number."""
    answer = run([*no_collector, *AGENT, "--sources", "process", "--duration", "0.1"], {variable: ""})
    assert answer.returncode == 1
    first, _, last = answer.stderr.splitlines()
    assert NO_COLLECTOR.fullmatch(first)
    assert last.startswith("otel-hardware: no metrics were delivered to http://localhost:4317: ")
    assert "UNKNOWN" not in last


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_collector_that_comes_late_and_returns_gets_exports(no_collector: list[str], protocol: str) -> None:
    if not no_collector:
        pytest.skip("needs a network namespace of its own")
    answer = succeed([*no_collector, *command("applications/late_collector", protocol)])
    status, _, messages = answer.stdout.partition("\n")
    assert status == "0 ''"
    assert "otel-hardware: connected: metrics arrive at http://localhost:431" in messages


def _all(descriptor: int, shown: bytes = b"") -> str:
    """What a terminal has shown when its last program has ended."""
    while True:
        try:
            more = os.read(descriptor, 65536)
        except OSError:  # the other end is closed
            more = b""
        if not more:
            os.close(descriptor)
            return shown.decode().replace("\r\n", "\n")
        shown += more


def test_live_view_shows_the_state_of_export(no_collector: list[str]) -> None:
    """A message would destroy the screen, so it is printed after it."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    env = environment(FAST | {"TERM": "xterm"})
    line = [*no_collector, *AGENT, "--interval", "0.2", "--sources", "process"]
    with subprocess.Popen(line, env=env, stdin=theirs, stdout=theirs, stderr=theirs) as agent:
        os.close(theirs)
        shown = b""
        while b"no Collector at http://localhost:4317 yet" not in shown:
            shown += os.read(ours, 65536)
        agent.send_signal(signal.SIGINT)
        text = _all(ours, shown)
        assert agent.wait(PATIENCE) == 1, text
    _, _, after = text.rpartition("\x1b[?1049l")
    assert "no metrics were delivered to http://localhost:4317" in " ".join(after.split())


def test_console_flag_shows_a_table_beside_the_export(sink: Sink) -> None:
    with started([*AGENT, "--console", "--interval", "0.1"], sink.environment() | FAST) as agent:
        while "system.memory" not in agent.stdout.readline():
            assert agent.poll() is None
        wait_for(lambda: "system.memory.usage" in sink.names, PATIENCE, "export of what the table shows")
        agent.terminate()
        _, err = agent.communicate(timeout=PATIENCE)
    assert agent.returncode == 0, err


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_refused_export_is_one_sentence_and_a_count(refusing: str, protocol: str) -> None:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": refusing, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol} | FAST
    answer = run([*AGENT, "--interval", "0.1", "--duration", "0.4"], env)
    assert answer.returncode == 1
    first, _, last = answer.stderr.splitlines()
    assert first.startswith(f"otel-hardware: cannot connect to {refusing}")
    assert first.endswith(" (connection refused); waiting for a Collector")
    assert re.search(r"no metrics were delivered to .*: connection refused$", last)


def test_exit_status_of_the_program_is_kept_if_nothing_arrives(refusing: str) -> None:
    for status in (0, 5):
        answer = run(python(f"raise SystemExit({status})"), {"OTEL_EXPORTER_OTLP_ENDPOINT": refusing})
        assert answer.returncode == status
        assert "otel-hardware: no metrics were delivered to " in answer.stderr


def test_agent_of_a_process_exits_with_1_if_nothing_arrives(refusing: str) -> None:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": refusing}
    with (
        started([sys.executable, "-c", "input()"]) as program,
        started([*AGENT, "--attach", str(program.pid)], env) as agent,
    ):
        assert "waiting for a Collector" in agent.stderr.readline()
        program.communicate("\n", timeout=PATIENCE)
        _, err = agent.communicate(timeout=PATIENCE)
    assert agent.returncode == 1
    assert "no metrics were delivered" in err


def test_prometheus_has_no_export_interval() -> None:
    env = {"OTEL_METRICS_EXPORTER": "prometheus", "OTEL_EXPORTER_PROMETHEUS_PORT": "0"}
    answer = succeed([*AGENT, "--duration", "0.1", "--sources", "process"], env)
    assert "to prometheus at each scrape; Ctrl-C stops" in answer.stderr


def test_process_that_proc_hides_cannot_be_attached_to() -> None:
    assert scene("machines/attach_hidden") == "there is no running process PID that this user may read"


def test_headers_without_name_are_named_without_their_value(sink: Sink) -> None:
    env = sink.environment() | {"OTEL_EXPORTER_OTLP_HEADERS": "secret-token"}
    answer = succeed([*AGENT, "--duration", "0.1", "--sources", "process"], env)
    first, *_ = answer.stderr.splitlines()
    assert first == "otel-hardware: OTEL_EXPORTER_OTLP_HEADERS: a header is not of the form name=value and is ignored"
    assert "secret-token" not in answer.stderr


def test_messages_of_the_sdk_are_limited_to_one_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with printed_logs(clock):
        for _ in range(120):
            logging.getLogger("opentelemetry.sdk.metrics").warning("cannot\n  export")
            clock.now += 1.0
        for _ in range(2):
            logging.getLogger("opentelemetry.instrumentation.hardware.pipeline.runner").warning("a source fails")
    lines = ["otel-hardware: cannot export"] * 2 + ["otel-hardware: a source fails"] * 2
    assert capsys.readouterr().err.splitlines() == lines


# The command, with a shorter limit for the last export.
SHORT_END = f"""
import sys
from {reporting.__name__.rpartition(".")[0]} import main, reporting
reporting._LAST_EXPORT = 0.1
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("arguments", "protocol", "status"),
    [
        (["--duration", "0.1"], "http/protobuf", 1),
        (["--", sys.executable, "-c", "raise SystemExit(4)"], "grpc", 4),
    ],
    ids=["agent", "program"],
)
def test_silent_endpoint_does_not_delay_the_end(silent: str, arguments: list[str], protocol: str, status: int) -> None:
    """The exporter itself would wait far longer than `children.PATIENCE`."""
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": silent, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
    env |= {"OTEL_EXPORTER_OTLP_TIMEOUT": str(10 * PATIENCE), "OTEL_METRIC_EXPORT_TIMEOUT": str(10_000 * PATIENCE)}
    assert run([sys.executable, "-c", SHORT_END, "run", *arguments], env).returncode == status


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_silent_name_server_delays_neither_start_nor_end(protocol: str) -> None:
    """The C library itself would wait for it far longer than `children.PATIENCE`, twice."""
    status, messages = scene("machines/silent_nameserver", protocol, "--duration", "0.1")
    assert status == 1
    assert "(the host name cannot be resolved); waiting for a Collector" in messages


@pytest.mark.parametrize("failure", [None, Failure("connection refused", is_unreachable=True)])
def test_last_export_ends_after_the_limit(monkeypatch: pytest.MonkeyPatch, failure: Failure | None) -> None:
    monkeypatch.setattr(reporting, "_LAST_EXPORT_WITHOUT_CONNECTION", 0.25)
    monkeypatch.setattr(exporters, "connection_failure", lambda where, seconds: failure)
    given: list[float] = []

    class Provider(MeterProvider):
        def shutdown(self, timeout_millis: float = 30_000, **options: object) -> None:
            given.append(timeout_millis)

    with patch.dict(os.environ, environment({}), clear=True):
        reporting._shut_down(Provider(shutdown_on_exit=False), 5.0)
    assert given == [250 if failure else 5000]


def test_last_export_that_raises_is_one_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(exporters, "connection_failure", lambda where, seconds: None)

    class Provider(MeterProvider):
        def shutdown(self, timeout_millis: float = 30_000, **options: object) -> None:
            raise ZeroDivisionError("division by zero")

    with patch.dict(os.environ, environment({}), clear=True):
        reporting._shut_down(Provider(shutdown_on_exit=False), 5.0)
    assert capsys.readouterr().err == "otel-hardware: the last values were not exported: division by zero\n"


def test_limit_of_last_export_is_the_one_in_the_help() -> None:
    (promised,) = re.findall(r"take up to (\d+) seconds", DETAILS.replace("\n", " "))
    assert int(promised) == reporting._LAST_EXPORT
    assert int(promised) >= reporting._LAST_EXPORT_WITHOUT_CONNECTION


@pytest.mark.filterwarnings("ignore:You should use:DeprecationWarning")  # SDK 1.39, when it is configured
def test_run_within_a_job_reports_its_process_only(sink: Sink, job: dict[str, str]) -> None:
    job |= sink.environment()
    with simulated(), members(job) as (reporter,):
        assert reporter.update()
        answer = otel_hardware("run", "--duration", "1", "--console", "--sources", "host,process", env=job)
    assert answer.status == 0
    assert f"process {reporter.pid} reports the host of this job already" in answer.err
    names = {line.split()[0] for line in answer.out.splitlines()[1:] if "." in line.split(" ")[0]}
    assert {name.partition(".")[0] for name in names} == {"process", "otel_hardware"}


def test_invalid_configuration_of_the_sdk_is_one_sentence() -> None:
    cases = [
        {"OTEL_EXPORTER_OTLP_PROTOCOL": "carrier/pigeon"},
        {"OTEL_METRICS_EXPORTER": "abacus"},
        {"OTEL_METRIC_EXPORT_INTERVAL": "-5"},
    ]
    code = """
import json, os, sys
from opentelemetry.instrumentation.hardware.cli import main
before = dict(os.environ)
for case in json.loads(sys.argv[1]):
    os.environ.clear()
    os.environ.update(before | case)
    assert main(["run", "--duration", "5", "--sources", "process"]) == 2
"""
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    answer = succeed([sys.executable, "-c", code, json.dumps(cases)], env)
    messages = [line for line in answer.stderr.splitlines() if "cannot connect to" not in line]
    assert len(messages) == len(cases)
    for line, case in zip(messages, cases):
        (value,) = case.values()
        rejected = {
            "carrier/pigeon": "carrier/pigeon is not a protocol of the Python SDK; set OTEL_EXPORTER_OTLP_PROTOCOL to ",
            "abacus": "no installed package provides the metrics exporter ",
        }
        assert line.startswith(f"otel-hardware: {rejected.get(value, 'the SDK rejects this ')}")
        assert value in line


@pytest.mark.parametrize(("window", "variable", "columns"), [(50, "", 50), (90, "", 90), (120, "60", 60)])
def test_message_is_wrapped_to_columns_or_the_width_of_the_terminal(
    window: int, variable: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, window, 0, 0))
    monkeypatch.setenv("COLUMNS", variable)
    sentence = "cannot connect to http://localhost:4317 (connection refused); export is retried, " * 2
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        say(sentence)
        monkeypatch.undo()
    lines = _all(ours).splitlines()
    assert max(map(len, lines)) <= columns
    assert " ".join(" ".join(lines).split()) == f"otel-hardware: {sentence}".strip()


# -- at the limits of the machine

GIB = 1 << 30


def limited(gib: float, env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """The agent with so many GiB of addresses, of which a thread takes four. It has to end."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_STACK, (4 * GIB, resource.getrlimit(resource.RLIMIT_STACK)[1]))
        resource.setrlimit(resource.RLIMIT_AS, (int(gib * GIB), resource.getrlimit(resource.RLIMIT_AS)[1]))

    if resource.getrlimit(resource.RLIMIT_STACK)[1] != resource.RLIM_INFINITY:
        pytest.skip("the stack of a thread is limited here")
    return run([*AGENT, "--sources", "host,process", *arguments], env, preexec_fn=limit)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts addresses as Linux does")
@pytest.mark.parametrize("gib", [3, 7], ids=["of the SDK", "of this package"])
def test_agent_that_may_have_no_more_threads_ends_with_one_sentence(gib: float) -> None:
    env = {"OTEL_METRICS_EXPORTER": "console"}
    answer = limited(gib, env)
    assert answer.returncode == 1
    (sentence,) = answer.stderr.splitlines()
    assert sentence.startswith("otel-hardware: this command cannot run: can't start new thread; set a higher limit")
    answer = limited(gib, env, "--", "sh", "-c", "exit 3")
    assert answer.returncode == 3
    assert answer.stderr == "otel-hardware: can't start new thread; the program continues without being reported\n"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")
def test_shortage_of_memory_is_found_before_grpc_aborts_the_command() -> None:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    reason = "RLIMIT_AS leaves less than 700 MiB of memory"
    answer = limited(0.3, env)
    assert answer.returncode == 1
    (sentence,) = answer.stderr.splitlines()
    assert sentence.startswith(f"otel-hardware: this command cannot run: {reason}; set a higher limit")
    answer = limited(0.3, env, "--", "sh", "-c", "exit 3")
    assert answer.returncode == 3
    assert answer.stderr == f"otel-hardware: {reason}; the program continues without being reported\n"


# -- around a program


def around(*program: str) -> list[str]:
    return [*AGENT, "--", *program]


def python(code: str) -> list[str]:
    return around(sys.executable, "-c", code)


def test_exit_status_of_a_killed_program_is_128_and_its_signal(sink: Sink) -> None:
    assert run(python("import os; os.kill(os.getpid(), 9)"), sink.environment()).returncode == 137
    assert sink.exports, "even so short a program is reported"


def test_last_export_has_cpu_time_of_the_whole_program(sink: Sink) -> None:
    code = """
import time
held = bytearray(150_000_000)
input()
while time.process_time() < 0.3:
    pass
print(time.process_time())
"""
    with started(python(code), sink.environment(interval=0.1) | FAST) as agent:
        taken = "reading of the memory that it has taken"
        wait_for(lambda: sink.exports and sum(newest(sink, "process.memory.peak")) >= 150_000_000, PATIENCE, taken)
        out, err = agent.communicate("\n", timeout=PATIENCE)
    assert agent.returncode == 0, err
    own = float(out)
    seen = sum(newest(sink, "process.cpu.time"))
    assert own - 0.02 <= seen <= own + 0.3, "CPU time of the whole program, the end of it included"
    assert newest(sink, "process.memory.usage")[0] >= 1_000_000, "not the empty shell that it leaves behind"


def test_process_tree_counts_children_of_the_program(sink: Sink) -> None:
    code = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
input()
child.communicate(b"\\n")
"""
    with started(python(code), sink.environment(interval=0.1) | FAST) as agent:
        wait_for(lambda: sink.exports and newest(sink, "process.tree.count") == [2], PATIENCE, "tree of two processes")
        agent.communicate("\n", timeout=PATIENCE)
    assert agent.returncode == 0


def test_program_has_its_own_environment_and_streams(sink: Sink) -> None:
    code = "import json, os, sys; print(json.dumps([dict(os.environ), sys.stdin.read()])); sys.stderr.write('heard')"
    env = sink.environment()
    with started(python(code), env) as agent:
        out, err = agent.communicate("input", timeout=PATIENCE)
    environ, text = json.loads(out)
    assert environ.pop(JOB).startswith(f"{os.geteuid()}/process:{agent.pid}.")
    environ.pop("LC_CTYPE", None)  # Python sets it for itself
    assert environ == {name: value for name, value in environment(env).items() if name != "LC_CTYPE"}
    assert (text, err) == ("input", "heard")


def test_instrumented_program_reports_no_host_metrics(sink: Sink) -> None:
    program = ["opentelemetry-instrument", "--service_name", "inner", sys.executable, "-c", "input()"]

    def of(name: str) -> set[str]:
        """The services that report a metric. Both describe the same process."""
        return {export.service for export in sink.exports if name in {point.name for point in export.points}}

    # After three intervals without a collection, as on a busy machine, the host is left to the program.
    with started(around(*program), sink.environment(interval=2.0) | FAST) as agent:
        wait_for(lambda: of("system.cpu.time") and len(of("process.thread.count")) == 2, PATIENCE, "exports of both")
        agent.communicate("\n", timeout=PATIENCE)
    assert agent.returncode == 0
    assert of("system.cpu.time") == {"otel-hardware"}
    assert of("process.thread.count") == {"otel-hardware", "inner"}
    assert len({export.pid for export in sink.exports}) == 1
    own = {point.name for export in sink.exports if export.service == "inner" for point in export.points}
    assert all(name.startswith(("process.", "otel_hardware.")) for name in own)


def test_instrumented_program_that_is_not_reported_reports_the_host(sink: Sink) -> None:
    exporting = ["env", "OTEL_METRICS_EXPORTER=otlp", "opentelemetry-instrument", sys.executable, "-c", "input()"]
    env = sink.environment(interval=0.1) | {"OTEL_METRICS_EXPORTER": "none"}
    with started(around(*exporting), env) as agent:
        wait_for(lambda: "system.cpu.time" in sink.names, PATIENCE, "export of the host by the program")
        _, err = agent.communicate("\n", timeout=PATIENCE)
    assert (agent.returncode, err.count("the program continues without being reported")) == (0, 1)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"#!/bin/sh\r\n", "the interpreter in its first line does not exist"),  # as Windows ends lines
        # as one for glibc on Alpine
        (Path(sys.executable).read_bytes().replace(b"/ld-", b"/no-"), "its C library is not installed"),
    ],
    ids=["interpreter", "library"],
)
def test_program_that_lacks_something_is_not_called_missing(tmp_path: Path, content: bytes, reason: str) -> None:
    program = tmp_path / "train"
    program.write_bytes(content)
    program.chmod(0o755)
    answer = run(around(str(program)), QUIET)
    assert (answer.returncode, answer.stderr) == (126, f"otel-hardware: {program} cannot be started: {reason}\n")


@pytest.mark.parametrize("flags", [["--include-metrics", "system.cpu.tim"], ["--sources", "gpu"]])
def test_program_is_not_started_with_a_wrong_setting(tmp_path: Path, flags: list[str]) -> None:
    answer = run([*AGENT, *flags, "--", "touch", str(tmp_path / "made")], QUIET)
    assert answer.returncode == 2
    assert answer.stderr.startswith(f"otel-hardware: {flags[0]}: ")
    assert not [*tmp_path.iterdir()]


def test_duration_of_zero_is_a_duration() -> None:
    answer = succeed([*CONSOLE, "--duration", "0"], QUIET)
    answer = run([*AGENT, "--attach", "1", "--duration", "0"], QUIET)
    assert (answer.returncode, answer.stderr) == (2, "otel-hardware: --attach cannot be used with --duration\n")


def test_signals_reach_the_program(sink: Sink) -> None:
    numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2]
    code = f"""
import signal, sys
numbers = {[*map(int, numbers)]}
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
print("ready", flush=True)
for _ in numbers:
    print(int(signal.sigwait(numbers)), flush=True)
sys.exit(5)
"""

    def default() -> None:  # whoever runs the tests under nohup has SIGHUP ignored, which the agent would respect
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)

    with started(python(code), sink.environment(), preexec_fn=default) as agent:
        assert agent.stdout.readline() == "ready\n"
        for number in numbers:
            agent.send_signal(number)
            assert agent.stdout.readline() == f"{int(number)}\n"
        agent.communicate(timeout=PATIENCE)
    assert agent.returncode == 5
    assert sink.exports


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_signal_to_a_program_of_another_user_is_a_warning() -> None:
    code = """
import os, signal, subprocess
from opentelemetry.instrumentation.hardware.cli.program import has_ended
from opentelemetry.instrumentation.hardware.cli.signals import Signals
child = subprocess.Popen(["sleep", "3600"])
with Signals([signal.SIGTERM]) as signals:
    os.setresuid(65534, 65534, 0)
    signal.raise_signal(signal.SIGTERM)
    print(has_ended(child, signals, 0.0))
    os.setresuid(0, 0, 0)
child.kill()
child.wait()
"""
    answer = run([sys.executable, "-c", code])
    assert answer.stdout == "False\n"
    assert answer.stderr == "otel-hardware: signal 15 cannot be forwarded: the program runs as another user\n"


@pytest.mark.skipif(shutil.which("setsid") is None, reason="setsid of util-linux gives a terminal to a program")
def test_key_of_a_terminal_reaches_the_program_once() -> None:
    """The agent passes signals on in their order, so after SIGUSR1 there is no second one of the key to come."""
    keys = {signal.SIGINT: b"\x03", signal.SIGQUIT: b"\x1c"}
    code = f"""
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, {[*map(int, keys), int(signal.SIGUSR1)]})
for number in {[*map(int, keys)]}:
    print("ready", flush=True)
    signal.sigwait([number])
    os.kill(os.getppid(), signal.SIGUSR1)
    signal.sigwait([signal.SIGUSR1])
    assert number not in signal.sigpending(), number
"""
    ours, theirs = pty.openpty()
    line = ["setsid", "--ctty", "--wait", *CONSOLE, "--", sys.executable, "-c", code]
    with subprocess.Popen(line, env=environment(QUIET), stdin=theirs, stdout=theirs, stderr=theirs) as agent:
        os.close(theirs)
        shown = b""
        for key in keys.values():
            while b"ready" not in shown:
                shown += os.read(ours, 1024)
            shown = b""
            os.write(ours, key)
        rest = _all(ours)
        assert agent.wait(PATIENCE) == 0, rest


def test_exit_status_after_a_hangup_is_that_of_the_program(refusing: str) -> None:
    """The sentence about failed exports cannot be printed any more."""
    ours, theirs = pty.openpty()
    env = environment(FAST | {"OTEL_EXPORTER_OTLP_ENDPOINT": refusing, "PYTHONUNBUFFERED": ""})
    line = python("import time; print('ready', flush=True); time.sleep(600)")
    with subprocess.Popen(
        ["env", "--default-signal=HUP", *line], env=env, stdin=theirs, stdout=theirs, stderr=theirs
    ) as agent:
        os.close(theirs)
        shown = b""
        while b"ready\r\n" not in shown:
            shown += os.read(ours, 1024)
        os.close(ours)
        agent.send_signal(signal.SIGHUP)
        assert agent.wait(PATIENCE) == 128 + signal.SIGHUP


def test_without_collector_the_program_is_followed_by_the_reason_and_no_table(no_collector: list[str]) -> None:
    answer = succeed([*no_collector, *python("print('its own output')")], FAST)
    assert answer.stdout == "its own output\n", "standard output belongs to the program"
    first, *others = answer.stderr.splitlines()
    assert NO_COLLECTOR.fullmatch(first)
    assert all(line.startswith("otel-hardware: ") for line in others), answer.stderr


# -- the first process of a container


def test_pid_1_reaps_orphans() -> None:
    answer = run([*in_pid_namespace("--mount-proc"), *CONSOLE, "--", *command("processes/orphans")], QUIET)
    assert (answer.returncode, answer.stdout) == (7, "5\n"), answer.stderr
    # The program itself is left for its last numbers; they are only times where it ended before there were others.
    assert re.search(r"^process.cpu.time +user +[\d.]+ m?s", answer.stderr, re.MULTILINE), answer.stderr


def test_pid_1_forwards_sigterm_and_exits_with_137_when_the_program_is_killed() -> None:
    waits = "signal.pthread_sigmask(0, [15]); print('ready', flush=True); signal.sigwait([15])"
    program = [sys.executable, "-c", f"import os, signal; {waits}; os.kill(os.getpid(), 9)"]
    with started([*in_pid_namespace("--mount-proc"), *CONSOLE, "--", *program], QUIET) as outer:
        assert outer.stdout.readline() == "ready\n"
        (first,) = psutil.Process(outer.pid).children()
        first.terminate()
        outer.communicate(timeout=PATIENCE)
    assert outer.returncode == 137


def test_pid_1_forwards_a_signal_that_comes_during_its_start(
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


def test_pid_namespace_with_proc_of_the_host_runs_the_program() -> None:
    answer = run([*in_pid_namespace(), *CONSOLE, "--", "sh", "-c", "exit 3"], QUIET)
    assert answer.returncode == 3
    assert "cannot be identified: this is a PID namespace" in answer.stderr
    assert "uptime" not in answer.stderr


def test_pid_namespace_with_proc_of_the_host_exports_the_host_only(sink: Sink) -> None:
    env = sink.environment() | FAST
    answer = run([*in_pid_namespace(), *AGENT, "--", "sh", "-c", "exit 3"], env)
    assert answer.returncode == 3
    (message,) = answer.stderr.splitlines()
    assert message.startswith("otel-hardware: the program itself is not reported: process ")
    assert message.endswith("(mount a /proc for the namespace: unshare --mount-proc, bwrap --proc /proc)")
    assert {name.partition(".")[0] for name in sink.names} >= {"system"}
    assert not [name for name in sink.names if name.startswith("process.")]


def test_pid_1_exits_with_137_when_the_agent_is_killed() -> None:
    program = [sys.executable, "-c", "print('ready', flush=True); input()"]
    with started([*in_pid_namespace("--mount-proc"), *CONSOLE, "--", *program], QUIET) as outer:
        assert outer.stdout.readline() == "ready\n"
        (first,) = psutil.Process(outer.pid).children()
        (agent,) = first.children()
        agent.kill()
        outer.communicate(timeout=PATIENCE)
    assert outer.returncode == 137
