"""AMD: its GPUs, by the files of the kernel's driver amdgpu, or by AMD's tools where these cannot be read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.selection import DeviceFilter
from opentelemetry.instrumentation.hardware.drivers.subprocess import setting_path
from opentelemetry.instrumentation.hardware.model import Point, Scope, SeriesCache, Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import Source
from opentelemetry.instrumentation.hardware.system.files import Files
from opentelemetry.instrumentation.hardware.system.machine import machine

if TYPE_CHECKING:  # imported where there may be a GPU
    from opentelemetry.instrumentation.hardware.sources.amd.files import Sysfs
    from opentelemetry.instrumentation.hardware.sources.amd.listing import Listing
    from opentelemetry.instrumentation.hardware.sources.amd.topology import Topology

_SIGNS: Final = ("/sys/module/amdgpu", "/sys/bus/pci/drivers/amdgpu")
"""There is one of them where the driver is loaded, or is a part of the kernel."""

_NO_DRIVER = "no AMD driver is loaded: there is no /sys/module/amdgpu"

_FIX = "rocm-smi or amd-smi should list the GPUs in the same environment"

_QUEUES = (
    "process.gpu.utilization (general): the driver does not count the time of ROCm's queues for each process, only "
    "that of graphics"
)

_HIDDEN = (
    "process.gpu.*: the program computes on a GPU, and it cannot be seen on which: in a container ROCm names processes "
    "by the numbers of the host; start it in the host's process namespace (--pid=host, hostPID: true)"
)


class Amd(Source):
    """The GPUs, and what of them the observed program and its children use."""

    name = "amd"
    scope = Scope.PROCESS
    rows = ("hw.", "process.gpu.")

    @classmethod
    def prepare(cls, config: Config) -> bool:
        """Import what reads GPUs, where there may be one."""
        expected = is_expected(config, os.path.exists)
        if expected:
            from opentelemetry.instrumentation.hardware.sources.amd import files, listing, processes, topology  # noqa: F401
        return expected

    def open(self) -> None:
        """Find the GPUs.

        Raises:
            Unavailable: where there is no driver, or no way to ask it.
        """
        kernel = self.context.drivers.files()
        if not is_expected(self.context.config, kernel.exists):
            raise Unavailable(_NO_DRIVER)
        from opentelemetry.instrumentation.hardware.sources.amd.processes import Processes
        from opentelemetry.instrumentation.hardware.sources.amd.topology import Topology

        self._of = SeriesCache()
        self._instead = ""
        topology = Topology(kernel)
        self.choice = DeviceFilter(self.context.config.devices, self.context.environ, topology.way(), kernel)
        self._gpus = self._way(kernel, topology)
        self.min_interval = self._gpus.min_interval
        cards = topology.cards(self._gpus.addresses)
        self._processes = Processes(kernel, machine(self.context.drivers), self.context.pid, cards)

    def _way(self, kernel: Files, topology: Topology) -> Sysfs | Listing:
        """The files, else a tool.

        Raises:
            Unavailable: where none can be used, with the reasons of all.
            OSError: where a tool could not be asked now.
        """
        from opentelemetry.instrumentation.hardware.sources.amd import amd_smi, rocm_smi
        from opentelemetry.instrumentation.hardware.sources.amd.files import Sysfs, is_here
        from opentelemetry.instrumentation.hardware.sources.amd.listing import Listing, by_amd_smi, by_rocm_smi

        config = self.context.config
        here = is_here(kernel)
        if not (here or setting_path(config.amd_smi) or setting_path(config.rocm_smi)):
            raise Unavailable(_NO_DRIVER)
        reasons = [] if here else [_NO_DRIVER]
        if config.amdgpu == "off":
            reasons.append("the files of amdgpu are switched off")
        else:
            try:
                return Sysfs(kernel, self.choice, topology)
            except Unavailable as gone:
                reasons.append(gone.reason)
        failure: Exception | None = None
        for tool, setting, by in (
            (amd_smi.TOOL, config.amd_smi, by_amd_smi),
            (rocm_smi.TOOL, config.rocm_smi, by_rocm_smi),
        ):
            if setting == "off" or not (here or setting_path(setting)):
                continue
            try:
                listing = Listing(by(self.context.drivers.command(tool.with_setting(setting))), self.choice)
            except Unavailable as gone:
                reasons.append(gone.reason)
            except (OSError, ValueError) as error:
                failure = error
                reasons.append(str(error))
            else:
                self._instead = f"{'; '.join(reasons)}; {tool.name} is asked instead"
                return listing
        if failure is not None:  # it may go by
            raise OSError("; ".join(reasons)) from failure
        raise Unavailable("; ".join(reasons), _FIX if here else "")

    def read(self) -> Iterator[Point]:
        """Some ten files of each GPU, or a run of a tool."""
        if self.context.is_reporter:
            yield from self._gpus.read()
            self.min_interval = self._gpus.min_interval

    def read_slow(self) -> Iterator[Point]:
        """What hardly changes, errors, and what the observed program uses."""
        self._gpus.look()
        used = [*self._used()]  # first: it may be for their use that devices are reported
        if self.context.is_reporter:
            yield from self._gpus.read_slow()
        yield from used
        said = [*([self._instead] if self._instead else []), *self.choice.unsupported(), *self._gpus.unsupported()]
        if self._processes.blind:
            said.append(_HIDDEN)
        elif self._processes.computing:
            said.append(_QUEUES)
        self.unsupported = said

    def _used(self) -> Iterator[Point]:
        """What the observed program uses of each device."""
        used = self._processes.look()
        self._gpus.use(used)
        shares = self._processes.shares(used, self.context.drivers.files().uptime())
        for bdf, device in self._gpus.devices():
            if bdf not in used:
                continue
            memory = used[bdf].memory
            if memory is not None:
                yield self._of[c.PROCESS_GPU_MEMORY_USAGE, c.HW_ID, device.id](memory)
            for task, share in shares.get(bdf, {}).items():
                if task != "general" or not self._processes.computing:
                    yield self._of[c.PROCESS_GPU_UTILIZATION, c.HW_ID, device.id, c.GPU_TASK, task](share)


def is_expected(config: Config, exists: Callable[[str], bool]) -> bool:
    """Whether there may be a GPU: its driver is here, or the settings say where a tool is."""
    return bool(setting_path(config.amd_smi) or setting_path(config.rocm_smi)) or any(map(exists, _SIGNS))
