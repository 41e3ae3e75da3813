"""One reading of the host and the process, warm, beside psutil asked for the same once."""

from __future__ import annotations

import psutil
from tests.benchmarks.figure import Figure
from tests.benchmarks.ours import ByHand, full, samples
from tests.benchmarks.steady import in_turn, milliseconds

_TIMES = 50


def figures(quick: bool) -> list[Figure]:
    sampled, before_collection, whole = samples(), full(), ByHand()

    def sample() -> None:
        sampled["host"]()
        sampled["process"]()

    def reading() -> None:
        before_collection["host"]()
        before_collection["process"]()

    cost = in_turn(
        {
            "reading": lambda: milliseconds(reading, _TIMES),
            "sample": lambda: milliseconds(sample, _TIMES),
            "psutil": lambda: milliseconds(_psutil, _TIMES),
            "step": lambda: milliseconds(whole.sample, _TIMES),
        },
        rounds=3 if quick else 25,
    )
    beside = "psutil, each call once"
    return [
        Figure("full reading of host and process, warm", cost["reading"], "ms CPU", beside, cost["psutil"], 0.2),
        Figure("sample of host and process", cost["sample"], "ms CPU", "full", cost["reading"], cost["reading"]),
        Figure("sample of every source, kept in windows", cost["step"], "ms CPU", beside, cost["psutil"]),
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
