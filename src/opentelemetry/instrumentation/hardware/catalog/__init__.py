"""The catalog: every metric and every attribute name.

A metric's name is spelled only here; instruments, documentation and dashboards are generated from :data:`CATALOG`.
Metrics with ``standard=True`` have the name, kind and unit of the semantic conventions; a test compares them with the
installed package. The conventions do not define the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from opentelemetry.instrumentation.hardware.catalog import gpu, hardware, host, npu, own, process
from opentelemetry.instrumentation.hardware.catalog.attributes import *  # noqa: F403
from opentelemetry.instrumentation.hardware.catalog.errors import *  # noqa: F403
from opentelemetry.instrumentation.hardware.catalog.events import *  # noqa: F403
from opentelemetry.instrumentation.hardware.catalog.gpu import *  # noqa: F403
from opentelemetry.instrumentation.hardware.catalog.hardware import *  # noqa: F403
from opentelemetry.instrumentation.hardware.catalog.host import *  # noqa: F403
from opentelemetry.instrumentation.hardware.catalog.npu import *  # noqa: F403
from opentelemetry.instrumentation.hardware.catalog.own import *  # noqa: F403
from opentelemetry.instrumentation.hardware.catalog.process import *  # noqa: F403
from opentelemetry.instrumentation.hardware.catalog.spans import *  # noqa: F403
from opentelemetry.instrumentation.hardware.model import Metric

SCOPE: Final = "opentelemetry.instrumentation.hardware"  # the instrumentation scope of all metrics

# The version of the semantic conventions that the standard metrics follow.
SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.45.0"

# The words of the setting ``DETAIL``. Some turn on the metrics that have them as ``opt_in``, others more series.
DETAILS: Final[Mapping[str, str]] = {
    "cpu": "one series per logical CPU, and their frequencies",
    "connections": "network connections by state",
    "devices": "partitions, loop devices, loopback and other disks and interfaces that are not hardware; do not add up",
    "processes": "processes by state",
    "gpu": "per-NVLink traffic, per-pipe activity, per-type link errors, BAR1 memory and instantaneous power",
    "sensors": "all temperature, fan, voltage and power sensors of the host",
    "spans": "the energy of spans by operation",
    "bottlenecks": "what holds each GPU back",
    "holders": "pod, job and user on every series of a device, from otel-hardware run",
}

# Every metric, in the order of the modules.
CATALOG: Final[tuple[Metric, ...]] = tuple(
    value
    for module in (host, gpu, hardware, npu, process, own)
    for value in vars(module).values()
    if isinstance(value, Metric)
)
