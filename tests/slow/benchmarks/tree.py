"""Reading a process tree of 256 children, beside psutil: in one file per process, and with 16 threads in each.

It is read as in one sampling round: by the source of the process, and by one of devices, which needs the PIDs.
"""

from __future__ import annotations

from collections.abc import Callable

import psutil
from tests.slow.benchmarks.figure import Figure
from tests.slow.benchmarks.steady import in_turn, milliseconds
from tests.support.children import command, started

from opentelemetry.instrumentation.hardware import Config
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.sources import SourceContext
from opentelemetry.instrumentation.hardware.sources.process import Process
from opentelemetry.instrumentation.hardware.system.tree import ProcessTree, SharedWalk

CHILDREN = 256
_BOUND = 0.4


def figures(seconds: float) -> list[Figure]:
    return [
        *_figures(f"{CHILDREN} children", 1, seconds / 2),
        *_figures(f"{CHILDREN} children, 16 threads each", 16, seconds / 2),
    ]


def _figures(name: str, threads: int, seconds: float) -> list[Figure]:
    with started(command("processes/family", CHILDREN, 1, threads)) as program:
        program.stdout.readline()
        cost = in_turn(
            {
                "ours": lambda: milliseconds(_walk(program.pid)),
                "psutil": lambda: milliseconds(lambda: _psutil(program.pid)),
            },
            seconds,
        )
    return [cost.figure(name, "ours", "ms of CPU", "psutil", "psutil", bound=_BOUND, relative=True)]


def _walk(pid: int) -> Callable[[], object]:
    """Everything that is read of the tree, and the limits of the process, which are read with it."""
    walk = SharedWalk()
    source = Process(SourceContext(Config(), Drivers(), pid, walk=walk))
    source.open()
    list(source.read_all())
    tree = ProcessTree(Drivers().machine(walk), Drivers().files(), pid)

    def read() -> None:
        walk.__init__()  # type: ignore[misc]
        list(source.read_slow())
        tree.refresh()

    return read


def _psutil(pid: int) -> None:
    process = psutil.Process(pid)
    for each in [process, *process.children(recursive=True)]:
        with each.oneshot():
            each.cpu_times()
            each.memory_info()
            each.num_threads()
