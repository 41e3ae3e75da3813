"""``opentelemetry-instrument python app.py``: an unchanged program is instrumented."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import fields

import pytest
from tests.support import children
from tests.support.journal import OURS, Export, repeated
from tests.support.sink import Scope, Sink

from opentelemetry.instrumentation.hardware import Config
from opentelemetry.instrumentation.hardware.catalog import SCHEMA_URL
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.sources import discover
from opentelemetry.instrumentation.hardware.version import __version__

PREFIX = "OTEL_PYTHON_HARDWARE_"


def last(sink: Sink) -> Export:
    assert sink.exports, "nothing arrived"
    return sink.exports[-1]


def groups(export: Export) -> set[str]:
    """Return the first parts of the names of our metrics."""
    return {name.partition(".")[0] for name in export.names()}


def in_container() -> bool:
    """Whether a child of this process has a container or a cgroup limit to report."""
    drivers = Drivers()
    try:
        drivers.machine().cgroup(os.getpid())
    except Unavailable:
        return False
    finally:
        drivers.close()
    return True


def test_host_container_and_process_metrics_arrive_once_per_series(sink: Sink) -> None:
    outcome = children.run(children.instrumented("applications/configured"), sink.environment())
    assert (outcome.returncode, outcome.stderr) == (0, "")
    expected = {"system", "process", "otel_hardware"} | ({"container"} if in_container() else set())
    assert groups(last(sink)) - {"hw"} == expected
    assert repeated(last(sink).points) == []
    assert sink.scopes == {Scope(OURS, __version__, SCHEMA_URL)}
    assert set(last(sink).values("otel_hardware.source.up")) == {1}


@pytest.mark.parametrize(("interval", "status"), [("3600", 7), ("0.2", 0)], ids=["no sample before", "samples before"])
def test_export_at_program_end_has_true_cpu_time(sink: Sink, interval: str, status: int) -> None:
    env = sink.environment() | {PREFIX + "SAMPLE_INTERVAL": interval, PREFIX + "SOURCES": "process"}
    before = children.ended_cpu_time()
    outcome = children.run(children.instrumented("applications/app", 0.3, status), env)
    whole = children.ended_cpu_time() - before
    assert outcome.returncode == status
    assert len(sink.exports) == 1, "there are other exports than the one at the end"
    reported = sum(last(sink).values("process.cpu.time"))
    assert json.loads(outcome.stdout)["cpu"] - 0.05 <= reported <= whole + 0.05
    assert sum(last(sink).values("process.cpu.utilization")) > 0


def test_disabled_instrumentations_variable_switches_off(sink: Sink) -> None:
    env = sink.environment() | {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": f"hardware,{children.PEERS}"}
    assert children.run(children.instrumented("applications/app", 0.1, 0), env).returncode == 0
    assert [export.names() for export in sink.exports if export.names()] == []


def test_settings_from_environment_variables(sink: Sink) -> None:
    env = sink.environment() | {
        PREFIX + "SOURCES": "-filesystem,-container",
        PREFIX + "DETAIL": "cpu",
        PREFIX + "INCLUDE_METRICS": "system.cpu.load_average.*",
        PREFIX + "EXCLUDE_METRICS": "system.network.*,process.*",
    }
    assert children.run(children.instrumented("applications/configured"), env).returncode == 0
    names = last(sink).names()
    assert {"system.cpu.load_average.5m", "system.cpu.load_average.15m"} <= names
    assert [name for name in names if name.startswith(("system.network", "process.", "system.filesystem"))] == []
    cpus = {
        point.attributes.get("cpu.logical_number") for point in last(sink).points if point.name == "system.cpu.time"
    }
    assert cpus == set(range(os.cpu_count() or 0))


def test_settings_from_command_line_flags(sink: Sink) -> None:
    flags = ("--hardware_sources", "process", "--hardware_exclude_metrics", "process.memory.*")
    line = children.instrumented("applications/configured", flags=flags)
    assert children.run(line, sink.environment()).returncode == 0
    assert groups(last(sink)) == {"process", "otel_hardware"}
    assert [name for name in last(sink).names() if name.startswith("process.memory")] == []


BAD = {
    "SAMPLE_INTERVAL": ("fast", "a number of seconds from 0 to 3600"),
    "SOURCES": ("host,process,gpux", ", ".join(discover())),
    "DISK_PATHS": ("/,/no/such/place", "absolute paths that exist"),
    "DETAIL": ("everything", "cpu, connections, devices, processes"),
    "INCLUDE_METRICS": ("sytem.cpu.*", "no metric matches"),
    "COUNTER_ORIGIN": ("birth", "boot or start"),
}


def test_invalid_settings_log_one_warning_each(sink: Sink) -> None:
    env = sink.environment() | {PREFIX + name: value for name, (value, _) in BAD.items()}
    env[PREFIX + "SOURCES"] += ",filesystem"
    outcome = children.run(children.instrumented("applications/configured", 3), env)
    assert outcome.returncode == 3
    lines = outcome.stderr.splitlines()
    for name, (_, form) in BAD.items():
        (line,) = [line for line in lines if PREFIX + name in line]
        assert form in line
    assert len(lines) == len(BAD), outcome.stderr
    assert {"system.cpu.time", "process.cpu.time", "system.filesystem.usage"} <= last(sink).names()


def test_disabled_sdk_exports_nothing(sink: Sink) -> None:
    outcome = children.run(
        children.instrumented("applications/app", 0.1, 5), sink.environment() | {"OTEL_SDK_DISABLED": "true"}
    )
    assert outcome.returncode == 5
    assert "Traceback" not in outcome.stderr
    assert sink.exports == []


def test_every_setting_has_a_command_line_flag() -> None:
    outcome = children.run(["opentelemetry-instrument", "--help"])
    assert [field.name for field in fields(Config) if f"--hardware_{field.name}" not in outcome.stdout] == []


def test_warnings_about_encodings_that_are_errors_stop_nothing() -> None:
    program = "from opentelemetry.instrumentation.hardware import HardwareInstrumentor as H; H().instrument()"
    flags = ["-X", "warn_default_encoding", "-W", "error::EncodingWarning"]
    outcome = children.run([sys.executable, *flags, "-c", program])
    assert (outcome.returncode, outcome.stderr) == (0, "")
