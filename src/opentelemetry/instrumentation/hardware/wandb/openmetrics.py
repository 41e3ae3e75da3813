"""W&B's keys of scraped endpoints.

W&B numbers the series of a metric in the order in which it first sees them, and reports counters and gauges only.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from opentelemetry.instrumentation.hardware.drivers import DriverError, Drivers
from opentelemetry.instrumentation.hardware.endpoints import TOTAL
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import SourceContext
from opentelemetry.instrumentation.hardware.sources.openmetrics import Openmetrics
from opentelemetry.instrumentation.hardware.sources.openmetrics.metrics import instrument_kind
from opentelemetry.instrumentation.hardware.sources.openmetrics.page import Page
from opentelemetry.instrumentation.hardware.wandb.probe import Key
from opentelemetry.instrumentation.hardware.wandb.probe import Probe as BaseProbe


class Probe(BaseProbe["Mapping[str, float]"]):
    """The counters and gauges of all endpoints, by endpoint, metric and number."""

    timeout = 30.0  # an endpoint may have a timeout of its own

    def __init__(self, config: Config, pid: int) -> None:
        super().__init__(config, pid)
        Openmetrics.prepare(config)
        self._sources = [
            Openmetrics(SourceContext(config, Drivers(), 0, instance=name))
            for name in Openmetrics.instances(config)
            if name
        ]
        self.expected = bool(self._sources)
        self._numbers: defaultdict[tuple[str, str], dict[frozenset[tuple[str, str]], int]] = defaultdict(dict)
        try:
            for source in self._sources:
                source.open()
        except Unavailable as missing:
            self._sources, self.error = [], missing.reason

    def read(self) -> Mapping[str, float]:
        """Scrape all endpoints at the same time. One that is down is left out."""
        values: dict[str, dict[str, float]] = {source.context.instance: {} for source in self._sources}

        def scrape(source: Openmetrics) -> None:
            with suppress(DriverError):
                values[source.context.instance] = self._values(source.context.instance, source.scrape()[1])

        threads = [threading.Thread(target=scrape, args=(source,), daemon=True) for source in self._sources]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {key: value for each in values.values() for key, value in each.items()}

    def _values(self, endpoint: str, page: Page) -> dict[str, float]:
        values = {}
        for sample in page.samples:
            if sample.type in ("counter", "gauge") and instrument_kind(sample) is not None:
                numbers = self._numbers[endpoint, sample.name]
                labels = frozenset(sample.labels.items())
                if labels in numbers or len(numbers) < TOTAL:
                    number = numbers.setdefault(labels, len(numbers))
                    values[f"{endpoint}.{sample.name}.{number}"] = sample.value
        return values


KEYS: Final = (
    Key[Mapping[str, float]](
        "openmetrics.{endpoint}.{metric}.{n}",
        "as scraped",
        "a counter or gauge of a scraped endpoint; its series are numbered in the order in which they are first seen",
        lambda scraped: scraped,
    ),
)
