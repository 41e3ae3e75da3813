"""Databases of metrics: VictoriaMetrics, and Prometheus with its receiver of remote write."""

from __future__ import annotations

import json
import urllib.parse
from pathlib import Path

from tests.tools import program, victoria_metrics
from tests.tools.daemon import Daemon, free_addresses, get, own

Series = tuple[tuple[str, str], ...]
"""The labels of a series, sorted."""

# Labels of series, with their times and values.
Rows = list[tuple[dict[str, str], list[tuple[float, float]]]]


def rows(url: str, expression: str, **parameters: object) -> Rows:
    """Return what a database answers in a time (`start`, `end`, `step`), or at one (`time`)."""
    kind = "query_range" if "start" in parameters else "query"
    text = get(f"{url}/api/v1/{kind}?{urllib.parse.urlencode({'query': expression, **parameters})}")
    return [
        (each["metric"], [(float(time), float(value)) for time, value in each.get("values") or [each["value"]]])
        for each in json.loads(text)["data"]["result"]
    ]


class Store(Daemon):
    """A database that answers Prometheus' HTTP API at `url`."""

    url: str

    def query(self, expression: str, **parameters: object) -> list[tuple[dict[str, str], float]]:
        """Return the labels and the value of each series of an expression."""
        return [(labels, values[-1][1]) for labels, values in rows(self.url, expression, **parameters)]

    def samples(self, selector: str, window: str = "1h") -> dict[Series, list[tuple[float, float]]]:
        """Return all stored samples of the last hour: the time in seconds, and the value."""
        return {tuple(sorted(labels.items())): values for labels, values in rows(self.url, f"{selector}[{window}]")}


class VictoriaMetrics(Store):
    """VictoriaMetrics on a free port, which receives OTLP at `/opentelemetry/v1/metrics`."""

    def __init__(self, directory: Path, *options: str) -> None:
        (address,) = free_addresses(1)
        self.url = f"http://{address}"
        directory = own(directory, "victoria-metrics")
        command: list[str | Path] = [
            victoria_metrics(),
            f"-storageDataPath={directory / 'data'}",
            f"-httpListenAddr={address}",
            "-opentelemetry.usePrometheusNaming",
            "-search.latencyOffset=0s",
            "-memory.allowedBytes=256MB",
            *options,
        ]
        super().__init__(command, f"{self.url}/health", directory)


class PrometheusStore(Store):
    """Debian's Prometheus on a free port, which receives remote write, also of samples that arrive late."""

    def __init__(self, directory: Path, *options: str, scheme: str = "http") -> None:
        (address,) = free_addresses(1)
        self.url = f"{scheme}://{address}"
        directory = own(directory, "prometheus")
        config = directory / "prometheus.json"
        config.write_text(json.dumps({"storage": {"tsdb": {"out_of_order_time_window": "2h"}}}))
        command: list[str | Path] = [
            program("prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address={address}",
            "--web.enable-remote-write-receiver",
            *options,
        ]
        super().__init__(command, f"{self.url}/-/ready", directory)
