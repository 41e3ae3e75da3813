"""In a PID namespace with the host's ``/proc``: print what is read about this process, a child, and GPU processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.sources.reading import all_of, opened, value

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.pipeline.reporter import Reporter
from opentelemetry.instrumentation.hardware.settings import JOB
from opentelemetry.instrumentation.hardware.system.files import Files
from opentelemetry.instrumentation.hardware.system.job import start_time
from opentelemetry.instrumentation.hardware.system.linux import LinuxMachine
from opentelemetry.instrumentation.hardware.system.tree import ProcessTree

me, number = os.getpid(), int(os.readlink("/proc/self"))
found: dict[str, Any] = {"me": me, "number": number, "another": me != number and Path(f"/proc/{me}").exists()}


def without(source: str, pid: int) -> str:
    """Why a test cannot report on a process."""
    try:
        with opened(source, pid=pid) as each:
            return f"{len(all_of(each))} numbers"
    except Unavailable as gone:
        return gone.reason


with tempfile.NamedTemporaryFile() as evidence, opened("process") as source:
    owners = ProcessTree(Drivers().machine(), Files(), me, evidence.name)
    owners.refresh()
    found["ours"] = [sorted(owners.among(pids)) for pids in ([number], [me], [me, number], [number, 4_194_999])]
    found["computing"] = owners.computing()
    found["alone"] = value(all_of(source), c.PROCESS_TREE_COUNT)
    running = [sys.executable, "-c", "input('running\\n')"]
    with subprocess.Popen(running, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()  # from here on it has memory of its own
        several = all_of(source)
        found["tree"] = value(several, c.PROCESS_TREE_COUNT)
        found["threads"] = value(several, c.PROCESS_TREE_THREAD_COUNT)
        found["larger"] = value(several, c.PROCESS_TREE_MEMORY_USAGE) > value(several, c.PROCESS_MEMORY_USAGE)
        found["child"] = child.pid
        found["silent"] = [without(name, child.pid) for name in ("process", "container")]
        theirs = ProcessTree(LinuxMachine(Files()), Files(), child.pid, os.devnull)
        theirs.refresh()
        found["theirs"] = sorted(theirs.among([child.pid, number]))
    environ: dict[str, str] = {}
    Reporter(environ).join()
    found["key"] = environ[JOB]
    found["start_time"] = start_time(number)
print(json.dumps(found))
