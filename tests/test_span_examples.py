"""The examples whose spans have hardware numbers, through a real Collector into a real Jaeger."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.support import children
from tests.support.blocks import commands
from tests.tools import ROOT
from tests.tools.collector import LOCAL, Collector, Span, Value, spans_of
from tests.tools.daemon import free_addresses, get, wait
from tests.tools.load import WAVERING, check_energy, loaded
from tests.tools.nvml import MIB, FakeNvml, h100, listed
from tests.tools.viewers import Jaeger, Viewer

from opentelemetry.instrumentation.hardware import catalog as c

JAEGER = LOCAL.with_name("jaeger.yaml")
INFERENCE, TRAINING = (ROOT / "examples" / name for name in ("inference", "training"))
SHARES = {"OTEL_PYTHON_HARDWARE_SPANS_SHARES": "tokens"}

# Seconds after which an example counts as hung. On a busy machine, importing torch takes a minute.
LONG = 600.0

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="torch is not installed, and not in the extra `test`: with CUDA it takes 5 GB. pip install torch numpy",
)


@dataclass(frozen=True)
class Backends:
    """A Collector, and what it sends to."""

    collector: Collector
    jaeger: Jaeger
    viewer: Viewer

    @property
    def environment(self) -> dict[str, str]:
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.collector.grpc,
            "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "system_metrics",
            "OTEL_METRIC_EXPORT_INTERVAL": "1000",
            "NO_PROXY": "*",
        }


@pytest.fixture(scope="module")
def backends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backends]:
    folder: Path = tmp_path_factory.mktemp("backends")
    with Jaeger(folder) as jaeger, Viewer(folder) as viewer:
        pipeline = {
            "receivers": ["otlp"],
            "processors": ["memory_limiter", "batch"],
            "exporters": ["otlp_grpc/viewer"],
        }
        to_viewer = {
            "exporters": {"otlp_grpc/viewer": {"endpoint": viewer.grpc, "tls": {"insecure": True}}},
            "service": {"pipelines": {"traces/viewer": pipeline, "metrics/viewer": pipeline}},
        }
        settings = {"JAEGER_ENDPOINT": jaeger.grpc}
        with Collector(folder, LOCAL, JAEGER, to_viewer, environment=settings) as collector:
            yield Backends(collector, jaeger, viewer)


@contextmanager
def on_gpu(
    backends: Backends, folder: Path, service: str, command: str, **variables: str
) -> Iterator[subprocess.Popen[str]]:
    """Start a program on a machine with a simulated GPU, which the program uses from its beginning."""
    fake = FakeNvml(folder, loaded(h100(0), WAVERING))
    settings = {"OTEL_SERVICE_NAME": service, "OTEL_PYTHON_HARDWARE_NVIDIA_SMI": "off", **variables}
    line = ["sh", "-c", f"read begin; exec opentelemetry-instrument {command}"]
    with children.started(line, {**backends.environment, **fake.environment, **settings}, cwd=ROOT) as child:
        fake.set_lines({"gpu0.ComputeRunningProcesses": listed((child.pid, 700 * MIB))})
        print(file=child.stdin, flush=True)
        yield child


def measured(backends: Backends, service: str, name: str) -> list[Span]:
    """Return the spans with energy that the Collector received."""
    return [
        span
        for span in backends.collector.spans()
        if span.resource["service.name"] == service and span.name == name and c.SPAN_ENERGY.name in span.attributes
    ]


@pytest.fixture(scope="module")
def requests(backends: Backends, tmp_path_factory: pytest.TempPathFactory) -> list[Span]:
    """Spans of requests to the service on a GPU, as the Collector received them."""
    (address,) = free_addresses(1)
    command = f"uvicorn --app-dir {INFERENCE} --port {address.rpartition(':')[2]} app:app"

    def enough() -> bool:
        get(f"http://{address}/generate?max_tokens=400", seconds=children.PATIENCE, body=b"")
        return len(measured(backends, "served", "POST /generate")) >= 2

    with on_gpu(backends, tmp_path_factory.mktemp("nvml"), "served", command, **SHARES) as child:
        wait(lambda: child.poll() is not None or _listens(address), children.PATIENCE, "server")
        wait(enough, children.PATIENCE, "spans with energy")
    return measured(backends, "served", "POST /generate")


def _listens(address: str) -> bool:
    with suppress(OSError):
        return bool(get(f"http://{address}/openapi.json", seconds=5))
    return False


def energies(spans: list[Span]) -> set[Value]:
    return {span.attributes.get(c.SPAN_ENERGY.name) for span in spans}


def test_request_has_the_energy_of_its_time(requests: list[Span], backends: Backends) -> None:
    answers = measured(backends, "served", "POST /generate http send")  # those that a busy machine has made long
    for span in requests:
        end = span.begin + span.seconds
        assert span.attributes["gen_ai.usage.output_tokens"] == 400
        check_energy(span.attributes, span.begin, end)
        parts = [span, *(each for each in answers if span.begin <= each.begin < end)]
        shares = [float(str(each.attributes[c.SPAN_SHARE_ENERGY.name])) for each in parts]
        errors = [float(str(each.attributes[c.SPAN_UNCERTAINTY.name])) for each in parts]
        energy = span.attributes[c.SPAN_ENERGY.name]
        assert sum(shares) == pytest.approx(energy, abs=sum(errors[1:]) or None), "alone"


def test_jaeger_has_the_same_energy(requests: list[Span], backends: Backends) -> None:
    wait(lambda: energies(requests) <= energies(backends.jaeger.spans("served")), children.PATIENCE, "spans in Jaeger")


def test_viewer_has_the_same_energy_and_the_metrics(requests: list[Span], backends: Backends) -> None:
    viewer, day = backends.viewer, 86_400 * 10**9
    limits = str(time.time_ns() - day), str(time.time_ns() + day)

    def found() -> set[Value]:
        traces = viewer.call("searchTraces", *limits)
        spans = [span for trace in traces for span in viewer.call("searchSpans", trace["traceID"])["spans"]]
        attributes = [pair for span in spans for pair in span["spanData"]["attributes"]]
        return {float(pair["value"]) for pair in attributes if pair["key"] == c.SPAN_ENERGY.name}

    wait(lambda: energies(requests) <= found(), children.PATIENCE, "spans in the viewer")
    metrics = {
        metric["name"]: (metric["unit"], metric["metricType"], metric["isMonotonic"])
        for metric in viewer.call("searchMetricSummaries", *limits)
        if metric["serviceName"] == "served"
    }
    assert metrics[c.HW_ENERGY.name] == ("J", "Sum", True)
    assert metrics[c.HW_POWER.name] == ("W", "Gauge", None)


# -- the commands of the READMEs


def run(folder: Path, backends: Backends, settings: dict[str, str]) -> str:
    """Run the program of an example by the command of its README, and return its output."""
    command = ["sh", "-c", commands(folder / "README.md", "opentelemetry-instrument")]
    with children.started(command, {**backends.environment, **settings}, cwd=ROOT) as child:
        return end_of(child)


def end_of(child: subprocess.Popen[str]) -> str:
    out, err = child.communicate(timeout=LONG)
    assert (child.returncode, err) == (0, "")
    return out


def spans_in_jaeger(backends: Backends, service: str, name: str, count: int) -> list[Span]:
    def arrived() -> list[Span]:
        return [span for span in backends.jaeger.spans(service) if span.name == name]

    wait(lambda: len(arrived()) == count, children.PATIENCE, lambda: f"{len(arrived())} of {count} spans")
    return arrived()


def test_cost_table_has_the_means_of_the_spans(requests: list[Span], backends: Backends, tmp_path: Path) -> None:
    """From an answer of Jaeger, and from a file of several messages."""
    wait(lambda: energies(requests) <= energies(backends.jaeger.spans("served")), children.PATIENCE, "spans in Jaeger")
    answer = backends.jaeger.search("served")
    message = json.loads(answer)["result"]
    file = tmp_path / "traces.jsonl"
    file.write_text("".join(json.dumps({"resourceSpans": [each]}) + "\n" for each in message["resourceSpans"]))
    name = "POST /generate"  # on a busy machine, the spans of sending the response may be long enough for a row as well
    spans = [span for span in spans_of(message) if span.name == name and c.SPAN_SHARE_ENERGY.name in span.attributes]
    joules, shares = (
        sum(float(str(span.attributes[each.name])) for span in spans) / len(spans)
        for each in (c.SPAN_ENERGY, c.SPAN_SHARE_ENERGY)
    )
    command = [sys.executable, str(ROOT / "examples" / "cost.py")]
    table = subprocess.run(command, input=answer, capture_output=True, text=True, check=True).stdout
    assert subprocess.run([*command, str(file)], capture_output=True, text=True, check=True).stdout == table
    header, *rows = (re.split(r" {2,}", line) for line in table.splitlines())
    (values,) = (dict(zip(header, row)) for row in rows if row[0] == name)
    assert (values["count"], values["tokens"]) == (str(len(spans)), "400")
    assert float(values["J"]) == pytest.approx(joules, rel=0.001)
    assert float(values["J/1k-tokens"]) == pytest.approx(1000 * shares / 400, rel=0.01)
    assert float(values["CPU s"]) > 0


@pytest.mark.parametrize("folder", [INFERENCE, TRAINING], ids=lambda folder: folder.name)
def test_install_and_collector_commands_of_the_readme_are_valid(folder: Path) -> None:
    install = shlex.split(commands(folder / "README.md", "pip install"))
    assert install[:3] == ["pip", "install", "."]
    assert all(version(name) for name in set(install[3:]) - {"torch", "numpy"})
    collector = shlex.split(commands(folder / "README.md", "otelcol-contrib"))
    assert [ROOT / file for file in collector[2::2]] == [LOCAL, JAEGER]
    assert commands(folder / "README.md", "python examples/cost.py") == "python examples/cost.py traces.jsonl\n"


def test_inference_example(backends: Backends) -> None:
    (address,) = free_addresses(1)
    settings = {"PORT": address.rpartition(":")[2], "MAX_TOKENS": "50,400"}
    assert run(INFERENCE, backends, settings) == "4 requests, 900 tokens\n"
    spans = spans_in_jaeger(backends, "inference", "POST /generate", 4)
    assert Counter(span.attributes["gen_ai.usage.output_tokens"] for span in spans) == {50: 2, 400: 2}


@needs_torch
@pytest.mark.timeout(2 * LONG)
def test_training_example(backends: Backends) -> None:
    assert re.fullmatch(r"6 steps on 2 ranks, \d+ tokens/s\n", run(TRAINING, backends, {"STEPS": "6"}))
    spans = spans_in_jaeger(backends, "training", "train.step", 12)
    assert Counter(span.attributes["train.step.number"] for span in spans) == dict.fromkeys(range(6), 2)


@needs_torch
@pytest.mark.timeout(2 * LONG)
def test_step_of_training_has_the_energy_of_its_time(backends: Backends, tmp_path: Path) -> None:
    with on_gpu(backends, tmp_path, "trained", f"python {TRAINING / 'train.py'}", STEPS="8") as child:
        end_of(child)
    spans_in_jaeger(backends, "trained", "train.step", 8)
    steps = measured(backends, "trained", "train.step")
    assert steps
    for step in steps:
        check_energy(step.attributes, step.begin, step.begin + step.seconds)
