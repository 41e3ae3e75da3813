"""Faults of devices as log events, through the real SDK."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk._logs import LoggerProvider, LogRecordProcessor
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from tests.sources.nvidia_gpus import SimulatedGpus, simulated_gpus
from tests.support.children import PATIENCE, ROOT, started
from tests.support.stage import warnings
from tests.tools.collector import Collector
from tests.tools.daemon import Prometheus, wait
from tests.tools.nvml import h100, refused

from opentelemetry import _logs
from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.sources.nvidia import fields, xids

LOST = 15
UUID = "GPU-00002330-0000-4000-8000-00000000000"


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoggerProvider]:
    """The LoggerProvider of the program."""
    found = LoggerProvider(shutdown_on_exit=False)
    monkeypatch.setattr(_logs._internal, "_LOGGER_PROVIDER", found)
    yield found
    found.shutdown()


@pytest.fixture
def exporter(provider: LoggerProvider) -> InMemoryLogRecordExporter:
    found = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]
    provider.add_log_record_processor(SimpleLogRecordProcessor(found))
    return found


def events(exporter: InMemoryLogRecordExporter) -> list[tuple[str | None, str | None, Any, dict[str, Any]]]:
    """Name, severity, body and attributes of each event since the previous call."""
    found = []
    for data in exporter.get_finished_logs():
        record = data.log_record
        assert data.instrumentation_scope is not None
        assert data.instrumentation_scope.name == c.SCOPE
        assert record.timestamp
        attributes = dict(record.attributes or {})
        assert attributes.keys() <= {*c.EVENTS[record.event_name or ""][1]}
        found.append((record.event_name, record.severity_text, record.body, attributes))
    exporter.clear()
    return found


def until_it_responds(machine: SimulatedGpus) -> None:
    for _ in range(40):
        if machine.tick(2).one("hw.status", hw_name="GPU 1", hw_state="ok"):
            machine.tick(2)
            return
    raise AssertionError("GPU 1 does not respond")


def test_lost_and_recovered_device(tmp_path: Path, exporter: InMemoryLogRecordExporter) -> None:
    with simulated_gpus(tmp_path, h100(0), h100(1)) as machine:
        machine.tick(0)
        assert events(exporter) == []
        for _ in range(5):
            machine.tick(2, {"gpu1": refused(LOST)})
        device = {"hw.id": f"{UUID}1", "hw.name": "GPU 1", "hw.type": "gpu"}
        remedy = {"hw.fault.remedy": "the kernel log has the cause; restart the machine"}
        assert events(exporter) == [("hw.device.lost", "ERROR", "GPU 1: GPU is lost", {**device, **remedy})]
        machine.fake.set_lines({"gpu1": None})
        until_it_responds(machine)
        assert events(exporter) == [("hw.device.recovered", "INFO", "GPU 1: responds again", device)]


def test_device_that_is_lost_before_the_start(tmp_path: Path, exporter: InMemoryLogRecordExporter) -> None:
    with simulated_gpus(tmp_path, h100(0), h100(1), lines={"gpu1": refused(LOST)}) as machine:
        machine.tick(0)
        assert [name for name, *_ in events(exporter)] == ["hw.device.lost"]
        machine.fake.set_lines({"gpu1": None})
        until_it_responds(machine)
        assert [name for name, *_ in events(exporter)] == ["hw.device.recovered"]


@pytest.mark.parametrize(
    ("number", "severity", "meaning"),
    [
        (79, "ERROR", "the GPU has fallen off the bus"),
        (31, "INFO", "page fault in GPU memory: an address that is not mapped"),
        (155, "ERROR", "NVLink error (NVLink 5)"),
        (157, "ERROR", "a part of the GPU could not be marked for replacement: no spare is left"),
        (172, "ERROR", "uncorrectable memory error: details of Xid 48"),
        (999, "ERROR", "not in the table of this package"),
    ],
)
def test_xid(tmp_path: Path, exporter: InMemoryLogRecordExporter, number: int, severity: str, meaning: str) -> None:
    with simulated_gpus(tmp_path, h100(0)) as machine:
        machine.tick(0)
        machine.fake.event(0, number)
        machine.fake.event(0, number)
        machine.tick(2)
        first, second = events(exporter)
        assert first == second, "each Xid is an event"
        assert first[:3] == ("hw.gpu.xid", severity, f"GPU 0: Xid {number}: {meaning}")
        assert first[3]["hw.gpu.xid"] == str(number)
        assert first[3]["hw.fault.remedy"]


def test_recovery_action(tmp_path: Path, exporter: InMemoryLogRecordExporter) -> None:
    with simulated_gpus(tmp_path, h100(0)) as machine:
        machine.tick(0)
        for action in (1, 1, 0, 2, 2):
            machine.tick(10, {"gpu0.FieldValues.230": f"uint {action}"})
        bodies = [(name, body) for name, _, body, _ in events(exporter)]
        words = "GPU 0: the driver requires a recovery action: "
        name = "hw.gpu.recovery_action"
        assert bodies == [(name, words + "reset the GPU"), (name, words + "reboot the node")]


def test_device_that_is_not_reported_has_no_events(tmp_path: Path, exporter: InMemoryLogRecordExporter) -> None:
    with simulated_gpus(tmp_path, h100(0), h100(1), devices=["0"]) as machine:
        machine.tick(0)
        machine.fake.event(1, 79)
        machine.tick(2, {"gpu1": refused(LOST)})
        assert events(exporter) == []


def test_processor_that_raises_loses_no_metric(tmp_path: Path, provider: LoggerProvider) -> None:
    class Broken(LogRecordProcessor):
        def on_emit(self, log_record: Any) -> None:
            raise RuntimeError("broken processor")

        def shutdown(self) -> None: ...

        def force_flush(self, timeout_millis: int = 0) -> bool:
            return True

    provider.add_log_record_processor(Broken())
    with simulated_gpus(tmp_path, h100(0), h100(1)) as machine:
        machine.tick(0)
        machine.fake.event(0, 79)
        now = machine.tick(2, {"gpu1": refused(LOST)})
        assert now.one("hw.status", hw_name="GPU 1", hw_state="failed") == 1
        assert now.total("hw.errors", hw_name="GPU 0", error_type="xid") == 1
        assert machine.up()


def test_without_a_logger_provider_there_are_only_warnings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with simulated_gpus(tmp_path, h100(0)) as machine:
        machine.tick(0)
        machine.fake.event(0, 79)
        machine.tick(2)
    (warning,) = warnings(caplog)
    assert "Xid 79: the GPU has fallen off the bus; see https://docs.nvidia.com/" in warning


def test_agent_exports_events_if_it_exports_logs() -> None:
    command = ["otel-hardware", "run", "--simulate", "2xH100:lost", "--simulate-speed", "60", "--", "sleep", "600"]
    names: list[str] = []
    with started(command, {"OTEL_LOGS_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "console"}) as agent:
        for line in agent.stdout:
            found = re.findall(r'"event_name": "([a-z._]+)"', line)
            names += found
            if found and len(names) == 2:
                agent.terminate()
    assert sorted(names) == ["hw.device.lost", "hw.gpu.xid"]


def test_prometheus_sees_the_first_event_of_a_number(tmp_path: Path) -> None:
    (expression,) = re.findall(r"`(increase\(.+\) > 0)`", (ROOT / "docs" / "events.md").read_text())
    with Collector(tmp_path) as collector, Prometheus(tmp_path, {"gpu": collector.prometheus.split("/")[2]}) as server:
        command = "otel-hardware run --sources nvidia --simulate 1xH100:xid --interval 5"
        with started(command.split(), {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.grpc}):
            found = wait(lambda: server.query(expression), PATIENCE, "an increase")
    assert [labels["hw_gpu_xid"] for labels, _ in found] == ["31"]


def test_xids_that_the_counter_names_are_explained() -> None:
    assert {*fields.HARDWARE_XIDS} <= xids.XIDS.keys()
