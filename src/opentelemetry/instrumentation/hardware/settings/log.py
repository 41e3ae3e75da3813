"""The loggers of this package."""

from __future__ import annotations

import logging
import threading


def logger(name: str) -> logging.Logger:
    """Return a logger whose messages raise nothing, unless in the main thread.

    A filter or a handler of the program may raise, such as one that needs the request of a thread: it would end ours,
    or a collection of the SDK. In the main thread, it may be a signal handler that raises.
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
