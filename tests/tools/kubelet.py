"""The kubelet's PodResources without a kubelet: a real gRPC server at a Unix socket.

The messages are those of k8s.io/kubelet/pkg/apis/podresources/v1/api.proto, with fields that the package does not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from opentelemetry.instrumentation.hardware.drivers.protobuf import classes

_MESSAGES = classes(
    "test.podresources",
    {
        "ListPodResourcesResponse": ((1, "pod_resources", "repeated PodResources"),),
        "PodResources": (
            (1, "name", "string"),
            (2, "namespace", "string"),
            (3, "containers", "repeated ContainerResources"),
        ),
        "ContainerResources": (
            (1, "name", "string"),
            (2, "devices", "repeated ContainerDevices"),
            (3, "cpu_ids", "repeated int64"),
        ),
        "ContainerDevices": (
            (1, "resource_name", "string"),
            (2, "device_ids", "repeated string"),
            (3, "topology", "TopologyInfo"),
        ),
        "TopologyInfo": ((1, "nodes", "repeated NUMANode"),),
        "NUMANode": ((1, "ID", "int64"),),
    },
)


class Given(NamedTuple):
    """Devices of a container."""

    namespace: str
    pod: str
    container: str
    resource: str
    devices: Sequence[str]


def _answer(given: Sequence[Given]) -> bytes:
    answer = _MESSAGES["ListPodResourcesResponse"]()
    for each in given:
        container = answer.pod_resources.add(name=each.pod, namespace=each.namespace).containers.add(
            name=each.container
        )
        container.cpu_ids.extend([0, 1])
        devices = container.devices.add(resource_name=each.resource, device_ids=each.devices)
        devices.topology.nodes.add(ID=0)
    data: bytes = answer.SerializeToString()
    return data


class Kubelet:
    """What a kubelet answers: bytes are sent as they are, a status is an error."""

    def __init__(self, *given: Given) -> None:
        self.answer: Any = _answer(given)

    def give(self, *given: Given) -> None:
        self.answer = _answer(given)

    def list(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        if isinstance(self.answer, grpc.StatusCode):
            context.abort(self.answer, "refused by the test")
        answer: bytes = self.answer
        return answer


@contextmanager
def serving(kubelet: Kubelet, socket: Path) -> Iterator[Kubelet]:
    """Serve at a socket."""
    handler = grpc.method_handlers_generic_handler(
        "v1.PodResourcesLister", {"List": grpc.unary_unary_rpc_method_handler(kubelet.list)}
    )
    server = grpc.server(ThreadPoolExecutor(2), handlers=[handler])
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    try:
        yield kubelet
    finally:
        server.stop(0).wait()
