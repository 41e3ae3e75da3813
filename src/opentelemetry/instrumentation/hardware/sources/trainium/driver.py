"""The Neuron driver's files and neuron-monitor, read together.

The files list the devices with their memory, power and errors. The tool reports the utilization of the cores and the
runtimes of programs. A process that does not report devices starts the tool only once it uses a core.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from opentelemetry.instrumentation.hardware.accelerators.driver import AcceleratorDriver, Holders
from opentelemetry.instrumentation.hardware.accelerators.source import AcceleratorSource
from opentelemetry.instrumentation.hardware.drivers.streaming import Reports
from opentelemetry.instrumentation.hardware.model import Number, Unavailable
from opentelemetry.instrumentation.hardware.sources.trainium.device import NeuronCore, NeuronDevice
from opentelemetry.instrumentation.hardware.sources.trainium.processes import Runtimes, total
from opentelemetry.instrumentation.hardware.sources.trainium.report import Hardware, Report
from opentelemetry.instrumentation.hardware.sources.trainium.sysfs import Sysfs
from opentelemetry.instrumentation.hardware.sources.trainium.tool import open_monitor

# Seconds that the first reading waits for a report. The tool prints its first one at once.
_FIRST_REPORT = 4.0

# Devices of which programs see two physical cores as one, unless the variable is 1.
# https://awsdocs-neuron.readthedocs-hosted.com/en/latest/nki/get-started/about/lnc.html
_GROUPING: Final = ("Trainium2", "Trainium3")

_LOGICAL: Final = "NEURON_LOGICAL_NC_CONFIG"

_TOOL_METRICS: Final = "hw.npu.utilization, aws.neuron.runtime.*, aws.neuron.execution.*"


class Neuron(AcceleratorDriver):
    """The devices of an instance.

    Attributes:
        runtimes: The runtimes of the observed program.

    Raises:
        Unavailable: There are no files of devices, and the tool is not installed or switched off.
    """

    def __init__(self, source: AcceleratorSource) -> None:
        context = source.context
        files = source.linux_files()
        self._program = source.program
        self._environ = context.environ
        self._sysfs = Sysfs(files)
        self._is_listening = context.is_reporter
        self._wait = _FIRST_REPORT
        self._hardware = Hardware()
        self._devices: dict[int, NeuronDevice] = {}
        self._cores: dict[int, NeuronCore] = {}
        self._monitor: Reports[Report] | None = None
        self._no_monitor = ""
        self.runtimes = Runtimes(context, source.program)
        try:
            self._monitor = open_monitor(context.drivers, context.config, context.is_reporter, files.uptime)
        except Unavailable as missing:
            if not self._sysfs.cores:
                raise
            self._no_monitor = f"{_TOOL_METRICS}: {missing.reason}" + (f" ({missing.fix})" if missing.fix else "")

    @property
    def _report(self) -> Report | None:
        return self._monitor.newest if self._monitor else None

    def sample(self) -> bool:
        if self._monitor is None:
            self.errors = () if self._sysfs.cores else ("the Neuron driver has been unloaded",)
            return False
        if not self._is_listening:
            return False
        wait, self._wait = self._wait, 0.0
        with suppress(OSError, Unavailable):  # the tool's metrics are missing, with its error
            for report in self._monitor.read(wait):
                self.runtimes.count(report.runtimes)
                self._hardware = report.hardware
        self.errors = (self._monitor.error,) if self._monitor.error else ()
        self.runtimes.update(self._report)
        return True

    def devices(self) -> Sequence[NeuronDevice]:
        """Return the devices that the files list, or else the tool."""
        self._sysfs.refresh()
        self._is_listening = self._is_listening or self._program.computing()
        report = self._report
        numbers = [*self._sysfs.cores] or sorted(report.ecc if report else ())
        if not numbers and report is None:
            return []
        devices = [self._devices.setdefault(each, NeuronDevice(each, self._sysfs)) for each in numbers or [0]]
        logical = self._logical()
        physical = next(iter(self._sysfs.cores.values()), None)
        per_device = None  # cores of a device, as programs see them
        if physical and physical % logical == 0:
            per_device = physical // logical
        elif logical == 1:
            per_device = self._hardware.cores
        for device in devices:
            device.is_listed = bool(numbers)
            device.hardware = self._hardware
            device.ecc = report.ecc.get(device.index, {}) if report else {}
            device.cores = range(device.index * (per_device or 0), (device.index + 1) * (per_device or 0))
        self._place_cores(devices, report, per_device)
        return devices

    def _logical(self) -> int:
        """Return the number of physical cores that programs see as one core."""
        if self._hardware != Hardware():
            return self._hardware.logical or 1
        if self._sysfs.text(next(iter(self._sysfs.cores), 0), "device_name") not in _GROUPING:
            return 1
        return 1 if self._environ.get(_LOGICAL) == "1" else 2

    def _place_cores(self, devices: Sequence[NeuronDevice], report: Report | None, per_device: int | None) -> None:
        """Assign the cores to their devices, with the utilization and memory that all runtimes report."""
        runtimes = report.runtimes if report else ()
        named = {core for runtime in runtimes for core in runtime.listed_cores}
        unplaced = sorted(named.difference(*(device.cores for device in devices)))
        for device in devices:
            device.possible = dict(enumerate(self._core(core, per_device) for core in (*device.cores, *unplaced)))
            cores = [*device.cores, *(unplaced if device is devices[0] else ())]
            device.parts = dict(enumerate(self._core(core, per_device) for core in cores))
            sizes: list[Number] = []
            for core in cores:
                part = self._cores[core]
                percents = [runtime.percent[core] for runtime in runtimes if core in runtime.percent]
                part.percent = sum(percents) if percents else None
                part.memory = total(runtime.cores[core] for runtime in runtimes if core in runtime.cores)
                sizes += part.memory.values() if core in device.cores else ()
            device.runtime_memory = sum(sizes) if sizes and per_device else None

    def _core(self, number: int, per_device: int | None) -> NeuronCore:
        parent = f"neuron{number // per_device}" if per_device else ""
        core = self._cores.get(number)
        if core is None or core.parent != parent:
            physical = []
            if self._monitor is None and per_device:
                device, place = divmod(number, per_device)
                logical = self._logical()
                cores = range(place * logical, (place + 1) * logical)
                physical = [partial(self._sysfs.memory_by_category, device, each) for each in cores]
            core = self._cores[number] = NeuronCore(number, parent, physical)
        return core

    def holders(self) -> Iterator[tuple[NeuronDevice, Holders]]:
        """Yield the runtimes of all programs that use cores of each device, with their memory on these."""
        for device in self._devices.values():
            sizes: dict[int, int | None] = {}
            for runtime in self._report.runtimes if self._report else ():
                cores = runtime.used_cores & {*device.cores}
                if cores:
                    used = [runtime.cores.get(core) for core in cores]
                    known = [sum(each.values()) for each in used if each is not None]
                    sizes[runtime.pid] = sum(known) if len(known) == len(used) else None
            yield device, sizes

    def unsupported(self) -> Iterator[str]:
        """Yield the metrics that need the missing tool, errors in its report, and runtimes that cannot be matched."""
        if self._no_monitor:
            yield self._no_monitor
        if self._report:
            yield from self._report.errors
        yield from self.runtimes.unsupported()
