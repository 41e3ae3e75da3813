"""The settings of endpoints: options, files, limits and secrets."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support import children
from tests.support.stage import warnings
from tests.tools import ROOT

from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.settings.endpoints import (
    SHARE,
    TOTAL,
    Endpoint,
    EndpointConfigError,
    endpoints,
)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"a": "http://user:word@h/m"}, "contains a password"),
        ({"a": "http://h/m\nX: y"}, "is not of the form"),
        ({"a": "http://h:0/m"}, "is not of the form"),
        ({"a": "http:///m"}, "is not of the form"),
        ({"a b": "http://h/m"}, "the name of an endpoint"),
        ({"a": {"url": "http://h", "colour": 1}}, "an unknown option"),
        ({"a": {"url": "http://h", "timeout": 0}}, "timeout is not a number from 0.001 to 60"),
        ({"a": {"url": "http://h", "timeout": True}}, "timeout is not a number from 0.001 to 60"),
        ({"a": {"url": "http://h", "max_bytes": "1"}}, "max_bytes is not a number"),
        ({"a": {"url": "http://h", "max_series": TOTAL + 1}}, "max_series is not a number"),
        ({"a": {"url": "http://h", "max_series": TOTAL}, "b": "http://h"}, "together"),
        ({"a": {"url": "http://h", "filters": "("}}, "filters .* is not a regular expression"),
        ({"a": {"url": "http://h", "headers": {"X": "secret\r\nY: z"}}}, "endpoint a: headers is not"),
        ({"a": {"url": "http://h", "headers": ["secret"]}}, "endpoint a: headers is not"),
        ({"a": {"url": "http://h", "key_file": "/k"}}, "no cert_file"),
        ({"a": {"url": "http://h", "ca_file": 5}}, "ca_file is not the path of a file"),
        ("a=http://h,a=http://i", "two endpoints a"),
    ],
)
def test_invalid_endpoint_is_refused_without_its_secrets(words: object, why: str) -> None:
    with pytest.raises(EndpointConfigError, match=why) as error:
        endpoints(words)
    assert "secret" not in str(error.value)
    assert "word@" not in str(error.value)


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        (["x", "(", "y", "["], ["x", "y"]),
        ({"x": {"l": "("}, "y": {"l": "v"}, "[": {}}, {"y": {"l": "v"}}),
    ],
)
def test_invalid_filter_costs_only_itself(filters: object, kept: object, caplog: pytest.LogCaptureFixture) -> None:
    words = {"a": {"url": "http://h", "filters": filters}, "b": "http://i"}
    config = Config.read({"openmetrics": words}, {})
    assert config.openmetrics is not None
    assert [(one.name, one.filters) for one in config.openmetrics.each] == [("a", kept), ("b", None)]
    (warning,) = warnings(caplog)
    for wrong in ("(", "["):
        assert f"{wrong!r} is not a regular expression" in warning
    assert warning.startswith("openmetrics: endpoint a: filters ")
    assert warning.endswith("; using a,b")


@pytest.mark.parametrize("options", [{"url": "http://h", "filters": ["("]}, {"url": "ftp://h"}, {}, 5])
def test_invalid_endpoint_costs_only_itself(options: object, caplog: pytest.LogCaptureFixture) -> None:
    config = Config.read({"openmetrics": {"a": options, "b": "http://i", "c d": "http://j"}}, {})
    assert config.openmetrics is not None
    assert [(one.name, one.max_series) for one in config.openmetrics.each] == [("b", SHARE)]
    (warning,) = warnings(caplog)
    assert "endpoint a" in warning
    assert warning.endswith("; using b")


def test_endpoint_warning_has_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    Config.read({"openmetrics": {"a": {"url": "http://h", "headers": {"Authorization": "Bearer s3cret"}, "x": 1}}}, {})
    Config.read({}, {"OTEL_PYTHON_HARDWARE_OPENMETRICS": "a=http://me:s3cret@h/m"})
    assert len(warnings(caplog)) == 2
    assert "s3cret" not in caplog.text


def test_endpoint_repr_str_and_json_have_no_secret() -> None:
    parsed = endpoints({"a": {"url": "https://h:1/m?token=s3cret", "headers": {"X": "s3cret"}, "filters": ["x"]}})
    assert str(parsed) == "a=https://h:1/m"
    assert json.dumps(parsed) == '{"a": {"url": "https://h:1/m", "filters": ["x"]}}'
    assert "s3cret" not in repr(parsed)
    assert "s3cret" not in repr(parsed.each)
    config = Config.read({"openmetrics": parsed}, {})
    assert "s3cret" not in repr(config) + str(config)


def test_max_series_is_shared_among_endpoints() -> None:
    def limits(words: object) -> list[int]:
        return [one.max_series for one in endpoints(words).each]

    assert limits("a=http://h") == [SHARE]
    assert limits(dict.fromkeys("abcdef", "http://h")) == [TOTAL // 6] * 6
    assert limits({"a": {"url": "http://h", "max_series": TOTAL - 10}, "b": "http://h", "c": "http://h"})[1:] == [5, 5]
    assert TOTAL < 2000


CONTENT: dict[str, Any] = {
    "a": {"url": "http://h/m", "filters": {"x": {"l": "v"}}, "headers": {"X-A": "b"}, "timeout": 2, "interval": 30},
    "b": "http://h/m",
}


def test_endpoints_from_a_json_file(tmp_path: Path) -> None:
    file = tmp_path / "endpoints.json"
    file.write_text(json.dumps(CONTENT))
    first, second = endpoints(str(file)).each
    assert first == Endpoint(
        "a", "http://h/m", {"x": {"l": "v"}}, {"X-A": "b"}, interval=30.0, timeout=2.0, max_series=TOTAL // 2
    )
    assert second == Endpoint("b", "http://h/m", max_series=TOTAL // 2)


def test_endpoints_from_a_yaml_file(tmp_path: Path) -> None:
    file = tmp_path / "endpoints.yaml"
    file.write_text("a:\n  url: http://h/m\n  filters:\n    - x\nb: http://h/m\n")
    assert [one.filters for one in endpoints(str(file)).each] == [["x"], None]
    file.write_text("a: [\n")
    with pytest.raises(EndpointConfigError, match="is not YAML, line"):
        endpoints(str(file))


@pytest.mark.parametrize("text", ["!!bool x", "!!int ''", "!!timestamp x"])
def test_yaml_file_with_a_value_of_another_type_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "endpoints.yaml"
    file.write_text(f"a: {text}\n")
    with pytest.raises(EndpointConfigError, match=r"endpoints\.yaml is not YAML$"):
        endpoints(str(file))


@pytest.mark.parametrize("tag", ["object/apply:os.mkdir", "object/new:os.mkdir", "tuple"])
def test_yaml_file_with_a_python_object_is_refused_and_runs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, tag: str
) -> None:
    made = tmp_path / "made"
    file = tmp_path / "endpoints.yaml"
    file.write_text(f"a: http://h/m\nb: !!python/{tag} [{made}]\n")
    with pytest.raises(EndpointConfigError, match=r"endpoints\.yaml is not YAML, line 2$"):
        endpoints(str(file))
    assert Config.read({}, {"OTEL_PYTHON_HARDWARE_OPENMETRICS": str(file)}).openmetrics is None
    assert len(warnings(caplog)) == 1
    assert not made.exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no such files")
def test_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    file = tmp_path / "endpoints.json"
    os.mkfifo(file)
    with pytest.raises(EndpointConfigError, match=r"cannot read .* it is not a regular file"):
        endpoints(str(file))


def test_endpoint_example_of_the_docs_is_valid() -> None:
    _, _, text = (ROOT / "docs" / "openmetrics.md").read_text().partition("```yaml\n")
    first, second = endpoints(yaml.safe_load(text.partition("```")[0])).each
    assert (first.name, first.max_series, first.timeout, first.interval) == ("dcgm", 1000, 5.0, 30.0)
    assert (second.name, second.timeout, second.interval) == ("vllm", Endpoint.timeout, Endpoint.interval)
    assert first.max_bytes == Endpoint.max_bytes


def test_yaml_file_without_pyyaml_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "endpoints.yaml"
    file.write_text("a: http://h/m\n")
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(EndpointConfigError, match="YAML needs PyYAML"):
        endpoints(str(file))
    file.write_text('{"a": "http://h/m"}')
    assert [one.name for one in endpoints(str(file)).each] == ["a"]


@pytest.mark.whole
def test_endpoints_from_declarative_configuration(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.configuration")
    pytest.importorskip("jsonschema")
    hardware = {"sources": ["openmetrics"], "openmetrics": {"own": {"url": "http://h/m", "filters": ["x"]}}}
    content = {
        "file_format": "1.1",
        "meter_provider": {"readers": [{"periodic": {"interval": 60000, "exporter": {"console": {}}}}]},
        "instrumentation/development": {"python": {"hardware": hardware}},
    }
    file = tmp_path / "otel.yaml"
    file.write_text(json.dumps(content))
    env = {"OTEL_CONFIG_FILE": str(file), "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": children.PEERS}
    outcome = children.succeed(children.instrumented("applications/configured"), env)
    printed = outcome.stdout[outcome.stdout.index("{") :]
    assert json.JSONDecoder().raw_decode(printed)[0]["openmetrics"][1] == {
        "own": {"url": "http://h/m", "filters": ["x"]}
    }
