"""The openmetrics source: settings, filters, parsing of pages, limits, and instruments of scraped metrics."""

from __future__ import annotations

import gzip
import json
import logging
import math
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    InMemoryMetricReader,
    Metric,
    MetricsData,
    Sum,
)
from opentelemetry.sdk.metrics.export import Gauge as GaugeData
from tests import children
from tests.sources.pages import ALL, OPENMETRICS, VLLM, dcgm
from tests.sources.playing import Playing, playing
from tests.sources.reading import known, numbers, opened
from tests.stage import PATIENT, news, warnings
from tests.tools import ROOT
from tests.waiting import wait_for
from tests.web import Web, page

from opentelemetry.instrumentation.hardware import HardwareInstrumentor
from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.drivers import DriverError, Drivers
from opentelemetry.instrumentation.hardware.endpoints import (
    SHARE,
    TOTAL,
    Endpoint,
    EndpointConfigError,
    endpoints,
    filters,
)
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources.openmetrics import Openmetrics
from opentelemetry.instrumentation.hardware.sources.openmetrics.filters import Filters
from opentelemetry.instrumentation.hardware.sources.openmetrics.page import Page, Parser

NOW = 1763700000.0
TEXT = "text/plain; version=0.0.4"

# -- settings


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
    env = {"OTEL_CONFIG_FILE": str(file), "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "system_metrics"}
    outcome = children.run(children.instrumented("configured"), env)
    assert outcome.returncode == 0, outcome.stderr
    printed = outcome.stdout[outcome.stdout.index("{") :]
    assert json.JSONDecoder().raw_decode(printed)[0]["openmetrics"][1] == {
        "own": {"url": "http://h/m", "filters": ["x"]}
    }


# -- filters

FILTERS: list[tuple[Any, str, dict[str, str], bool]] = [
    (None, "anything", {}, True),
    (["util"], "gpu_util_total", {}, True),
    (["^util"], "util", {}, False),
    ([r"^end\.util"], "util_total", {}, True),
    ([r"^end\.util$"], "util_total", {}, False),
    (["end"], "anything", {}, True),
    (["a", "b"], "xbx", {}, True),
    (["a", "b"], "xcx", {}, False),
    (["Util"], "util", {}, False),
    (["(?i)Util"], "util", {}, True),
    ({"util": {}}, "util", {}, True),
    ({"util": {"gpu": "0"}}, "util", {"gpu": "0"}, True),
    ({"util": {"gpu": "0"}}, "util", {"gpu": "10"}, True),
    ({"util": {"gpu": "^0$"}}, "util", {"gpu": "10"}, False),
    ({"util": {"gpu": "0"}}, "util", {"gpu": "1"}, False),
    ({"util": {"gpu": ".*"}}, "util", {}, False),
    ({"util": {"gpu": "^$"}}, "util", {}, False),
    ({"util": {"gpu": "^$"}}, "util", {"gpu": ""}, True),
    ({"util": {"gpu": "0", "pod": "a"}}, "util", {"gpu": "0", "pod": "b"}, False),
    ({"util": {"gpu": "0", "pod": "a"}}, "util", {"gpu": "0", "pod": "a"}, True),
    ({"util": {"gpu": "0"}, "util_": {"gpu": "1"}}, "util_total", {"gpu": "1"}, True),
    ({"util": {"gpu": "0"}, "ut": {}}, "util", {"gpu": "7"}, True),
    ({"other": {"gpu": "0"}}, "util", {"gpu": "0"}, False),
    ({"util": {"path": r'a\\b"c'}}, "util", {"path": 'a\\b"c'}, True),
    ({"util": {"g.p u": "x"}}, "util", {"g.p u": "x"}, True),
]


@pytest.mark.parametrize(("words", "name", "labels", "wanted"), FILTERS)
def test_filter_selects_series_by_name_and_labels(
    words: Any, name: str, labels: Mapping[str, str], wanted: bool
) -> None:
    filters_ = Filters("end", None if words is None else filters(words))
    assert filters_.matches(name, labels) is wanted
    spelled = {label: text.replace("\\", "\\\\").replace('"', '\\"') for label, text in labels.items()}
    line_labels = ",".join(
        f'{label}="{text}"' if label.isidentifier() else f'"{label}"="{text}"' for label, text in spelled.items()
    )
    assert filters_.may_match(name, f"{name}{{{line_labels}}} 1") >= wanted, "the line was dropped before parsing"
    parsed = Parser(filters_).parse(TEXT, f"{name}{{{line_labels}}} 1\n".encode(), NOW)
    assert bool(parsed.samples) is wanted


def test_filter_rejects_a_line_before_parsing() -> None:
    filters_ = Filters("end", {"util": {"gpu": "^0$"}})
    assert filters_.may_match("util", 'util{gpu="0"} 1')
    assert not filters_.may_match("util", 'util{gpu="1"} 1')
    assert not filters_.may_match("util", 'util{other="gpu=\\"0\\""} 1')
    assert not filters_.may_match("use", 'use{gpu="0"} 1')


# -- pages


def parse(text: str, kind: str = TEXT, words: Any = None, endpoint: str = "end") -> Page:
    return Parser(Filters(endpoint, words)).parse(kind, text.encode(), NOW)


def names(parsed: Page) -> list[str]:
    return [sample.name for sample in parsed.samples]


def test_counter_name_is_kept_as_on_the_page() -> None:
    text = "".join(f"# TYPE {name} counter\n{name} 5\n" for name in ("energy", "x_total", "y_total_total"))
    assert names(parse(text)) == ["energy", "x_total", "y_total_total"]
    assert {sample.type for sample in parse(text).samples} == {"counter"}


def test_nan_and_infinite_samples_are_absent() -> None:
    assert names(parse("a NaN\nb +Inf\nc -Inf\nd 1\n")) == ["d"]


def test_empty_label_is_dropped() -> None:
    ((sample),) = parse('a{pod="",gpu="0"} 1\n').samples
    assert sample.labels == {"gpu": "0"}


def test_sample_with_an_old_timestamp_is_dropped() -> None:
    milliseconds = int(NOW * 1000)
    parsed = parse(f"a 1 {milliseconds - 10_000}\nb 1 {milliseconds - 400_000}\nc 1\n")
    assert names(parsed) == ["a", "c"]
    assert parsed.stale == 1
    parsed = parse(f"# TYPE a gauge\na 1 {NOW - 10}\n# TYPE b gauge\nb 1 {NOW - 400}\n# EOF\n", OPENMETRICS)
    assert names(parsed) == ["a"]
    assert parsed.stale == 1


@pytest.mark.parametrize("kind", [OPENMETRICS, "Application/OpenMetrics-Text"])
def test_openmetrics_page_without_eof_is_invalid(kind: str) -> None:
    assert names(parse("# TYPE a gauge\na 1\n# EOF\n", kind)) == ["a"]
    with pytest.raises(ValueError, match="# EOF"):
        parse("# TYPE a gauge\na 1\n", kind)


def test_invalid_line_drops_its_metric_family_only() -> None:
    parsed = parse("# TYPE a gauge\na 1\n# TYPE b gauge\nb one\n# TYPE c gauge\nc 3\n{} 4\n= 5\n")
    assert names(parsed) == ["a", "c"]
    assert len(parsed.invalid) == 3
    parsed = parse("# TYPE a gauge\na 1\n# TYPE b gauge\nb one\n# TYPE c gauge\nc 3\n# EOF\n", OPENMETRICS)
    assert names(parsed) == ["a", "c"]


@pytest.mark.parametrize("kind", ["text/html", "application/json; charset=utf-8"])
def test_page_of_another_content_type_is_invalid(kind: str) -> None:
    with pytest.raises(ValueError, match="unsupported Content-Type"):
        parse("<html>", kind)


def test_page_that_is_not_utf_8_is_invalid() -> None:
    with pytest.raises(UnicodeError):
        Parser(Filters("end", None)).parse(TEXT, b'a{b="\xff"} 1\n', NOW)


def test_histogram_lines_are_filtered_before_parsing() -> None:
    assert names(parse(VLLM, words=["e2e.*_count"])) == ["vllm:e2e_request_latency_seconds_count"]
    # The parser of OpenMetrics needs the whole family.
    parsed = parse(ALL, OPENMETRICS, ["job_seconds_sum"])
    assert names(parsed) == ["job_seconds_sum"]
    assert parsed.invalid == []


def test_page_beyond_the_line_limit_is_truncated() -> None:
    parsed = parse("".join(f'a{{n="{number}"}} 1\n' for number in range(10_100)))
    assert (len(parsed.samples), parsed.beyond) == (10_000, 100)
    parsed = parse('a{n="' + "x" * 20_000 + '"} 1\nb 1\n')
    assert (names(parsed), parsed.beyond) == (["b"], 1)


def test_quoted_utf_8_metric_name_is_parsed() -> None:
    parsed = parse('# HELP "a.b c" Help.\n# TYPE "a.b c" gauge\n{"a.b c",l="x"} 5\n', words=[r"a\.b c$"])
    assert [(sample.name, dict(sample.labels), sample.help) for sample in parsed.samples] == [
        ("a.b c", {"l": "x"}, "Help.")
    ]


# -- the source


class Answering(Drivers):
    """Drivers whose endpoint returns these pages, one after the other."""

    def __init__(self, *answers: str | Exception) -> None:
        super().__init__()
        self.answers = list(answers)

    def custom(self, name: str, make: Callable[[], Any]) -> Any:
        make()
        return self

    def get(self) -> dict[str, Any]:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return {"type": TEXT, "body": answer.encode(), "seconds": 0.25}


def settings(**options: Any) -> dict[str, Any]:
    return {"sources": ["openmetrics"], "openmetrics": {"own": {"url": "http://h:9/m?key=s3cret", **options}}}


def scraped(stage: Playing) -> list[str]:
    """The lines of a tick without those about the scrape itself."""
    return [line for line in stage.tick() if not line.startswith(("otel_hardware.", "openmetrics.scrape."))]


def test_failing_endpoint_is_down_and_recovers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    drivers = Answering(
        "a 1\n", ConnectionRefusedError(111, "Connection refused"), DriverError(404, "HTTP status 404"), "a 2\n"
    )
    where = "openmetrics.endpoint=own,server.address=h,server.port=9"
    with playing(lambda _: drivers, settings()) as stage:
        assert scraped(stage) == [f"a{{{where}}} 1.0  gauge", f"openmetrics.up{{{where}}} 1 1 gauge"]
        for _ in range(2):
            (remark, up) = scraped(stage)
            assert remark.startswith("# failed: http://h:9/m: ")
            assert up == f"openmetrics.up{{{where}}} 0 1 gauge"
        assert scraped(stage) == [f"a{{{where}}} 2.0  gauge", f"openmetrics.up{{{where}}} 1 1 gauge"]
    (warning,) = warnings(caplog)
    assert "openmetrics:own: http://h:9/m: Connection refused; its numbers are missing" in warning
    assert [line for line in news(caplog) if "recovered" in line] == ["Source openmetrics:own has recovered"]
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize(("url", "port"), [("http://h/m", 80), ("https://h/m", 443), ("https://h:9/m", 9)])
def test_server_port_of_a_url_without_a_port_is_that_of_its_scheme(url: str, port: int) -> None:
    with playing(lambda _: Answering("a 1\n"), settings(url=url)) as stage:
        (line, _) = scraped(stage)
    assert f",server.port={port}}}" in line


def test_vanished_series_is_not_exported() -> None:
    drivers = Answering('a{n="1"} 1\na{n="2"} 1\n', 'a{n="2"} 1\n')
    with playing(lambda _: drivers, settings()) as stage:
        assert len([line for line in scraped(stage) if line.startswith("a{")]) == 2
        assert len([line for line in scraped(stage) if line.startswith("a{")]) == 1


def test_counter_reset_on_the_page_keeps_the_counter_monotonic() -> None:
    drivers = Answering(*(f"# TYPE a counter\na {value}\n" for value in (100, 103, 60, 62, 5)))
    with playing(lambda _: drivers, settings()) as stage:
        values = [float(scraped(stage)[0].split()[1]) for _ in range(5)]
    assert values == [100, 103, 163, 165, 170], "any smaller value is a reset"


def test_series_beyond_max_series_are_dropped_and_counted() -> None:
    text = "".join(f'a{{n="{number}"}} {number}\n' for number in range(8))
    drivers = Answering(text, 'a{n="new"} 1\n' + text)
    with playing(lambda _: drivers, settings(max_series=5)) as stage:
        for left_out in (3, 4):
            lines = stage.tick()
            values = sorted(line.partition(",")[0] for line in lines if line.startswith("a{"))
            assert values == [f"a{{n={number}" for number in range(5)], "the first series are kept"
            (dropped,) = [line for line in lines if line.startswith("openmetrics.scrape.dropped")]
            assert f"}} {left_out} {{series}}" in dropped
            (remark,) = [line for line in lines if line.startswith("# missing")]
            assert f"openmetrics own: {left_out} series are dropped, because max_series is 5" in remark


def test_old_samples_and_long_lines_are_counted_as_dropped() -> None:
    text = 'a 1\nb 1 1000\nc 1 2000\nd{n="' + "x" * 20_000 + '"} 1\n'
    with playing(lambda _: Answering(text), settings()) as stage:
        lines = stage.tick()
    (dropped,) = [line for line in lines if line.startswith("openmetrics.scrape.dropped")]
    assert "} 3 {series}" in dropped
    sentences = [line.partition("openmetrics own: ")[2] for line in lines if line.startswith("# missing")]
    assert [sentence.partition(",")[0] for sentence in sentences] == ["1 lines are dropped", "2 samples are dropped"]


def test_churning_series_stay_within_max_series() -> None:
    drivers = Answering(*["".join(f'a{{n="{turn}.{number}"}} 1\n' for number in range(10)) for turn in range(20)])
    with opened("openmetrics", drivers, **settings(max_series=30)) as source:
        assert isinstance(source, Openmetrics)
        for _ in range(20):
            list(source.read())
        assert len(source._series) == 30
        assert len(source._metrics) == 1


def test_duplicate_series_on_a_page_is_exported_once() -> None:
    with playing(lambda _: Answering('a{n="1"} 1\na{n="1"} 2\n'), settings()) as stage:
        (line, _) = scraped(stage)
        assert "} 1.0" in line


def test_label_named_like_our_attribute_gets_the_prefix_exported() -> None:
    text = '# TYPE a gauge\n{"a","server.address"="theirs"} 1\n'
    with playing(lambda _: Answering(text), settings()) as stage:
        (line, _) = scraped(stage)
    assert (
        line == "a{exported_server.address=theirs,openmetrics.endpoint=own,server.address=h,server.port=9} 1.0  gauge"
    )


def test_global_filter_applies_to_endpoints_without_filters() -> None:
    every = {"openmetrics_filters": r"own\.b"}
    with playing(lambda _: Answering("a 1\nb 2\n"), settings() | every) as stage:
        assert [line[0] for line in scraped(stage)][:1] == ["b"]
    with playing(lambda _: Answering("a 1\nb 2\n"), settings(filters=["a"]) | every) as stage:
        assert [line[0] for line in scraped(stage)][:1] == ["a"]


def test_exclude_metrics_drops_scrape_metrics() -> None:
    with playing(lambda _: Answering("aa 1\nbb 2\n"), settings() | {"exclude_metrics": "openmetrics.*"}) as stage:
        assert [line.partition("{")[0] for line in scraped(stage)] == ["aa", "bb"]


@pytest.mark.parametrize(
    ("exclude", "left"),
    [("vllm:*", ["DCGM_UTIL", "other"]), ("dcgm_*", ["other", "vllm:x"]), ("VLLM:X,dcgm_util", ["other"])],
)
def test_exclude_metrics_drops_scraped_metrics_by_pattern(
    exclude: str, left: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    text = "DCGM_UTIL 1\nother 2\nvllm:x 3\n"
    with playing(lambda _: Answering(text), settings() | {"exclude_metrics": f"{exclude},openmetrics.*"}) as stage:
        assert [line.partition("{")[0] for line in scraped(stage)] == left
    assert warnings(caplog) == []


def test_missing_prometheus_client_is_unavailable_with_a_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "prometheus_client"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    config = Config.read(settings(), {})
    Openmetrics.prepare(config)
    with (
        pytest.raises(Unavailable, match="prometheus_client") as error,
        opened("openmetrics", Answering(""), **settings()),
    ):
        pass
    assert "opentelemetry-instrumentation-hardware[openmetrics]" in error.value.fix


def test_no_endpoint_imports_no_http_module() -> None:
    code = (
        "import sys; from opentelemetry.instrumentation.hardware.settings import Config\n"
        "from opentelemetry.instrumentation.hardware.pipeline.session import Session\n"
        "Session(Config(sources=['openmetrics']), environ={})\n"
        "print([name for name in ('http.client', 'prometheus_client', 'yaml') if name in sys.modules])"
    )
    outcome = children.run([sys.executable, "-c", code])
    assert outcome.stdout.strip() == "[]", outcome.stderr


IMPORTS = """
import json, sys, threading
from importlib.abc import MetaPathFinder
from opentelemetry.instrumentation.hardware import HardwareInstrumentor
from opentelemetry.sdk.metrics import MeterProvider
asked = []
class Witness(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        asked.append((threading.current_thread().name, name))
made = HardwareInstrumentor()
sys.meta_path.insert(0, Witness())
made.instrument(meter_provider=MeterProvider(), sources=["openmetrics"], openmetrics=sys.argv[1])
made._session.read_now(20)
made._session.read_now(20)
print(json.dumps(sorted({name for thread, name in asked if thread.startswith("otel-hardware")})))
"""


def test_scrape_threads_import_nothing() -> None:
    packed = page(gzip.compress(ALL.encode()), OPENMETRICS, Content_Encoding="gzip")
    with Web(packed) as first, Web(page(VLLM)) as second, Web(page("", status=500)) as third:
        named = first.url.replace("127.0.0.1", "localhost")
        urls = f"a={named},b={second.url},c={third.url},d=https://127.0.0.1:{second.port}/"
        outcome = children.run([sys.executable, "-c", IMPORTS, urls])
        assert first.requests
    assert outcome.stdout.strip() == "[]", outcome.stderr


# -- instruments

Reading = dict[tuple[str, str], Metric]


def collected(reader: InMemoryMetricReader) -> Reading:
    """The scraped metrics of one collection, by endpoint and name."""
    data = reader.get_metrics_data()
    assert isinstance(data, MetricsData)
    return {
        (scope.scope.name.rpartition(".openmetrics.")[2], metric.name): metric
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if ".openmetrics." in scope.scope.name
    }


@contextmanager
def instrumented(reader: InMemoryMetricReader, urls: Mapping[str, str], **options: Any) -> Iterator[Session]:
    """The instrumentor with these endpoints, after the first scrape of each."""
    provider = MeterProvider([reader], shutdown_on_exit=False)
    made = HardwareInstrumentor()
    made.instrument(meter_provider=provider, sources=["openmetrics"], openmetrics=dict(urls), **options)
    try:
        session = made._session
        assert session is not None
        wait_for(lambda: all(runner.duration is not None for runner in session.runners), 20, "first scrape")
        session.read_now(20)
        wait_for(lambda: known(made), 20, "instruments of all rows")
        yield session
    finally:
        made.uninstrument()
        provider.shutdown()


def test_metric_names_keep_case_colons_and_utf_8(caplog: pytest.LogCaptureFixture) -> None:
    text = (
        "# TYPE DCGM_FI_DEV_GPU_UTIL gauge\nDCGM_FI_DEV_GPU_UTIL 5\ndcgm_fi_dev_gpu_util 6\n"
        "vllm:x 1\nvllm_x 2\n_led 3\n" + "n" * 300 + " 4\n"
        '# TYPE "a b.ü" gauge\n{"a b.ü"} 7\n'
    )
    reader = InMemoryMetricReader()
    with Web(page(text)) as web, instrumented(reader, {"own": web.url}):
        metrics = {name: [point.value for point in numbers(metric)] for (_, name), metric in collected(reader).items()}
    assert metrics == {
        "DCGM_FI_DEV_GPU_UTIL": [5],
        "dcgm_fi_dev_gpu_util": [6],
        "vllm:x": [1],
        "vllm_x": [2],
        "_led": [3],
        "n" * 300: [4],
        "a b.ü": [7],
    }
    assert warnings(caplog) == []


def test_same_metric_name_on_two_endpoints_with_different_types(caplog: pytest.LogCaptureFixture) -> None:
    first = "# HELP x One.\n# TYPE x counter\nx 1\n"
    second = "# HELP x Two.\n# TYPE x gauge\nx 2\n"
    reader = InMemoryMetricReader()
    with Web(page(first)) as a, Web(page(second)) as b, instrumented(reader, {"a": a.url, "b": b.url}):
        metrics = collected(reader)
    assert {key: metric.description for key, metric in metrics.items()} == {("a", "x"): "One.", ("b", "x"): "Two."}
    assert isinstance(metrics["a", "x"].data, Sum)
    assert isinstance(metrics["b", "x"].data, GaugeData)
    values = {key: [point.value for point in numbers(metric)] for key, metric in metrics.items()}
    assert values == {("a", "x"): [1], ("b", "x"): [2]}
    assert warnings(caplog) == []


def test_new_metric_on_a_page_gets_an_instrument() -> None:
    reader = InMemoryMetricReader()
    with Web(page("a 1\n")) as web, instrumented(reader, {"own": web.url}) as session:
        assert [name for _, name in collected(reader)] == ["a"]
        web.answer = page("a 1\nb 2\n")
        session.read_now(20)
        assert sorted(name for _, name in collected(reader)) == ["a", "b"]


def test_scraped_instruments_are_kept_over_uninstrument() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    made = HardwareInstrumentor()
    with Web(page("# TYPE a counter\na 1\n")) as web:
        for value in (1, 3):
            web.answer = page(f"# TYPE a counter\na {value}\n")
            made.instrument(meter_provider=provider, sources=["openmetrics"], openmetrics={"own": web.url})
            assert made._session is not None
            made._session.read_now(20)
            ((_, metric),) = collected(reader).items()
            assert [point.value for point in numbers(metric)] == [value]
            made.uninstrument()
            assert reader.get_metrics_data() is None
    provider.shutdown()


def test_delta_counters_start_at_the_first_scrape_of_each_session() -> None:
    from opentelemetry.sdk.metrics import ObservableCounter

    reader = InMemoryMetricReader({ObservableCounter: AggregationTemporality.DELTA})
    provider = MeterProvider([reader], shutdown_on_exit=False)
    made = HardwareInstrumentor()
    exported = []
    with Web(page("")) as web:
        for values in ((100, 107), (108, 110)):
            web.answer = page(f"# TYPE a counter\na {values[0]}\n")
            made.instrument(
                meter_provider=provider, sources=["openmetrics"], openmetrics={"own": web.url}, counter_origin="start"
            )
            assert made._session is not None
            for value in values:
                web.answer = page(f"# TYPE a counter\na {value}\n")
                made._session.read_now(20)
                ((_, metric),) = collected(reader).items()
                exported += [point.value for point in numbers(metric)]
            made.uninstrument()
    provider.shutdown()
    assert exported == [0, 7, 0, 2]


def test_late_meter_provider_gets_scraped_metric_names() -> None:
    code = """
import sys, time
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.instrumentation.hardware import HardwareInstrumentor
HardwareInstrumentor().instrument(sources=["openmetrics"], openmetrics={"own": sys.argv[1]})
session = HardwareInstrumentor()._session
session.read_now(20)
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))
session.read_now(20)
data = reader.get_metrics_data()
print([metric.name for scope in data.resource_metrics[0].scope_metrics for metric in scope.metrics])
"""
    with Web(page("DCGM_X 1\n")) as web:
        outcome = children.run([sys.executable, "-c", code, web.url])
    assert "'DCGM_X'" in outcome.stdout, outcome.stderr


def test_slow_endpoint_does_not_delay_others() -> None:
    going = threading.Event()

    def slow(request: BaseHTTPRequestHandler) -> None:
        going.wait(30)

    provider = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
    made = HardwareInstrumentor()
    with Web(slow) as stuck, Web(page("a 1\n")) as quick:
        made.instrument(
            meter_provider=provider, sources=["openmetrics"], openmetrics={"stuck": stuck.url, "quick": quick.url}
        )
        try:
            session = made._session
            assert session is not None
            wait_for(lambda: stuck.requests, 20, "request to the slow one")
            runners = {runner.name: runner for runner in session.runners}
            wait_for(lambda: runners["openmetrics:quick"].duration is not None, 20, "answer of the quick one")
            assert runners["openmetrics:stuck"].duration is None
        finally:
            going.set()
            made.uninstrument()
            provider.shutdown()


def test_collection_does_not_scrape() -> None:
    reader = InMemoryMetricReader()
    with Web(page("a 1\n")) as web, instrumented(reader, {"own": web.url}):
        before = len(web.requests)
        for _ in range(10):
            collected(reader)
        assert len(web.requests) - before <= 1, "a reading may have come due meanwhile"


def test_instrument_kinds_units_and_descriptions_of_a_page() -> None:
    reader = InMemoryMetricReader()
    with Web(page(ALL, OPENMETRICS)) as web, instrumented(reader, {"own": web.url}):
        metrics = collected(reader)
    assert metrics["own", "requests_total"].description == 'Requests that were "seen",\nall of them.'
    assert metrics["own", "room_celsius"].unit == "Cel"
    assert metrics["own", "job_seconds_sum"].unit == "s"
    assert metrics["own", "queue_bytes_gsum"].unit == "By"
    sums = {name: metric.data for (_, name), metric in metrics.items() if isinstance(metric.data, Sum)}
    assert sorted(name for name, data in sums.items() if not data.is_monotonic) == ["build_info", "mode"]
    assert sorted(name for name, data in sums.items() if data.is_monotonic) == [
        "job_seconds_count",
        "job_seconds_sum",
        "requests_total",
        "rpc_seconds_count",
        "rpc_seconds_sum",
    ]


def test_dcgm_page_with_mig_instances() -> None:
    reader = InMemoryMetricReader()
    with Web(page(dcgm(0))) as web, instrumented(reader, {"dcgm": web.url}):
        points = numbers(collected(reader)["dcgm", "DCGM_FI_DEV_GPU_UTIL"])
    assert {(str((point.attributes or {})["GPU_I_PROFILE"]), point.value) for point in points} == {
        ("1g.10gb", 12.0),
        ("3g.40gb", 24.0),
    }
    assert all((point.attributes or {})[c.SERVER_ADDRESS] == "127.0.0.1" for point in points)


def test_scrape_interval_follows_the_collection_interval() -> None:
    urls = {"own": {"url": "http://127.0.0.1:1/m", "interval": 300}, "often": "http://127.0.0.1:1/m"}
    config = Config.read({"sources": ["openmetrics"], "sample_interval": 0.05, "openmetrics": urls}, {})
    session = Session(config, interval=60.0, environ={})
    try:
        for runner in session.runners:
            runner.read()
            now = session.schedule._last
            wait = runner.next_reading(now) - now
            assert (50 < wait <= 60) if runner.name == "openmetrics:often" else (299 < wait < 310)
    finally:
        session.close()


# -- any page


def mutated(text: str, cuts: list[tuple[int, int, str]]) -> str:
    for place, length, instead in cuts:
        at = place % (len(text) + 1)
        text = text[:at] + instead + text[at + length :]
    return text


PIECES = [
    "",
    '"',
    "\\",
    "{",
    "}",
    "#",
    "\n",
    " ",
    "NaN",
    "# TYPE ",
    "# EOF\n",
    "counter",
    "_total",
    "é",
    "\0",
    "1e999",
    ",",
]


@PATIENT
@given(
    st.sampled_from([(ALL, OPENMETRICS), (VLLM, TEXT), (dcgm(0), TEXT)]),
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 30), st.sampled_from(PIECES)), max_size=8),
    st.sampled_from([None, ["total"], {"": {"engine": "0"}}]),
)
def test_invalid_page_raises_value_error_only(
    page_and_kind: tuple[str, str], cuts: list[tuple[int, int, str]], words: Any
) -> None:
    text, kind = page_and_kind
    try:
        parsed = parse(mutated(text, cuts), kind, words)
    except ValueError:
        return
    for sample in parsed.samples:
        assert math.isfinite(sample.value)
        assert sample.name
        assert all(sample.labels.values())
        assert Filters("end", words).matches(sample.name, sample.labels)
