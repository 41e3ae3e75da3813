"""Metrics of other accelerators: Graphcore IPUs, Google TPUs, AWS Trainium and Inferentia, Gaudi,
Tenstorrent, NPUs of laptops.
"""

from __future__ import annotations

from opentelemetry.instrumentation.hardware.catalog import attributes as a
from opentelemetry.instrumentation.hardware.model import Scope, Window, counter, gauge, updown

# A table: the lines of a row are its name, help text, source and options.
# fmt: off

HW_NPU_UTILIZATION = gauge(
    "hw.npu.utilization", "1", (*a.HW_DEVICE, a.NPU_TASK),
    "Share of time during which an accelerator was busy (general). For its units, share of the peak rate.",
    source="TPU runtime: tensorcore.dutycycle.percent (general), hbm.utilization.percent (hbm: memory bandwidth); "
    "libtpu's SDK: tensorcore_util (tensorcore); TPU profiler: idle time (general), matrix units (matrix); "
    "gcipuinfo: ipu utilisation; neuron-monitor: neuroncores_in_use, neuroncore_utilization; ivpu: npu_busy_time_us; "
    "amdxdna: sum of the processes; hl-smi: utilization.aip",
    window=Window.MEAN, standard=False,
)
HW_NPU_MEMORY_USAGE = updown(
    "hw.npu.memory.usage", "By", a.HW_DEVICE,
    "Memory in use on an accelerator or on one of its cores.",
    source="TPU runtime: hbm.memory.usage.bytes; Neuron: "
    "/sys/devices/virtual/neuron_device/*/neuron_core*/stats/memory_usage/device_mem/total, else "
    "neuron-monitor; ivpu: npu_memory_utilization (memory of the host); hl-smi: memory.used",
    standard=False,
)
HW_NPU_MEMORY_LIMIT = updown(
    "hw.npu.memory.limit", "By", a.HW_DEVICE,
    "Total memory of an accelerator or of one of its cores.",
    source="TPU runtime: hbm.memory.total.bytes; neuron-monitor: neuron_device_memory_size; hl-smi: memory.total",
    standard=False,
)
HW_NPU_MEMORY_UTILIZATION = gauge(
    "hw.npu.memory.utilization", "1", a.HW_DEVICE,
    "Share of the accelerator's memory in use.",
    source="hw.npu.memory.usage over hw.npu.memory.limit",
    window=Window.MEAN, standard=False,
)
HW_NPU_INFO = gauge(
    "hw.npu.info", "{info}", a.HW_INFO,
    "Constant 1. The attributes describe the accelerator; join them to other metrics by host and hw.id.",
    source="PCI bus and TPU runtime; gcipuinfo; /sys/devices/virtual/neuron_device, else neuron-monitor; "
    "/sys/class/accel; /sys/class/tenstorrent; hl-smi",
    standard=False,
)
GOOGLE_TPU_IDLE_DURATION = gauge(
    "google.tpu.idle.duration", "s", a.HW_DEVICE,
    "Time since a program last ran on a TPU device.",
    source="TPU runtime: tensorcore.idle_duration.seconds",
    standard=False,
)
GOOGLE_TPU_HLO_QUEUE_SIZE = gauge(
    "google.tpu.hlo.queue.size", "{program}", (*a.HW_DEVICE, a.TPU_CORE_TYPE),
    "Compiled programs queued for a TPU device.",
    source="TPU runtime: hlo.queue.size.gauge",
    window=Window.MEAN, standard=False,
)
GOOGLE_TPU_HLO_EXECUTION_COUNT = counter(
    "google.tpu.hlo.execution.count", "{operation}", a.HW_DEVICE,
    "Compiled programs executed by a TPU device.",
    source="TPU runtime: hlo.execution.timing.distribution.microseconds",
    standard=False,
)
GOOGLE_TPU_HLO_EXECUTION_TIME = counter(
    "google.tpu.hlo.execution.time", "s", a.HW_DEVICE,
    "Sum of the times from enqueueing to dequeueing of compiled programs on a TPU device; they include waiting.",
    source="TPU runtime: hlo.execution.timing.distribution.microseconds",
    standard=False,
)
GOOGLE_TPU_TRANSFER_COUNT = counter(
    "google.tpu.transfer.count", "{operation}", (a.TPU_TRANSFER_KIND, a.TPU_BUFFER_SIZE),
    "Transfers between TPU slices, hosts and devices, by kind and buffer size.",
    source="TPU runtime: megascale.*_latencies.microsecond.cumulative.distribution",
    standard=False,
)
GOOGLE_TPU_TRANSFER_TIME = counter(
    "google.tpu.transfer.time", "s", (a.TPU_TRANSFER_KIND, a.TPU_BUFFER_SIZE),
    "Sum of the latencies of transfers between TPU slices, hosts and devices.",
    source="TPU runtime: megascale.*_latencies.microsecond.cumulative.distribution",
    standard=False,
)
GOOGLE_TPU_HLO_EXECUTION_LATENCY = gauge(
    "google.tpu.hlo.execution.latency", "s", (*a.HW_DEVICE, a.TPU_CORE_TYPE, a.TPU_STATISTIC),
    "Mean and quantiles of the times from enqueueing to dequeueing of compiled programs, over the life of the runtime.",
    source="TPU runtime: hlo.execution.timing.distribution.microseconds; quantiles from its buckets",
    opt_in="request", standard=False,
)
GOOGLE_TPU_TRANSFER_LATENCY = gauge(
    "google.tpu.transfer.latency", "s", (a.TPU_TRANSFER_KIND, a.TPU_BUFFER_SIZE, a.TPU_STATISTIC),
    "Mean and quantiles of the latencies of transfers between TPU slices, hosts and devices, over the life of the "
    "runtime.",
    source="TPU runtime: megascale.*_latencies.microsecond.cumulative.distribution; quantiles from its buckets",
    opt_in="request", standard=False,
)
GOOGLE_TPU_TCP_ROUND_TRIP = gauge(
    "google.tpu.tcp.round_trip.time", "s", (a.TPU_STATISTIC,),
    "Mean and quantiles of the shortest round trips of the connections between TPU slices.",
    source="TPU runtime: megascale.grpc_tcp_min_rtt.microsecond.cumulative.distribution; quantiles from its buckets",
    opt_in="request", standard=False,
)
GOOGLE_TPU_TCP_DELIVERY_RATE = gauge(
    "google.tpu.tcp.delivery.rate", "By/s", (a.TPU_STATISTIC,),
    "Mean and quantiles of the throughput of the connections between TPU slices.",
    source="TPU runtime: megascale.grpc_tcp_delivery_rate.Mbps.cumulative.distribution; quantiles from its buckets",
    opt_in="request", standard=False,
)
GOOGLE_TPU_LINK_HEALTH = gauge(
    "google.tpu.link.health", "{state}", (a.TPU_LINK,),
    "State of a link between TPU chips: 0 healthy, 1-5 transient problem, 6-9 persistent problem, 10 unusable.",
    source="libtpu's SDK (LIBTPU=on): ici_link_health",
    standard=False,
)
GOOGLE_TPU_THROTTLE_SCORE = gauge(
    "google.tpu.throttle.score", "{score}", a.HW_DEVICE,
    "Throttling of a TPU device: 0 none, 1 to 10 in steps of 10 %.",
    source="libtpu's SDK (LIBTPU=on): tpu_throttle_score",
    standard=False,
)
HW_NPU_IO = counter(
    "hw.npu.io", "By", (*a.HW_DEVICE, a.NETWORK_DIRECTION),
    "Bytes sent and received by an accelerator over PCIe, since instrumentation started.",
    source="tt-kmd: pcie_perf_counters, continued over their wraps",
    standard=False,
)
HW_NPU_FREQUENCY = gauge(
    "hw.npu.frequency", "Hz", a.HW_DEVICE,
    "Operating frequency of an accelerator.",
    source="gcipuinfo: clock; ivpu: npu_current_frequency_mhz; tt-kmd: tt_aiclk; hl-smi: clocks.current.soc",
    window=Window.MEAN, standard=False,
)
HW_NPU_LINK_SPEED = gauge(
    "hw.npu.link.speed", "{transfer}/s", a.HW_DEVICE,
    "Transfer rate of each lane of the link to an accelerator.",
    source="gcipuinfo: link speed",
    standard=False,
)
AWS_NEURON_RUNTIME_MEMORY_USAGE = updown(
    "aws.neuron.runtime.memory.usage", "By", (a.NEURON_MEMORY_TYPE, a.NEURON_TAG),
    "Memory used by a Neuron runtime on the host and on the devices.",
    source="neuron-monitor: memory_used, neuron_runtime_used_bytes",
    scope=Scope.PROCESS, standard=False,
)
AWS_NEURON_RUNTIME_HOST_MEMORY_USAGE = updown(
    "aws.neuron.runtime.host_memory.usage", "By", (a.NEURON_MEMORY_CATEGORY, a.NEURON_TAG),
    "Host memory used by a Neuron runtime, by category.",
    source="neuron-monitor: memory_used, usage_breakdown, host",
    scope=Scope.PROCESS, standard=False,
)
AWS_NEURON_RUNTIME_CPU_UTILIZATION = gauge(
    "aws.neuron.runtime.cpu.utilization", "1", (a.CPU_MODE, a.NEURON_TAG),
    "Share of the instance's CPU time used by the process of a Neuron runtime.",
    source="neuron-monitor: neuron_runtime_vcpu_usage",
    window=Window.MEAN, scope=Scope.PROCESS, standard=False,
)
AWS_NEURON_NEURONCORE_MEMORY_USAGE = updown(
    "aws.neuron.neuroncore.memory.usage", "By", (*a.HW_DEVICE, a.NEURON_MEMORY_CATEGORY),
    "Device memory in use for a NeuronCore, by category.",
    source="neuron-monitor: memory_used, usage_breakdown, neuroncore_memory_usage; without neuron-monitor "
    "/sys/devices/virtual/neuron_device/*/neuron_core*/stats/memory_usage/device_mem/*/total",
    standard=False,
)
AWS_NEURON_EXECUTION_COUNT = counter(
    "aws.neuron.execution.count", "{execution}", (a.NEURON_RESULT, a.NEURON_TAG),
    "Model executions by result, since instrumentation started.",
    source="neuron-monitor: execution_stats, execution_summary, summed over its reporting periods",
    scope=Scope.PROCESS, standard=False,
)
AWS_NEURON_EXECUTION_ERRORS = counter(
    "aws.neuron.execution.errors", "{error}", (a.ERROR_TYPE, a.NEURON_TAG),
    "Execution errors by type. A lower bound: errors between two reports may be missed.",
    source="neuron-monitor: execution_stats, error_summary; increases are summed, because recorded values are "
    "running totals although they are documented as values of one period",
    scope=Scope.PROCESS, standard=False,
)
AWS_NEURON_EXECUTION_LATENCY = gauge(
    "aws.neuron.execution.latency", "s", (a.NEURON_LATENCY, a.NEURON_QUANTILE, a.NEURON_TAG),
    "Quantiles of the execution latency, in total and on the device only.",
    source="neuron-monitor: execution_stats, latency_stats of the latest period",
    scope=Scope.PROCESS, opt_in_extras="quantiles p0, p1, p25, p75", standard=False,
)
