"""libtpu's SDK, which reads the driver: TensorCore utilization, link health and throttling.

It is never loaded into the program, because its calls hold the interpreter lock for up to 20 seconds. A child process
loads it and prints a line of JSON every few seconds. https://cloud.google.com/tpu/docs/tpu-monitoring-library
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.drivers.json import decoded
from opentelemetry.instrumentation.hardware.drivers.streaming import Reports
from opentelemetry.instrumentation.hardware.drivers.subprocess import Tool, python_executable
from opentelemetry.instrumentation.hardware.model import Unavailable

PERIOD: Final = 10.0  # minimum seconds between two lines

NAMES: Final = ("tensorcore_util", "ici_link_health", "tpu_throttle_score")

_MAX_VALUES: Final = 1024  # maximum number of values of a metric

_PROGRAM: Final = """\
import json, sys, time
try:
    from libtpu.sdk import tpumonitoring as tpu
except Exception as error:
    print(json.dumps({"missing": str(error)}), flush=True)
    time.sleep(1e6)
while True:
    began = time.monotonic()
    values = {}
    for name in sys.argv[2:]:
        try:
            values[name] = [str(each) for each in tpu.get_metric(name).data()]
        except Exception:
            pass
    print(json.dumps(values), flush=True)
    time.sleep(max(0.0, began + float(sys.argv[1]) - time.monotonic()))
"""


# The environment variables of the library: the chips of this host, and where the runtime serves its metrics.
_ENVIRONMENT: Final = (
    "CLOUD_TPU_TASK_ID",
    "LIBTPU_INIT_ARGS",
    "TPU_ACCELERATOR_TYPE",
    "TPU_CHIPS_PER_HOST_BOUNDS",
    "TPU_CHIPS_PER_PROCESS_BOUNDS",
    "TPU_HOST_BOUNDS",
    "TPU_LIBRARY_PATH",
    "TPU_PROCESS_BOUNDS",
    "TPU_RUNTIME_METRICS_ADDRESS",
    "TPU_RUNTIME_METRICS_PORTS",
    "TPU_RUNTIME_PRIMARY_METRIC_PORT",
    "TPU_SDK_GRPC_TIMEOUT_SEC",
    "TPU_SKIP_MDS_QUERY",
    "TPU_TOPOLOGY",
    "TPU_VISIBLE_CHIPS",
    "TPU_VISIBLE_DEVICES",
    "TPU_WORKER_HOSTNAMES",
    "TPU_WORKER_ID",
)


class Values(NamedTuple):
    """The values of a line.

    Attributes:
        tensorcore: Utilization of each core in percent, in the order of the driver; None if invalid.
        links: The health of each link, from 0 (healthy) to 10 (unusable).
        throttle: The throttle score of each device, from 0 (not throttled) to 10.
    """

    tensorcore: tuple[float | None, ...] = ()
    links: Mapping[str, int] = MappingProxyType({})
    throttle: Mapping[int, int] = MappingProxyType({})


def parse(line: bytes) -> Values:
    """Parse a line.

    Raises:
        Unavailable: The line reports that the SDK cannot be imported.
        ValueError: The line is invalid.
    """
    values = decoded(line)
    if not isinstance(values, dict):
        raise ValueError("invalid line")
    if "missing" in values:
        raise Unavailable(f"libtpu's SDK cannot be imported: {str(values['missing'])[:200]}")
    links = [re.fullmatch(r"([a-z0-9_.]{1,64}): *([0-9]|10)", text) for text in _texts(values, "ici_link_health")]
    scores = [re.fullmatch(r"([0-9]{1,6})-([0-9]|10)", text) for text in _texts(values, "tpu_throttle_score")]
    return Values(
        tuple(map(_percent, _texts(values, "tensorcore_util"))),
        {match[1]: int(match[2]) for match in links if match},
        {int(match[1]): int(match[2]) for match in scores if match},
    )


def _texts(values: Mapping[str, Any], name: str) -> list[str]:
    listed = values.get(name)
    return [each for each in listed[:_MAX_VALUES] if isinstance(each, str)] if isinstance(listed, list) else []


def _percent(text: str) -> float | None:
    percent = float(text) if re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,9})?", text) else None
    return percent if percent is not None and percent <= 100 else None


def open_sdk(drivers: Drivers, interval: float) -> Reports[Values]:
    """Return the SDK in a child process, which the first reading starts."""
    period = max(PERIOD, interval)
    stream = drivers.stream(Tool("libtpu", python_executable(), environment=_ENVIRONMENT))
    return Reports(stream, "libtpu", parse, ["-I", "-c", _PROGRAM, f"{period:g}", *NAMES], period)
