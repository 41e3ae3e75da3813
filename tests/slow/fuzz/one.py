"""Fuzz one target within the limits given: ``python -m tests.slow.fuzz.one TARGET [libFuzzer's arguments]``."""

from __future__ import annotations

import sys

import atheris

INSTRUMENTED = ("opentelemetry.instrumentation.hardware", "prometheus_client", "plistlib")

if __name__ == "__main__":
    with atheris.instrument_imports(include=[*INSTRUMENTED]):
        from tests.slow.fuzz.targets import TARGETS, quiet

        from opentelemetry.instrumentation.hardware.drivers import http
        from opentelemetry.instrumentation.hardware.sources.openmetrics import page
    quiet()
    http._PAUSE = page._PAUSE = 0.0  # type: ignore[misc]
    _, target, *options = sys.argv
    atheris.Setup([target, *options], TARGETS[target].run)
    atheris.Fuzz()
