"""An hour of simulated hosts in a real Prometheus, with the recording rules evaluated over it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import yaml
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from tests.support.children import ROOT
from tests.support.sink import Sink
from tests.tools import program
from tests.tools.daemon import Daemon, free_addresses, get, own

sys.path.append(str(ROOT / ".ci"))
from prometheus_names import label, series_of

ALERTS = ROOT / "collector-config" / "alerts"
DASHBOARDS = ROOT / "collector-config" / "dashboards"

# Of the first hosts, sim-0 and on. The others train.
SCENARIOS = ("lost", "held", "hot", "brake", "xid", "memory-leak", "ecc", "link", "stuck", "storage", "full-disk")

HEALTHY = ("sim-11", "sim-12")
MINUTES = 32

# What alerts and dashboards need that is not in the preset ``standard``.
INCLUDED = "hw.gpu.recovery_action,hw.gpu.pcie.*,hw.gpu.nvlink.up"

LABELS = ("host.name", "training_job.id", "dl.rank", "service.name")
STEP = 30


def host(scenario: str) -> str:
    return f"sim-{SCENARIOS.index(scenario)}"


class OpenMetrics(Sink):
    """Writes what it receives in the format that `promtool tsdb create-blocks-from openmetrics` reads."""

    def __init__(self, file: TextIO) -> None:
        super().__init__()
        self._file = file
        self.first = self.last = 0.0

    def _take(self, request: ExportMetricsServiceRequest) -> None:
        for batch in request.resource_metrics:
            common = {each.key: each.value for each in batch.resource.attributes if each.key in LABELS}
            for metric in (metric for scope in batch.scope_metrics for metric in scope.metrics):
                is_counter = metric.HasField("sum") and metric.sum.is_monotonic
                name = series_of(metric.name, metric.unit, is_counter, metric.HasField("gauge"))
                for point in (metric.sum if metric.HasField("sum") else metric.gauge).data_points:
                    labels = common | {each.key: each.value for each in point.attributes}
                    text = ",".join(f'{label(key)}="{_text(value)}"' for key, value in sorted(labels.items()))
                    time = point.time_unix_nano / 1e9
                    self.first, self.last = min(self.first or time, time), max(self.last, time)
                    self._file.write(f"{name}{{{text}}} {getattr(point, point.WhichOneof('value'))} {time:.3f}\n")


def _text(value: Any) -> str:
    return str(getattr(value, value.WhichOneof("value")))


class Stored(Daemon):
    """Prometheus over blocks that exist already.

    Attributes:
        first, last: The time of the first and the last sample.
    """

    def __init__(self, folder: Path, first: float, last: float) -> None:
        (address,) = free_addresses(1)
        self.url = f"http://{address}"
        self.first, self.last = first, last
        config = folder / "prometheus.json"
        config.write_text("{}")
        command: list[str | Path] = [
            program("prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={address}",
        ]
        super().__init__(command, f"{self.url}/-/ready", own(folder, "prometheus"))

    def query(self, expression: str, **parameters: object) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        """Return labels and values of an expression in the whole time, or at one."""
        times = parameters or {"start": self.first, "end": self.last, "step": STEP}
        kind = "query" if "time" in times else "query_range"
        text = get(f"{self.url}/api/v1/{kind}?{urllib.parse.urlencode({'query': expression, **times})}")
        found: list[dict[str, Any]] = json.loads(text)["data"]["result"]
        rows = [(each["metric"], each.get("values") or [each["value"]]) for each in found]
        return [(labels, [(float(time), float(value)) for time, value in values]) for labels, values in rows]

    def fired(self, alert: dict[str, Any]) -> list[dict[str, str]]:
        """Return the labels of an alert that was true for long enough."""
        hold = {"s": 1, "m": 60, "h": 3600}[alert.get("for", "0s")[-1]] * int(alert.get("for", "0s")[:-1])
        found = []
        for labels, values in self.query(alert["expr"]):
            begin = before = None
            for time, _ in values:
                begin = time if before is None or time - before > STEP else begin
                before = time
                if begin is not None and time - begin >= hold:
                    found.append(labels)
                    break
        return found


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((ALERTS / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def store(text: Path, data: Path) -> None:
    """Make blocks of samples in OpenMetrics' text format."""
    command: list[str | Path] = [program("promtool"), "tsdb", "create-blocks-from", "openmetrics", text, data]
    made = subprocess.run(command, capture_output=True, check=False)
    assert made.returncode == 0, made.stderr


@contextmanager
def stored(folder: Path) -> Iterator[Stored]:
    """Simulate, store, evaluate the recording rules, and serve."""
    promtool, data, text = program("promtool"), folder / "data", folder / "metrics.txt"
    flags = f"--simulate 2xH100 --hosts {len(SCENARIOS) + len(HEALTHY)} --scenarios {','.join(SCENARIOS)}"
    past = f"--backfill {MINUTES}m --duration 0 --interval 15 --sample-interval 15 --include-metrics {INCLUDED}"
    with text.open("w") as file:
        sink = OpenMetrics(file)
        command = [sys.executable, "-m", "opentelemetry.instrumentation.hardware", "run", *flags.split(), *past.split()]
        with sink:
            environment = os.environ | sink.environment()
            answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1500, check=False)
        assert answer.returncode == 0, answer.stderr
        file.write("# EOF\n")
    store(text, data)
    server = Stored(folder, sink.first, sink.last)
    with server:
        times = [f"--start={int(sink.first)}", f"--end={int(sink.last)}", f"--eval-interval={STEP}s"]
        target = [f"--url={server.url}", f"--output-dir={data}", str(ALERTS / "recording.yml")]
        command = [str(promtool), "tsdb", "create-blocks-from", "rules", *times, *target]
        made = subprocess.run(command, capture_output=True, check=False)
        assert made.returncode == 0, made.stderr
    with server:
        yield server
