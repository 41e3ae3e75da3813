"""A program with spans and a simulated GPU, which it uses itself.

Usage: agent_spans.py FOLDER SETTING=VALUE...

Executes one command per line of its standard input and prints one line of JSON for each: a number of seconds (the
attributes of a span that took so long and ends now), agents, descriptors, fork (the attributes of a span that ends in
a forked child), uninstrument.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import warnings
from pathlib import Path
from unittest.mock import Mock

from tests.support.relatives import agents
from tests.support.traces import spans_in_memory
from tests.tools.load import Constant, loaded
from tests.tools.nvml import MIB, FakeNvml, h100, listed

from opentelemetry import trace
from opentelemetry.instrumentation.hardware import HardwareInstrumentor, agent, sources
from opentelemetry.instrumentation.hardware.system import syscalls

warnings.simplefilter("ignore", DeprecationWarning)  # it forks beside threads
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
if "WITHOUT_MEMFD" in os.environ:
    syscalls.memfd_create = Mock(side_effect=OSError("Function not implemented"))
agent._PAUSES = (6.0, 6.0)  # longer than values are extrapolated
sources.SLOW = 0.1
gpu = {**loaded(h100(0), Constant(always=0.25)), "ComputeRunningProcesses": listed((os.getpid(), 700 * MIB))}
os.environ.update(FakeNvml(Path(sys.argv[1]), gpu).environment)
provider, exporter = spans_in_memory()
before = len(os.listdir("/proc/self/fd"))
HardwareInstrumentor().instrument(**dict(word.split("=") for word in sys.argv[2:]))
trace.set_tracer_provider(provider)
tracer = provider.get_tracer("program")


def attributes(seconds: float) -> dict[str, object]:
    """Return those of a span that ends now."""
    now = time.time_ns()
    tracer.start_span("span", start_time=now - int(1e9 * seconds)).end(now)
    return dict(exporter.get_finished_spans()[-1].attributes or {})


for line in sys.stdin:
    command = line.strip()
    answer: object = None
    if command == "fork":
        open_span = tracer.start_span("open", start_time=time.time_ns() - 10**9)
        pid = os.fork()
        open_span.end()
        if not pid:
            print(json.dumps(attributes(1.0)), flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
        continue
    if command == "uninstrument":
        HardwareInstrumentor().uninstrument()
    elif command == "agents":
        own = HardwareInstrumentor()._telemetry.agent
        answer = agents(os.getpid()) if own is not None and own.is_ready else []
    elif command == "descriptors":
        answer = len(os.listdir("/proc/self/fd")) - before
    else:
        answer = attributes(float(command))
    print(json.dumps(answer), flush=True)
