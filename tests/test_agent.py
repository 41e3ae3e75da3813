"""The agent: a real child process that reports to a real OTLP receiver, and programs that end or crash beside it."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from tests.support.children import END, PATIENCE, Piped, command, end_of, in_pid_namespace, lives, run, started, succeed
from tests.support.sink import Sink
from tests.support.stage import warnings
from tests.support.waiting import wait_for
from tests.tools.nvml import CRASH, FakeNvml, h100

from opentelemetry.instrumentation.hardware import agent
from opentelemetry.instrumentation.hardware.drivers.child import Child
from opentelemetry.instrumentation.hardware.drivers.detached import start_detached
from opentelemetry.instrumentation.hardware.settings import JOB, Config

pytestmark = pytest.mark.skipif(not agent.is_supported(), reason="an agent needs pidfd_open(2) of Linux 5.3")

FAST = {"OTEL_PYTHON_HARDWARE_SAMPLE_INTERVAL": "0.2"}


class Application:
    """A running application that has an agent."""

    def __init__(self, process: Piped) -> None:
        self.process = process

    def ask(self, what: str) -> dict[str, Any]:
        """Execute a command of the program."""
        print(what, file=self.process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def agents(self) -> list[int]:
        """The PIDs of its agents."""
        agents: list[int] = self.ask("state")["agents"]
        return agents

    def agent(self) -> int:
        """The PID of its only agent."""
        wait_for(lambda: len(self.agents()) == 1, PATIENCE, "agent")
        return self.agents()[0]

    def end(self) -> str:
        """Close its standard input and return what it logged."""
        return end_of(self.process)[1]


@contextmanager
def application(
    sink: Sink, *settings: str, interval: float = 0.3, env: dict[str, str] | None = None
) -> Iterator[Application]:
    variables = {**sink.environment(interval), **FAST, "OTEL_PYTHON_HARDWARE_MODE": "agent", **(env or {})}
    with started(command("processes/agent_application", *settings), variables) as process:
        yield Application(process)


def test_agent_reports_the_host_and_the_application(sink: Sink) -> None:
    with application(sink) as app:
        wait_for(lambda: {"system.cpu.time", "process.cpu.time"} <= sink.names, PATIENCE, "export of both")
        state = app.ask("state")
        assert state["threads"] == ["otel-hardware-agent"], "no source is read in the application"
        (pid,) = state["agents"]
        assert state["children"] == []
        assert os.getsid(pid) != os.getsid(app.process.pid)
        assert Path(f"/proc/{pid}/oom_score_adj").read_text() == "1000\n", "the kernel ends the application first"
        threads = [export.values("process.thread.count") for export in sink.exports]
        assert [2] in threads, "the main thread and the one that waits for the agent"
        log = app.end()
        assert app.process.returncode == 0
        wait_for(lambda: not lives(pid), END, "end of the agent")
    assert "WARNING" not in log


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_last_values_are_exported_after_the_application_was_killed(sink: Sink, end: int) -> None:
    expected = {"system.cpu.time", "system.memory.usage", "process.cpu.time", "process.memory.usage"}
    with application(sink) as app:
        pid = app.agent()
        wait_for(lambda: expected <= sink.names, PATIENCE, "export")
        before = len(sink.exports)
        app.process.send_signal(end)
        wait_for(lambda: not lives(pid), END, "end of the agent")
    assert len(sink.exports) > before
    assert expected <= sink.exports[-1].names()


@pytest.mark.parametrize("wrapper", [[], ["sh", "-c", '"$@"; true', "sh"]], ids=["alone", "shell"])
def test_last_values_are_exported_before_the_container_ends_with_the_program(sink: Sink, wrapper: list[str]) -> None:
    """Without an export before, as of a program that runs for less than a minute."""
    line = [*in_pid_namespace("--mount-proc"), *wrapper, *command("processes/agent_application")]
    modes = {"OTEL_PYTHON_HARDWARE_MODE": "agent", "OTEL_PYTHON_HARDWARE_EXIT_TIMEOUT": "60"}
    with started(line, {**sink.environment(3600), **FAST, **modes}) as process:
        app = Application(process)
        wait_for(lambda: app.ask("state")["ready"], PATIENCE, "agent")
        log = app.end()
    assert {"system.cpu.time", "process.cpu.time"} <= sink.names
    assert "WARNING" not in log


def test_agent_that_was_killed_is_started_again_and_then_the_application_reports(sink: Sink) -> None:
    with application(sink) as app:
        seen: set[int] = set()
        for _ in range(3):
            wait_for(lambda: set(app.agents()) - seen, PATIENCE, "another agent")
            (pid,) = set(app.agents()) - seen
            seen.add(pid)
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: "otel-hardware-process" in app.ask("state")["threads"], PATIENCE, "source in the application")
        assert app.agents() == []
        log = app.end()
    warnings = [line for line in log.splitlines() if line.startswith("WARNING")]
    assert warnings == ["WARNING The agent has ended 3 times (killed by SIGKILL); this process reports instead"]


def test_agent_that_starts_during_the_stop_is_terminated(monkeypatch: pytest.MonkeyPatch) -> None:
    start = start_detached

    def stopped(*arguments: Any, **options: Any) -> Child:
        child = start(*arguments, **options)
        telemetry.stop()  # does not know the child yet
        return child

    monkeypatch.setattr(agent, "start_detached", stopped)
    telemetry = agent.Agent({}, dict, lambda: None, lambda: None, None)
    ended = telemetry._run_once()
    assert ended is not None
    assert ended[0] != "killed by SIGKILL", "only after three seconds"


@pytest.mark.skipif(not hasattr(signal, "SIGRTMIN"), reason="there are no real-time signals")
def test_agent_that_a_signal_without_a_name_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    number = signal.SIGRTMIN + 6
    start = start_detached

    def killed(name: str, _: list[str], *arguments: Any, **options: Any) -> Child:
        program = f"import os; os.kill(os.getpid(), {number})"
        return start(name, [sys.executable, "-c", program], *arguments, **options)

    monkeypatch.setattr(agent, "start_detached", killed)
    telemetry = agent.Agent({}, dict, lambda: None, lambda: None, None)
    assert telemetry._run_once() == (f"killed by signal {number}", False)


def test_agent_whose_pipes_the_program_closed_is_replaced(sink: Sink) -> None:
    with application(sink) as app:
        first = app.agent()
        app.ask("close")
        wait_for(lambda: app.agents() not in ([], [first]), PATIENCE, "another agent")
        assert first not in app.agents()
        assert app.ask("uninstrument")["agents"] == []


def test_driver_that_crashes_costs_the_application_nothing(sink: Sink, tmp_path: Path) -> None:
    driver = FakeNvml(tmp_path, {**h100(0), "UtilizationRates": CRASH})
    env = {**driver.environment, "OTEL_PYTHON_HARDWARE_SOURCES": "nvidia"}
    with application(sink, env=env) as app:
        wait_for(lambda: app.ask("state")["threads"] == [], PATIENCE, "end of the attempts")
        log = app.end()
        assert app.process.returncode == 0
    warnings = [line for line in log.splitlines() if line.startswith("WARNING")]
    assert warnings == ["WARNING The agent has crashed 3 times (killed by SIGSEGV); hardware metrics are missing"]


def test_forked_child_leaves_the_agent_to_its_parent(sink: Sink) -> None:
    with application(sink) as app:
        pid = app.agent()
        child = app.ask("fork")
        assert (child["agents"], child["threads"]) == ([], [])
        assert app.agent() == pid
        assert lives(pid)


def test_uninstrument_ends_the_agent_after_a_last_export(sink: Sink) -> None:
    with application(sink) as app:
        wait_for(lambda: sink.names, PATIENCE, "export")
        before = len(sink.exports)
        state = app.ask("uninstrument")
        assert (state["agents"], state["threads"]) == ([], [])
        assert len(sink.exports) > before


def test_settings_given_in_code_reach_the_agent(sink: Sink) -> None:
    with application(sink, "sources=host", "exclude_metrics=system.cpu.*") as app:
        wait_for(lambda: sink.names, PATIENCE, "export")
        app.end()
    assert not [name for name in sink.names if name.startswith(("process.", "system.cpu."))]


@pytest.mark.parametrize("options", [{"libtpu": True, "spans": False}, {"sources": ("host", "process")}])
def test_settings_mean_the_same_to_the_agent(options: dict[str, object], caplog: pytest.LogCaptureFixture) -> None:
    assert Config.read({}, agent._as_variables(options)) == Config.read(options, {})
    assert warnings(caplog) == []


def test_words_with_commas_are_not_passed_to_the_agent_as_several_words() -> None:
    with pytest.raises(TypeError, match="openmetrics_filters cannot be passed to an agent in this form"):
        agent._as_variables({"openmetrics_filters": ["(a,b)"]})


def test_search_path_with_what_python_ignores_stops_no_agent(sink: Sink, tmp_path: Path) -> None:
    ignored = "pathlib.Path('/nowhere'), None"
    if sys.version_info < (3, 11):  # where None fails the search for installed packages, and so the program itself
        ignored = ignored.removesuffix(" None")
    tmp_path.joinpath("sitecustomize.py").write_text(f"import pathlib, sys; sys.path += [{ignored}]")
    with application(sink, env={"PYTHONPATH": str(tmp_path)}) as app:
        wait_for(lambda: {"system.cpu.time", "process.cpu.time"} <= sink.names, PATIENCE, "export of both")
        log = app.end()
    assert "The agent has ended" not in log
    assert "WARNING" not in log


def test_agent_has_the_resource_that_the_application_sets_in_code(sink: Sink) -> None:
    given = {"service.name": "trainer", "team": "a=b, c;d %41 \N{SNOWMAN}", "dl.rank": 3, "service.instance.id": "mine"}
    env = {"APPLICATION_RESOURCE": json.dumps(given), "OTEL_SERVICE_NAME": "of the environment"}
    with application(sink, env=env) as app:
        wait_for(lambda: "process.cpu.time" in sink.names, PATIENCE, "export")
        pid = app.process.pid
    (resource,) = sink.resources
    assert (resource["service.name"], resource["team"]) == (given["service.name"], given["team"])
    assert (resource["process.pid"], resource["telemetry.sdk.language"]) == (pid, "python")
    assert resource.get("service.instance.id") != "mine"
    assert "dl.rank" not in resource, "a number would arrive as text"


# A program whose agent can be tried again at once.
PROGRAM = """
import logging, threading; logging.basicConfig(level=logging.WARNING)
from opentelemetry.instrumentation.hardware import HardwareInstrumentor, agent
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.support import traces
agent._PAUSES = (0.01, 0.02)
provider, instrumentor = MeterProvider([InMemoryMetricReader()]), HardwareInstrumentor()
"""


def test_setting_without_text_form_is_named_and_the_application_reports(sink: Sink) -> None:
    program = f"""{PROGRAM}
endpoint = {{'url': 'http://127.0.0.1:1', 'headers': {{'X': 'secret'}}}}
instrumentor.instrument(mode='agent', meter_provider=provider, openmetrics={{'a': endpoint}})
traces.until(lambda: 'otel-hardware-process' in traces.threads(), 'source')
"""
    answer = succeed([sys.executable, "-c", program], sink.environment())
    assert (
        "openmetrics cannot be passed to an agent in this form; use OTEL_PYTHON_HARDWARE_OPENMETRICS" in answer.stderr
    )
    assert "secret" not in answer.stderr


def test_application_that_may_have_no_thread_for_a_source_has_one_message(sink: Sink) -> None:
    program = f"""{PROGRAM}
logging.getLogger().setLevel(logging.ERROR)
start = threading.Thread.start
def limited(thread):
    if thread.name == 'otel-hardware-process':
        raise RuntimeError("can't start new thread")
    start(thread)
threading.Thread.start = limited
instrumentor.instrument(mode='agent', meter_provider=provider, openmetrics={{'a': {{'url': 'http://127.0.0.1:1'}}}})
traces.until(lambda: not instrumentor.is_instrumented_by_opentelemetry, 'failure')
traces.until(lambda: not traces.threads(), 'end')
"""
    answer = run([sys.executable, "-c", program], sink.environment())
    text = "Hardware telemetry could not start: can't start new thread; the program continues without it\n"
    assert (answer.returncode, answer.stderr.partition(":")[2]) == (
        0,
        f"opentelemetry.instrumentation.hardware.telemetry:{text}",
    )


@pytest.mark.parametrize(
    ("exporters", "is_frozen", "reason"),
    [
        ("otlp, prometheus", False, "An agent cannot listen on the Prometheus port of the program"),
        ("console", False, "An agent cannot print on the console of the program"),
        ("otlp", True, "An agent needs a Python interpreter, and a frozen program is none"),
    ],
)
def test_program_that_can_have_no_agent_reports_itself(exporters: str, is_frozen: bool, reason: str) -> None:
    program = f"""{PROGRAM}
import sys
sys.frozen = {is_frozen}
instrumentor.instrument(mode='agent', meter_provider=provider)
traces.until(lambda: 'otel-hardware-process' in traces.threads(), 'source')
print('otel-hardware-agent' in traces.threads())
"""
    answer = run([sys.executable, "-c", program], {"OTEL_METRICS_EXPORTER": exporters})
    assert answer.stdout == "False\n", answer.stderr
    assert answer.stderr.count(f"{reason}; this process reports instead") == 1


def test_agent_that_cannot_export_delays_nothing(sink: Sink) -> None:
    with application(sink, env={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}) as app:
        pid = app.agent()
        app.end()
        assert app.process.returncode == 0
        wait_for(lambda: not lives(pid), END, "end of the agent")


# -- otel-hardware run --attach


def test_attach_reports_a_running_process_until_it_ends(sink: Sink) -> None:
    with started([sys.executable, "-c", "input()"]) as program:
        line = ["otel-hardware", "run", "--attach", str(program.pid), "--interval", "0.3"]
        with started(line, {**sink.environment(), **FAST}) as attached:
            wait_for(lambda: "process.cpu.time" in sink.names, PATIENCE, "export of the process")
            program.communicate("\n")
            out, err = attached.communicate(timeout=END)
    assert (attached.returncode, out) == (0, "")
    assert err.count("\n") == 0, err


def test_attached_process_that_ends_before_it_is_read_is_named() -> None:
    text = """
import subprocess, sys
from opentelemetry.instrumentation.hardware.cli import main, program
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
class Ending(program.Attached):
    def environ(self):
        child.kill()
        child.wait()
        return super().environ()
program.Attached = Ending
print(child.pid)
raise SystemExit(main(["run", "--attach", str(child.pid)]))
"""
    answer = run([sys.executable, "-c", text], {"OTEL_METRICS_EXPORTER": "console"})
    pid = answer.stdout.split("\n", 1)[0]
    (message,) = answer.stderr.splitlines()
    assert (answer.returncode, message) == (
        0,
        f"otel-hardware: the program itself is not reported: process {pid} has ended",
    )


def test_attached_to_a_process_of_a_job_it_leaves_the_host_to_the_reporter(sink: Sink, tmp_path: Path) -> None:
    with started(command("processes/job", tmp_path / "journal", "wait")) as reporter:
        _, job = reporter.stdout.readline().split()  # it has reported the host
        with started([sys.executable, "-c", "input()"], {JOB: job}) as program:
            line = ["otel-hardware", "run", "--attach", str(program.pid), "--interval", "0.3"]
            with started(line, {**sink.environment(), **FAST}) as attached:
                wait_for(lambda: "process.cpu.time" in sink.names, PATIENCE, "export of the process")
                assert not [name for name in sink.names if name.startswith("system.")]
                program.communicate("\n")
                _, err = attached.communicate(timeout=END)
    assert f"process {reporter.pid} reports the host of this job already" in err


def test_program_that_reports_itself_is_not_reported_twice(sink: Sink, tmp_path: Path) -> None:
    with started(command("processes/job", tmp_path / "journal", "wait")) as program:
        assert program.stdout.readline()
        line = ["otel-hardware", "run", "--attach", str(program.pid), "--interval", "0.3"]
        refused = run(line, {**sink.environment(), **FAST})
        assert (refused.returncode, refused.stdout, sink.exports) == (2, "", [])
        assert f"process {program.pid} is instrumented and reports itself" in refused.stderr
        with started([*line, "--reporter", "always"], {**sink.environment(), **FAST}) as attached:
            wait_for(lambda: {"process.cpu.time", "system.cpu.time"} <= sink.names, PATIENCE, "export of the process")
            program.communicate("")
            attached.communicate(timeout=END)


# -- what ends it


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_agent_of_a_program_that_drops_its_privileges_runs_as_its_user(sink: Sink) -> None:
    with application(sink) as app:
        first = app.agent()
        app.ask("setuid")
        wait_for(lambda: not lives(first), PATIENCE, "end of the agent")
        assert [each for each in app.agents() if psutil.Process(each).uids().real == 0] == []
        assert app.ask("uninstrument")["agents"] == []
        assert "Traceback" not in app.end()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_agent_with_more_privileges_ends_with_uninstrument(sink: Sink) -> None:
    with application(sink) as app:
        first = app.agent()
        print("setuid\nuninstrument", file=app.process.stdin, flush=True)
        wait_for(lambda: not lives(first), PATIENCE, "end of the agent")
        assert "Traceback" not in app.end()


def test_stopped_agent_is_noticed_and_replaced_by_the_program(sink: Sink) -> None:
    with application(sink) as app:
        pid = app.agent()
        wait_for(lambda: app.ask("state")["ready"], PATIENCE, "sign of life")
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: "otel-hardware-process" in app.ask("state")["threads"], PATIENCE, "source in the application")
        assert not lives(pid)
        log = app.end()
    warnings = [line for line in log.splitlines() if line.startswith("WARNING")]
    assert warnings == ["WARNING The agent does not respond; this process reports instead"]


def test_stopped_agent_does_not_outlive_the_program(sink: Sink) -> None:
    with application(sink) as app:
        pid = app.agent()
        os.kill(pid, signal.SIGSTOP)
        app.process.kill()
        wait_for(lambda: not lives(pid), PATIENCE, "end of the agent")


def test_program_that_ends_before_its_agent_has_started_says_so(sink: Sink) -> None:
    with application(sink, env={"AGENT_NEVER_READY": "1"}) as app:
        log = app.end()
    assert "WARNING The program ends before its agent has answered: its hardware may be missing" in log.splitlines()


FORKS_IN_C = """
import ctypes, os, sys
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.instrumentation.hardware import HardwareInstrumentor
HardwareInstrumentor().instrument(meter_provider=MeterProvider([]), mode="agent")
child = ctypes.PyDLL(None).fork()
if not child:
    sys.exit()
os.waitpid(child, 0)
os._exit(0)
"""


def test_child_that_is_forked_in_c_says_nothing_about_the_agent_of_its_parent() -> None:
    outcome = run([sys.executable, "-c", FORKS_IN_C])
    assert (outcome.returncode, outcome.stderr) == (0, "")


def test_agent_that_floods_its_standard_error_is_logged_in_part(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    telemetry = agent.Agent({}, dict, lambda: None, lambda: None, None)
    child = SimpleNamespace(stderr=bytearray())
    for number in range(1000):
        child.stderr += b"noise %d\n" % number
        assert telemetry._log(child) == f"noise {number}"  # type: ignore[arg-type]
    assert len(caplog.messages) == agent._MOST_LINES
    telemetry._log_began -= agent._LOG_PERIOD
    child.stderr += b"later\n"
    telemetry._log(child)  # type: ignore[arg-type]
    assert caplog.messages[-2:] == [f"Agent: {1000 - agent._MOST_LINES} more lines", "Agent: later"]
