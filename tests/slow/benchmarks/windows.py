"""A program that measures blocks with one tool: ``python windows.py TOOL SECONDS FILE``.

It prints a line for the first block, which is not in the file, then waits for a line on its input. The file then has a
list for each block: its planned seconds, when it began and ended, the joules that the tool gave or null, and the calls
of NVML that the tool made in the thread of the block. It imports nothing of this package except for our own tool,
because the other tools have environments of their own.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import logging
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

# What begins a measurement, and what ends it and returns the joules.
Tool = tuple[Callable[[], object], Callable[[], "float | None"]]

# The planned seconds, the begin, the end, the joules and the calls.
Block = tuple[float, float, float, "float | None", int]

ROUND = (5.0, 1.0, 1.0, 0.2, 0.2, 0.2, 0.2, 0.2)  # the seconds of the blocks of a round

# The longest pause before a block: as long as a level of the power, so that blocks begin at any phase of it.
_PAUSE = 0.3


def ours() -> Tool:
    export: Any = importlib.import_module("opentelemetry.sdk.trace.export")
    memory: Any = importlib.import_module("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    exporter = memory.InMemorySpanExporter()
    provider = importlib.import_module("opentelemetry.sdk.trace").TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    provider.add_span_processor(
        importlib.import_module("opentelemetry.instrumentation.hardware").HardwareSpanProcessor()
    )
    tracer = provider.get_tracer("windows")
    spans: list[Any] = []

    def end() -> float | None:
        spans.pop().end()
        (span,) = exporter.get_finished_spans()
        exporter.clear()
        joules: float | None = span.attributes.get("hw.energy")
        return joules

    return lambda: spans.append(tracer.start_span("block")), end


def zeus() -> Tool:
    monitor = importlib.import_module("zeus.monitor").ZeusMonitor()
    return (
        lambda: monitor.begin_window("block", sync_execution=False),
        lambda: float(monitor.end_window("block", sync_execution=False).total_energy),
    )


def codecarbon() -> Tool:
    tracker = importlib.import_module("codecarbon").OfflineEmissionsTracker(
        country_iso_code="FRA",
        save_to_file=False,
        measure_power_secs=1,
        log_level="critical",
        allow_multiple_runs=True,
    )
    names = map(str, count())
    return lambda: tracker.start_task(next(names)), lambda: float(tracker.stop_task().gpu_energy) * 3.6e6  # kWh


TOOLS = {"ours": ours, "zeus": zeus, "codecarbon": codecarbon}


def _block(tool: Tool, seconds: float) -> Block:
    begin, end = tool
    made = ctypes.CDLL("libnvidia-ml.so.1").fakeNvmlCalls
    before = made()
    begin()
    at = time.time()
    time.sleep(seconds)
    until = time.time()
    joules = end()
    return seconds, at, until, joules, made() - before


def _blocks(tool: Tool, seconds: float) -> Iterator[Block]:
    dice = random.Random()
    until = time.monotonic() + seconds
    while True:
        for length in dice.sample(ROUND, len(ROUND)):
            time.sleep(dice.uniform(0, _PAUSE))
            yield _block(tool, length)
        if time.monotonic() >= until:
            return


def main(name: str, seconds: str, file: str) -> None:
    logging.disable(logging.CRITICAL)
    tool = TOOLS[name]()
    _block(tool, 2.0)  # some tools prepare themselves in their first measurement
    print("ready", flush=True)
    sys.stdin.readline()
    Path(file).write_text(json.dumps(list(_blocks(tool, float(seconds)))), encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)  # threads of a tool are of no interest any more


if __name__ == "__main__":
    main(*sys.argv[1:])
