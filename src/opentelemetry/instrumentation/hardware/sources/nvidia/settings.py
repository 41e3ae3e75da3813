"""The settings of NVIDIA's drivers."""

from __future__ import annotations

from opentelemetry.instrumentation.hardware.settings.parsing import path, setting

SETTINGS = {
    "nvml": setting(path("libnvidia-ml.so.1"), "auto", "NVIDIA's management library. off: use nvidia-smi instead."),
    "nvidia_smi": setting(path("nvidia-smi"), "auto", "The tool used if NVIDIA's library is not available."),
}
