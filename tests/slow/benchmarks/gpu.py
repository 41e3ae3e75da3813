"""Eight GPUs of a simulated driver: how many calls a reading makes and what it costs beyond them, beside other readers.

The simulated library builds its answers from text, which costs more than a real library's part of a call. So the calls
of a reading are recorded with their arguments and repeated by themselves, and their cost is subtracted.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pynvml
from tests.slow.benchmarks import fresh, peer
from tests.slow.benchmarks.figure import Figure
from tests.slow.benchmarks.steady import Round, Rounds, in_turn, milliseconds
from tests.sources.nvidia_gpus import OnHost
from tests.tools import nvml

from opentelemetry import metrics
from opentelemetry.instrumentation.hardware import Config
from opentelemetry.instrumentation.hardware.pipeline.counters import CounterStore
from opentelemetry.instrumentation.hardware.pipeline.runner import SourceRunner
from opentelemetry.instrumentation.hardware.pipeline.schedule import CollectionSchedule
from opentelemetry.instrumentation.hardware.sources import Source, SourceContext
from opentelemetry.instrumentation.hardware.sources.nvidia import Nvidia

GPUS = 8
MODELS = {"h100": "H100", "geforce": "GeForce"}
PEERS = {"openlit": "OpenLIT", "nvitop": "nvitop"}

SAMPLE = 14  # calls for a sample of one GPU, at most

EVERYTHING = 24  # calls for all values of one GPU, at most

_PAUSE = 0.12  # seconds before each reading: GPM needs a tenth between two samples

# Samples of utilization since the previous reading: as many as a real driver keeps in two seconds.
_SAMPLES = 12


def figures(seconds: float) -> list[Figure]:
    return [figure for model in MODELS for figure in _of(model, seconds / len(MODELS))]


def _of(model: str, seconds: float) -> Iterator[Figure]:
    readings: dict[str, tuple[int, int]]
    readings, rounds = fresh.call(f"{__name__}:measured", model, seconds)
    cost = Rounds(rounds)
    calls = {name: made / GPUS for name, (made, _) in readings.items()}
    asks = {name: made / points for name, (made, points) in readings.items()}

    def per_value(name: str) -> Callable[[Round], float]:
        return lambda each: 1e3 * each[name] / readings[name][1]

    def figure(name: str, ours: float, unit: str, beside: str, table: dict[str, float], **options: Any) -> Figure:
        return Figure(name.format(MODELS[model]), ours, unit, PEERS[beside], table.get(beside), **options)

    yield figure("calls per {}, sample", calls["sample"], "calls", "openlit", calls, bound=SAMPLE)
    yield figure("calls per {}, all", calls["everything"], "calls", "nvitop", calls, bound=EVERYTHING)
    for name in PEERS:
        if name in readings:
            yield figure("calls per {} value", asks["everything"], "calls", name, asks)
    for kind, run, bound in (("sample", "sample", 1.25), ("all values", "everything", None)):
        beside = (PEERS["nvitop"], "nvitop") if "nvitop" in readings else ()
        yield cost.figure(f"8 {MODELS[model]}, {kind}", run, "ms of CPU", *beside, bound=bound, relative=True)
    for name, title in PEERS.items():
        if name in readings:
            ours, theirs = per_value("everything"), per_value(name)
            yield cost.figure(f"8 {MODELS[model]}, per value", ours, "µs of CPU", title, theirs)


def measured(model: str, seconds: float) -> tuple[dict[str, tuple[int, int]], Rounds]:
    """Of each reading, the calls and the points; and rounds of CPU milliseconds beyond the calls."""
    with machine(model) as config:
        peers = {name: make() for name, make in (("openlit", _openlit), ("nvitop", _nvitop)) if _has(name)}
        calls: dict[str, list[Callable[[], object]]] = {}
        with _recorded() as made:
            for name, read in {**_ours(config), **peers}.items():
                read()
                made.clear()
                timed = _after_pause if name == "sample" else milliseconds
                timed(read)
                calls[name] = made.copy()
        readings = {**_ours(config), **peers}
        points = {name: read() for name, read in readings.items()}
        runs: dict[str, Callable[[], float]] = {}
        for name, read in readings.items():
            timed = _after_pause if name == "sample" else milliseconds
            runs[name] = partial(timed, read)
            runs[f"calls of {name}"] = partial(timed, partial(_repeat, calls[name]))
        cost = in_turn(runs, seconds)
    for each in cost:
        for name in readings:
            each[name] = max(0.0, each[name] - each[f"calls of {name}"])  # noise may be larger
        each["everything"] = each["sample"] + each["seldom"]
    found = {name: (len(calls[name]), points[name]) for name in readings}
    sample, seldom = found["sample"], found.pop("seldom")
    found["everything"] = (sample[0] + seldom[0], sample[1] + seldom[1])
    return found, cost


def asked(model: str) -> list[Counter[str]]:
    """The calls that the driver counts for a sample, and for what is read seldom."""
    with machine(model) as config:
        source = _opened(config)
        return [_told(partial(_after_pause, partial(_drain, read))) for read in (source.read, source.read_slow)]


def minute(model: str) -> Counter[str]:
    """The calls that the driver counts in a simulated minute with a collection every two seconds."""
    with machine(model) as config:
        now, interval = 1000.0, 2.0
        schedule = CollectionSchedule(now, interval)
        runner = SourceRunner(lambda: _source(config), "nvidia", schedule, CounterStore(), clock=lambda: now)

        def pass_by() -> None:
            nonlocal now
            for collection in range(30):
                end = 1000.0 + interval * (collection + 1)
                while (at := runner.next_reading(now)) < end:
                    now = at
                    runner.read()
                now = end
                schedule.note(1, now - interval, now)

        return _told(pass_by)


def _told(read: Callable[[], object]) -> Counter[str]:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "calls"
        os.environ["FAKE_NVML_CALLS"] = str(file)
        try:
            read()
        finally:
            del os.environ["FAKE_NVML_CALLS"]
        return Counter(file.read_text().split())


@contextmanager
def machine(model: str) -> Iterator[Config]:
    """GPUs of a model that this process uses; the times of their samples run ahead of the clock."""
    step = _PAUSE / _SAMPLES
    samples = " ".join(f"1+{1e6 * 2 / _PAUSE:.0f}@{number * step:.4f}:{40 + number}" for number in range(_SAMPLES))
    busy: nvml.Gpu = {
        "Samples.1": f"uint {samples}",
        "ComputeRunningProcesses": nvml.listed((os.getpid(), 9 * nvml.MIB)),
        "ProcessUtilization": f"{os.getpid()}:1+1000000@0:40:30:0:1",
    }
    with TemporaryDirectory() as folder:
        fake = nvml.FakeNvml(Path(folder), *({**getattr(nvml, model)(index), **busy} for index in range(GPUS)))
        os.environ["FAKE_NVML_STATE"] = fake.environment["FAKE_NVML_STATE"]
        ctypes.CDLL(str(fake.path))  # who asks for NVML by its name is then given this one
        pynvml.nvmlInit()
        yield Config(nvml=str(fake.path))


@contextmanager
def _recorded() -> Iterator[list[Callable[[], object]]]:
    """Record the calls of NVML by readers that look up its functions within the block; each can be made again."""
    made: list[Callable[[], object]] = []

    class Library:
        def __getattr__(self, name: str) -> Callable[..., object]:
            function = getattr(library, name)

            def keep(*arguments: object) -> object:
                made.append(partial(function, *arguments))
                return function(*arguments)

            return keep

    library, pynvml.nvmlLib = pynvml.nvmlLib, Library()
    pynvml._nvmlGetFunctionPointer_cache.clear()
    try:
        yield made
    finally:
        pynvml.nvmlLib = library
        pynvml._nvmlGetFunctionPointer_cache.clear()


def _repeat(calls: list[Callable[[], object]]) -> None:
    for call in calls:
        call()


def _after_pause(call: Callable[[], object]) -> float:
    threading.Event().wait(_PAUSE)
    return milliseconds(call)


# -- the readers; each returns the number of values it found


def _ours(config: Config) -> dict[str, Callable[[], int]]:
    source = _opened(config)
    return {
        "sample": lambda: _drain(source.read),
        "seldom": lambda: _drain(source.read_slow),
    }


def _source(config: Config) -> Source:
    return Nvidia(SourceContext(config, OnHost(), os.getpid()))


def _opened(config: Config) -> Source:
    source = _source(config)
    source.open()
    for pause in (0.0, _PAUSE):
        threading.Event().wait(pause)
        _drain(source.read)
        _drain(source.read_slow)
    return source


def _drain(read: Callable[[], Any]) -> int:
    return len(list(read()))


def _has(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _openlit() -> Callable[[], int]:
    theirs = peer.Callbacks()
    metrics.set_meter_provider(theirs)
    importlib.import_module("openlit.instrumentation.gpu").GPUInstrumentor().instrument()
    options = metrics.CallbackOptions()
    return lambda: sum(len(list(callback(options))) for callback in theirs.kept)


def _nvitop() -> Callable[[], int]:
    devices = importlib.import_module("nvitop").Device.all()

    return lambda: sum(map(_nvitops, devices))


def _nvitops(device: Any) -> int:
    """The values of one GPU, through the interface for reading several."""
    with device.oneshot():
        said = [
            *device.utilization_rates(),
            *device.memory_info(),
            *device.clock_infos(),
            *device.max_clock_infos(),
            device.power_usage(),
            device.power_limit(),
            device.temperature(),
            device.fan_speed(),
            device.performance_state(),
            device.total_volatile_uncorrected_ecc_errors(),
            *device.processes(),
        ]
    return len(said)
