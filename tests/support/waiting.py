"""Wait for a condition with a deadline, instead of sleeping for a fixed time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def wait_for(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Wait until the condition holds. Otherwise fail with a message that names what did not happen."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"within {seconds:g} s there was no {what}")
        threading.Event().wait(0.01)
