"""Eight GPUs of a simulated driver: how often it is asked, and what we add to its calls; beside other readers.

The simulated library makes its answers of text, which costs more than a real one's part of a call. So the calls of a
reading are kept with their arguments and made once more with nothing around them, and what that takes is subtracted.
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
from tests.benchmarks import fresh, peer
from tests.benchmarks.figure import Figure
from tests.benchmarks.steady import in_turn, milliseconds
from tests.sources.cards import OnHost
from tests.tools import nvml

from opentelemetry import metrics
from opentelemetry.instrumentation.hardware import Config
from opentelemetry.instrumentation.hardware.poller import Poller
from opentelemetry.instrumentation.hardware.rhythm import Rhythm
from opentelemetry.instrumentation.hardware.sources import Site, Source
from opentelemetry.instrumentation.hardware.sources.nvidia import Nvidia

GPUS = 8
MODELS = {"h100": "H100", "geforce": "GeForce"}
PEERS = {"openlit": "OpenLIT's GPU metrics", "nvitop": "nvitop, the rows we share"}

SAMPLE = 14
"""Calls that a GPU is asked for a sample, at most."""

EVERYTHING = 24
"""Calls that a GPU is asked for all there is, at most."""

_PAUSE = 0.12
"""Seconds before each reading: GPM has nothing to compare below a tenth."""

_SAMPLES = 12
"""Samples of utilization that the driver has kept since the reading before, as a real one would in two seconds."""


def figures(quick: bool) -> list[Figure]:
    return [figure for model in MODELS for figure in _of(model, 3 if quick else 10)]


def _of(model: str, rounds: int) -> Iterator[Figure]:
    found: dict[str, tuple[int, int, float]] = fresh.call(f"{__name__}:measured", model, rounds)
    calls = {name: values[0] / GPUS for name, values in found.items()}
    cost = {name: values[2] for name, values in found.items()}
    each = {name: 1e3 * milliseconds / points for name, (_, points, milliseconds) in found.items()}
    asks = {name: made / points for name, (made, points, _) in found.items()}

    def beside(name: str, table: dict[str, float]) -> tuple[str, float | None]:
        return (PEERS[name], table[name]) if name in found else (f"{name} is not installed", None)

    what = MODELS[model]
    for name, ours, bound in (("openlit", "sample", SAMPLE), ("nvitop", "everything", EVERYTHING)):
        yield Figure(f"driver calls of {ours}, for each {what}", calls[ours], "", *beside(name, calls), bound)
    for ours, most in (("sample", 1.5), ("everything", None)):
        heading = f"{ours} of {GPUS} {what}, {found[ours][1]} points, beyond calls"
        yield Figure(heading, cost[ours], "ms CPU", *beside("nvitop", cost), most)
    for name in PEERS:
        yield Figure("  everything, a point", each["everything"], "us CPU", *beside(name, each))
        yield Figure("  driver calls, a point", asks["everything"], "", *beside(name, asks))


def measured(model: str, rounds: int) -> dict[str, tuple[int, int, float]]:
    """Of each reading: the calls, the points, and CPU milliseconds beyond the calls."""
    with machine(model) as config:
        peers = {name: make() for name, make in (("openlit", _openlit), ("nvitop", _nvitop)) if _has(name)}
        with _kept() as kept:
            calls: dict[str, list[Callable[[], object]]] = {}
            for name, read in {**_ours(config), **peers}.items():
                _rested(read)
                kept.clear()
                _rested(read)
                calls[name] = kept.copy()
        readings = {**_ours(config), **peers}
        points = {name: read() for name, read in readings.items()}
        runs: dict[str, Callable[[], float]] = {}
        for name, read in readings.items():
            runs[name] = partial(_rested, read)
            runs[f"calls of {name}"] = partial(_rested, partial(_again, calls[name]))
        cost = in_turn(runs, rounds)
    return {name: (len(calls[name]), points[name], cost[name] - cost[f"calls of {name}"]) for name in readings}


def asked(model: str) -> list[Counter[str]]:
    """What the driver says that it was asked for a sample, and for what is read seldom."""
    with machine(model) as config:
        source = _opened(config)
        return [_told(partial(_rested, partial(_drain, read))) for read in (source.read, source.read_seldom)]


def minute(model: str) -> Counter[str]:
    """What the driver says that it was asked in a minute of our clock, with a collection every two seconds."""
    with machine(model) as config:
        now, interval = 1000.0, 2.0
        rhythm = Rhythm(now, interval)
        poller = Poller(lambda: _source(config), "nvidia", interval, rhythm, {}, clock=lambda: now)

        def pass_by() -> None:
            nonlocal now
            for collection in range(30):
                end = 1000.0 + interval * (collection + 1)
                while (at := poller.next_reading(now)) < end:
                    now = at
                    poller.step()
                now = end
                rhythm.note(1, now)

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
    """GPUs of a model that this process uses, for this process; their samples carry times that run ahead of ours."""
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
def _kept() -> Iterator[list[Callable[[], object]]]:
    """The calls of NVML that are made, ready to be made again, by whoever finds its functions meanwhile."""
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


def _again(calls: list[Callable[[], object]]) -> None:
    for call in calls:
        call()


def _rested(call: Callable[[], object]) -> float:
    threading.Event().wait(_PAUSE)
    return milliseconds(call)


# -- the readers; each returns how many numbers it found


def _ours(config: Config) -> dict[str, Callable[[], int]]:
    source = _opened(config)
    return {
        "sample": lambda: _drain(source.read),
        "everything": lambda: _drain(source.read) + _drain(source.read_seldom),
    }


def _source(config: Config) -> Source:
    return Nvidia(Site(config, OnHost(), os.getpid()))


def _opened(config: Config) -> Source:
    source = _source(config)
    source.open()
    for read in (source.read, source.read_seldom) * 2:
        _rested(partial(_drain, read))
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
    """The rows of one GPU, by its interface for those who want several."""
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
