"""Settings in OpenTelemetry's configuration file (``OTEL_CONFIG_FILE``) instead of variables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support import children
from tests.support.journal import OURS
from tests.support.sink import Sink

pytest.importorskip("opentelemetry.configuration", reason="needs opentelemetry-sdk[file-configuration]")
pytest.importorskip("jsonschema", reason="needs opentelemetry-sdk[file-configuration]")

# `opentelemetry-instrument` does not start the package by itself: the configuration file alone decides.
DISABLED = {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": f"hardware,{children.PEERS}"}


def configure(sink: Sink, folder: Path, hardware: Mapping[str, object]) -> dict[str, str]:
    """Write a configuration file; the environment that makes the SDK read it."""
    endpoint = sink.environment()["OTEL_EXPORTER_OTLP_ENDPOINT"] + "/v1/metrics"
    exporter = {"otlp_http": {"endpoint": endpoint}}
    content = {
        "file_format": "1.1",
        "meter_provider": {"readers": [{"periodic": {"interval": 60000, "exporter": exporter}}]},
        "instrumentation/development": {"python": {"hardware": hardware}},
    }
    path = folder / "otel.yaml"
    path.write_text(json.dumps(content))  # JSON is YAML
    return {
        "OTEL_CONFIG_FILE": str(path),
        "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": children.PEERS,
        "NO_PROXY": "*",
    }


def errors(outcome: Any) -> list[str]:
    """Return the lines on standard error, except those that OpenTelemetry logs with every configuration file."""
    usual = ("OTEL_CONFIG_FILE is set; ignoring", "Attempting to instrument while already instrumented")
    return sorted(line for line in outcome.stderr.splitlines() if not line.startswith(usual))


def settings(outcome: Any) -> dict[str, list[object]]:
    assert outcome.returncode == 0, outcome.stderr
    found: dict[str, list[object]] = json.loads(outcome.stdout)
    return found


def test_options_of_configuration_file_keep_their_types(sink: Sink, tmp_path: Path) -> None:
    options = {
        "sources": ["host", "process"],
        "sample_interval": 0.5,
        "detail": ["cpu"],
        "exclude_metrics": ["system.network.*"],
        "counter_origin": "start",
    }
    env = configure(sink, tmp_path, {"enabled": True, **options}) | DISABLED
    outcome = children.run(children.instrumented("applications/configured"), env)
    assert settings(outcome) == {name: [type(value).__name__, value] for name, value in options.items()}
    assert errors(outcome) == []
    (export,) = sink.exports
    names = export.names()
    assert {"system.cpu.time", "process.cpu.time"} <= names
    assert [name for name in names if name.startswith(("system.network", "system.filesystem"))] == []
    assert {"cpu.logical_number"} <= set().union(*(point.attributes for point in export.points))


def test_invalid_and_unknown_options_log_one_warning_each(sink: Sink, tmp_path: Path) -> None:
    options = {
        "sample_interval": "fast",
        "detail": ["all"],
        "sample_intervall": 1,
        "exclude_metrics": ["system.disk.*"],
    }
    outcome = children.run(children.instrumented("applications/configured"), configure(sink, tmp_path, options))
    assert settings(outcome) == {"counter_origin": ["str", "boot"], "exclude_metrics": ["list", ["system.disk.*"]]}
    detail, interval, unknown = errors(outcome)
    assert "sample_intervall is not a setting and is ignored; did you mean sample_interval?" in unknown
    assert "detail: ['all'] is not" in detail
    assert "cpu, connections, devices, processes" in detail
    assert "sample_interval: 'fast' is not a number of seconds from 0 to 3600" in interval
    names = sink.exports[-1].names()
    assert {"system.cpu.time", "process.cpu.time"} <= names
    assert [name for name in names if name.startswith("system.disk")] == []


def test_enabled_false_in_configuration_file_switches_off(sink: Sink, tmp_path: Path) -> None:
    """The first test of this file shows that `enabled: true` switches on in the same environment."""
    env = configure(sink, tmp_path, {"enabled": False}) | DISABLED
    assert settings(children.run(children.instrumented("applications/configured"), env)) == {}
    assert [export for export in sink.exports if export.names(OURS)] == []
