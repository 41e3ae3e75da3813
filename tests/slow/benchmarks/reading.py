"""One reading of the host and the process with warm caches, beside one call of psutil for each of the same values."""

from __future__ import annotations

import psutil
from tests.slow.benchmarks.figure import Figure
from tests.slow.benchmarks.ours import ByHand, full
from tests.slow.benchmarks.steady import in_turn, milliseconds

_TIMES = 50


def figures(seconds: float) -> list[Figure]:
    before_collection, whole = full(), ByHand()

    def reading() -> None:
        before_collection["host"]()
        before_collection["process"]()

    cost = in_turn(
        {
            "reading": lambda: milliseconds(reading, _TIMES),
            "psutil": lambda: milliseconds(_psutil, _TIMES),
            "sample": lambda: milliseconds(whole.sample, _TIMES),
        },
        seconds,
    )
    return [
        cost.figure("host and process, warm", "reading", "ms of CPU", "psutil", "psutil", bound=1.0, relative=True),
        cost.figure("sample of all sources", "sample", "ms of CPU", "psutil", "psutil"),
    ]


def _psutil(process: psutil.Process = psutil.Process()) -> None:  # noqa: B008 - made once on purpose
    psutil.cpu_times(percpu=True)
    psutil.virtual_memory()
    psutil.swap_memory()
    psutil.disk_io_counters(perdisk=True)
    psutil.net_io_counters(pernic=True)
    with process.oneshot():
        process.cpu_times()
        process.memory_info()
        process.num_ctx_switches()
        process.num_threads()
    process.io_counters()
    process.num_fds()
