"""Retry with exponential backoff."""

from __future__ import annotations

from math import inf


class Backoff:
    """Exponential backoff: the delay before the next attempt doubles with each consecutive failure.

    The caller chooses the unit of time: monotonic seconds, or a number of readings.

    Args:
        first: Delay after the first failure.
        most: Longest delay.

    Attributes:
        failures: Consecutive failures since the last success.
        retry_at: Time of the next attempt.
        reason: Why the newest attempt failed; "" if unknown, and after a success.
    """

    def __init__(self, first: float = 1.0, most: float = 60.0) -> None:
        self.failures = 0
        self.retry_at = -inf
        self.reason = ""
        self._first = first
        self._most = most

    def fail(self, now: float, reason: str = "") -> None:
        """Count a failure and schedule the next attempt."""
        self.reason = reason
        self.retry_at = now + min(self._most, self._first * 2.0 ** min(self.failures, 30))
        self.failures += 1

    def succeed(self) -> None:
        """Reset the delay after a success."""
        self.failures = 0
        self.retry_at = -inf
        self.reason = ""

    def is_waiting(self, now: float) -> bool:
        """Whether the next attempt is not due yet."""
        return now < self.retry_at
