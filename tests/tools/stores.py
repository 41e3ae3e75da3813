"""Databases of metrics: VictoriaMetrics, and Prometheus with its receiver of remote write."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.tools import program, victoria_metrics
from tests.tools.daemon import Daemon, free_addresses, get, own

Series = tuple[tuple[str, str], ...]
"""The labels of a series, sorted."""


class Store(Daemon):
    """A database that answers Prometheus' HTTP API at `url`."""

    url: str

    def query(self, expression: str, **parameters: str) -> list[tuple[dict[str, str], float]]:
        """Return the labels and the value of each series of an expression."""
        return [(each["metric"], float(each["value"][1])) for each in self._ask(expression, parameters)]

    def samples(self, selector: str, window: str = "1h") -> dict[Series, list[tuple[float, float]]]:
        """Return all stored samples of the last hour: the time in seconds, and the value."""
        return {
            tuple(sorted(each["metric"].items())): [(float(time), float(value)) for time, value in each["values"]]
            for each in self._ask(f"{selector}[{window}]", {})
        }

    def _ask(self, expression: str, parameters: Mapping[str, str]) -> list[dict[str, Any]]:
        text = get(f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': expression, **parameters})}")
        found: list[dict[str, Any]] = json.loads(text)["data"]["result"]
        return found


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
