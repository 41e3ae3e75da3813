"""Metrics about this package and the endpoints that it scrapes. Scraped metrics keep their names and are not here."""

from __future__ import annotations

from opentelemetry.instrumentation.hardware.catalog import attributes as a
from opentelemetry.instrumentation.hardware.model import Scope, counter, gauge, histogram

# A table: the lines of a row are its name, help text, source and options.
# fmt: off

OPENMETRICS_UP = gauge(
    "openmetrics.up", "{endpoint}", (a.OPENMETRICS_ENDPOINT, a.SERVER_ADDRESS, a.SERVER_PORT),
    "1 if the latest scrape of an endpoint succeeded, otherwise 0.",
    source="the endpoints of OPENMETRICS",
    standard=False,
)
OPENMETRICS_DURATION = gauge(
    "openmetrics.scrape.duration", "s", (a.OPENMETRICS_ENDPOINT, a.SERVER_ADDRESS, a.SERVER_PORT),
    "Duration of the latest scrape, until the whole page was received.",
    source="the endpoints of OPENMETRICS",
    standard=False,
)
OPENMETRICS_DROPPED = gauge(
    "openmetrics.scrape.dropped", "{series}", (a.OPENMETRICS_ENDPOINT, a.SERVER_ADDRESS, a.SERVER_PORT),
    "Series of the latest scrape that match the filters but exceed a limit. otel-hardware doctor names the limit.",
    source="the endpoints of OPENMETRICS",
    standard=False,
)
SOURCE_UP = gauge(
    "otel_hardware.source.up", "{source}", (a.SOURCE,),
    "1 if a source is being read, 0 if it failed, timed out or returned invalid data.",
    source="this package",
    scope=Scope.PROCESS, standard=False,
)
SOURCE_READ_DURATION = gauge(
    "otel_hardware.source.read.duration", "s", (a.SOURCE,),
    "Wall-clock time of the latest read of a source.",
    source="this package",
    scope=Scope.PROCESS, opt_in="request", standard=False,
)
OWN_CPU_TIME = counter(
    "otel_hardware.cpu.time", "s", (),
    "CPU time used by this package's threads.",
    source="CLOCK_THREAD_CPUTIME_ID of each thread",
    scope=Scope.PROCESS, standard=False,
)
SPANS_ENERGY_UNATTRIBUTED = counter(
    "otel_hardware.spans.energy.unattributed", "J", (),
    "Energy of the accelerators in use that belongs to no span.",
    source="this package",
    scope=Scope.PROCESS, standard=False,
)
SPAN_ENERGY_BY_OPERATION = histogram(
    "hw.span.energy", "J", (a.SPAN_NAME, a.SPAN_KIND, a.REQUEST_MODEL),
    "Energy of the accelerators in use by operation: each span's own part, also of spans that are too short for "
    'attributes or that the sampler drops. At most 100 operations; the others are "other".',
    source="the readings of the accelerators while spans run",
    scope=Scope.PROCESS, opt_in="spans", standard=False,
)
