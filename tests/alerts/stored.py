"""Half an hour of simulated hosts in a real Prometheus and a real VictoriaMetrics, with the rules evaluated over it."""

from __future__ import annotations

import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TextIO

import yaml
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from tests.support.children import ROOT
from tests.support.sink import Sink
from tests.tools import program, vmalert
from tests.tools.daemon import Daemon, free_addresses, get, own
from tests.tools.stores import Rows, VictoriaMetrics, rows

sys.path.append(str(ROOT / ".ci"))
from prometheus_names import label, series_of

ALERTS = ROOT / "collector-config" / "alerts"
DASHBOARDS = ROOT / "collector-config" / "dashboards"

# Of the first hosts, sim-0 and on. The others train.
SCENARIOS = ("lost", "held", "hot", "brake", "xid", "memory-leak", "ecc", "link", "stuck", "storage", "full-disk")

HEALTHY = ("sim-11", "sim-12")
MINUTES = 32
SLOWEST = 60  # seconds between two evaluations of the slowest group
BLOCK = 2 * 3600  # seconds of a block of Prometheus

# What alerts and dashboards need that is not in the preset ``standard``.
INCLUDED = "hw.gpu.recovery_action,hw.gpu.pcie.*,hw.gpu.nvlink.up"

LABELS = ("host.name", "training_job.id", "dl.rank", "service.name")
STEP = 30


def host(scenario: str) -> str:
    return f"sim-{SCENARIOS.index(scenario)}"


class Received(Sink):
    """Passes on what it receives to VictoriaMetrics, and writes it in the format that `promtool tsdb` reads."""

    def __init__(self, file: TextIO, victoria: VictoriaMetrics) -> None:
        super().__init__()
        self._file, self._victoria = file, victoria
        self.first = self.last = 0.0

    def _take(self, request: ExportMetricsServiceRequest) -> None:
        get(f"{self._victoria.url}/opentelemetry/v1/metrics", body=self.bodies.pop())
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


@dataclass(frozen=True)
class Stored(ABC):
    """A database with what the hosts have sent, and with the records.

    Attributes:
        url: The base of its HTTP API.
        first, last: The time of the first and the last sample.
    """

    url: str
    first: float
    last: float

    def query(self, expression: str, **parameters: object) -> Rows:
        """Return labels and values of an expression in the whole time, or at one."""
        times = parameters or {"start": self.first, "end": self.last, "step": STEP}
        return rows(self.url, expression, **times)

    @abstractmethod
    def fired(self, alert: dict[str, Any]) -> list[dict[str, str]]:
        """Return the labels of an alert that was true for long enough."""


class StoredInPrometheus(Stored):
    def fired(self, alert: dict[str, Any]) -> list[dict[str, str]]:
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


class StoredInVictoriaMetrics(Stored):
    """The alerts were evaluated by vmalert."""

    def fired(self, alert: dict[str, Any]) -> list[dict[str, str]]:
        return [labels for labels, _ in self.query(f'ALERTS{{alertname="{alert["alert"]}", alertstate="firing"}}')]


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((ALERTS / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def inlined(expression: str) -> str:
    """Return an expression with those of the recording rules in place of their names."""
    groups = yaml.safe_load((ALERTS / "recording.yml").read_text())["groups"]
    for rule in reversed([rule for group in groups for rule in group["rules"]]):  # a rule may use an earlier one
        expression = expression.replace(rule["record"], f"({rule['expr']})")
    return expression


def ran(*command: str | Path) -> None:
    made = subprocess.run(command, capture_output=True, check=False)
    assert made.returncode == 0, made.stderr


def store(text: Path, data: Path) -> None:
    """Make blocks of samples in OpenMetrics' text format."""
    ran(program("promtool"), "tsdb", "create-blocks-from", "openmetrics", text, data)


class OverBlocks(Daemon):
    """Prometheus over blocks that exist already."""

    def __init__(self, folder: Path) -> None:
        (address,) = free_addresses(1)
        self.url = f"http://{address}"
        config = folder / "prometheus.json"
        config.write_text("{}")
        command: list[str | Path] = [
            program("prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={address}",
        ]
        super().__init__(command, f"{self.url}/-/ready", own(folder, "prometheus"))


@contextmanager
def stored(folder: Path, *options: str) -> Iterator[dict[str, Stored]]:
    """Simulate, store in both databases, evaluate the rules, and serve.

    Args:
        folder: Where files go.
        options: Further options of VictoriaMetrics.
    """
    data, text = folder / "data", folder / "metrics.txt"
    flags = f"--simulate 2xH100 --hosts {len(SCENARIOS) + len(HEALTHY)} --scenarios {','.join(SCENARIOS)}"
    past = f"--backfill {MINUTES}m --duration 0 --interval 15 --sample-interval 15 --include-metrics {INCLUDED}"
    with ExitStack() as stack:
        # Its cache of answers takes the past for settled, which is written here.
        victoria = stack.enter_context(VictoriaMetrics(folder, "-search.disableCache", *options))
        with text.open("w") as file:
            command = [sys.executable, "-m", "opentelemetry.instrumentation.hardware", "run"]
            with Received(file, victoria) as sink:
                answer = subprocess.run(
                    [*command, *flags.split(), *past.split()],
                    env=os.environ | sink.environment(),
                    capture_output=True,
                    text=True,
                    timeout=1500,
                    check=False,
                )
            assert answer.returncode == 0, answer.stderr
            file.write("# EOF\n")
        store(text, data)
        server = OverBlocks(folder)
        with server:
            # promtool leaves out a group that is not evaluated in the first block. A block ends at an even hour.
            late = sink.first % BLOCK > BLOCK - SLOWEST
            times = [
                f"--start={int(sink.first) + (SLOWEST if late else 0)}",
                f"--end={int(sink.last)}",
                f"--eval-interval={STEP}s",
            ]
            target = [f"--url={server.url}", f"--output-dir={data}", str(ALERTS / "recording.yml")]
            ran(program("promtool"), "tsdb", "create-blocks-from", "rules", *times, *target)
        for rules in ("recording.yml", "alerts.yml"):
            replay(victoria, ALERTS / rules, sink.first, sink.last)
        yield {
            "prometheus": StoredInPrometheus(stack.enter_context(server).url, sink.first, sink.last),
            "victoriametrics": StoredInVictoriaMetrics(victoria.url, sink.first, sink.last),
        }


def replay(victoria: VictoriaMetrics, rules: Path, first: float, last: float) -> None:
    """Let vmalert evaluate rules over the past. A rule of the file does not see what another one has recorded."""
    get(f"{victoria.url}/internal/force_flush")
    times = {"From": first, "To": last}
    ran(
        vmalert(),
        f"-rule={rules}",
        f"-datasource.url={victoria.url}",
        f"-remoteWrite.url={victoria.url}",
        f"-evaluationInterval={STEP}s",
        "-replay.rulesDelay=0s",
        "-replay.disableProgressBar",
        *(f"-replay.time{name}={datetime.fromtimestamp(time, timezone.utc):%FT%TZ}" for name, time in times.items()),
    )
    get(f"{victoria.url}/internal/force_flush")
