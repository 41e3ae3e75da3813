"""Metrics about this package."""

from __future__ import annotations

from opentelemetry.instrumentation.hardware.catalog.attributes import REQUEST_MODEL, SOURCE, SPAN_KIND, SPAN_NAME
from opentelemetry.instrumentation.hardware.catalog.kinds import counter, gauge, histogram
from opentelemetry.instrumentation.hardware.model import Scope

# A table: the lines of a row are its name, help text, source and options.
# fmt: off

SOURCE_UP = gauge(
    "otel_hardware.source.up", "{source}", (SOURCE,),
    "1 if a source is being read, 0 if it failed, timed out or returned invalid data.",
    source="this package",
    scope=Scope.PROCESS, standard=False,
)
SOURCE_READ_DURATION = gauge(
    "otel_hardware.source.read.duration", "s", (SOURCE,),
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
    "hw.span.energy", "J", (SPAN_NAME, SPAN_KIND, REQUEST_MODEL),
    "Energy of the accelerators in use by operation: each span's own part, also of spans that are too short for "
    'attributes or that the sampler drops. At most 100 operations; the others are "other".',
    source="the readings of the accelerators while spans run",
    scope=Scope.PROCESS, opt_in="spans", standard=False,
)
