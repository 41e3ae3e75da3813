"""The setting of Gaudi's tool."""

from __future__ import annotations

from opentelemetry.instrumentation.hardware.settings.parsing import path, setting

SETTINGS = {
    "hl_smi": setting(path("hl-smi"), "auto", "The tool that reads Intel Gaudi accelerators."),
}
