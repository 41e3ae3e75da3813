"""A Dagster job of three steps, each in a process of its own."""

import time

from dagster import job, op

from opentelemetry import trace


@op  # type: ignore[untyped-decorator]
def load() -> int:
    with trace.get_tracer(__name__).start_as_current_span("load"):
        time.sleep(1.2)
    return 2


@op  # type: ignore[untyped-decorator]
def train(count: int) -> int:
    with trace.get_tracer(__name__).start_as_current_span("train"):
        time.sleep(1.2)
    return 2 * count


@op  # type: ignore[untyped-decorator]
def test(count: int) -> None:
    with trace.get_tracer(__name__).start_as_current_span("test"):
        time.sleep(1.2)


@job  # type: ignore[untyped-decorator]
def work() -> None:
    test(train(load()))
