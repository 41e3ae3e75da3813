"""Backoff: when something that failed is tried again."""

from __future__ import annotations

import pytest

from opentelemetry.instrumentation.hardware.drivers.backoff import Backoff


def test_delay_doubles_with_each_failure_up_to_the_longest() -> None:
    backoff, now = Backoff(first=1.0, most=10.0), 100.0
    delays = []
    for _ in range(6):
        assert not backoff.is_waiting(now)
        backoff.fail(now)
        delays.append(backoff.retry_at - now)
        assert backoff.is_waiting(backoff.retry_at - 0.01)
        now = backoff.retry_at
    assert delays == [1, 2, 4, 8, 10, 10]


def test_success_ends_the_delay() -> None:
    backoff = Backoff()
    for _ in range(3):
        backoff.fail(0.0)
    backoff.succeed()
    assert (backoff.failures, backoff.is_waiting(0.0)) == (0, False)
    backoff.fail(0.0)
    assert backoff.retry_at == 1.0


@pytest.mark.parametrize("failures", [100, 5000])
def test_many_failures_do_not_overflow(failures: int) -> None:
    backoff = Backoff()
    for _ in range(failures):
        backoff.fail(0.0)
    assert backoff.retry_at == 60.0
