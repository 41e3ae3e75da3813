"""A program whose TracerProvider is noticed by several threads at once, while the module for spans is not imported yet.

Usage: late_provider.py threads|close. Prints the number of our processors that were added, and of our threads. With
``close``, the session is closed while the module is imported.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from opentelemetry.sdk.trace import TracerProvider

from opentelemetry import trace
from opentelemetry.instrumentation.hardware import Config
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.tracer_provider import GlobalTracerProvider

spans = GlobalTracerProvider()


class Closing:
    """Closes the session when the module for spans is searched."""

    def find_spec(self, name: str, *_: Any) -> None:
        if name == "opentelemetry.instrumentation.hardware.spans":
            spans.close()


set_tracer_provider = trace.set_tracer_provider
spans.open(Session(Config.read({"sources": ["process"]}), spans=True))
provider = TracerProvider()
set_tracer_provider(provider)
if sys.argv[1] == "close":
    sys.meta_path.insert(0, Closing())
barrier = threading.Barrier(8)


def check() -> None:
    barrier.wait()
    spans.check()


threads = [threading.Thread(target=check) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
ours = [thread.name for thread in threading.enumerate() if thread.name.startswith("otel-hardware")]
print(len(provider._active_span_processor._span_processors), len(ours))
