"""A real GPU, idle and busy: our values agree with nvidia-smi and with a known load."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pynvml
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.gpu.compare import COLUMNS, Difference, Numbers, columns, differences, numbers, queried
from tests.gpu.load import KINDS
from tests.gpu.timing import Timed
from tests.support.children import PATIENCE, started
from tests.support.journal import flatten
from tests.support.waiting import wait_for

from opentelemetry.instrumentation.hardware import Config, HardwareInstrumentor
from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.drivers.capture import Record
from opentelemetry.instrumentation.hardware.model import Rate, Series
from opentelemetry.instrumentation.hardware.pipeline.runner import State
from opentelemetry.instrumentation.hardware.sources import SourceContext
from opentelemetry.instrumentation.hardware.sources.nvidia import Nvidia, tool_output

pytestmark = pytest.mark.skipif(not Nvidia.prepare(Config()), reason="no NVIDIA driver is loaded on this machine")

_SETTLING = 3.0  # seconds until a load is visible in the driver's averages

_EXPORT = 60.0  # seconds between two exports at the defaults

_SHARE = 0.3  # share of the time in which the duty cycle is busy

Report = dict[str, Any]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Report]:
    """The results of the tests, written to a file at the end even if a test failed."""
    found: Report = {}
    yield found
    file = _folder(tmp_path_factory) / "report.json"
    file.write_text(json.dumps(found, indent=1) + "\n")
    print(f"written: {file}")


def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    named = os.environ.get("HARDWARE_GPU_REPORT")
    folder = Path(named) if named else tmp_path_factory.mktemp("gpu")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def opened(drivers: Drivers | None = None, **settings: Any) -> Iterator[Nvidia]:
    """Open our source, with the library or the tool, and read it once."""
    source = Nvidia(SourceContext(Config(**settings), drivers or Drivers(), os.getpid()))
    source.open()
    try:
        _read(source)
        yield source
    finally:
        source.close()


def _read(source: Nvidia) -> Numbers:
    return numbers([*source.read_all()])


@contextmanager
def loaded(kind: str, seconds: float, share: float = 1.0) -> Iterator[tuple[Report, Callable[[], Report]]]:
    """Run a load on the first GPU. Yields its first report, and a function that waits for its last one."""
    line = [sys.executable, "-m", "tests.gpu.load", kind, str(seconds), str(share)]
    with started(line, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, cwd=Path(__file__).parents[2]) as child:

        def next_report() -> Report:
            answer = child.stdout.readline()
            assert answer, child.communicate(timeout=PATIENCE)[1]
            found: Report = json.loads(answer)
            return found

        yield next_report(), next_report


def _rest(seconds: float) -> None:
    threading.Event().wait(seconds)


def _query(*arguments: str) -> str:
    line = [str(tool_output.TOOL.find()), *arguments]
    return subprocess.run(line, check=True, capture_output=True, text=True, timeout=PATIENCE).stdout


def _as_dicts(found: list[Difference]) -> list[Report]:
    return [difference._asdict() for difference in found]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "duty"])
def test_gpu_rows_agree_with_nvidia_smi_query(kind: str, report: Report) -> None:
    names = columns(_query("--help-query-gpu"))
    with loaded(kind, 60), opened(nvidia_smi="off") as source:
        _rest(_SETTLING)
        before = _read(source)
        printed = _query(f"--query-gpu=uuid,{','.join(names)}", "--format=csv,noheader")
        after = _read(source)
    found = list(differences(before, queried(names, printed), after, [COLUMNS[name].quantity for name in names]))
    report[f"query, {kind}"] = {"printed": printed, "before": before, "after": after, "differences": _as_dicts(found)}
    assert not found


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "duty"])
def test_nvml_and_nvidia_smi_sources_agree(kind: str, report: Report) -> None:
    with loaded(kind, 60), opened(nvidia_smi="off") as library, opened(nvml="off") as tool:
        _rest(_SETTLING)
        before, theirs, after = _read(library), _read(tool), _read(library)
    common = {quantity for values in theirs.values() for quantity in values} - {"energy"}
    known = {quantity for values in after.values() for quantity in values}
    found = list(differences(before, theirs, after, sorted(common & known)))
    report[f"two ways, {kind}"] = {
        "differences": _as_dicts(found),
        "only the tool": sorted(common - known),
        "only the library": sorted(known - common),
        "missing by the library": library.unsupported,
        "missing by the tool": tool.unsupported,
    }
    assert not found


def test_recording_of_a_real_driver(report: Report, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = _folder(tmp_path_factory) / "nvidia.jsonl"
    with file.open("w", encoding="utf-8") as output:
        record = Record(Drivers(), output, "nvidia", {"settings": {"nvidia_smi": "off"}})
        with loaded("arithmetic", 60), opened(record, nvidia_smi="off") as source:
            for _ in range(3):
                _rest(2.0)
                record.next()
                values = _read(source)
    report["capture"] = str(file)
    assert values


def test_real_nvml_calls_are_fast_enough_to_sample(report: Report) -> None:
    drivers = Timed(Drivers())
    with loaded("arithmetic", 60), opened(drivers, nvidia_smi="off") as source:
        drivers.seconds.clear()
        for _ in range(20):
            _rest(0.2)
            _read(source)
    report["calls"] = drivers.table()
    sampled = sum(drivers.seconds["get PowerUsage"]) / len(drivers.seconds["get PowerUsage"])
    assert sampled < 0.1, "a call of a sample takes so long that sampling it is a mistake"


def test_energy_is_the_integral_of_power(report: Report) -> None:
    with loaded("arithmetic", 60) as (load, _), opened(nvidia_smi="off") as source:
        _rest(_SETTLING)
        series = [(time.monotonic(), _read(source)[load["uuid"]])]
        while series[-1][0] - series[0][0] < 20:
            _rest(0.1)
            series.append((time.monotonic(), _read(source)[load["uuid"]]))
    if "energy" not in series[0][1]:
        pytest.skip("this GPU counts no energy")
    gained = series[-1][1]["energy"] - series[0][1]["energy"]
    integral = sum(
        (now - then) * (after["power"] + before["power"]) / 2 for (then, before), (now, after) in pairwise(series)
    )
    report["energy"] = {"counter": gained, "integral": integral, "samples": len(series)}
    assert gained == pytest.approx(integral, rel=0.1)


def test_pcie_bytes_are_those_of_the_uploads(report: Report) -> None:
    """Print also the driver's own counters, which are not used because they are taken for 32 bits wide."""
    with loaded("uploads", 25) as (_, end), opened(nvidia_smi="off") as source:
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        counters, rates = [], []
        begun = time.monotonic()
        while (passed := time.monotonic() - begun) < 20:
            fields = pynvml.nvmlDeviceGetFieldValues(handle, [197, 198])
            counters.append((passed, [(each.nvmlReturn, each.valueType, each.value.ullVal) for each in fields]))
            rates += [
                value.per_second for series, value in source.read() if _is_received(series) and isinstance(value, Rate)
            ]
            _rest(0.02)
        true = end()
    for at, values in counters:
        print(f"{at:7.3f} s (code, type, value): {values}")
    per_second = true["uploaded"] / true["passed"]
    report["pcie"] = {"counters": counters, "rates": rates, "uploaded per second": per_second}
    uint = pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
    wide = [values for _, values in counters if any(code == 0 and kind != uint for code, kind, _ in values)]
    assert not wide, "the counters are wider than 32 bits: they can be used"
    if not rates:
        pytest.skip("this GPU has no GPM")
    assert median(rates) == pytest.approx(per_second, rel=0.15)


def _is_received(series: Series) -> bool:
    return series.metric is c.HW_GPU_IO and {"pcie", "receive"} <= set(series.attributes.values())


def test_duty_cycle_is_exported_as_its_share(report: Report) -> None:
    """Utilization is sampled every 2 s and exported every 60 s. The load reports how long its kernels ran."""
    reader = InMemoryMetricReader()
    instrumentor = HardwareInstrumentor()
    with loaded("duty", _EXPORT + 2 * _SETTLING, _SHARE) as (load, end):
        instrumentor.instrument(meter_provider=MeterProvider([reader], shutdown_on_exit=False), nvidia_smi="off")
        try:
            session = instrumentor._telemetry.session
            assert session is not None
            runners = {runner.name: runner for runner in session.runners}
            wait_for(lambda: runners["nvidia"].state is not State.STARTING, 30, "first reading")
            _rest(_SETTLING)
            before, begun = _exported(reader, load["uuid"]), time.monotonic()
            _rest(_EXPORT)
            after, passed = _exported(reader, load["uuid"]), time.monotonic() - begun
        finally:
            instrumentor.uninstrument()
        true = end()
    busy = true["busy"] / true["passed"]
    time_share = (after["hw.gpu.time"] - before["hw.gpu.time"]) / passed
    exported = after["hw.gpu.utilization"]
    report["duty cycle"] = {"true": busy, "utilization": exported, "increase of time": time_share, "load": true}
    assert exported == pytest.approx(time_share, abs=0.03), "mean x window is the increase of the integral"
    assert exported == pytest.approx(busy, abs=0.1)


def _exported(reader: InMemoryMetricReader, uuid: str) -> dict[str, float]:
    """Return the points of a GPU's general utilization."""
    wanted = {"hw.id": uuid, "hw.gpu.task": "general"}.items()
    points = flatten(reader.get_metrics_data())
    return {point.name: float(point.value) for point in points if wanted <= point.attributes.items()}
