"""Retry with exponential backoff."""

from __future__ import annotations

from math import inf


class Backoff:
    """When something that failed is tried again: after a delay that doubles with each failure in a row.

    Time is what the caller counts in: monotonic seconds, or readings.

    Args:
        first: delay after the first failure.
        most: longest delay.

    Attributes:
        failures: failures since the last success.
        retry_at: when the next try is due.
    """

    def __init__(self, first: float = 1.0, most: float = 60.0) -> None:
        self.failures = 0
        self.retry_at = -inf
        self._first = first
        self._most = most

    def fail(self, now: float) -> None:
        """Count a failure and set the next try."""
        self.retry_at = now + min(self._most, self._first * 2.0 ** min(self.failures, 30))
        self.failures += 1

    def succeed(self) -> None:
        """Forget the failures."""
        self.failures = 0
        self.retry_at = -inf

    def is_waiting(self, now: float) -> bool:
        """Whether the next try is not due yet."""
        return now < self.retry_at
