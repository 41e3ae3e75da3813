"""OpenMetrics and Prometheus endpoints: each is scraped in its own thread, and its metrics are exported with ours."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import inf
from urllib.parse import urlsplit

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.model import Attributes, Metric, Point, Series, Unavailable
from opentelemetry.instrumentation.hardware.settings import PREFIX, Config
from opentelemetry.instrumentation.hardware.sources import Reading, Source
from opentelemetry.instrumentation.hardware.sources.openmetrics.filters import Filters
from opentelemetry.instrumentation.hardware.sources.openmetrics.metrics import scraped_metric
from opentelemetry.instrumentation.hardware.sources.openmetrics.page import ACCEPT, Page, Parser, Sample, paced

_EXTRA = "pip install 'opentelemetry-instrumentation-hardware[openmetrics]'"


class Openmetrics(Source):
    """One endpoint. A scrape is a reading."""

    name = "openmetrics"
    rows = ("openmetrics.",)

    @classmethod
    def instances(cls, config: Config) -> Sequence[str]:
        if not config.openmetrics:
            return super().instances(config)
        return [endpoint.name for endpoint in config.openmetrics.each]

    @classmethod
    def prepare(cls, config: Config) -> bool:
        """Import the modules for scraping if an endpoint is configured."""
        if config.openmetrics:
            import encodings.idna  # noqa: F401 - for host names

            import opentelemetry.instrumentation.hardware.drivers.http  # noqa: F401

            with suppress(ImportError):  # reported by open()
                Parser(Filters("", None))
        return bool(config.openmetrics)

    def open(self) -> None:
        """Prepare to scrape the endpoint. It is not contacted yet."""
        config = self.context.config
        endpoints = {endpoint.name: endpoint for endpoint in config.openmetrics.each} if config.openmetrics else {}
        if not endpoints:
            raise Unavailable("no endpoint is configured", f"set {PREFIX}OPENMETRICS to name=http://host:port/metrics")
        from opentelemetry.instrumentation.hardware.drivers.http import Http

        self._endpoint = endpoint = endpoints[self.context.instance or next(iter(endpoints))]
        self._apart = endpoint.interval
        try:
            self._parser = Parser(Filters(endpoint.name, endpoint.filters or config.openmetrics_filters))
        except ImportError:
            raise Unavailable("prometheus_client, which parses the pages, is not installed", _EXTRA) from None
        self._http = self.context.drivers.custom("http", lambda: Http(endpoint, ACCEPT))
        url = urlsplit(endpoint.url)
        self._attributes: Attributes = {
            c.OPENMETRICS_ENDPOINT: endpoint.name,
            c.SERVER_ADDRESS: url.hostname or "",
            c.SERVER_PORT: url.port or (443 if url.scheme == "https" else 80),
        }
        self._up, self._duration, self._dropped = (
            Series(metric, self._attributes)
            for metric in (c.OPENMETRICS_UP, c.OPENMETRICS_DURATION, c.OPENMETRICS_DROPPED)
        )
        self._metrics: dict[tuple[str, str], Metric] = {}
        self._series: dict[tuple[str, str, frozenset[tuple[str, str]]], Series] = {}

    def readings(self) -> tuple[Reading]:
        """Return one: a page is scraped only when a collection is due."""
        return (Reading(self.read, inf, before_collection=True, apart=self._apart),)

    def read(self) -> Iterator[Point]:
        """Scrape the endpoint. If that fails, only ``openmetrics.up`` is reported."""
        self.errors, self.unsupported = [], []
        begin = time.monotonic()
        try:
            seconds, page = self.scrape()
        except DriverError as error:
            self.errors = [error.text]
            yield self._up(0)
            return
        finally:  # the values of a slow page must not expire before the next scrape
            self._apart = max(self._endpoint.interval, time.monotonic() - begin)
        values: dict[Series, float] = {}
        over_limit = 0
        for sample in paced(page.samples):
            series = self._series_of(sample)
            if series is None:
                over_limit += 1
            else:
                values.setdefault(series, sample.value)  # a duplicate series: keep the first value
        yield self._up(1)
        yield self._duration(seconds)
        yield self._dropped(over_limit + page.beyond + page.stale)
        for series, value in values.items():
            yield series(value)
        self.unsupported = [*self._dropped_sentences(page, over_limit)]

    def scrape(self) -> tuple[float, Page]:
        """Return the duration of the request in seconds, and the page.

        Raises:
            DriverError: The page cannot be fetched or parsed; the text has the reason.
        """
        try:
            answer = self._http.get()
            complete = answer.get("complete", False)
            return answer["seconds"], self._parser.parse(answer["type"], answer["body"], time.time(), complete)
        except (OSError, DriverError, ValueError) as error:
            raise DriverError(0, f"{self._endpoint.shown}: {self._reason(error)}") from None

    def _series_of(self, sample: Sample) -> Series | None:
        """Return the series of a sample; None for a new series above ``max_series``."""
        key = sample.name, sample.type, frozenset(sample.labels.items())
        series = self._series.get(key)
        if series is None and len(self._series) < self._endpoint.max_series:
            metric = self._metrics.get(key[:2])
            if metric is None:
                metric = self._metrics[key[:2]] = scraped_metric(self._endpoint.name, sample)
            labels = {
                f"exported_{label}" if label in self._attributes else label: value
                for label, value in sample.labels.items()
            }
            series = self._series[key] = Series(metric, {**labels, **self._attributes})
        return series

    def _reason(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return f"timed out after {self._endpoint.timeout:g} s"
        if isinstance(error, UnicodeError):
            return "the page is not UTF-8"
        if isinstance(error, DriverError):
            return error.text
        return getattr(error, "strerror", None) or str(error) or type(error).__name__

    def _dropped_sentences(self, page: Page, over_limit: int) -> Iterator[str]:
        """Yield the parts of the page that are not reported, with the reasons."""
        name = f"openmetrics {self._endpoint.name}"
        if over_limit:
            yield (
                f"{name}: {over_limit} series are dropped, because max_series is {self._endpoint.max_series}; use "
                "filters, or raise max_series of the endpoint"
            )
        if page.beyond:
            yield f"{name}: {page.beyond} lines are dropped, because they are too many or too long; use filters"
        if page.stale:
            yield f"{name}: {page.stale} samples are dropped, because their timestamps are more than 5 minutes old"
        if page.invalid:
            more = f", and {len(page.invalid) - 1} more" if len(page.invalid) > 1 else ""
            yield f"{name}: invalid metric families are dropped: {page.invalid[0]}{more}"
