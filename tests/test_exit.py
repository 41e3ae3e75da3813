"""The end of a program: the same with and without this package, also if the Collector does not respond."""

from __future__ import annotations

import importlib
import logging
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from tests.support import children
from tests.support.sink import Sink

from opentelemetry.instrumentation.hardware.catalog import SCOPE, SYSTEM_CPU_TIME
from opentelemetry.instrumentation.hardware.instruments import Instruments

WAYS = {
    "return": 0,
    "exit": 4,
    "exception": 1,
    "handler": 7,
    "_exit": 5,
    "term": -signal.SIGTERM,
    "kill": -signal.SIGKILL,
    "abort": -signal.SIGABRT,
}

# Ways in which Python runs exit hooks, so that the SDK exports once more.
AT_EXIT = ("return", "exit", "exception", "handler")

# Seconds that the main thread may wait at the end. Our limit is 1 s; it does not count the time that others run.
LONGEST = 2.0

SLOW = 2.0  # seconds until a slow Collector answers: more than our limit

UNRESPONSIVE = {
    "OTEL_EXPORTER_OTLP_TIMEOUT": "300",  # without a limit of ours, the SDK waits for its export for 30 s
    "OTEL_PYTHON_HARDWARE_EXIT_TIMEOUT": "",
}


@contextmanager
def port(answers: bool) -> Iterator[socket.socket]:
    """A socket to which nothing listens, or at which connections are accepted and nothing is ever answered."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if answers:
            listener.listen()
        yield listener


def end(
    way: str, env: dict[str, str], folder: Path, before: Callable[[children.Piped], object] = lambda child: None
) -> tuple[int, str]:
    """Run the program. Returns its status and output after checking that it left nothing behind."""
    folder.mkdir()
    shared = {*os.listdir("/dev/shm")}
    with children.started(children.command("processes/ends", way), env | {"TMPDIR": str(folder)}, cwd=folder) as child:
        before(child)
        child.end_input()
        line = child.stdout.readline()
        rest, _ = children.end_of(child)
        with pytest.raises(ProcessLookupError):
            os.killpg(child.pid, 0)
    assert [*folder.iterdir()] == []
    assert not any(name.startswith("otel") for name in {*os.listdir("/dev/shm")} - shared)
    return child.returncode, line + rest


@pytest.mark.parametrize("way", WAYS)
def test_status_and_output_are_those_without_us_and_last_values_are_exported(way: str, tmp_path: Path) -> None:
    assert end(way, {}, tmp_path / "without") == (WAYS[way], "ends\n")
    with Sink() as sink:
        env = sink.environment(3600) | children.AUTO_INSTRUMENTATION
        assert end(way, env, tmp_path / "with") == (WAYS[way], "ends\n")
        exported = [SYSTEM_CPU_TIME.name in export.names() for export in sink.exports]
        assert exported == [True] * (way in AT_EXIT)


def test_span_that_a_finalizer_ends_at_the_exit_is_exported() -> None:
    """Finalizers run in one exit hook, which the first of them registers: before the provider's if that comes later."""
    outcome = children.run(children.command("spans/finalized"))
    assert '"name": "stream"' in outcome.stdout, outcome.stderr


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
@pytest.mark.parametrize("answers", [False, True], ids=["refused", "silent"])
@pytest.mark.parametrize("during", [False, True], ids=["first export", "during an export"])
def test_collector_that_does_not_respond_delays_the_end_by_a_second_at_most(
    protocol: str, answers: bool, during: bool, tmp_path: Path
) -> None:
    def wait_for_export(child: children.Piped) -> None:
        if answers:
            stack.enter_context(listener.accept()[0])
        elif during:
            assert "xport" in child.stderr.readline()  # retried, or with SDK 1.39 failed

    with ExitStack() as stack:
        listener = stack.enter_context(port(answers))
        env = stack.enter_context(Sink()).environment(0.2 if during else 3600) | UNRESPONSIVE
        env["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{listener.getsockname()[1]}"
        env["OTEL_EXPORTER_OTLP_PROTOCOL"] = protocol
        waited = end_after_waiting(env, tmp_path / "with", wait_for_export if during else lambda child: None)
    assert waited < LONGEST


def end_after_waiting(
    env: dict[str, str], folder: Path, before: Callable[[children.Piped], object] = lambda child: None
) -> float:
    """Run the program to its normal end. Returns the seconds for which its main thread has waited."""
    env = env | children.AUTO_INSTRUMENTATION
    status, output = end("exit", env | {"ENDS_WAITED": "1"}, folder, before)
    match = re.fullmatch(r"ends\nwaited ([0-9.]+) s\n", output)
    assert match, output
    assert status == 4
    return float(match[1])


def test_ctrl_c_during_the_last_export_prints_nothing_of_ours() -> None:
    code = """
import signal
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
from opentelemetry.instrumentation.hardware import HardwareInstrumentor

class Interrupted(ConsoleMetricExporter):
    def export(self, *args, **kwargs):
        signal.raise_signal(signal.SIGINT)
        return super().export(*args, **kwargs)

reader = PeriodicExportingMetricReader(Interrupted(), 3_600_000)
HardwareInstrumentor().instrument(meter_provider=MeterProvider([reader]), sources=["process"])
"""
    outcome = children.run([sys.executable, "-c", code])
    assert (outcome.returncode, outcome.stderr) == (0, "")


@pytest.mark.parametrize("mode", ["process", "agent"])
def test_subinterpreter_ends_after_its_last_export(mode: str) -> None:
    """As those of mod_wsgi and Jep. Python aborts the process at the end of one that has threads."""
    pytest.importorskip("_testcapi")
    code = """
import os
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.instrumentation.hardware import HardwareInstrumentor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, PeriodicExportingMetricReader

memory = InMemoryMetricReader()
provider = MeterProvider([memory, PeriodicExportingMetricReader(OTLPMetricExporter(), 3_600_000)])
provider.get_meter("application").create_counter("steps").add(1)  # so our exit hook leaves the provider to the SDK's
HardwareInstrumentor().instrument(meter_provider=provider)
while os.environ["OTEL_PYTHON_HARDWARE_MODE"] == "process" and "system.cpu.time" not in str(memory.get_metrics_data()):
    pass
"""
    with Sink() as sink:
        env = sink.environment(3600) | {"OTEL_PYTHON_HARDWARE_MODE": mode}
        children.succeed([sys.executable, "-c", f"import _testcapi; _testcapi.run_in_subinterp({code!r})"], env)
        if mode == "process":
            assert {"steps", SYSTEM_CPU_TIME.name} <= sink.names


def test_subinterpreter_ends_after_a_measured_block() -> None:
    pytest.importorskip("_testcapi")
    code = """
from opentelemetry.instrumentation.hardware import measure

with measure() as m:
    pass
print(m.cpu_time is not None, flush=True)
"""
    outcome = children.succeed([sys.executable, "-c", f"import _testcapi; _testcapi.run_in_subinterp({code!r})"])
    assert outcome.stdout == "True\n"


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_refused_last_export_is_one_line_on_stderr(protocol: str, tmp_path: Path) -> None:
    with port(answers=False) as listener, Sink() as sink:
        env = sink.environment(3600) | {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{listener.getsockname()[1]}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_EXPORTER_OTLP_TIMEOUT": "2",  # there is time for a second attempt, but not for a third
        }
        outcome = children.run(
            children.command("processes/ends", "exit"), env | children.AUTO_INSTRUMENTATION, cwd=tmp_path
        )
    (line,) = outcome.stderr.splitlines()
    assert re.search("refused|UNAVAILABLE", line)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_export_that_is_not_over_in_time_logs_one_message(protocol: str, caplog: pytest.LogCaptureFixture) -> None:
    module = importlib.import_module(f"opentelemetry.exporter.otlp.proto.{protocol}.metric_exporter")
    with port(answers=False) as listener:
        exporter = module.OTLPMetricExporter(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=60)
        reader = PeriodicExportingMetricReader(exporter, 3_600_000)
        provider = MeterProvider([reader])
        provider.get_meter(SCOPE).create_counter("ours").add(1)
        Instruments(provider).shut_down(0.3)
        thread = reader._daemon_thread
        assert thread is not None
        thread.join(children.END)  # between two attempts, it ends with the exporter
    assert not thread.is_alive()
    (record,) = caplog.records
    assert record.exc_info is None
    logging.getLogger(record.name).error("of another thread")
    assert caplog.messages[1:] == ["of another thread"]


def test_slow_collector_has_the_last_values_although_the_program_does_not_wait_for_its_answer(tmp_path: Path) -> None:
    ended = threading.Event()
    with Sink(before_answer=ended.wait) as sink:
        try:
            waited = end_after_waiting(sink.environment(3600) | UNRESPONSIVE, tmp_path / "with")
        finally:
            ended.set()
    assert waited < LONGEST
    assert [SYSTEM_CPU_TIME.name in export.names() for export in sink.exports] == [True]


@pytest.mark.parametrize(
    "patient",
    [
        pytest.param({"OTEL_PYTHON_HARDWARE_EXIT_TIMEOUT": "60"}, id="by our setting"),
        pytest.param(UNRESPONSIVE | {"ENDS_METRIC": "1"}, id="by the SDK"),
    ],
)
def test_program_waits_for_a_slow_collector_if_it_should(patient: dict[str, str], tmp_path: Path) -> None:
    with Sink(before_answer=lambda: threading.Event().wait(SLOW)) as sink:
        waited = end_after_waiting(sink.environment(3600) | patient, tmp_path / "with")
        assert waited > SLOW - 0.1
        assert SYSTEM_CPU_TIME.name in sink.exports[0].names()
        if "ENDS_METRIC" in patient:
            without = {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": f"hardware,{children.PEERS}"}
            env = sink.environment(3600) | patient | without
            assert end_after_waiting(env, tmp_path / "without") > SLOW - 0.1
