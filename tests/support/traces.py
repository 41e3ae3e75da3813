"""List our threads and open files in a process, keep its spans, and wait for conditions."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


def threads() -> list[str]:
    """Return the names of our running threads."""
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("otel-hardware"))


def descriptors() -> list[str]:
    """Return the kernel's files that this process has open. No other code keeps such files open."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the folder that was just listed
        if path.startswith(("/proc/", "/sys/")) and not path.endswith("/fd"):
            found.append(path)
    return sorted(found)


def spans_in_memory() -> tuple[TracerProvider, InMemorySpanExporter]:
    """Return a provider, and what keeps its spans."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition. If it does not hold in time, the program exits with a message."""
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"process {os.getpid()}: no {what}")
        threading.Event().wait(0.01)
