"""Print as JSON what the NVIDIA source reports about the processes of a GPU, in the PID namespace that it runs in.

Usage: nvidia_container.py nobody|program|child FILE

The program, or a child in a PID namespace of its own, holds the file open. It first prints its PID and that of the
child, and waits for a line before it opens the driver. It reads for each further line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import SourceContext, discover

HOLDER, FILE = sys.argv[1:]


def child_of(pid: int) -> int:
    return int((Path(f"/proc/{pid}/task/{pid}/children").read_text().split() or ["0"])[0])


with ExitStack() as stack:
    pids = [os.getpid()]
    if HOLDER == "program":
        stack.enter_context(open(FILE))
    if HOLDER == "child":
        line = ["unshare", "--pid", "--fork", "--kill-child", "sh", "-c", f"exec 7<{FILE}; echo; read -r _"]
        outer = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        stack.callback(outer.kill)
        assert outer.stdout is not None
        outer.stdout.readline()
        pids.append(child_of(outer.pid))
    print(json.dumps(pids), flush=True)
    sys.stdin.readline()
    kind = discover()["nvidia"]()
    config = Config.read()
    kind.prepare(config)
    source = kind(SourceContext(config, Drivers(), os.getpid()))
    source.open()
    for _ in sys.stdin:
        points = [(series.metric.name, value) for series, value in source.read_all()]
        used = [point for point in points if point[0].startswith("process.gpu.")]
        print(json.dumps({"used": used, "missing": source.unsupported}), flush=True)
    source.close()
