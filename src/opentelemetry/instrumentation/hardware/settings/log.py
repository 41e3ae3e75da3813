"""The loggers of this package."""

from __future__ import annotations

import logging
import threading


def logger(name: str) -> logging.Logger:
    """Return a logger that drops errors of the program's filters and handlers, except in the main thread.

    A filter that needs the request of a thread raises in ours. The error would end our thread, or a collection of the
    SDK. In the main thread, the error may be that of a signal handler.
    """
    found = logging.getLogger(name)

    def guarded(record: logging.LogRecord) -> None:
        try:
            type(found).handle(found, record)  # other packages replace it, also later
        except Exception:
            if threading.current_thread() is threading.main_thread():
                raise

    found.handle = guarded  # type: ignore[method-assign]
    return found
