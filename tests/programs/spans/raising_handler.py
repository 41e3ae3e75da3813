"""A signal handler that raises in each of our functions that begin or end a span. Prints which keep it, as JSON."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from types import FrameType

from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

from opentelemetry.instrumentation.hardware import HardwareInstrumentor, spans

FOLDERS = tuple(spans.__path__)


class TimeLimitError(Exception):
    """What the handler raises."""


def handle(*_: object) -> None:
    raise TimeLimitError


def is_finalizing(frame: FrameType | None) -> bool:
    """Whether a finalizer runs, which ignores all exceptions."""
    while frame is not None and frame.f_code.co_name != "forget":
        frame = frame.f_back
    return frame is not None


def profile(frame: FrameType, event: str, _: object) -> None:
    """Interrupt a function at its first call."""
    name = f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}"
    is_ours = frame.f_code.co_filename.startswith(FOLDERS)
    if event == "call" and is_ours and name not in seen and not is_finalizing(frame):
        seen.append(name)
        sys.setprofile(None)
        signal.raise_signal(signal.SIGUSR1)


HardwareInstrumentor().instrument()
provider = TracerProvider()
provider.add_span_processor(SpanProcessor())
tracer = provider.get_tracer("program")
signal.signal(signal.SIGUSR1, handle)
seen: list[str] = []
kept = []
for _ in range(1000):
    before = len(seen)
    try:
        sys.setprofile(profile)
        tracer.start_span("short").end()
        kept += seen[before:]
    except TimeLimitError:
        pass
    finally:
        sys.setprofile(None)
    if len(seen) == before:
        break
print(json.dumps([seen, kept]))
