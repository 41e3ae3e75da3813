"""The settings: arguments and `OTEL_PYTHON_HARDWARE_*`, valid and invalid."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.stage import PATIENT, warnings

from opentelemetry.instrumentation.hardware import settings
from opentelemetry.instrumentation.hardware.catalog import CATALOG, SYSTEM_CPU_FREQUENCY, SYSTEM_CPU_TIME
from opentelemetry.instrumentation.hardware.model import Kind, Metric
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.settings import JOB, PREFIX, SOURCE_GROUP, Config
from opentelemetry.instrumentation.hardware.settings.endpoints import Words, endpoints
from opentelemetry.instrumentation.hardware.settings.sdk_variables import export_interval
from opentelemetry.instrumentation.hardware.simulator.machine import Spec

SETTINGS = [setting.name for setting in fields(Config)]
DEFAULT = Config(counter_origin="boot")

# The accepted forms by name, as in docs/configuration.md. Of several, a warning has the first.
FORMS = {row.name: row.metadata["form"].partition(", a JSON ")[0] for row in fields(Config)}

# The settings that are a path, of which most are a vendor's tool or library.
PATHS = [name for name, form in FORMS.items() if form.startswith("auto, off or the absolute path of ")]

PREFERENCE = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"

RIGHT: dict[str, list[tuple[object, object]]] = {
    **{name: [("Auto", "auto"), ("OFF", "off"), (" /opt/acme ", "/opt/acme")] for name in PATHS},
    "sources": [
        ("host", ["host"]),
        (" host , process ,", ["host", "process"]),
        ("-filesystem", ["-filesystem"]),
        ("auto", None),
        (["host"], ["host"]),
        (("host", "process"), ["host", "process"]),
    ],
    "simulate": [("8xH100", Spec(8, "h100", "training", 0)), (" t4:HOT@3 ", Spec(1, "t4", "hot", 3)), ("none", None)],
    "simulate_speed": [("1", 1.0), (60, 60.0), ("0.1", 0.1), ("600", 600.0)],
    "sample_interval": [("2", 2.0), ("0", 0.0), ("0.5", 0.5), (" 3 ", 3.0), (5, 5.0), (0.25, 0.25), ("3600", 3600.0)],
    "mode": [("agent", "agent"), (" Process ", "process")],
    "exit_timeout": [("5", 5.0), (0, 0.0)],
    "reporter": [("always", "always"), (" Never ", "never")],
    "include_metrics": [
        ("system.cpu.load_average.*", ["system.cpu.load_average.*"]),
        ("SYSTEM.cpu.time,cpython.*", ["system.cpu.time", "cpython.*"]),
        (["*"], ["*"]),
    ],
    "exclude_metrics": [
        ("system.paging.*", ["system.paging.*"]),
        ("hw.gpu.utilization{hw.gpu.task=FP16}", ["hw.gpu.utilization{hw.gpu.task=fp16}"]),
        ([], []),
    ],
    "preset": [("minimal", "minimal"), ("all", "all")],
    "detail": [("cpu", ["cpu"]), ("cpu, connections,processes", ["cpu", "connections", "processes"])],
    "disk_paths": [("/,/data", ["/", "/data"]), (["/mnt/a b"], ["/mnt/a b"])],
    "interfaces": [("eth0,bond0", ["eth0", "bond0"])],
    "devices": [
        ("all", ["all"]),
        ("Visible", ["visible"]),
        ("0, GPU-8f6a", ["0", "GPU-8f6a"]),
        (["MIG-1"], ["MIG-1"]),
    ],
    "amdgpu": [("off", "off"), (" Auto ", "auto")],
    "openmetrics": [
        ("dcgm=http://gpu:9400/metrics", {"dcgm": {"url": "http://gpu:9400/metrics"}}),
        (
            " a=http://h/m , b=https://h:1/m?key=1",
            {"a": {"url": "http://h/m"}, "b": {"url": "https://h:1/m"}},
        ),
        (["a=http://h/m"], {"a": {"url": "http://h/m"}}),
        ({"a": "http://h/m"}, {"a": {"url": "http://h/m"}}),
        ({"a": {"url": "http://h/m", "filters": ["x"]}}, {"a": {"url": "http://h/m", "filters": ["x"]}}),
    ],
    "openmetrics_filters": [
        ("DCGM_.*, vllm:", ["DCGM_.*", "vllm:"]),
        ("a{1,3}b,c{2,},d", ["a{1,3}b", "c{2,}", "d"]),
        ('["a,b"]', ["a,b"]),
        ('{"DCGM": {"gpu": "0|1"}}', {"DCGM": {"gpu": "0|1"}}),
        (["x"], ["x"]),
        ({"x": {}}, {"x": {}}),
    ],
    "tpu_runtime": [
        ("Off", ["off"]),
        ("8431, 8432", ["localhost:8431", "localhost:8432"]),
        ("10.0.0.2:8431,[::1]:8431", ["10.0.0.2:8431", "[::1]:8431"]),
        (["/run/tpu.sock", "unix:/run/other.sock"], ["/run/tpu.sock", "unix:/run/other.sock"]),
    ],
    "tpu_profiler": [("OFF", "off"), ("10.0.0.2:8466", "10.0.0.2:8466")],
    "libtpu": [("On", "on"), ("off", "off"), (True, "on"), (False, "off")],
    "spans": [("OFF", "off"), (True, "on"), ("true", "on"), ("False", "off")],
    "spans_min_duration": [("0.5", 0.5), (2, 2.0)],
    "spans_filter": [("name:a*,-kind:client", ["name:a*", "-kind:client"]), (["scope:x"], ["scope:x"])],
    "spans_shares": [("off", "off"), (" Equal", "equal"), ("tokens", "tokens"), (False, "off")],
    "counter_origin": [("boot", "boot"), ("Start", "start"), (" start ", "start")],
}

WRONG: dict[str, list[object]] = {
    **{name: ["acme", "./acme", "on", True, 0.5, 1, ["off"]] for name in PATHS},
    "sources": [5, 1.5, True, [1], {"host": 1}, b"host", Ellipsis],
    "simulate": ["8", "8 H100", "h100@x", "h100:", 5, True, [], {}],
    "simulate_speed": ["fast", "0", "601", "nan", True, []],
    "sample_interval": ["fast", "2s", "-1", -1, "nan", "inf", float("nan"), "3601", 1e9, True, [], {}, 10**400, "1,5"],
    "mode": ["thread", 1, True],
    "exit_timeout": ["1s", -1, 61, True],
    "reporter": ["sometimes", 1, False],
    "include_metrics": ["system.cpu.tim", 7, [7]],
    "exclude_metrics": ["sytem.*", {}, 0],
    "preset": ["every", 1],
    "detail": ["cpus", 1, ["cpu", 1]],
    "disk_paths": ["data", 3, [None]],
    "interfaces": [3, [3], 0.5],
    "devices": ["all,0", 0, "visible,process", {}, ","],
    "amdgpu": ["on", "/sys", 0],
    "openmetrics": [
        "a=ftp://h",
        {"a": {"url": "http://h", "filters": ["("]}},
        "=http://h",
        "a=http://h,b",
        "/no/such/file.json",
        3,
        {},
        {"a": {}},
        {"a": 1},
        [1],
    ],
    "openmetrics_filters": ["(", '{"a": 1}', "[1]", '["(', 3, {"x": {"l": "("}}, ","],
    "tpu_runtime": ["localhost", "localhost:port", "off,8431", ",", 8431, {}, "http://localhost:8431"],
    "tpu_profiler": ["my-tpu", "a:1,b:2", 8466, "grpc://10.0.0.2:8470"],
    "libtpu": ["auto", 1, "/usr/lib/libtpu.so"],
    "spans": ["yes", 1],
    "spans_min_duration": ["soon", "-1", True],
    "spans_filter": ["GET /", "name:", "span:x", 3],
    "spans_shares": ["on", 1, ["equal", "tokens"]],
    "counter_origin": ["now", "0", 0, ["boot"], False],
}

PARTLY_WRONG: dict[str, list[tuple[object, Words, str]]] = {
    "include_metrics": [("system.cpu.time,nothing.*", ["system.cpu.time"], "'nothing.*'")],
    "exclude_metrics": [(["sytem.*", "hw.*", "sytem.cpu.*"], ["hw.*"], "'sytem.*', 'sytem.cpu.*'")],
    "detail": [("cpu,everything", ["cpu"], "'everything'"), (["disk", "cpu"], ["cpu"], "'disk'")],
    "disk_paths": [("/,./here", ["/"], "'./here'")],
    "openmetrics_filters": [
        ("DCGM_.*,vllm:(", ["DCGM_.*"], "'vllm:('"),
        ('["DCGM_.*", "vllm:("]', ["DCGM_.*"], "'vllm:('"),
        ({"a": {"gpu": "("}, "b": {"gpu": "0"}, "c": {}}, {"b": {"gpu": "0"}, "c": {}}, "'('"),
    ],
    "spans_filter": [("name:a,b", ["name:a"], "'b'")],
    "tpu_runtime": [("localhost,8431", ["localhost:8431"], "'localhost'")],
}


def table(cases: Mapping[str, Sequence[object]]) -> list[Any]:
    return [pytest.param(name, value, id=f"{name}={value!r:.40}") for name, values in cases.items() for value in values]


def beginning(name: str, given_as: str, value: object) -> str:
    """Return the beginning of a warning. A value that may contain a secret is not shown."""
    if name in ("include_metrics", "exclude_metrics") and isinstance(value, str):
        return f"{given_as}: no metric matches {value!r}"
    return f"{given_as}: the value is not " if name == "openmetrics" else f"{given_as}: {value!r} is not "


def test_tables_of_values_have_every_setting() -> None:
    assert sorted(RIGHT) == sorted(WRONG) == sorted(SETTINGS)


@pytest.mark.parametrize(("name", "case"), table(RIGHT))
def test_valid_value_is_read_without_warning(
    name: str, case: tuple[object, object], caplog: pytest.LogCaptureFixture
) -> None:
    value, meaning = case
    config = Config.read({name: value}, {})
    assert getattr(config, name) == meaning
    if isinstance(value, str):
        assert Config.read({}, {PREFIX + name.upper(): value}) == config
    assert warnings(caplog) == []


@pytest.mark.parametrize(("name", "value"), table(WRONG))
def test_invalid_value_uses_default_and_warns(name: str, value: object, caplog: pytest.LogCaptureFixture) -> None:
    variable = PREFIX + name.upper()
    ways: list[tuple[dict[str, object], dict[str, str], str]] = [({name: value}, {}, name)]
    if isinstance(value, str):
        ways.append(({}, {variable: value}, variable))
    for options, environ, given_as in ways:
        caplog.clear()
        assert Config.read(options, environ) == DEFAULT
        (warning,) = warnings(caplog)
        assert warning.startswith(beginning(name, given_as, value))
        assert FORMS[name] in warning or "otel-hardware metrics" in warning, "the accepted form is missing"
        assert "using the default" in warning


def test_message_about_a_long_value_is_short(caplog: pytest.LogCaptureFixture) -> None:
    word = f"http://user:{'secret' * 20_000}@host"
    Config.read({"sample_interval": word}, {})
    Config.read({"sample_interval": "x" * 120_000}, {})
    redacted, long = caplog.messages
    assert "secret" not in redacted
    assert len(long) < 1100
    assert long.startswith("sample_interval: 'xxx")
    assert long.endswith("such as 2 or 0.5; using the default (2)")


@pytest.mark.parametrize(
    ("name", "value", "kept", "dropped"),
    [(name, *case) for name, cases in PARTLY_WRONG.items() for case in cases],
)
def test_only_the_invalid_words_of_a_list_are_dropped(
    name: str, value: object, kept: Words, dropped: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert getattr(Config.read({name: value}, {}), name) == kept
    (warning,) = warnings(caplog)
    assert name in warning.lower()
    assert dropped in warning
    assert f"using {','.join(kept)}" in warning
    accepted = (FORMS[name], "otel-hardware metrics", "is not a regular expression")
    assert any(form in warning for form in accepted), "the accepted form is missing"


SCRAPED = Metric(Kind.GAUGE, "vllm:num_requests_Running", "1", (), "Requests.", standard=False, endpoint="vllm")


@pytest.mark.parametrize(
    ("name", "value"), [("SPANS_FILTER", "kind:a\udcff,wrong"), ("INCLUDE_METRICS", "system.cpu.[t\udcff]ime,wrong")]
)
def test_kept_words_that_are_no_utf_8_are_logged_as_text(
    name: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    Config.read({}, {PREFIX + name: value})
    (warning,) = warnings(caplog)
    assert r"\udcff" in warning


def test_patterns_may_match_scraped_metrics(caplog: pytest.LogCaptureFixture) -> None:
    endpoint = {"openmetrics": "vllm=http://localhost:8000/metrics"}
    config = Config.read({"exclude_metrics": "vllm:*,SYTEM.*", **endpoint}, {})
    assert warnings(caplog) == []
    assert not config.wants(SCRAPED)
    assert not Config.read({"exclude_metrics": "vllm:NUM_requests_running", **endpoint}, {}).wants(SCRAPED)
    assert Config.read({"exclude_metrics": "vllm:*_total", **endpoint}, {}).wants(SCRAPED)


def test_patterns_may_match_metrics_of_a_third_party_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{SOURCE_GROUP}]\nacme = acme:Acme\n")
    assert Config.read({"exclude_metrics": "acme.*"}, {}).exclude_metrics is None
    assert len(warnings(caplog)) == 1
    monkeypatch.syspath_prepend(str(tmp_path))
    assert Config.read({"exclude_metrics": "acme.*"}, {}).exclude_metrics == ["acme.*"]
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize("given", ["b,[[a]", ["[[a]", "b"], {"[[a]": {}, "b": {}}])
def test_filter_that_warns_costs_only_itself_where_warnings_are_errors(
    given: object, caplog: pytest.LogCaptureFixture
) -> None:
    re.purge()
    with catch_warnings():
        simplefilter("error")
        config = Config.read({"openmetrics_filters": given}, {})
    assert list(config.openmetrics_filters or ()) == ["b"]
    assert len(warnings(caplog)) == 1


def test_each_invalid_variable_warns_and_valid_ones_are_used(caplog: pytest.LogCaptureFixture) -> None:
    environ = {PREFIX + name.upper(): str(values[0]) for name, values in WRONG.items() if name not in ("sources",)}
    environ[PREFIX + "SOURCES"] = "host"
    environ[PREFIX + "INTERFACES"] = "eth0"
    environ[PREFIX + "DISK_PATHS"] = "/"
    config = Config.read({}, environ)
    assert config == Config(sources=["host"], interfaces=["eth0"], disk_paths=["/"], counter_origin="boot")
    assert len(warnings(caplog)) == len(WRONG) - 3


def test_argument_overrides_environment(caplog: pytest.LogCaptureFixture) -> None:
    environ = {PREFIX + "SAMPLE_INTERVAL": "7", PREFIX + "DETAIL": "cpu"}
    config = Config.read({"sample_interval": 3, "detail": None}, environ)
    assert config.sample_interval == 3.0
    assert config.detail == ["cpu"], "an argument that is None is not given"
    assert Config.read({"sample_interval": "0"}, environ).interval == 0.0
    assert Config.read({"sample_interval": 3}, {PREFIX + "SAMPLE_INTERVAL": "fast"}).interval == 3.0
    assert warnings(caplog) == [], "a value that is not used causes no warning"


def test_blank_variable_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    assert Config.read({}, {PREFIX + name.upper(): "  " for name in SETTINGS}) == DEFAULT
    assert warnings(caplog) == []


def test_read_leaves_the_options_of_the_caller_unchanged() -> None:
    options: dict[str, object] = {"sample_interval": 3, "other": 1}
    Config.read(options, {})
    assert options == {"sample_interval": 3, "other": 1}


anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(),
    st.lists(st.one_of(st.text(), st.integers())),
    st.dictionaries(st.text(), st.text()),
)


@PATIENT
@given(
    st.dictionaries(st.sampled_from([*SETTINGS, "other"]), anything),
    st.dictionaries(st.sampled_from(SETTINGS), st.text()),
)
def test_read_never_raises(options: dict[str, object], variables: dict[str, str]) -> None:
    logging.disable(logging.CRITICAL)
    try:
        config = Config.read(options, {PREFIX + name.upper(): value for name, value in variables.items()})
        assert 0.0 <= config.interval <= 3600.0
        assert config.counter_origin in ("boot", "start")
        for row in CATALOG:
            config.wants(row)
        config.selects("host")
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    ("preference", "origin"),
    [
        ("delta", "start"),
        (" DELTA ", "start"),
        ("cumulative", "boot"),
        ("lowmemory", "boot"),
        ("", "boot"),
        ("x", "boot"),
    ],
)
def test_delta_temporality_sets_counter_origin_to_start(preference: str, origin: str) -> None:
    assert Config.read({}, {PREFERENCE: preference}).counter_origin == origin
    assert Config.read({"counter_origin": "boot"}, {PREFERENCE: preference}).counter_origin == "boot"
    assert Config.read({}, {PREFERENCE: preference, PREFIX + "COUNTER_ORIGIN": "start"}).counter_origin == "start"
    assert Config.read({"counter_origin": "never"}, {PREFERENCE: preference}).counter_origin == origin


def test_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PREFIX + "SAMPLE_INTERVAL", "11")
    assert Config.read().interval == 11.0


def test_config_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Config().sample_interval = 1.0  # type: ignore[misc]


def test_default_sample_interval_is_2_seconds() -> None:
    assert Config().interval == 2.0


def test_detail_include_and_exclude_select_metrics() -> None:
    usual, asked_for = SYSTEM_CPU_TIME, SYSTEM_CPU_FREQUENCY
    assert Config().wants(usual)
    assert not Config().wants(asked_for)
    assert Config(detail=["cpu"]).wants(asked_for)
    assert not Config(detail=["processes"]).wants(asked_for)
    assert Config(include_metrics=["system.cpu.*"]).wants(asked_for)
    assert not Config(exclude_metrics=["system.cpu.*"]).wants(usual)
    assert not Config(detail=["cpu"], include_metrics=["*"], exclude_metrics=["*.frequency"]).wants(asked_for)
    assert Config(include_metrics=["*.time"]).names(usual)
    assert not Config().names(usual)


@pytest.mark.parametrize(
    ("words", "selected"),
    [
        (None, {"host", "process", "filesystem"}),
        ([], {"host", "process", "filesystem"}),
        (["auto"], {"host", "process", "filesystem"}),
        (["host"], {"host"}),
        (["host", "process"], {"host", "process"}),
        (["-filesystem"], {"host", "process"}),
        (["auto", "-filesystem"], {"host", "process"}),
        (["host", "filesystem", "-filesystem"], {"host"}),
    ],
)
def test_sources_setting_selects_sources(words: list[str] | None, selected: set[str]) -> None:
    assert {name for name in ("host", "process", "filesystem") if Config(sources=words).selects(name)} == selected


def sources_of(config: Config) -> set[str]:
    """Return the sources that a session with these settings would read. No thread is started."""
    return {runner.name for runner in Session(config).runners}


@pytest.mark.parametrize("words", [["gpus"], ["-gpus"], ["gpus", "auto"], ["gpus", "hosts"]])
def test_only_unknown_sources_use_default_and_warn(words: list[str], caplog: pytest.LogCaptureFixture) -> None:
    everything = sources_of(Config())
    assert everything >= {"host", "process", "filesystem", "container"}
    assert warnings(caplog) == []
    assert sources_of(Config(sources=words)) == everything
    assert len(warnings(caplog)) == len([word for word in words if word != "auto"])
    for warning in warnings(caplog):
        assert "OTEL_PYTHON_HARDWARE_SOURCES" in warning
        assert re.search("did you mean (nvidia, amd or intel|host)[?]", warning)


def test_unknown_source_leaves_the_others_selected(caplog: pytest.LogCaptureFixture) -> None:
    assert sources_of(Config(sources=["host", "gpus"])) == {"host"}
    assert "gpus" in warnings(caplog)[0]


@pytest.mark.parametrize(
    ("variable", "sentence"),
    [
        ("OTEL_PYTHON_HARDWARE_SAMPEL_INTERVAL", "did you mean OTEL_PYTHON_HARDWARE_SAMPLE_INTERVAL?"),
        ("OTEL_PYTHON_HARDWARE_SOURCE", "did you mean OTEL_PYTHON_HARDWARE_SOURCES?"),
        ("OTEL_PYTHON_HARDWARE_OPENMETRICS_ENDPOINTS", "did you mean OTEL_PYTHON_HARDWARE_OPENMETRICS?"),  # as with W&B
        ("OTEL_PYTHON_HARDWARE_OPENMETRICS_FILTER", "did you mean OTEL_PYTHON_HARDWARE_OPENMETRICS_FILTERS?"),
        ("OTEL_PYTHON_HARDWARE_SPANS_ENABLED", "did you mean OTEL_PYTHON_HARDWARE_SPANS?"),
        ("OTEL_PYTHON_HARDWARE_SPANS_MINIMUM", "did you mean OTEL_PYTHON_HARDWARE_SPANS_MIN_DURATION?"),
        ("otel_python_hardware_detail", "did you mean OTEL_PYTHON_HARDWARE_DETAIL?"),
        ("OTEL_PYTHON_HARDWARE_XYZZY", "'otel-hardware run --help-settings' lists all settings"),
    ],
)
def test_unknown_variable_warns_and_suggests_a_setting(
    variable: str, sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert Config.read(environ={variable: "1"}) == DEFAULT
    (warning,) = warnings(caplog)
    assert warning.startswith(f"{variable} is not a setting")
    assert sentence in warning


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("sample_intervall", "did you mean sample_interval?"),
        ("simulat", "did you mean simulate?"),
        ("DETAILS", "did you mean detail?"),
        ("xyzzy", f"the settings are {', '.join(SETTINGS)}"),
    ],
)
def test_unknown_argument_warns_and_suggests_a_setting(name: str, hint: str, caplog: pytest.LogCaptureFixture) -> None:
    assert Config(**{name: 1}) == Config()
    assert Config.read({name: 1}, {}) == DEFAULT
    assert warnings(caplog) == [f"{name} is not a setting and is ignored; {hint}"] * 2


def test_own_blank_and_foreign_variables_do_not_warn(caplog: pytest.LogCaptureFixture) -> None:
    Config.read(environ={JOB: "1.2", f"{PREFIX}SAMPEL": " ", "OTEL_PYTHON_LOG_LEVEL": "info"})
    assert warnings(caplog) == []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("", 60.0),
        ("5000", 5.0),
        ("250.5", 0.2505),
        ("fast", 60.0),
        ("0", 60.0),
        ("-5", 60.0),
        ("nan", 60.0),
        ("inf", 60.0),
    ],
)
def test_export_interval_of_the_environment(text: str, seconds: float) -> None:
    assert export_interval({"OTEL_METRIC_EXPORT_INTERVAL": text}) == seconds
    assert export_interval({}) == 60.0


def test_modules_read_only_settings_that_exist() -> None:
    config = Config()
    package = Path(settings.__file__).parent.parent
    read = {name for path in package.rglob("*.py") for name in re.findall(r"(?<![\w-])config\.(\w+)", path.read_text())}
    assert {"nvml", "interval"} <= read
    assert [name for name in sorted(read) if not hasattr(config, name)] == []


@pytest.mark.parametrize(
    ("options", "variables", "flags", "name"),
    [
        ({"sources": ["host", "gpu"]}, {}, False, "sources"),
        ({"sources": ["host", "gpu"]}, {"OTEL_PYTHON_HARDWARE_SOURCES": "process"}, False, "sources"),
        ({"sources": "host,gpu"}, {}, True, "--sources"),
        ({"sources": None}, {"OTEL_PYTHON_HARDWARE_SOURCES": "host,gpu"}, True, "OTEL_PYTHON_HARDWARE_SOURCES"),
        ({}, {"OTEL_PYTHON_HARDWARE_SOURCES": "host,gpu"}, False, "OTEL_PYTHON_HARDWARE_SOURCES"),
    ],
)
def test_warning_names_the_argument_flag_or_variable_that_was_used(
    options: dict[str, object], variables: dict[str, str], flags: bool, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = Config.read(options, variables, flags)
    Session(config).close()
    assert caplog.messages == [f"{name}: there is no source gpu; did you mean nvidia, amd or intel? (it is ignored)"]


@pytest.mark.parametrize(
    ("options", "flags", "name"),
    [
        ({"include_metrics": ["no.such"]}, False, "include_metrics"),
        ({"include_metrics": ["no.such"]}, True, "--include-metrics"),
        ({}, False, "OTEL_PYTHON_HARDWARE_INCLUDE_METRICS"),
    ],
)
def test_warning_about_patterns_names_what_was_used(
    options: dict[str, object], flags: bool, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = Config.read(options, {"OTEL_PYTHON_HARDWARE_INCLUDE_METRICS": "no.such"}, flags)
    (message,) = caplog.messages
    assert message.startswith(f"{name}: no metric matches 'no.such'")
    assert config.changed(detail=["cpu"]).name_of("include_metrics") == name


def test_url_without_a_name_gets_the_right_form() -> None:
    with pytest.raises(ValueError, match="a URL needs a name before it, such as app=http://localhost:9100/metrics"):
        endpoints("http://localhost:9100/metrics?secret=1")
