"""A program that prints the resource of its metrics, before and after a fork, as lines of JSON with its PID."""

import json
import os

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

reader = InMemoryMetricReader()
provider = MeterProvider([reader])
provider.get_meter("application").create_counter("steps").add(1)


def show() -> None:
    """Print the resource of a collection."""
    data = reader.get_metrics_data()
    assert data
    attributes = data.resource_metrics[0].resource.attributes
    print(json.dumps({**attributes, "pid": os.getpid()}), flush=True)


show()
child = os.fork()
if child == 0:
    provider.get_meter("application").create_counter("steps").add(1)
    show()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
