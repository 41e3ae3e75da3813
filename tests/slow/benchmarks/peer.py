"""opentelemetry-instrumentation-system-metrics without its connection table, which costs more than all the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from opentelemetry.instrumentation.system_metrics import _DEFAULT_CONFIG, SystemMetricsInstrumentor
from opentelemetry.metrics import CallbackOptions, MeterProvider, NoOpMeter, NoOpMeterProvider, Observation
from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

NAME = "system-metrics"


def instrument(provider: MeterProvider) -> None:
    """Its default set."""
    config = {name: states for name, states in _DEFAULT_CONFIG.items() if name != "system.network.connections"}
    SystemMetricsInstrumentor(config=config).instrument(meter_provider=provider, skip_dep_check=True)


def reader() -> InMemoryMetricReader:
    """Its default set on a real provider."""
    made = InMemoryMetricReader()
    instrument(SdkMeterProvider([made], shutdown_on_exit=False))
    made.get_metrics_data()
    return made


class Callbacks(NoOpMeterProvider):
    """A provider that keeps the callbacks, to measure the reading without the SDK."""

    def __init__(self) -> None:
        self.kept: list[Callable[[CallbackOptions], Iterable[Observation]]] = []

    def get_meter(self, name: str, *arguments: Any, **options: Any) -> _Meter:
        return _Meter(name, self.kept)

    def read(self) -> None:
        """One reading of everything."""
        options = CallbackOptions()
        for callback in self.kept:
            list(callback(options))


class _Meter(NoOpMeter):
    def __init__(self, name: str, kept: list[Callable[[CallbackOptions], Iterable[Observation]]]) -> None:
        super().__init__(name)
        self._kept = kept

    def _keep(self, name: str, callbacks: Any = None, unit: str = "", description: str = "") -> Any:
        self._kept += callbacks or ()

    create_observable_counter = create_observable_up_down_counter = create_observable_gauge = _keep
