"""The settings of AMD's drivers."""

from __future__ import annotations

from opentelemetry.instrumentation.hardware.settings.parsing import choice, path, setting

SETTINGS = {
    "amdgpu": setting(
        choice("auto", "off"),
        "auto",
        "Whether AMD GPUs are read from the files of their driver. off: use AMD's tools instead.",
    ),
    "amd_smi": setting(path("amd-smi"), "auto", "The tool used if the files of AMD's driver cannot be read."),
    "rocm_smi": setting(path("rocm-smi"), "auto", "The tool used if amd-smi is not available either."),
}
