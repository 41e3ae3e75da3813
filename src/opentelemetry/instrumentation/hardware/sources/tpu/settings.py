"""The settings of the services of TPUs."""

from __future__ import annotations

from opentelemetry.instrumentation.hardware.settings.parsing import address, choice, place, setting, words

SETTINGS = {
    "tpu_runtime": setting(
        words("host:port addresses, ports and Unix socket paths", address, alone=("auto", "off")),
        "auto",
        "Metric services of the programs that use a TPU. auto: localhost, at the ports in TPU_RUNTIME_METRICS_PORTS "
        "or at 8431.",
    ),
    "tpu_profiler": setting(
        place("a host:port address, port or Unix socket path", address),
        "auto",
        "Profiler of a TPU node. auto: the address in TPU_NAME, unless this host has TPUs.",
    ),
    "libtpu": setting(
        choice("on", "off"),
        "off",
        "Whether a child process reads link health, throttling and TensorCore utilization from libtpu's SDK. Requires "
        "libtpu in this Python environment and a TPU in this host.",
    ),
}
