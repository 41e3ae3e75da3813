"""Journal: an exporter that writes each collection with its PID as one line to a file, which a test reads."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)

OURS = "opentelemetry.instrumentation.hardware"
APPLICATION = "application"


@dataclass(frozen=True)
class Arrived:
    """One exported point, with its metric and scope.

    Of a sink also when a counter began, in ns since the epoch, its time in seconds, and whether it never falls.
    """

    scope: str
    name: str
    value: Any
    attributes: Mapping[str, Any] = field(default_factory=dict)
    start: int = 0
    time: float = 0.0
    is_counter: bool = False

    @property
    def series(self) -> tuple[str, str, tuple[tuple[str, Any], ...]]:
        """The name and attributes, which identify the point within one export."""
        return self.scope, self.name, tuple(sorted(self.attributes.items()))


@dataclass(frozen=True)
class Export:
    """One collection of one process. Its time has seconds: of a file, monotonic; of a sink, since the epoch."""

    pid: int
    time: float
    points: list[Arrived]
    service: str = ""
    host: str = ""

    def names(self, scope: str = OURS) -> set[str]:
        """The metrics of a scope."""
        return {point.name for point in self.points if point.scope == scope}

    def values(self, name: str, **attributes: object) -> list[Any]:
        """The values of a metric with these attributes (dots as ``_``)."""
        wanted = attributes.items()
        return [
            point.value
            for point in self.points
            if point.name == name
            and wanted <= {key.replace(".", "_"): value for key, value in point.attributes.items()}.items()
        ]


def flatten(data: MetricsData | None) -> Iterator[Arrived]:
    """Yield every point of a collection."""
    for resource in data.resource_metrics if data else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    value = getattr(point, "value", None)
                    yield Arrived(scope.scope.name, metric.name, value, dict(point.attributes or {}))


class Journal(MetricExporter):
    """Appends to the file. Several processes may write to the same file."""

    def __init__(self, path: str | Path, **options: Any) -> None:
        super().__init__(**options)
        self._path = path
        self.count = 0

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        points = [(each.scope, each.name, each.value, dict(each.attributes)) for each in flatten(metrics_data)]
        line = json.dumps({"pid": os.getpid(), "time": time.monotonic(), "points": points}) + "\n"
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)
        self.count += 1
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        pass


def unhurried() -> None:
    """Suppress the warning of a reader that collects before it has a provider, as on a slow machine."""
    early = "Cannot call collect on a MetricReader until it is registered"
    reader = logging.getLogger("opentelemetry.sdk.metrics._internal.export")
    reader.addFilter(lambda record: not record.getMessage().startswith(early))


def provider(path: str | Path, interval: float) -> MeterProvider:
    """Return a provider with a journal and a counter of the application; ``interval`` is in seconds."""
    unhurried()
    reader = PeriodicExportingMetricReader(Journal(path), export_interval_millis=interval * 1000)
    made = MeterProvider([reader])
    made.get_meter(APPLICATION).create_counter("application.steps").add(1)
    return made


def exports(path: str | Path) -> list[Export]:
    """Return the exports so far, without an incomplete last line."""
    try:
        lines = Path(path).read_text().split("\n")[:-1]
    except FileNotFoundError:
        return []
    return list(map(parsed, lines))


def parsed(line: str) -> Export:
    report = json.loads(line)
    return Export(report["pid"], report["time"], [Arrived(*point) for point in report["points"]])


def newest(path: str | Path) -> Export | None:
    """Return the last export, if there is any. The others are not parsed."""
    try:
        whole = Path(path).read_bytes().rpartition(b"\n")[0]
    except FileNotFoundError:
        return None
    return parsed(whole.rpartition(b"\n")[2].decode()) if whole else None


def repeated(points: Iterable[Arrived]) -> list[object]:
    """Return the series that appear more than once in one export."""
    seen: set[object] = set()
    return [point.series for point in points if point.series in seen or seen.add(point.series)]  # type: ignore[func-returns-value]
