"""The gRPC services of a TPU without a TPU: real servers, with messages of Google's own protobuf definitions.

The metric service uses the modules of PyPI's `tpu-info`; the profiler's two messages are defined here, as in
TensorFlow's tensorflow/core/profiler/profiler_service.proto. Its page is text; `profiler.parse` is tested with a
recorded one. Only the metrics in `SERVED` are served, each as the kind that a TPU's runtime serves it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tpu_info.proto import tpu_metric_service_pb2

from opentelemetry.instrumentation.hardware.sources.tpu import fields, services
from opentelemetry.instrumentation.hardware.sources.tpu.fields import DELIVERY_RATE, ROUND_TRIP

pb: Any = tpu_metric_service_pb2

METRICS = "tpu.monitoring.runtime.RuntimeMetricService"
PROFILER = "tensorflow.ProfilerService"

Code = grpc.StatusCode

GIB = 1 << 30


class Served(NamedTuple):
    """A metric that the runtime of libtpu serves.

    Attributes:
        kind: The member of `tpu_metric_service.Metric` that has its value.
        tpu_info: What tpu-info 0.14.2 calls it, in `tpu_info.metrics.MetricName`; with its code for the labels.
            https://github.com/AI-Hypercomputer/cloud-accelerator-diagnostics/blob/main/tpu_info/tpu_info/metrics.py
        libtpu: What the SDK of libtpu 0.0.51 makes of it, in `tpumonitoring.list_supported_metrics()`.
    """

    kind: str
    tpu_info: str
    libtpu: str


SERVED: Final[Mapping[str, Served]] = {
    fields.DUTY_CYCLE: Served("gauge", "DUTY_CYCLE_PCT", "duty_cycle_pct"),
    fields.MEMORY_TOTAL: Served("gauge", "TOTAL_MEMORY", "hbm_capacity_total"),
    fields.MEMORY_USED: Served("gauge", "MEMORY_USAGE", "hbm_capacity_usage"),
    fields.MEMORY_BANDWIDTH: Served("gauge", "HBM_BW_UTIL", "runtime_hbm_utilization"),
    fields.IDLE_DURATION: Served("gauge", "TENSORCORE_IDLE_DURATION", "idle_duration"),
    fields.QUEUE_SIZE: Served("gauge", "HLO_QUEUE_SIZE", "hlo_queue_size"),
    fields.EXECUTION: Served("distribution", "HLO_EXECUTION_TIMING_DISTRIBUTION_MICROSECONDS", "hlo_execution_timing"),
    fields.TRANSFERS["dcn"]: Served("distribution", "BUFFER_TRANSFER_LATENCY_US", "buffer_transfer_latency"),
    fields.TRANSFERS["dcn_inbound"]: Served(
        "distribution", "INBOUND_BUFFER_TRANSFER_LATENCY_US", "inbound_buffer_transfer_latency"
    ),
    fields.TRANSFERS["host_to_device"]: Served(
        "distribution", "HOST_TO_DEVICE_TRANSFER_LATENCY_US", "host_to_device_transfer_latency"
    ),
    fields.TRANSFERS["device_to_host"]: Served(
        "distribution", "DEVICE_TO_HOST_TRANSFER_LATENCY_US", "device_to_host_transfer_latency"
    ),
    fields.TRANSFERS["collective"]: Served("distribution", "COLLECTIVE_E2E_LATENCY_US", "collective_e2e_latency"),
    fields.TRANSFERS["compute"]: Served("distribution", "HOST_COMPUTE_LATENCY_US", "host_compute_latency"),
    ROUND_TRIP: Served("distribution", "GRPC_TCP_MIN_RTT_US", "tcp_min_rtt"),
    DELIVERY_RATE: Served("distribution", "GRPC_TCP_DELIVERY_RATE_MBPS", "tcp_delivery_rate"),
}


@dataclass
class FakeTpu:
    """The metric service of a program that uses a TPU, and the profiler service of a TPU node.

    Attributes:
        metrics: The samples of each metric; bytes are sent as they are, a status is an error.
        page: The page of the profiler; bytes are sent as they are, a status is an error.
        requests: Name and skip_node_aggregation of each call for a metric; milliseconds and level of each for a page.
        answering: Calls wait while this is cleared.
        port: Of localhost; 0 for a Unix socket.
    """

    metrics: dict[str, Any] = field(default_factory=dict)
    page: Any = Code.UNIMPLEMENTED
    requests: list[tuple[Any, Any]] = field(default_factory=list)
    answering: threading.Event = field(default_factory=threading.Event)
    port: int = 0

    def __post_init__(self) -> None:
        self.answering.set()
        self.check()

    def check(self) -> None:
        """Fail on a metric that no runtime serves, and on a value of another kind than it serves."""
        for name, samples in self.metrics.items():
            assert name in SERVED, f"no TPU serves {name}"
            kinds = {sample.WhichOneof("measure") for sample in samples} if isinstance(samples, list) else set()
            assert kinds <= {SERVED[name].kind}, f"{name} is served as a {SERVED[name].kind}"

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"

    def _metric(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        request = pb.MetricRequest.FromString(data)
        self.requests.append((request.metric_name, request.skip_node_aggregation))
        answer = self._answer(self.metrics.get(request.metric_name, Code.NOT_FOUND), context)
        if isinstance(answer, bytes):
            return answer
        metric = pb.TPUMetric(name=request.metric_name, description="simulated", metrics=answer)
        encoded: bytes = pb.MetricResponse(metric=metric).SerializeToString()
        return encoded

    def _supported(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        names = [pb.SupportedMetric(metric_name=name) for name in self.metrics]
        answer: bytes = pb.ListSupportedMetricsResponse(supported_metric=names).SerializeToString()
        return answer

    def _monitor(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        request = MONITOR_REQUEST.FromString(data)
        self.requests.append((request.duration_ms, request.monitoring_level))
        answer = self._answer(self.page, context)
        return answer if isinstance(answer, bytes) else MONITOR_RESPONSE(data=answer).SerializeToString()

    def _answer(self, answer: Any, context: grpc.ServicerContext) -> Any:
        self.answering.wait(60)
        if isinstance(answer, Code):
            context.abort(answer, "refused by the test")
        return answer

    def handlers(self) -> Iterator[grpc.GenericRpcHandler]:
        methods: Mapping[str, Mapping[str, Callable[..., bytes]]] = {
            METRICS: {"GetRuntimeMetric": self._metric, "ListSupportedMetrics": self._supported},
            PROFILER: {"Monitor": self._monitor},
        }
        for service, functions in methods.items():
            made = {name: grpc.unary_unary_rpc_method_handler(function) for name, function in functions.items()}
            yield grpc.method_handlers_generic_handler(service, made)


PATIENCE = 30.0  # seconds for a call on a busy machine


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Allow calls to a runtime so many seconds: many for answers on a busy machine, few for servers that hang."""
    with patch.object(services, "TIMEOUT", seconds):
        yield


@contextmanager
def serving(tpu: FakeTpu, address: str = "127.0.0.1:0", local: bool = False) -> Iterator[FakeTpu]:
    """Serve; `local`: with the credentials that libtpu has, instead of none."""
    server = grpc.server(ThreadPoolExecutor(8), handlers=list(tpu.handlers()), options=(("grpc.so_reuseport", 0),))
    if local:
        tpu.port = server.add_secure_port(address, grpc.local_server_credentials())
    else:
        tpu.port = server.add_insecure_port(address)
    server.start()
    try:
        with deadline(PATIENCE):
            yield tpu
    finally:
        tpu.answering.set()
        server.stop(0).wait()
    tpu.check()  # also what was added after the start


def _described() -> tuple[Any, Any]:
    """The request and response of the profiler's Monitor."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="monitor.proto", package="monitor", syntax="proto3")
    for name, members in (
        ("MonitorRequest", (("duration_ms", kinds.TYPE_UINT64), ("monitoring_level", kinds.TYPE_INT32))),
        ("MonitorResponse", (("data", kinds.TYPE_STRING),)),
    ):
        message = file.message_type.add(name=name)
        for number, (field_name, kind) in enumerate(members, 1):
            message.field.add(name=field_name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = [
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"monitor.{message.name}"))
        for message in file.message_type
    ]
    return made[0], made[1]


MONITOR_REQUEST, MONITOR_RESPONSE = _described()


# -- numbers


def metric_of(device: int, gauge: Any) -> Any:
    """A gauge of a device."""
    return pb.Metric(attribute=pb.Attribute(key="device-id", value=pb.AttrValue(int_attr=device)), gauge=gauge)


def doubles(values: Mapping[int, float]) -> list[Any]:
    """Double gauges, by device."""
    return [metric_of(device, pb.Gauge(as_double=value)) for device, value in values.items()]


def integers(values: Mapping[int, int]) -> list[Any]:
    """Integer gauges, by device."""
    return [metric_of(device, pb.Gauge(as_int=value)) for device, value in values.items()]


def listed(**labels: str | int) -> Any:
    """An attribute that is a list of labels; buffer_size is spelled buffer-size."""
    attributes = [
        pb.Attribute(
            key="buffer-size" if key == "buffer_size" else key,
            value=pb.AttrValue(int_attr=value) if isinstance(value, int) else pb.AttrValue(string_attr=value),
        )
        for key, value in labels.items()
    ]
    return pb.Attribute(key="labels", value=pb.AttrValue(kvlist_attr=pb.KeyValueList(attributes=attributes)))


def queues(values: Mapping[int, int], old: bool = False) -> list[Any]:
    """Queue sizes by device: older runtimes send its number as an integer, newer ones as a string."""
    return [
        pb.Metric(
            attribute=listed(device_ordinal=device if old else str(device), core_type="tensorcore"),
            gauge=pb.Gauge(as_int=size),
        )
        for device, size in values.items()
    ]


def distribution(
    buckets: Sequence[int], mean: float, scale: float = 10.0, growth: float = 2.0, **labels: str | int
) -> Any:
    """A distribution of exponential buckets: below the scale, then each `growth` times as wide as the one before."""
    options = pb.Distribution.BucketOptions(
        exponential_buckets=pb.Distribution.BucketOptions.Exponential(
            num_finite_buckets=len(buckets) - 2, growth_factor=growth, scale=scale
        )
    )
    return pb.Metric(
        attribute=listed(**labels),
        distribution=pb.Distribution(count=sum(buckets), mean=mean, bucket_counts=buckets, bucket_options=options),
    )


def busy(first: int = 0) -> FakeTpu:
    """A runtime with two busy devices."""
    one, two = first, first + 1
    return FakeTpu(
        {
            fields.DUTY_CYCLE: doubles({one: 75.0, two: 0.0}),
            fields.MEMORY_TOTAL: integers({one: 16 * GIB, two: 16 * GIB}),
            fields.MEMORY_USED: integers({one: 4 * GIB, two: 0}),
            fields.MEMORY_BANDWIDTH: doubles({one: 12.5, two: 0.0}),
            fields.QUEUE_SIZE: queues({one: 3, two: 0}),
            fields.IDLE_DURATION: doubles({one: 0.0, two: 7.5}),
            fields.EXECUTION: [distribution([0, 600, 400, 0], 21.5, device_ordinal=str(one), core_type="tensorcore")],
            fields.TRANSFERS["dcn"]: [
                distribution([0, 10, 0], 15.0, buffer_size="8MB+"),
                distribution([0, 5, 5], 25.0, buffer_size="8MB+"),
            ],
        }
    )
