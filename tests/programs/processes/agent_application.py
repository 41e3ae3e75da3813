"""A program whose hardware is reported by an agent.

Usage: agent_application.py SETTING=VALUE...; APPLICATION_RESOURCE is the resource of its MeterProvider as JSON.

Executes one command per line of its standard input, prints one line of JSON for each, and exits at its end:
state (the PIDs of its agents and of its children, our threads and the CPU time of the program), fork, setuid,
uninstrument, close (all descriptors).
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time

from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from tests.support import traces
from tests.support.relatives import agents, children

from opentelemetry.instrumentation.hardware import HardwareInstrumentor, agent

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
agent._PAUSES = (0.01, 0.02)
agent._SILENCE = 8
if "AGENT_NEVER_READY" in os.environ:
    agent._PROGRAM = "import time; time.sleep(60)"
given = os.environ.get("APPLICATION_RESOURCE")
resource = Resource.create(json.loads(given)) if given else Resource.get_empty()
set_meter_provider(MeterProvider([InMemoryMetricReader()], resource=resource))
begin = time.perf_counter()
HardwareInstrumentor().instrument(**dict(word.split("=") for word in sys.argv[1:]))
started = time.perf_counter() - begin


def report() -> None:
    own = HardwareInstrumentor()._telemetry.agent
    state = {
        "ready": own is not None and own.is_ready,
        "agents": agents(os.getpid()),
        "children": children(),
        "threads": traces.threads(),
        "cpu": sum(os.times()[:2]),
        "started": started,
    }
    print(json.dumps(state), flush=True)


for line in sys.stdin:
    command = line.strip()
    if command == "fork":
        pid = os.fork()
        if not pid:
            report()
            os._exit(0)
        os.waitpid(pid, 0)
    else:
        if command == "setuid":
            os.setuid(65534)
        if command == "uninstrument":
            HardwareInstrumentor().uninstrument()
        if command == "close":
            os.closerange(3, 1000)
        report()
