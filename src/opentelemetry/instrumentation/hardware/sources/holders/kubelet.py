"""The kubelet's PodResources: which container of which pod was given which devices.

https://github.com/kubernetes/kubelet/blob/master/pkg/apis/podresources/v1/api.proto
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from opentelemetry.instrumentation.hardware.drivers.protobuf import classes, parsed, text
from opentelemetry.instrumentation.hardware.drivers.rpc import Channels

_METHOD: Final = "/v1.PodResourcesLister/List"
_TIMEOUT: Final = 2.0  # seconds. The kubelet answers within milliseconds.

_ANSWER: Final = "ListPodResourcesResponse"

# The fields in use.
_CLASSES: Final[dict[str, Any]] = classes(
    "podresources",
    {
        _ANSWER: ((1, "pod_resources", "repeated PodResources"),),
        "PodResources": (
            (1, "name", "string"),
            (2, "namespace", "string"),
            (3, "containers", "repeated ContainerResources"),
        ),
        "ContainerResources": ((1, "name", "string"), (2, "devices", "repeated ContainerDevices")),
        "ContainerDevices": ((1, "resource_name", "string"), (2, "device_ids", "repeated string")),
    },
)


class Kubelet:
    """A client of the kubelet.

    Raises:
        Unavailable: grpcio is not installed.
    """

    def __init__(self, socket: str) -> None:
        self._address = f"unix:{socket}"
        self._channels = Channels()

    def devices(self) -> list[list[str]]:
        """Return namespace, pod, container, resource and device of each device that a container was given.

        Raises:
            DriverError: The call failed or the answer is invalid. The code is a gRPC status.
        """
        decode = partial(parsed, _CLASSES, _ANSWER)
        answer = self._channels.call(self._address, _METHOD, b"", _TIMEOUT, decode)
        return [
            [text(word) for word in (pod.namespace, pod.name, container.name, given.resource_name, device)]
            for pod in answer.pod_resources
            for container in pod.containers
            for given in container.devices
            for device in given.device_ids
        ]

    def close(self) -> None:
        """End the child that calls. Safe in a forked child."""
        self._channels.close()
