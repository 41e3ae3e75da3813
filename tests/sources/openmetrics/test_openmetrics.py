"""The openmetrics source: failures, limits, labels and imports."""

from __future__ import annotations

import gzip
import logging
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from tests.sources.pages import ALL, OPENMETRICS, VLLM
from tests.sources.playing import Playing, playing
from tests.sources.reading import opened
from tests.support import children
from tests.support.stage import infos, warnings
from tests.support.web import Web, page

from opentelemetry.instrumentation.hardware.drivers import DriverError, Drivers
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources.openmetrics import Openmetrics

TEXT = "text/plain; version=0.0.4"


class Answering(Drivers):
    """Drivers with an endpoint that returns these pages in turn."""

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
        assert scraped(stage) == [f"a{{{where}}} 1.0  gauge", f"openmetrics.up{{{where}}} 1 {{endpoint}} gauge"]
        for _ in range(2):
            (remark, up) = scraped(stage)
            assert remark.startswith("# failed: http://h:9/m: ")
            assert up == f"openmetrics.up{{{where}}} 0 {{endpoint}} gauge"
        assert scraped(stage) == [f"a{{{where}}} 2.0  gauge", f"openmetrics.up{{{where}}} 1 {{endpoint}} gauge"]
    (warning,) = warnings(caplog)
    assert "openmetrics:own: http://h:9/m: Connection refused; its metrics are missing" in warning
    assert [line for line in infos(caplog) if "recovered" in line] == ["Source openmetrics:own has recovered"]
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize(("url", "port"), [("http://h/m", 80), ("https://h/m", 443), ("https://h:9/m", 9)])
def test_server_port_of_a_url_without_a_port_is_that_of_its_scheme(url: str, port: int) -> None:
    with playing(lambda _: Answering("a 1\n"), settings(url=url)) as stage:
        (line, _) = scraped(stage)
    assert f",server.port={port}}}" in line


def test_counter_reset_on_the_page_keeps_the_counter_monotonic() -> None:
    drivers = Answering(*(f"# TYPE a counter\na {value}\n" for value in (100, 103, 60, 62, 5)))
    with playing(lambda _: drivers, settings()) as stage:
        values = [float(scraped(stage)[0].split()[1]) for _ in range(5)]
    assert values == [100, 103, 163, 165, 170], "any smaller value is a reset"


@pytest.mark.parametrize(
    "text",
    [
        "# TYPE a summary\na_sum -2\n",
        "# TYPE a histogram\na_sum -2\n",
        "# TYPE a counter\na -2\n",
        "a 1.7976931348623157e308\n",
        "a -1.7976931348623157e308\n",
        "a NaN\n",
    ],
)
def test_value_that_cannot_be_exported_is_absent(text: str, caplog: pytest.LogCaptureFixture) -> None:
    with playing(lambda _: Answering(f"{text}b 1\n"), settings()) as stage:
        assert [line.partition("{")[0] for line in scraped(stage)] == ["b", "openmetrics.up"]
        assert any(line.startswith("otel_hardware.source.up") and "} 1 {" in line for line in stage.tick())
    assert warnings(caplog) == []


@pytest.mark.parametrize("answer", ["a 1\n", TimeoutError()])
@pytest.mark.parametrize(("interval", "expected"), [(0, 20.0), (30, 30.0)])
def test_slow_page_expires_as_late_as_one_with_that_interval(
    answer: str | Exception, interval: float, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(time=time.time, monotonic=partial(next, count(0.0, 20.0)))
    monkeypatch.setattr("opentelemetry.instrumentation.hardware.sources.openmetrics.time", clock)
    with opened("openmetrics", Answering(answer), **settings(interval=interval, timeout=60)) as source:
        list(source.read())
        assert source.readings()[0].apart == expected


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


@pytest.mark.whole
def test_no_endpoint_imports_no_http_module() -> None:
    code = (
        "import sys; from opentelemetry.instrumentation.hardware.settings import Config\n"
        "from opentelemetry.instrumentation.hardware.pipeline.session import Session\n"
        "Session(Config(sources=['openmetrics']))\n"
        "print([name for name in ('http.client', 'prometheus_client', 'yaml') if name in sys.modules])"
    )
    outcome = children.run([sys.executable, "-c", code])
    assert outcome.stdout.strip() == "[]", outcome.stderr


IMPORTS = """
import json, sys, threading
from importlib.abc import MetaPathFinder
from opentelemetry.instrumentation.hardware import HardwareInstrumentor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
asked = []
class Witness(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        asked.append((threading.current_thread().name, name))
made = HardwareInstrumentor()
sys.meta_path.insert(0, Witness())
reader = InMemoryMetricReader()
made.instrument(meter_provider=MeterProvider([reader]), sources=["openmetrics"], openmetrics=sys.argv[1])
reader.collect()  # makes this process the reporter, which scrapes
made._telemetry.session.read_now(20)
made._telemetry.session.read_now(20)
print(json.dumps(sorted({name for thread, name in asked if thread.startswith("otel-hardware")})))
"""


@pytest.mark.whole
def test_scrape_threads_import_nothing() -> None:
    packed = page(gzip.compress(ALL.encode()), OPENMETRICS, Content_Encoding="gzip")
    with Web(packed) as first, Web(page(VLLM)) as second, Web(page("", status=500)) as third:
        named = first.url.replace("127.0.0.1", "localhost")
        urls = f"a={named},b={second.url},c={third.url},d=https://127.0.0.1:{second.port}/"
        outcome = children.run([sys.executable, "-c", IMPORTS, urls])
        assert first.requests
    assert outcome.stdout.strip() == "[]", outcome.stderr
