"""The settings of the tools that read Apple chips."""

from __future__ import annotations

from opentelemetry.instrumentation.hardware.settings.parsing import path, setting

SETTINGS = {
    "apple_gpu_stats": setting(
        path("apple_gpu_stats"),
        "auto",
        "A tool from older W&B wheels, the first choice for Apple chips. auto: on a Mac, from PATH.",
    ),
    "macmon": setting(
        path("macmon"),
        "auto",
        "The second choice for Apple chips; it runs as long as the program. auto: on a Mac, from PATH or Homebrew's "
        "folders.",
    ),
    "ioreg": setting(path("ioreg"), "auto", "The last choice for Apple chips. auto: on a Mac, which includes it."),
}
