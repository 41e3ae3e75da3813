"""The setting of Graphcore's library."""

from __future__ import annotations

from opentelemetry.instrumentation.hardware.settings.parsing import path, setting

SETTINGS = {
    "gcipuinfo": setting(
        path("the folder with Graphcore's Python module gcipuinfo"),
        "auto",
        "Graphcore's module, imported by a child process. auto: from Python's search path.",
    ),
}
