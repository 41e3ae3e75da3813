"""The metrics of the TPU runtime, the values of the SDK and of the profiler, and the kinds of chips.

https://github.com/AI-Hypercomputer/cloud-accelerator-diagnostics/blob/main/tpu_info/tpu_info/metrics.py
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.fields import Field, npu_utilization
from opentelemetry.instrumentation.hardware.model import Metric

DUTY_CYCLE: Final = "tpu.runtime.tensorcore.dutycycle.percent"
MEMORY_USED: Final = "tpu.runtime.hbm.memory.usage.bytes"
MEMORY_TOTAL: Final = "tpu.runtime.hbm.memory.total.bytes"
MEMORY_BANDWIDTH: Final = "tpu.runtime.hbm.utilization.percent"
QUEUE_SIZE: Final = "hlo.queue.size.gauge"
IDLE_DURATION: Final = "tpu.runtime.tensorcore.idle_duration.seconds"
EXECUTION: Final = "hlo.execution.timing.distribution.microseconds"

# Distributions of latencies, by ``google.tpu.transfer.kind``.
TRANSFERS: Final[Mapping[str, str]] = {
    kind: f"megascale.{name}_latencies.microsecond.cumulative.distribution"
    for kind, name in {
        "dcn": "dcn_transfer",
        "dcn_inbound": "dcn_inbound_transfer",
        "host_to_device": "host_to_device_transfer",
        "device_to_host": "device_to_host_transfer",
        "collective": "collective_end_to_end",
        "compute": "mxla_compute",
    }.items()
}

# Gauges with one value per device, read with every sample.
GAUGES: Final[Mapping[str, Field]] = {
    DUTY_CYCLE: npu_utilization(),
    MEMORY_USED: Field(c.HW_NPU_MEMORY_USAGE),
    MEMORY_TOTAL: Field(c.HW_NPU_MEMORY_LIMIT),
    MEMORY_BANDWIDTH: npu_utilization("hbm"),
}

SLOW_GAUGES: Final[Mapping[str, Field]] = {IDLE_DURATION: Field(c.GOOGLE_TPU_IDLE_DURATION)}

ROUND_TRIP: Final = "megascale.grpc_tcp_min_rtt.microsecond.cumulative.distribution"
DELIVERY_RATE: Final = "megascale.grpc_tcp_delivery_rate.Mbps.cumulative.distribution"

SAMPLED: Final = (*GAUGES, QUEUE_SIZE)
SLOW: Final = (*SLOW_GAUGES, EXECUTION, *TRANSFERS.values())

# The metrics that are missing if the runtime does not support one of its own, for messages.
METRICS: Final[Mapping[str, str]] = {
    DUTY_CYCLE: "hw.npu.utilization (general)",
    MEMORY_USED: "hw.npu.memory.usage",
    MEMORY_TOTAL: "hw.npu.memory.limit",
    MEMORY_BANDWIDTH: "hw.npu.utilization (hbm)",
    QUEUE_SIZE: "google.tpu.hlo.queue.size",
    IDLE_DURATION: "google.tpu.idle.duration",
    EXECUTION: "google.tpu.hlo.execution.*",
    **{name: f"google.tpu.transfer.* ({kind})" for kind, name in TRANSFERS.items()},
    ROUND_TRIP: "google.tpu.tcp.round_trip.time",
    DELIVERY_RATE: "google.tpu.tcp.delivery.rate",
}

# Number and seconds of executions.
EXECUTIONS: Final = (Field(c.GOOGLE_TPU_HLO_EXECUTION_COUNT), Field(c.GOOGLE_TPU_HLO_EXECUTION_TIME))


def transfers(kind: str, buffer_size: str) -> tuple[Field, Field]:
    """Return the fields of the number and seconds of transfers. An unknown buffer size is ""."""
    attributes = {c.TPU_TRANSFER_KIND: kind} | ({c.TPU_BUFFER_SIZE: buffer_size} if buffer_size else {})
    return Field(c.GOOGLE_TPU_TRANSFER_COUNT, attributes), Field(c.GOOGLE_TPU_TRANSFER_TIME, attributes)


def queue_size(core_type: str) -> Field:
    """Return the field of the programs that wait for a core. An unknown type of core is ""."""
    return Field(c.GOOGLE_TPU_HLO_QUEUE_SIZE, {c.TPU_CORE_TYPE: core_type} if core_type else {})


# Metrics that are mean and quantiles of distributions, with the distributions.
STATISTICS: Final[Mapping[Metric, tuple[str, ...]]] = {
    c.GOOGLE_TPU_HLO_EXECUTION_LATENCY: (EXECUTION,),
    c.GOOGLE_TPU_TRANSFER_LATENCY: (*TRANSFERS.values(),),
    c.GOOGLE_TPU_TCP_ROUND_TRIP: (ROUND_TRIP,),
    c.GOOGLE_TPU_TCP_DELIVERY_RATE: (DELIVERY_RATE,),
}

_KINDS: Final = {name: kind for kind, name in TRANSFERS.items()}


def statistic(metric: Metric, distribution: str, label: str, which: str) -> Field:
    """Return the field of a mean or quantile. The label is the core type of executions, or the size of transfers."""
    attributes = {c.TPU_STATISTIC: which}
    if metric is c.GOOGLE_TPU_HLO_EXECUTION_LATENCY and label:
        attributes[c.TPU_CORE_TYPE] = label
    if metric is c.GOOGLE_TPU_TRANSFER_LATENCY:
        attributes |= {c.TPU_TRANSFER_KIND: _KINDS[distribution]} | ({c.TPU_BUFFER_SIZE: label} if label else {})
    return Field(metric, attributes, (125_000, 1) if metric is c.GOOGLE_TPU_TCP_DELIVERY_RATE else "us")


TENSORCORE: Final = npu_utilization("tensorcore")
THROTTLE: Final = Field(c.GOOGLE_TPU_THROTTLE_SCORE, most=10)


def link_health(link: str) -> Field:
    """Return the field of the health of a link."""
    return Field(c.GOOGLE_TPU_LINK_HEALTH, {c.TPU_LINK: link}, most=10)


# Values of the profiler.
MATRIX: Final = npu_utilization("matrix")
BUSY: Final = npu_utilization("general")


# The models of chips by PCI device id, with the subsystem id where two models have the same device id.
MODELS: Final[Mapping[str, str]] = {
    "0027/004e": "TPU v2",
    "0027/004f": "TPU v3",
    "005e": "TPU v4",
    "0063": "TPU v5e",
    "0062": "TPU v5p",
    "006f": "TPU v6e",
    "0076": "TPU7x",
}

# On these models, the two cores of a chip are separate devices and share a duty cycle.
SEPARATE_CORES: Final = ("TPU v2", "TPU v3")
