"""A program whose hardware is reported by an agent.

Usage: agent_application.py SETTING=VALUE...; APPLICATION_RESOURCE is the resource of its MeterProvider as JSON.

Executes one command per line of its standard input, prints one line of JSON for each, and exits at its end:
state (the PID of the agent, our threads and the CPU time of the program), fork, uninstrument, close (all descriptors).
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import Resource
from tests.programs import traces

from opentelemetry.instrumentation.hardware import HardwareInstrumentor, agent

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
agent._PAUSES = (0.01, 0.02)
if "APPLICATION_RESOURCE" in os.environ:
    set_meter_provider(MeterProvider(resource=Resource.create(json.loads(os.environ["APPLICATION_RESOURCE"]))))
begin = time.perf_counter()
HardwareInstrumentor().instrument(**dict(word.split("=") for word in sys.argv[1:]))
started = time.perf_counter() - begin


def children() -> list[int]:
    """Return the children of this process."""
    found: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            found += map(int, (task / "children").read_text().split())
    return found


def report() -> None:
    state = {"children": children(), "threads": traces.threads(), "cpu": sum(os.times()[:2]), "started": started}
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
        if command == "uninstrument":
            HardwareInstrumentor().uninstrument()
        if command == "close":
            os.closerange(3, 1000)
        report()
