"""Report to four readers of one provider, and write each export to a journal before it is sent.

The arguments are the addresses of a Collector for gRPC and HTTP, and a folder with one file per reader. Each line of a
file is the SDK's JSON of an export. Exits at the end of stdin.
"""

import sys
from pathlib import Path
from typing import Any

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as Grpc
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as Http
from opentelemetry.sdk.metrics import MeterProvider, ObservableCounter
from opentelemetry.sdk.metrics.export import AggregationTemporality as Temporality
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import Resource
from tests.support.journal import unhurried

from opentelemetry.instrumentation.hardware import HardwareInstrumentor


def journaled(exporter: type[Any], endpoint: str, temporality: Temporality, journal: Path) -> MetricExporter:
    class Journaled(exporter):  # type: ignore[misc]
        """The real exporter, which also writes its data to the journal."""

        def export(self, metrics_data: MetricsData, *args: Any, **kwargs: Any) -> MetricExportResult:
            with journal.open("a") as file:
                file.write(metrics_data.to_json(indent=None) + "\n")
            outcome: MetricExportResult = super().export(metrics_data, *args, **kwargs)
            return outcome

    preference = {ObservableCounter: temporality}
    made: MetricExporter = Journaled(endpoint=endpoint, preferred_temporality=preference)
    return made


def main(grpc: str, http: str, folder: Path) -> None:
    exporters = [
        journaled(exporter, endpoint, temporality, folder / f"{name}-{temporality.name.lower()}.jsonl")
        for name, exporter, endpoint in (("grpc", Grpc, grpc), ("http", Http, f"{http}/v1/metrics"))
        for temporality in (Temporality.CUMULATIVE, Temporality.DELTA)
    ]
    unhurried()
    readers = [PeriodicExportingMetricReader(each, 500) for each in exporters]
    provider = MeterProvider(readers, Resource({"service.name": "values"}), shutdown_on_exit=False)
    HardwareInstrumentor().instrument(meter_provider=provider)
    for line in sys.stdin:
        sum(number * number for number in range(int(line)))
    provider.shutdown()
    HardwareInstrumentor().uninstrument()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
