"""In a new group of version 2, as in a container of a machine without version 1: print what is read of its CPU time.

The mounts of version 1 are hidden in a mount namespace. The group needs no controller: the kernel counts CPU time
without one.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from tests.sources.reading import all_of, opened
from tests.support import namespace

from opentelemetry.instrumentation.hardware.catalog import CONTAINER_PRESSURE_TIME

DETACH = 2
TOP = "/sys/fs/cgroup"
top = Path(TOP, "unified") if Path(TOP, "unified/cgroup.procs").exists() else Path(TOP)
group = f"docker-otel-hardware-{os.getpid()}"
try:
    (top / group).mkdir()
except OSError as error:
    print(f"{top}: {error.strerror}")
    sys.exit(77)
moved = os.open(top / "cgroup.procs", os.O_WRONLY)
folder = os.open(top, os.O_RDONLY)
try:
    (top / group / "cgroup.procs").write_text(str(os.getpid()))
    namespace.enter()
    namespace.check(namespace.libc.umount2(TOP.encode(), DETACH), "version 1")
    namespace.check(namespace.libc.mount(b"none", TOP.encode(), b"cgroup2", 0, None), "version 2")

    def usage() -> float:
        stat = dict(line.split() for line in Path(TOP, group, "cpu.stat").read_text().splitlines())
        return int(stat["usage_usec"]) / 1e6

    def stalled() -> list[list[object]]:
        """Resource, kind and seconds of each line of the group's pressure files; none if the kernel has no PSI."""
        files = [each for each in Path(TOP, group).glob("*.pressure") if each.stem in ("cpu", "memory", "io")]
        lines = [(each.stem, line) for each in sorted(files) for line in each.read_text().splitlines()]
        return [[name, line.split()[0], int(line.rpartition("=")[2]) / 1e6] for name, line in lines]

    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    with opened("container") as container:
        all_of(container)
        least, before, found, after, most = stalled(), usage(), all_of(container), usage(), stalled()
    values = {series.metric.name: value for series, value in found.items() if not series.attributes}
    ours = [
        [series.attributes["system.pressure.resource"], series.attributes["system.pressure.kind"], value]
        for series, value in found.items()
        if series.metric is CONTAINER_PRESSURE_TIME
    ]
    print(json.dumps({"before": before, "values": values, "after": after, "pressure": [least, sorted(ours), most]}))
finally:
    os.write(moved, str(os.getpid()).encode())
    os.rmdir(group, dir_fd=folder)
