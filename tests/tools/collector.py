"""A real OpenTelemetry Collector for one test, and the telemetry that it received."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tests.tools import ROOT, otelcol
from tests.tools.daemon import Daemon, free_addresses, get, own, wait
from tests.tools.tls import Certificate

if TYPE_CHECKING:
    from typing_extensions import Self

LOCAL = ROOT / "collector-config" / "local.yaml"
TOKEN = "correct-horse"  # of a gateway

Value = str | bool | int | float | list[Any] | dict[str, Any] | None
Config = Path | str | Mapping[str, Any]


@dataclass(frozen=True)
class Point:
    """One data point of a sum or a gauge, with its metric, scope and resource. Times are Unix nanoseconds."""

    name: str
    kind: Literal["sum", "gauge"]
    monotonic: bool
    temporality: Literal["delta", "cumulative"] | None
    unit: str
    description: str
    attributes: Mapping[str, Value]
    value: int | float
    start: int | None
    time: int
    resource: Mapping[str, Value]
    scope: str
    version: str
    schema_url: str


@dataclass(frozen=True)
class Span:
    """One span with its begin, in seconds since the epoch, its duration and its resource."""

    name: str
    begin: float
    seconds: float
    attributes: Mapping[str, Value]
    resource: Mapping[str, Value]
    scope: str


SIGNALS = ("metrics", "traces", "logs")


class _Messages:
    """The OTLP messages in a file that a Collector writes, each parsed once."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.all: list[dict[str, Any]] = []
        self._offset = 0

    def new(self) -> list[dict[str, Any]]:
        """Return the messages since the last call."""
        if not self.file.exists():
            return []
        with self.file.open("rb") as file:
            file.seek(self._offset)
            # The last line may be half written: it ends where nothing follows the last line feed yet.
            text = file.read().rpartition(b"\n")[0]
        self._offset += len(text) + bool(text)
        found: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
        self.all += found
        return found


class Collector(Daemon):
    """The Collector on free ports of the loopback interface, writing into a new directory inside `directory`.

    A configuration is a file, YAML text or a mapping. The Collector merges several of them, later ones over earlier
    ones. The default is `collector-config/local.yaml`. Other configurations must take the addresses and the folder from
    the same variables as `local.yaml`, and have the extension `health_check`.
    """

    def __init__(
        self, directory: Path, *configs: Config, environment: Mapping[str, str] | None = None, seconds: float = 60.0
    ) -> None:
        directory = own(directory, "otelcol")
        grpc, http, prometheus, health, queue = free_addresses(5)
        self.grpc = f"http://{grpc}"
        self.http = f"http://{http}"
        self.prometheus = f"http://{prometheus}/metrics"
        self._files = [directory / f"{signal}.jsonl" for signal in SIGNALS]
        self._messages: list[_Messages] = []
        self._points: list[Point] = []
        settings = {
            "OTLP_GRPC_ENDPOINT": grpc,
            "OTLP_HTTP_ENDPOINT": http,
            "PROMETHEUS_ENDPOINT": prometheus,
            "HEALTH_CHECK_ENDPOINT": health,
            "PROMETHEUS_QUEUE_ENDPOINT": queue,
            "TELEMETRY_DIRECTORY": str(directory),
            "QUEUE_DIRECTORY": str(directory / "queue"),
        }
        # The Collector's metrics about itself would be served on a fixed port, which only one can have.
        command: list[str | Path] = [otelcol(), "--set=service.telemetry.metrics.level=none"]
        for number, config in enumerate(configs or [LOCAL]):
            if isinstance(config, Path):
                path = config.resolve()
            else:
                path = directory / f"collector-{number}.yaml"
                path.write_text(config if isinstance(config, str) else json.dumps(config))
            command.append(f"--config={path}")
            if path == LOCAL:
                command += [f"--set=exporters.file/{signal}.flush_interval=50ms" for signal in SIGNALS]
                command.append("--set=exporters.prometheus.metric_expiration=1h")  # a slow machine may ask much later
        super().__init__(command, f"http://{health}/", directory, settings | dict(environment or {}), seconds)

    def __enter__(self) -> Self:
        self._messages, self._points = [_Messages(file) for file in self._files], []
        return super().__enter__()

    def lines(self) -> list[dict[str, Any]]:
        """Return the OTLP messages received so far, each with `resourceMetrics`, `resourceSpans` or `resourceLogs`."""
        self._read()
        return [message for messages in self._messages for message in messages.all]

    def _read(self) -> None:
        new = [message for messages in self._messages for message in messages.new()]
        self._points += [
            point for message in new for each in message.get("resourceMetrics", []) for point in _points(each)
        ]

    def metrics(self) -> list[Point]:
        """Return the points of sums and gauges received so far, oldest message first. Histograms are left out."""
        self._read()
        return list(self._points)

    def spans(self) -> list[Span]:
        """Return the spans received so far."""
        return [span for message in self.lines() for span in spans_of(message)]

    def wait(self, predicate: Callable[[list[Point]], bool], seconds: float = 60.0) -> list[Point]:
        """Wait until `predicate` holds for the points and return them. Fails with the received names and the log."""
        points: list[Point] = []

        def satisfied() -> bool:
            points[:] = self.metrics()
            return predicate(points)

        wait(satisfied, seconds, lambda: f"saw {sorted({each.name for each in points})}; {self._log_tail()}")
        return points

    def exposition(self) -> str:
        """Return the page for Prometheus."""
        return get(self.prometheus)


def secure_gateway(directory: Path, made: Certificate, *configs: Config, **environment: str) -> Collector:
    """A Collector with `gateway.yaml` and more, with a certificate and the token."""
    keys = {"GATEWAY_CERT_FILE": str(made.file), "GATEWAY_KEY_FILE": str(made.key), "GATEWAY_TOKEN": TOKEN}
    return Collector(directory, LOCAL.with_name("gateway.yaml"), *configs, environment=keys | environment)


def spans_of(message: Mapping[str, Any]) -> Iterator[Span]:
    """Return the spans of an OTLP message as JSON."""
    for each in message.get("resourceSpans", []):
        resource = _attributes(each.get("resource", {}))
        for group in each.get("scopeSpans", []):
            for span in group.get("spans", []):
                yield Span(
                    name=span["name"],
                    begin=int(span["startTimeUnixNano"]) / 1e9,
                    seconds=(int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])) / 1e9,
                    attributes=_attributes(span),
                    resource=resource,
                    scope=group.get("scope", {}).get("name", ""),
                )


def _points(message: Mapping[str, Any]) -> Iterator[Point]:
    resource = _attributes(message.get("resource", {}))
    for group in message.get("scopeMetrics", []):
        scope = group.get("scope", {})
        for metric in group.get("metrics", []):
            yield from _of_metric(metric, resource, scope, group.get("schemaUrl", ""))


def _of_metric(
    metric: Mapping[str, Any], resource: Mapping[str, Value], scope: Mapping[str, Any], schema_url: str
) -> Iterator[Point]:
    kinds: tuple[Literal["sum", "gauge"], ...] = ("sum", "gauge")
    temporalities: dict[int, Literal["delta", "cumulative"]] = {1: "delta", 2: "cumulative"}
    for kind in kinds:
        data = metric.get(kind, {})
        for point in data.get("dataPoints", []):
            if point.get("flags", 0) & 1:  # no recorded value: a scraped series has ended
                continue
            yield Point(
                name=metric["name"],
                kind=kind,
                monotonic=data.get("isMonotonic", False),
                temporality=temporalities.get(data.get("aggregationTemporality", 0)),
                unit=metric.get("unit", ""),
                description=metric.get("description", ""),
                attributes=_attributes(point),
                value=int(point["asInt"]) if "asInt" in point else float(point["asDouble"]),
                start=int(point["startTimeUnixNano"]) if "startTimeUnixNano" in point else None,
                time=int(point["timeUnixNano"]),
                resource=resource,
                scope=scope.get("name", ""),
                version=scope.get("version", ""),
                schema_url=schema_url,
            )


def _attributes(owner: Mapping[str, Any]) -> dict[str, Value]:
    return {each["key"]: _value(each.get("value", {})) for each in owner.get("attributes", [])}


def _value(value: Mapping[str, Any]) -> Value:
    for kind, content in value.items():
        if kind == "intValue":
            return int(content)
        if kind == "doubleValue":
            return float(content)
        if kind == "arrayValue":
            return [_value(each) for each in content.get("values", [])]
        if kind == "kvlistValue":
            return {each["key"]: _value(each.get("value", {})) for each in content.get("values", [])}
        plain: Value = content
        return plain
    return None
