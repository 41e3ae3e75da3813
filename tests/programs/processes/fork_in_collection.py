"""A program without metrics of its own that forks while the SDK holds a lock of its collection, once for each lock.

Each child starts again, and collects. Prints the name of each lock with the status of the child, or "hung".

Usage: fork_in_collection.py [logfire]
"""

from __future__ import annotations

import os
import sys
from typing import Any

from opentelemetry.metrics import get_meter_provider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.programs.processes.fork_in_export import PATIENCE
from tests.support.journal import flatten
from tests.support.relatives import held, outcome
from tests.support.traces import until

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

METRIC = "process.memory.usage"

OLD = "_instrument_id_instrument_lock"  # the lock of registration in SDK 1.39


def names() -> set[str]:
    return {point.name for point in flatten(reader.get_metrics_data())}


def owners() -> dict[str, Any]:
    """The SDK's objects with a lock that one of its threads, or of ours, may hold at any time."""
    storage = provider._measurement_consumer._reader_storages[reader]
    match = next(
        match
        for instrument, matches in storage._instrument_view_instrument_matches.items()
        for match in matches
        if instrument.name == METRIC
    )
    meter = next(meter for scope, meter in provider._meters.items() if scope.name.endswith("hardware"))
    aggregation = next(iter(match._attributes_aggregation.values()))
    return {"storage": storage, "match": match, "aggregation": aggregation, "registration": meter}


def fork_while_locked(owner: Any) -> object:
    """Return the status of a child that is forked while the lock of one of the owners is held."""
    name = next(name for name in ("_lock", "_instrument_registration_lock", OLD) if hasattr(owner, name))
    with held(getattr(owner, name)):
        child = os.fork()
        if not child:
            HardwareInstrumentor().instrument(meter_provider=given)
            owners()["registration"].create_counter("other").add(1)
            until(lambda: METRIC in names(), METRIC)
            os._exit(3)
        return outcome(child, PATIENCE)


if __name__ == "__main__":
    reader = InMemoryMetricReader()
    if "logfire" in sys.argv:
        import logfire

        metrics = logfire.MetricsOptions(additional_readers=[reader])
        logfire.configure(send_to_logfire=False, console=False, metrics=metrics)
        given: Any = get_meter_provider()
        provider = given.provider
    else:
        provider = given = MeterProvider([reader], shutdown_on_exit=False)
    HardwareInstrumentor().instrument(meter_provider=given)
    until(lambda: METRIC in names(), METRIC)
    for lock, owner in owners().items():
        print(lock, fork_while_locked(owner))
