"""AcceleratorSource: presence, the order of drivers, failed and suspended devices, usage, and what is not supported."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from tests.sources.machines import STRANGER
from tests.sources.npus import CONTAINER, HOST, program
from tests.sources.tree import Fabricated, Tree

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators import fields as f
from opentelemetry.instrumentation.hardware.accelerators.device import Device, DeviceFailed
from opentelemetry.instrumentation.hardware.accelerators.driver import AcceleratorDriver, DriverChoice, Usage
from opentelemetry.instrumentation.hardware.accelerators.source import AcceleratorSource
from opentelemetry.instrumentation.hardware.accelerators.unsupported import HOST_PIDS, sentences
from opentelemetry.instrumentation.hardware.model import Point, Series, Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import SourceContext
from opentelemetry.instrumentation.hardware.system.holders import HeldDevice, Holder
from opentelemetry.instrumentation.hardware.system.tree import ProcessTree

USED = f.Field(c.PROCESS_GPU_MEMORY_USAGE)
SIGN = {"/sys/module/acme": ""}


class AcmeGpu(Device):
    """A GPU with one value."""

    remedies = {"": "restart the machine"}  # noqa: RUF012

    def __init__(self, number: int, watts: object = 100.0) -> None:
        super().__init__(f"gpu{number}", f"GPU {number}", index=number)
        self.facts, self.state = {c.HW_VENDOR: "Acme"}, "ok"
        self.watts = watts
        self.failure = ""
        self.suspended = False
        self.opened = self.reads = 0

    def open(self) -> None:
        self.opened += 1

    def read(self) -> Iterator[Point]:
        self.reads += 1
        if self.failure:
            raise DeviceFailed(self.failure)
        yield from self.points({f.power(): self.watts})

    def check_suspended(self) -> bool:
        return self.suspended


class AcmeDriver(AcceleratorDriver):
    """A driver with these devices, which these processes use."""

    def __init__(self, *gpus: AcmeGpu, users: Mapping[str, Sequence[int]] | None = None) -> None:
        self.gpus = gpus
        self.users = users or {}
        self.closed = False

    def devices(self) -> Sequence[AcmeGpu]:
        return self.gpus

    def usage(self, program: ProcessTree) -> Iterator[Usage]:
        for gpu in self.gpus:
            if program.among(self.users.get(gpu.id, ())):
                yield gpu, {USED: 5}

    def unsupported(self) -> Iterator[str]:
        yield "acme: no fans"

    def close(self) -> None:
        self.closed = True


class Acme(AcceleratorSource):
    """A vendor with a library and a tool."""

    name = "acme"
    signs = ("/sys/module/acme", "/dev/acme*")
    variables = ("ACME_",)
    settings = ("nvml", "nvidia_smi")
    absent = "no Acme driver is loaded"
    fix = "install it"

    open_library: Callable[[], AcceleratorDriver]
    open_tool: Callable[[], AcceleratorDriver]

    def drivers(self) -> Iterator[DriverChoice]:
        yield DriverChoice("library", "nvml", self.open_library)
        yield DriverChoice("tool", "nvidia_smi", self.open_tool)

    def compute_files(self) -> Sequence[str]:
        return ("/dev/acme0",)


def failing(error: Exception) -> Callable[[], AcceleratorDriver]:
    def raises() -> AcceleratorDriver:
        raise error

    return raises


def acme(
    library: AcceleratorDriver | Exception,
    tool: AcceleratorDriver | Exception | None = None,
    files: Mapping[str, Any] = SIGN,
    environ: Mapping[str, str] | None = None,
    is_reporter: bool = True,
    **settings: object,
) -> Acme:
    """A source that is not open yet."""
    drivers = Fabricated(Tree({**HOST, **program(), **files}), {"psutil": {}})
    context = SourceContext(Config.read(settings, {}), drivers, STRANGER, is_reporter, environ or {})
    source = Acme(context)
    source.open_library = failing(library) if isinstance(library, Exception) else lambda: library
    tool = tool or Unavailable("it is not installed")
    source.open_tool = failing(tool) if isinstance(tool, Exception) else lambda: tool
    return source


def opened(*arguments: Any, **more: Any) -> Acme:
    source = acme(*arguments, **more)
    source.open()
    return source


def ids(points: Sequence[Point], metric: Any = c.HW_POWER) -> list[str]:
    return [str(series.attributes[c.HW_ID]) for series, _ in points if series.metric is metric]


# -- Presence and drivers.


@pytest.mark.parametrize(
    ("files", "environ", "settings", "is_expected"),
    [
        ({"/sys/module/acme": ""}, {}, {}, True),
        ({"/dev/acme7": ""}, {}, {}, True),
        ({}, {"ACME_PARTITION": "p"}, {}, True),
        ({}, {}, {"nvml": "/opt/lib.so"}, True),
        ({"/dev/acm": ""}, {"ACM": ""}, {}, False),
        ({"/sys/module/acme": ""}, {}, {"nvml": "off", "nvidia_smi": "off"}, False),
    ],
)
def test_source_is_expected_with_a_sign_or_the_path_of_a_driver(
    files: Mapping[str, str], environ: Mapping[str, str], settings: Mapping[str, Any], is_expected: bool
) -> None:
    tree = Tree({"/dev/null": "", **files})
    config = Config.read(settings, {})
    assert Acme.is_expected(config, environ, tree) is is_expected
    source = acme(AcmeDriver(AcmeGpu(0)), files=files, environ=environ, **settings)
    if is_expected:
        source.open()
    else:
        with pytest.raises(Unavailable):
            source.open()


def test_module_that_cannot_be_imported_is_left_to_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_HOME", "/opt/acme")
    monkeypatch.setattr(Acme, "modules", ("no_such_module_anywhere",))
    assert Acme.prepare(Config())


def test_source_without_a_sign_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="no Acme driver is loaded"):
        acme(AcmeDriver(), files={}).open()


def test_second_driver_is_used_with_the_reason_if_the_first_cannot() -> None:
    source = opened(Unavailable("no library", "get it"), AcmeDriver(AcmeGpu(0)))
    assert ids([*source.read_all()]) == ["gpu0"]
    assert "library: no library (get it); tool is used instead" in source.unsupported


def test_driver_that_is_switched_off_is_not_opened() -> None:
    source = opened(AssertionError("opened"), AcmeDriver(AcmeGpu(0)), nvml="off")
    [*source.read_slow()]
    assert "library is switched off; tool is used instead" in source.unsupported


def test_source_without_a_usable_driver_is_unavailable_with_all_reasons() -> None:
    with pytest.raises(Unavailable) as caught:
        acme(Unavailable("no library", "get it"), Unavailable("no tool")).open()
    assert (caught.value.reason, caught.value.fix) == ("library: no library; tool: no tool", "get it")


def test_driver_that_fails_for_the_moment_is_retried_later() -> None:
    with pytest.raises(OSError, match="library: no library; tool: timed out"):
        acme(Unavailable("no library"), TimeoutError("timed out")).open()


def test_no_driver_is_opened_while_that_would_wake_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Acme, "may_open", lambda self: False)
    source = opened(AssertionError("opened"))
    assert [*source.read_all()] == []
    assert "all devices are suspended" in source.unsupported[0]
    monkeypatch.setattr(Acme, "may_open", lambda self: True)
    source.open_library = lambda: AcmeDriver(AcmeGpu(0))
    assert ids([*source.read_slow(), *source.read()]) == ["gpu0"]


def test_driver_is_closed_with_the_source() -> None:
    driver = AcmeDriver(AcmeGpu(0))
    opened(driver).close()
    assert driver.closed


# -- Devices.


def test_failed_device_costs_only_its_own_metrics_and_is_retried_with_backoff() -> None:
    good, bad = AcmeGpu(0), AcmeGpu(1)
    source = opened(AcmeDriver(good, bad))
    bad.failure = "lost"
    for _ in range(10):
        assert ids([*source.read()]) == ["gpu0"]
    assert (good.reads, bad.reads, bad.opened) == (10, 3, 2)
    states = {
        (series.attributes[c.HW_ID], series.attributes[c.HW_STATE]): value
        for series, value in source.read_slow()
        if series.metric is c.HW_STATUS
    }
    assert (states["gpu0", "ok"], states["gpu1", "ok"], states["gpu1", "failed"]) == (1, 0, 1)
    assert "GPU 1 does not respond: lost; restart the machine" in source.unsupported
    bad.failure = ""
    found = [ids([*source.read()]) for _ in range(5)]
    assert found[-1] == ["gpu0", "gpu1"]
    [*source.read_slow()]
    assert not [sentence for sentence in source.unsupported if "GPU 1" in sentence]


def test_suspended_device_is_not_read() -> None:
    awake, suspended = AcmeGpu(0), AcmeGpu(1)
    suspended.suspended = True
    source = opened(AcmeDriver(awake, suspended))
    assert ids([*source.read()]) == ["gpu0"]
    assert ids([*source.read_slow()], c.HW_GPU_INFO) == ["gpu0", "gpu1"]
    assert suspended.reads == 0
    assert "GPU 1 is suspended, and is not woken to be read" in source.unsupported


def test_error_of_the_driver_is_raised_for_the_runner() -> None:
    gpu = AcmeGpu(0)
    source = opened(AcmeDriver(gpu))
    gpu.open = gpu.read = failing(OSError("gone"))  # type: ignore[method-assign,assignment]
    with pytest.raises(OSError, match="gone"):
        [*source.read()]


def test_devices_setting_selects_what_is_read() -> None:
    gpus = AcmeGpu(0), AcmeGpu(1)
    source = opened(AcmeDriver(*gpus), devices="1")
    assert ids([*source.read()]) == ["gpu1"]
    assert gpus[0].reads == 0


# -- Usage.


def test_usage_of_the_observed_program_is_attributed_to_the_device() -> None:
    source = opened(AcmeDriver(AcmeGpu(0), AcmeGpu(1), users={"gpu1": [STRANGER], "gpu0": [1]}))
    assert ids([*source.read()], c.PROCESS_GPU_MEMORY_USAGE) == []
    assert ids([*source.read_slow()], c.PROCESS_GPU_MEMORY_USAGE) == ["gpu1"]


def test_devices_setting_process_reports_devices_from_their_first_use() -> None:
    driver = AcmeDriver(AcmeGpu(0), AcmeGpu(1))
    source = opened(driver, devices="process")
    assert ids([*source.read_all()]) == []
    driver.users = {"gpu1": [STRANGER]}
    assert ids([*source.read_slow()], c.PROCESS_GPU_MEMORY_USAGE) == ["gpu1"]
    assert ids([*source.read()]) == ["gpu1"]


def test_job_member_reports_usage_only() -> None:
    source = opened(AcmeDriver(AcmeGpu(0), users={"gpu0": [STRANGER]}), is_reporter=False)
    metrics = {series.metric for series, _ in [*source.read_all()]}
    assert metrics == {c.PROCESS_GPU_MEMORY_USAGE}


@pytest.mark.parametrize(
    ("namespace", "opens", "is_hidden"),
    [(CONTAINER, "/dev/acme0", True), (CONTAINER, "/dev/null", False), (HOST, "/dev/acme0", False)],
)
def test_pids_of_another_namespace_are_named_if_the_program_computes(
    namespace: Mapping[str, str], opens: str, is_hidden: bool
) -> None:
    files = {**SIGN, **namespace, **program(opens=opens)}
    source = opened(AcmeDriver(AcmeGpu(0), users={"gpu0": [99]}), files=files)
    [*source.read_slow()]
    assert (f"process.gpu.*: {HOST_PIDS}" in source.unsupported) is is_hidden


@pytest.mark.parametrize("is_linux", [True, False])
def test_device_is_held_by_the_processes_that_the_driver_lists(is_linux: bool) -> None:
    """On other systems nobody knows whom a process works for."""
    gpu = AcmeGpu(0)
    driver = AcmeDriver(gpu)
    driver.holders = lambda: [(gpu, {7: 5, 8: None})]  # type: ignore[method-assign]
    tree = Tree({**HOST, **program(), "/proc/7/cgroup": "0::/system.slice/slurmstepd.scope/job_77/step_0"})
    drivers = Fabricated(tree if is_linux else None, {"psutil": {"Process.children": []}})
    held: dict[str, Sequence[HeldDevice]] = {}
    context = SourceContext(Config.read({"nvml": "/lib"}, {}), drivers, STRANGER, environ={}, held=held)
    source = Acme(context)
    source.open_library = lambda: driver
    source.open()
    [*source.read_slow()]
    (device,) = held["acme"]
    owner = {c.SLURM_JOB_ID: "77"} if is_linux else {}
    assert device.users == [Holder(7, 5, owner), Holder(8, None, {})]
    source.close()
    assert held == {}


# -- What is not supported.


def test_implausible_value_of_a_device_is_listed() -> None:
    source = opened(AcmeDriver(AcmeGpu(0), AcmeGpu(1, "N/A")))
    assert ids([*source.read()]) == ["gpu0"]
    [*source.read_slow()]
    assert source.unsupported == ["hw.power of GPU 1: the driver reports 'N/A'", "acme: no fans"]


def test_reasons_are_grouped_by_reason_and_devices() -> None:
    gpu, memory = f.temperature("gpu").series, f.temperature("memory").series
    devices: list[tuple[str, Mapping[Series | str, str]]] = [
        ("GPU 0", {gpu: "N/A", memory: "N/A", "MIG instances": "denied"}),
        ("GPU 1", {gpu: "N/A", memory: "N/A", f.power().series: "N/A"}),
    ]
    assert [*sentences(devices)] == [
        "hw.temperature (gpu, memory): N/A",
        "MIG instances of GPU 0: denied",
        "hw.power of GPU 1: N/A",
    ]


# -- Spans.


def for_spans(source: Acme) -> list[str]:
    """The devices that are read for spans only, with their power."""
    points = [point for reading in source.readings() if reading.for_spans for point in reading.read()]
    return ids(points)


def test_devices_that_another_process_reports_are_read_for_spans() -> None:
    suspended = AcmeGpu(1)
    suspended.suspended = True  # since the last reading, which this process does not make
    source = opened(AcmeDriver(AcmeGpu(0), suspended, users={"gpu0": [STRANGER]}), is_reporter=False)
    assert ids([*source.read()]) == []
    assert for_spans(source) == ["gpu0"]
    assert source.used_devices == {"gpu0"}, "it is noticed before the slow reading"


def test_devices_that_this_process_reports_are_read_once_for_metrics_and_spans() -> None:
    source = opened(AcmeDriver(AcmeGpu(0)))
    assert ids([*source.read()]) == ["gpu0"]
    assert for_spans(source) == []


def test_energy_counter_without_a_time_has_not_that_of_an_earlier_reading() -> None:
    gpu = AcmeGpu(0)
    driver = AcmeDriver(gpu, users={"gpu0": [STRANGER]})
    driver.reads_for_spans = True
    source = opened(driver)
    gpu.updated = 1_790_000_000.0
    for_spans(source)
    assert source.updated == {"gpu0": 1_790_000_000.0}
    gpu.updated = None
    for_spans(source)
    assert source.updated == {"gpu0": None}


def test_tool_that_takes_long_is_not_run_more_often_for_spans() -> None:
    driver = AcmeDriver(AcmeGpu(0))
    driver.min_interval = 10.0
    source = opened(driver, is_reporter=False)
    *_, last = [reading.every for reading in source.readings() if reading.for_spans]
    assert last == 10.0


def test_other_devices_are_left_alone_for_spans_while_they_may_suspend() -> None:
    driver = AcmeDriver(AcmeGpu(0), AcmeGpu(1), users={"gpu0": [STRANGER]})
    driver.reads_for_spans = True
    source = opened(driver)
    [*source.read_all()]
    assert [device.id for used in (True, False) for device in source._awake(used)] == ["gpu0", "gpu1"]
    driver.min_interval = 6.0
    assert [device.id for used in (True, False) for device in source._awake(used)] == ["gpu0"]
