"""OpenMetrics: endpoints that are scraped, each in a thread of its own; their metrics travel on with ours."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.endpoints import Endpoint
from opentelemetry.instrumentation.hardware.model import Attributes, Kind, Metric, Point, Series, Unavailable
from opentelemetry.instrumentation.hardware.settings import PREFIX, Config
from opentelemetry.instrumentation.hardware.sources import Source
from opentelemetry.instrumentation.hardware.sources.openmetrics.filters import Filters
from opentelemetry.instrumentation.hardware.sources.openmetrics.page import ACCEPT, Page, Parser, Sample
from opentelemetry.instrumentation.hardware.sources.openmetrics.rows import kind, row

_EXTRA = "pip install 'opentelemetry-instrumentation-hardware[openmetrics]'"


class Openmetrics(Source):
    """One endpoint: a scrape is a reading."""

    name = "openmetrics"
    rows = ("openmetrics.",)

    @classmethod
    def instances(cls, config: Config) -> Sequence[str]:
        """The endpoints."""
        return (
            [endpoint.name for endpoint in config.openmetrics.each] if config.openmetrics else super().instances(config)
        )

    @classmethod
    def interval(cls, config: Config) -> float:
        """A page is asked for when a collection is due."""
        del config
        return 0.0

    @classmethod
    def prepare(cls, config: Config) -> bool:
        """Import what scraping needs, where there is something to scrape."""
        if config.openmetrics:
            import encodings.idna  # noqa: F401 - names of hosts

            import opentelemetry.instrumentation.hardware.drivers.http  # noqa: F401

            with suppress(ImportError):  # which opening the source says
                Parser(Filters("", None))
        return bool(config.openmetrics)

    def open(self) -> None:
        """Know the endpoint; whether it answers is seen when it is read.

        Raises:
            Unavailable: none is named, or the parser is not installed.
        """
        config = self.context.config
        known = {endpoint.name: endpoint for endpoint in config.openmetrics.each} if config.openmetrics else {}
        if not known:
            raise Unavailable("no endpoint is named", f"{PREFIX}OPENMETRICS takes name=http://host:port/metrics")
        from opentelemetry.instrumentation.hardware.drivers.http import Address, Http

        self._endpoint = endpoint = known[self.context.instance or next(iter(known))]
        self.min_interval = endpoint.interval
        try:
            self._parser = Parser(Filters(endpoint.name, endpoint.filters or config.openmetrics_filters))
        except ImportError:
            raise Unavailable("prometheus_client, which takes pages apart, is not installed", _EXTRA) from None
        address = Address(
            endpoint.url,
            ACCEPT,
            endpoint.headers,
            endpoint.bearer_token_file,
            endpoint.ca_file,
            endpoint.cert_file,
            endpoint.key_file,
            endpoint.timeout,
            endpoint.max_bytes,
        )
        self._http = self.context.drivers.custom("http", lambda: Http(address))
        self._about = _about(endpoint)
        self._up, self._duration, self._dropped = (
            Series(each, self._about) for each in (c.OPENMETRICS_UP, c.OPENMETRICS_DURATION, c.OPENMETRICS_DROPPED)
        )
        self._rows: dict[tuple[str, str], Metric] = {}
        self._series: dict[tuple[str, str, frozenset[tuple[str, str]]], Series] = {}

    def read(self) -> Iterator[Point]:
        """Scrape. An endpoint that has no page is down, and nothing else is said of it."""
        self.errors, self.unsupported = [], []
        try:
            seconds, page = self.scrape()
        except DriverError as refusal:
            self.errors = [refusal.text]
            yield self._up(0)
            return
        values: dict[Series, float] = {}
        refused = 0
        for sample in page.samples:
            carried = kind(sample)
            if carried is not None:
                series = self._known(sample, carried)
                if series is None:
                    refused += 1
                else:
                    values.setdefault(series, sample.value)  # one that stands there twice has its first value
        yield self._up(1)
        yield self._duration(seconds)
        yield self._dropped(refused + page.beyond + page.old)
        for series, value in values.items():
            yield series(value)
        self.unsupported = [*self._told(page, refused)]

    def scrape(self) -> tuple[float, Page]:
        """The page, and how many seconds it took to come.

        Raises:
            DriverError: there is none, or it cannot be read; with the reason.
        """
        try:
            answer = self._http.get()
            return answer["seconds"], self._parser.parse(answer["type"], answer["body"], time.time())
        except (OSError, DriverError, ValueError) as error:
            raise DriverError(0, f"{self._endpoint.shown}: {self._why(error)}") from None

    def _known(self, sample: Sample, carried: Kind) -> Series | None:
        """The series of a sample; None for a new one beyond the limit."""
        key = sample.name, sample.type, frozenset(sample.labels.items())
        series = self._series.get(key)
        if series is None and len(self._series) < self._endpoint.max_series:
            metric = self._rows.get(key[:2])
            if metric is None:
                metric = self._rows[key[:2]] = row(self._endpoint.name, sample, carried)
            renamed = {
                f"exported_{label}" if label in self._about else label: sample.labels[label] for label in sample.labels
            }
            series = self._series[key] = Series(metric, {**renamed, **self._about})
        return series

    def _why(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return f"it did not answer within {self._endpoint.timeout:g} s"
        if isinstance(error, UnicodeError):
            return "its page is no UTF-8"
        if isinstance(error, DriverError):
            return error.text
        return getattr(error, "strerror", None) or str(error) or type(error).__name__

    def _told(self, page: Page, refused: int) -> Iterator[str]:
        """What of the page is not reported, and why."""
        name = f"openmetrics {self._endpoint.name}"
        if refused:
            yield (
                f"{name}: {refused} series are left out, because {self._endpoint.max_series} others are reported or "
                "were; filters or max_series of the endpoint say which are wanted"
            )
        if page.beyond:
            yield f"{name}: {page.beyond} lines are not looked at, because they are too many or too long; filters help"
        if page.old:
            yield f"{name}: {page.old} samples are left out, because by their own time they are minutes old"
        if page.broken:
            yield f"{name}: not in the format of its page, and left out: {_few(page.broken)}"


def _few(sentences: list[str]) -> str:
    return sentences[0] + (f", and {len(sentences) - 1} more" if len(sentences) > 1 else "")


def _about(endpoint: Endpoint) -> Attributes:
    url = urlsplit(endpoint.url)
    port = url.port or (443 if url.scheme == "https" else 80)
    return {
        c.OPENMETRICS_ENDPOINT: endpoint.name,
        c.SERVER_ADDRESS: url.hostname or "",
        c.SERVER_PORT: port,
    }
