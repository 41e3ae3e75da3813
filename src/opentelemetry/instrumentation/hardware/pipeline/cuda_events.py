"""CudaEvents: the time of a CUDA stream between two calls, by events of PyTorch.

CUDA runs in the background: when a call returns, its kernels may still wait in a stream. Events are recorded in the
stream, before and after the kernels, and have the time of the GPU. To read it, the caller waits for the second one.
PyTorch is used only if the program has imported it and has initialized CUDA with it.
https://docs.pytorch.org/docs/stable/generated/torch.cuda.Event.html
"""

from __future__ import annotations

import logging
import sys
from typing import Any, NamedTuple

_LOG = logging.getLogger(__name__)


class Begin(NamedTuple):
    """The event at the beginning, and the stream it was recorded in: the current one of its thread and device."""

    event: Any
    stream: Any


class CudaEvents:
    """Records events. Errors of CUDA are logged once: the program has them again in its own next call, if they stay."""

    def __init__(self) -> None:
        self._failed = False

    def begin(self) -> Begin | None:
        """Record an event in the current stream; None if the program does not use CUDA now, or captures a graph."""
        try:
            cuda = _cuda()
            if cuda is None:
                return None
            begin = Begin(cuda.Event(enable_timing=True), cuda.current_stream())
            begin.event.record(begin.stream)
        except Exception as error:
            self._fail(error)
            return None
        return begin

    def end(self, begin: Begin) -> float | None:
        """Wait until the stream has done its work so far. Return the seconds since the beginning; None if unknown."""
        try:
            cuda = _cuda()
            if cuda is None:
                return None
            event = cuda.Event(enable_timing=True, blocking=True)  # a thread that waits must not use its CPU
            event.record(begin.stream)
            event.synchronize()
            return float(begin.event.elapsed_time(event)) / 1e3
        except Exception as error:
            self._fail(error)
            return None

    def _fail(self, error: Exception) -> None:
        if not self._failed:
            self._failed = True
            text = "The GPU time of a span is unknown: %s: %s; further failures are not logged"
            _LOG.warning(text, type(error).__name__, error)


def _cuda() -> Any:
    """Return ``torch.cuda``; None if it is not initialized, as after a fork, or while a graph is captured.

    A call that waits makes the capture fail.
    """
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() and not cuda.is_current_stream_capturing() else None
