"""MessageLimit: a limit for what a thread logs, such as the one that exports at the end of a program."""

from __future__ import annotations

import logging
import threading


class MessageLimit(logging.Filter):
    """Passes so many warnings and errors of a thread, each as one line, and drops the others."""

    def __init__(self, thread: threading.Thread, most: int) -> None:
        super().__init__()
        self._thread = thread
        self._left = most

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is logged."""
        if record.levelno < logging.WARNING or threading.current_thread() is not self._thread:
            return True
        if not self._left:
            return False
        self._left -= 1
        if record.exc_info:  # the HTTP exporter of SDK 1.39 raises errors of connections
            record.msg, record.args = " ".join(f"{record.getMessage()}: {record.exc_info[1]}".split()), ()
            record.exc_info = None
        return True
