"""Metrics about scraped endpoints. The scraped metrics keep their own names and are not in the catalog."""

from __future__ import annotations

from opentelemetry.instrumentation.hardware.catalog.attributes import OPENMETRICS_ENDPOINT, SERVER_ADDRESS, SERVER_PORT
from opentelemetry.instrumentation.hardware.catalog.kinds import gauge

# A table: the lines of a row are its name, help text, source and options.
# fmt: off

OPENMETRICS_UP = gauge(
    "openmetrics.up", "{endpoint}", (OPENMETRICS_ENDPOINT, SERVER_ADDRESS, SERVER_PORT),
    "1 if the latest scrape of an endpoint succeeded, otherwise 0.",
    source="the endpoints of OPENMETRICS",
    standard=False,
)
OPENMETRICS_DURATION = gauge(
    "openmetrics.scrape.duration", "s", (OPENMETRICS_ENDPOINT, SERVER_ADDRESS, SERVER_PORT),
    "Duration of the latest scrape, until the whole page was received.",
    source="the endpoints of OPENMETRICS",
    standard=False,
)
OPENMETRICS_DROPPED = gauge(
    "openmetrics.scrape.dropped", "{series}", (OPENMETRICS_ENDPOINT, SERVER_ADDRESS, SERVER_PORT),
    "Series of the latest scrape that match the filters but exceed a limit. otel-hardware doctor names the limit.",
    source="the endpoints of OPENMETRICS",
    standard=False,
)
