"""NVIDIA: its GPUs, by its management library, or by nvidia-smi where the library cannot be used."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.selection import DeviceFilter
from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.drivers.subprocess import setting_path
from opentelemetry.instrumentation.hardware.model import Point, Scope, SeriesCache, Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import Source
from opentelemetry.instrumentation.hardware.sources.nvidia import nvml as n
from opentelemetry.instrumentation.hardware.sources.nvidia.naps import Naps
from opentelemetry.instrumentation.hardware.system.files import Files
from opentelemetry.instrumentation.hardware.system.machine import machine
from opentelemetry.instrumentation.hardware.system.process_tree import ProcessTree

if TYPE_CHECKING:  # the rest is imported where there is a driver
    from opentelemetry.instrumentation.hardware.sources.nvidia.gpus import Library
    from opentelemetry.instrumentation.hardware.sources.nvidia.listing import Listing

_COMPUTE = "/dev/nvidia-uvm"
"""What a program opens to compute; NVML does not."""

_PIPES = "CUDA_MPS_PIPE_DIRECTORY"
_MPS = "/tmp/nvidia-mps"
"""Where programs meet CUDA's multi-process service: the variable that says it, and where it is by default."""

_BARRED = (n.NO_PERMISSION, n.DRIVER_NOT_LOADED, n.NO_LIBRARY, n.FUNCTION_NOT_FOUND, n.VERSION_MISMATCH)
"""Codes of a library that this process will never be able to use; a tool, started anew each time, may be."""

_HOST_PIDS = (
    "process.gpu.*: the driver names processes by the numbers of the host, which cannot be seen from this container; "
    "start it in the host's process namespace (--pid=host, hostPID: true)"
)


_ASLEEP = "hw.gpu.*: the GPUs sleep, and are not woken to be asked; they are reported as soon as a program uses them"

_NO_DRIVER = "no NVIDIA driver is loaded: there is neither /sys/module/nvidia nor /proc/driver/nvidia"

_NO_WAY = "NVML and nvidia-smi are both switched off"

_FIX = "nvidia-smi should work in the same environment; in a container the NVIDIA Container Toolkit brings the library"

_FIXES: Final = {
    n.NO_PERMISSION: "this user needs to read and write /dev/nvidiactl and the GPUs' files, /dev/nvidia0 and so on",
    n.DRIVER_NOT_LOADED: "modprobe nvidia; a container needs to be started with the GPUs (docker run --gpus all)",
    n.VERSION_MISMATCH: "the driver was exchanged while it ran: restart the machine; a container needs to be made anew",
}
"""What to do where the library cannot be used, by the code that it ended with."""


class Nvidia(Source):
    """The GPUs, and what of them the observed program and its children use."""

    name = "nvidia"
    scope = Scope.PROCESS
    rows = ("hw.", "process.gpu.")

    @classmethod
    def prepare(cls, config: Config) -> bool:
        """Import what asks a driver, where there may be one."""
        expected = is_expected(config, os.path.exists)
        if expected:
            from opentelemetry.instrumentation.hardware.sources.nvidia import gpus, listing  # noqa: F401

            if config.nvml != "off":
                import pynvml  # noqa: F401
        return expected

    def open(self) -> None:
        """Find the GPUs.

        Raises:
            Unavailable: where there is no driver, or no way to ask it.
        """
        kernel = self._kernel()
        self._exists = os.path.exists if kernel is None else kernel.exists
        if not is_expected(self.context.config, self._exists):
            raise Unavailable(_NO_WAY if n.is_here(self._exists) else _NO_DRIVER)
        from opentelemetry.instrumentation.hardware.sources.nvidia.visible import WAY

        self._of = SeriesCache()
        self._blind = False
        self.choice = DeviceFilter(self.context.config.devices, self.context.environ, WAY, kernel)
        self._naps = Naps(kernel)
        self._owners = ProcessTree(machine(self.context.drivers), kernel, self.context.pid, _COMPUTE)
        self._gpus: Library | Listing | None = None
        self._by_library = False
        self._wake()

    def _wake(self) -> None:
        """Look for a way to the GPUs, unless that would wake them: as soon as a program has."""
        if self._gpus is None and not self._naps.all():
            self._gpus = self._way()

    def _kernel(self) -> Files | None:
        try:
            return self.context.drivers.files()
        except Unavailable:
            return None

    def _way(self) -> Library | Listing:
        """The library, else the tool.

        Raises:
            Unavailable: where neither can be used, with the reasons of both.
        """
        config = self.context.config
        here = n.is_here(self._exists)
        reasons = ["NVML is switched off"] if config.nvml == "off" else [] if here else [_NO_DRIVER]
        fix = _FIX if here else ""
        self._instead = ""
        if config.nvml != "off" and (here or setting_path(config.nvml)):
            try:
                return self._library()
            except DriverError as refusal:
                if refusal.code not in _BARRED:
                    raise  # it may pass: tried again after a pause
                reasons, fix = [f"NVML: {refusal.text}"], _FIXES.get(refusal.code, fix)
        if config.nvidia_smi != "off" and (here or setting_path(config.nvidia_smi)):
            try:
                listing = self._listing()
            except Unavailable as gone:
                reasons.append(f"nvidia-smi: {gone.reason}")
            else:
                self._instead = f"{reasons[0]}; nvidia-smi is asked instead" if reasons else ""
                return listing
        raise Unavailable("; ".join(reasons), fix)

    def _listing(self) -> Listing:
        from opentelemetry.instrumentation.hardware.sources.nvidia.listing import PACE, Listing
        from opentelemetry.instrumentation.hardware.sources.nvidia.smi import TOOL, Smi

        command = self.context.drivers.command(TOOL.with_setting(self.context.config.nvidia_smi))
        listing = Listing(Smi(command), self.choice, self._naps)
        self.min_interval = PACE
        return listing

    def _library(self) -> Library:
        from opentelemetry.instrumentation.hardware.sources.nvidia.gpus import Library

        nvml = self.context.drivers.custom("nvml", lambda: n.Nvml(setting_path(self.context.config.nvml)))
        try:
            library = Library(nvml, self.choice, self._naps, self._exists(self.context.environ.get(_PIPES) or _MPS))
            if self.context.is_reporter:
                library.listen()
        except BaseException:
            nvml.release()
            raise
        self._by_library = True
        return library

    def binding(self) -> n.Nvml | None:
        """The library for another user, who lets go of it; None where it is not by it that the GPUs are asked.

        Raises:
            DriverError: where it cannot be used any more.
        """
        return n.Nvml(setting_path(self.context.config.nvml)) if self._by_library else None

    def read(self) -> Iterator[Point]:
        """Some ten calls for each GPU."""
        if self._gpus is not None and self.context.is_reporter:
            yield from self._gpus.read()

    def read_slow(self) -> Iterator[Point]:
        """What hardly changes, errors, and whose processes use the GPUs."""
        self._wake()
        if self._gpus is None:
            self.unsupported = [_ASLEEP]
            return
        if not self.context.is_reporter:  # others are asked by read()
            self._gpus.refresh()
        self._gpus.look()
        used = [*self._used(self._gpus)]  # first: it may be for their use that devices are reported
        if self.context.is_reporter:
            yield from self._gpus.read_slow()
        yield from used
        self.unsupported = [sentence for sentence in (self._instead, *self.choice.unsupported()) if sentence]
        self.unsupported += self._gpus.unsupported()
        if self._blind:
            self.unsupported.append(_HOST_PIDS)

    def _used(self, gpus: Library | Listing) -> Iterator[Point]:
        """What the observed program uses of each device."""
        self._owners.refresh()
        seen = False
        for gpu, users in gpus.users():
            ours = self._owners.among(users)
            seen = seen or bool(ours)
            if not ours:
                continue
            self.choice.use(gpu.device.id)
            sizes = [size for pid in ours if (size := users[pid]) is not None]
            if sizes:
                yield self._of[c.PROCESS_GPU_MEMORY_USAGE, c.HW_ID, gpu.device.id](sum(sizes))
            shares = gpu.shares()
            if shares is None:
                continue
            for task in ("sm", "memory", "encoder", "decoder"):
                share = sum(shares[pid][task] for pid in ours if pid in shares)
                yield self._of[c.PROCESS_GPU_UTILIZATION, c.HW_ID, gpu.device.id, c.GPU_TASK, task](min(1.0, share))
        self._blind = not (seen or self._owners.on_host) and self._owners.computing()

    def close(self) -> None:
        """Let go of the GPUs: an open library keeps them from being reset."""
        try:
            gpus: Library | Listing | None = getattr(self, "_gpus", None)  # opening may have failed
            if gpus is not None:
                gpus.release()
        finally:
            super().close()


def is_expected(config: Config, exists: Callable[[str], bool]) -> bool:
    """Whether there is a driver, or the user says where to find a way to one."""
    ways = (config.nvml, config.nvidia_smi)
    return any(map(setting_path, ways)) or (n.is_here(exists) and any(way != "off" for way in ways))
