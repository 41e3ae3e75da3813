"""AWS Trainium and Inferentia: their cores, by neuron-monitor and the driver's files, and what a program does there."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.fields import Device
from opentelemetry.instrumentation.hardware.accelerators.selection import DeviceFilter
from opentelemetry.instrumentation.hardware.drivers.streaming import StreamingCommand
from opentelemetry.instrumentation.hardware.model import Point, Scope, SeriesCache, Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import Source
from opentelemetry.instrumentation.hardware.sources.trainium.files import Sysfs, is_here
from opentelemetry.instrumentation.hardware.sources.trainium.monitor import (
    TOOL,
    Executions,
    Monitor,
    configuration,
    group,
    period_of,
    said_period,
)
from opentelemetry.instrumentation.hardware.sources.trainium.report import Hardware, Report, Runtime
from opentelemetry.instrumentation.hardware.sources.trainium.visible import device, way
from opentelemetry.instrumentation.hardware.system.files import Files
from opentelemetry.instrumentation.hardware.system.machine import machine
from opentelemetry.instrumentation.hardware.system.process_tree import ProcessTree

_NO_DRIVER = "no Neuron driver is loaded: there is neither /sys/module/neuron nor a device of it"

_PATIENCE = 4.0
"""Seconds that opening waits for the first report; the tool says one as soon as it runs."""

_TAG = "NEURON_PROCESS_TAG"

_QUANTILES = ("p50", "p99", "p100")
"""Those that are reported by default."""

_ALIKE = (
    "aws.neuron.execution.latency: several runtimes of the program cannot be told apart; give each a "
    "NEURON_PROCESS_TAG of its own that is no number"
)

_HOST_PIDS = (
    "aws.neuron.runtime.*, aws.neuron.execution.*: the driver names processes by the numbers of the host, which cannot "
    "be seen from this container, and no tag is the program's alone; give it a NEURON_PROCESS_TAG that no other has, "
    "or start it in the host's process namespace (--pid=host, hostPID: true)"
)

_NO_TOOL = "hw.npu.utilization, aws.neuron.runtime.*, aws.neuron.execution.*: "


class Trainium(Source):
    """The cores and devices of an instance, and the runtimes of the observed program and its children.

    Attributes:
        runtimes: those, as they were heard last.
    """

    name = "trainium"
    scope = Scope.PROCESS
    rows = ("hw.", "aws.neuron.")

    @classmethod
    def prepare(cls, config: Config) -> bool:
        """Whether there may be a device."""
        return is_expected(config, os.path.exists)

    def open(self) -> None:
        """Find the devices, and start the tool.

        Raises:
            Unavailable: where there is no driver, or no way to ask it.
        """
        config, drivers = self.context.config, self.context.drivers
        self._kernel: Files = drivers.files()
        if not is_expected(config, self._kernel.exists):
            raise Unavailable(_NO_DRIVER)
        self._of = SeriesCache()
        self._cores: dict[int, Device] = {}
        self._devices: dict[int, Device] = {}
        self._hardware = Hardware()
        self._files = Sysfs(self._kernel)
        self.choice = DeviceFilter(config.devices, self.context.environ, way(self._kernel.exists))
        self._alike = self._unmatched = False
        self._executions = Executions()
        self.runtimes: list[Runtime] = []
        self._seen: set[int] = set()
        nodes = [f"/dev/neuron{number}" for number in self._files.cores or range(16)]
        self._owners = ProcessTree(machine(drivers), self._kernel, self.context.pid, *nodes)
        self._monitor: Monitor | None = None
        self._without = ""
        try:
            if config.neuron_monitor == "off":
                raise Unavailable(f"{TOOL.name} is switched off")
            self._monitor = self._listening(drivers.stream(TOOL.with_setting(config.neuron_monitor)))
        except Unavailable as gone:
            if not self._files.cores:
                raise
            self._without = _NO_TOOL + gone.reason + (f" ({gone.fix})" if gone.fix else "")
        self._waits = _PATIENCE
        self._wanted = self.context.is_reporter  # a member listens as soon as it uses a core: workers may never
        self._owners.look()

    def _listening(self, stream: StreamingCommand) -> Monitor:
        own = TOOL.with_setting(self.context.config.neuron_monitor_config).path
        if not own:
            period = period_of(self.context.config.interval)
            return Monitor(stream, ["-c", "{document}"], period, configuration(period, self.context.is_reporter))
        try:
            period = said_period(self._kernel.read(own))
        except OSError:  # the tool says so itself
            period = said_period(b"")
        return Monitor(stream, ["-c", own], period)

    # -- often

    def read(self) -> Iterator[Point]:
        """What the tool has said, and the memory of each device."""
        report = self._listen()
        self._look(report)
        self.runtimes = self._ours(report.runtimes) if report is not None else []
        for runtime in self.runtimes:  # first: it may be for their use that devices are reported
            self._use(runtime)
        if self.context.is_reporter:
            yield from self._memory(report)
            yield from self._used_cores(report)
        yield from self._grouped(self.runtimes)

    def _look(self, report: Report | None) -> None:
        """Choose anew which devices and cores are reported. A core that is on none for certain may be on any."""
        if report is None and not self._files.cores:
            return  # nobody has said yet what there is
        many = self._on_device() or 0
        numbers = self._numbers(report) or [0]
        cores = {number: range(number * many, (number + 1) * many) for number in numbers}
        named = {core for runtime in report.runtimes for core in runtime.named} if report else set()
        others = sorted(named.difference(*cores.values()))
        self.choice.look([device(number, [*own, *others]) for number, own in cores.items()])

    def _use(self, runtime: Runtime) -> None:
        """The observed program uses what one of its runtimes uses."""
        used = {f"neuroncore{core}" for core in runtime.named}
        for each in self.choice.found:
            for id in each.ids if each.ids & used else ():  # noqa: A001
                if id == each.id or id in used:
                    self.choice.use(id)

    def _listen(self) -> Report | None:
        """The newest report; where there is none, the files go on."""
        monitor = self._monitor
        if monitor is None:
            self.errors = [] if self._files.cores else ["the Neuron driver has been taken out"]
        if monitor is None or not self._wanted:
            return None
        waits, self._waits = self._waits, 0.0
        for report in monitor.read(self._kernel.uptime(), waits):
            for runtime in self._ours(report.runtimes):
                self._executions.add(runtime)
        self.errors = [monitor.trouble] if monitor.trouble else []
        if monitor.newest is not None:
            self._hardware = monitor.newest.hardware
        return monitor.newest

    def _memory(self, report: Report | None) -> Iterator[Point]:
        """Memory of the devices that is in use; by the driver's files, else by what all runtimes say."""
        for number in self._chosen(report):
            used = self._files.used(number)
            if used is None:
                used = self._of_runtimes(number, report)
            if used is None:
                continue
            total = self._hardware.memory
            reading: dict[str, int | float] = {"npu.memory.used": used}
            if total and used <= total:
                reading |= {"npu.memory.total": total, "npu.memory.utilization": used / total}
            yield from self._device(number).points(reading)

    def _of_runtimes(self, number: int, report: Report | None) -> int | None:
        """What the runtimes say that they use of a device; None where it is not known which cores are on it."""
        many = self._on_device()
        if report is None or many is None:
            return None
        sizes = [
            size
            for runtime in report.runtimes
            for core, parts in runtime.cores.items()
            if core // many == number
            for size in parts.values()
        ]
        return sum(sizes) if sizes else None

    def _categories(self, number: int) -> Iterator[Point]:
        """Memory of each physical core by the driver's categories, where no tool says it of the cores of programs."""
        cores = self._files.cores
        first = sum(many or 0 for each, many in cores.items() if each < number)
        for core in self.among(range(first, first + (cores.get(number) or 0))):
            for category, size in self._files.memory(number, core - first):
                row = {c.NEURON_MEMORY_CATEGORY: category}
                yield self._core(core).series(c.AWS_NEURON_NEURONCORE_MEMORY_USAGE, row)(size)

    def _used_cores(self, report: Report | None) -> Iterator[Point]:
        """Utilization and memory of each core that a runtime names; what several say of one is added."""
        percent: dict[int, float] = {}
        sizes: dict[tuple[int, str], int] = {}
        for runtime in report.runtimes if report else ():
            for core, share in runtime.percent.items():
                percent[core] = percent.get(core, 0) + share
            for core, parts in runtime.cores.items():
                for category, size in parts.items():
                    sizes[core, category] = sizes.get((core, category), 0) + size
        for core in self.among(percent):
            yield from self._core(core).points({"npu.utilization": min(1.0, percent[core] / 100)})
        for (core, category), size in sizes.items():
            if f"neuroncore{core}" in self.choice:
                row = {c.NEURON_MEMORY_CATEGORY: category}
                yield self._core(core).series(c.AWS_NEURON_NEURONCORE_MEMORY_USAGE, row)(size)

    # -- the program

    def _ours(self, runtimes: Sequence[Runtime]) -> list[Runtime]:
        """The runtimes of the observed program and its children; all, where no program is observed.

        One is known by its number. Where that cannot be seen from this container, by its tag.
        """
        if self.context.all_processes:
            return [*runtimes]
        pids = {runtime.pid for runtime in runtimes}
        if pids != self._seen:
            self._owners.look()
            self._seen = pids
        ours = self._owners.among(pids)
        found = [runtime for runtime in runtimes if runtime.pid in ours]
        if not found and not self._owners.on_host:
            found = self._tagged(runtimes)
        self._unmatched = bool(runtimes) and not found and not self._owners.on_host
        return found

    def _tagged(self, runtimes: Sequence[Runtime]) -> list[Runtime]:
        """Those with the tag that the program has from its environment.

        Without one a runtime has the number of its process as that process knows it, in the container. A tag that
        another runtime has too proves nothing.
        """
        own = self.context.environ.get(_TAG, "")
        numbers = self._owners.among(int(each.tag) for each in runtimes if re.fullmatch("[0-9]{1,9}", each.tag))
        tags = {own} if own else {str(number) for number in numbers}
        said = [runtime.tag for runtime in runtimes]
        return [runtime for runtime in runtimes if runtime.tag in tags and said.count(runtime.tag) == 1]

    def _grouped(self, runtimes: Sequence[Runtime]) -> Iterator[Point]:
        groups: dict[str, list[Runtime]] = {}
        for runtime in runtimes:
            groups.setdefault(group(runtime), []).append(runtime)
        self._alike = False
        for name, members in groups.items():
            own = (c.NEURON_TAG, name) if name else ()
            yield from self._sums(members, own)
            for (whose, result), executions in self._executions.results.items():
                if whose == name:
                    yield self._of[(c.AWS_NEURON_EXECUTION_COUNT, c.NEURON_RESULT, result, *own)](executions)
            for (whose, kind), errors in self._executions.errors.items():
                if whose == name:
                    yield self._of[(c.AWS_NEURON_EXECUTION_ERRORS, c.ERROR_TYPE, kind, *own)](errors)
            yield from self._latencies(members, own)

    def _sums(self, runtimes: Sequence[Runtime], own: tuple[str, ...]) -> Iterator[Point]:
        for where, used in _added(runtime.used for runtime in runtimes).items():
            yield self._of[(c.AWS_NEURON_RUNTIME_MEMORY_USAGE, c.NEURON_MEMORY_TYPE, where, *own)](int(used))
        for category, used in _added(runtime.host for runtime in runtimes).items():
            row = c.AWS_NEURON_RUNTIME_HOST_MEMORY_USAGE
            yield self._of[(row, c.NEURON_MEMORY_CATEGORY, category, *own)](int(used))
        for mode, percent in _added(runtime.cpu for runtime in runtimes).items():
            yield self._of[(c.AWS_NEURON_RUNTIME_CPU_UTILIZATION, c.CPU_MODE, mode, *own)](min(1.0, percent / 100))

    def _latencies(self, runtimes: Sequence[Runtime], own: tuple[str, ...]) -> Iterator[Point]:
        """Quantiles cannot be added: those of one runtime alone."""
        row = c.AWS_NEURON_EXECUTION_LATENCY
        said = [runtime.latency for runtime in runtimes if runtime.latency]
        if len(said) > 1:
            self._alike = True
            return
        wanted = None if self.context.config.names(row) else _QUANTILES
        for (kind, quantile), seconds in said[0].items() if said else ():
            if wanted is None or quantile in wanted:
                yield self._of[(row, c.NEURON_LATENCY, kind, c.NEURON_QUANTILE, quantile, *own)](seconds)

    # -- seldom

    def read_slow(self) -> Iterator[Point]:
        """What hardly changes, memory errors, and who belongs to the program."""
        self._owners.look()
        self._files.look()
        self._wanted = self._wanted or self._owners.computing()
        report = self._monitor.newest if self._monitor else None
        self._look(report)
        if self.context.is_reporter:
            for number in self._chosen(report):
                yield from self._seldom(number, report)
        self.unsupported = [*([self._without] if self._without else []), *self.choice.unsupported()]
        self.unsupported += report.errors if report else ()
        if self._alike:
            self.unsupported.append(_ALIKE)
        if self._unmatched and self._owners.computing():
            self.unsupported.append(_HOST_PIDS)

    def _seldom(self, number: int, report: Report | None) -> Iterator[Point]:
        device, files = self._device(number), self._files
        facts = {
            c.HW_VENDOR: "AWS",
            c.HW_MODEL: files.text(number, "device_name") or self._hardware.model,
            c.HW_SERIAL_NUMBER: files.text(number, "serial_number"),
            c.HW_DRIVER_VERSION: files.version,
        }
        yield device.series(c.HW_NPU_INFO, {name: fact for name, fact in facts.items() if fact})(1)
        errors = files.errors(number, report.ecc.get(number, {}) if report else {})
        yield from device.points({f"errors.{kind}": count for kind, count in errors})
        power = files.power(number)
        if power is not None:
            yield from device.points({"power.utilization": power})
        if self._monitor is None:
            yield from self._categories(number)

    # -- devices

    def _numbers(self, report: Report | None) -> Sequence[int]:
        """The numbers of the devices that there are."""
        return [*self._files.cores] or sorted(report.ecc if report else ())

    def _chosen(self, report: Report | None) -> Iterator[int]:
        """Those of them that are reported."""
        return (number for number in self._numbers(report) if f"neuron{number}" in self.choice)

    def among(self, cores: Iterable[int]) -> Iterator[int]:
        """Those of the cores that are reported."""
        return (core for core in cores if f"neuroncore{core}" in self.choice)

    def _on_device(self) -> int | None:
        """How many of the cores that programs see are on a device; None where nobody says it for certain."""
        logical = self._hardware.logical or 1
        physical = next(iter(self._files.cores.values()), None)
        if physical and physical % logical == 0:
            return physical // logical
        return self._hardware.cores if logical == 1 else None

    def _device(self, number: int) -> Device:
        if number not in self._devices:
            self._devices[number] = Device(f"neuron{number}", f"Neuron {number}", "npu")
        return self._devices[number]

    def _core(self, number: int) -> Device:
        if number not in self._cores:
            many = self._on_device()
            parent = f"neuron{number // many}" if many else ""
            self._cores[number] = Device(f"neuroncore{number}", f"NeuronCore {number}", "npu", parent)
        return self._cores[number]


def _added(parts: Iterator[Mapping[str, int | float]] | Sequence[Mapping[str, int | float]]) -> dict[str, int | float]:
    found: dict[str, int | float] = {}
    for each in parts:
        for name, number in each.items():
            found[name] = found.get(name, 0) + number
    return found


def is_expected(config: Config, exists: Callable[[str], bool]) -> bool:
    """Whether there may be a device: its driver is here, or its tool."""
    return bool(TOOL.with_setting(config.neuron_monitor).path) or is_here(exists)
