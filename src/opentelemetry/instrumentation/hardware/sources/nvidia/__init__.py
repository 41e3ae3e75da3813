"""NVIDIA: its GPUs, by its management library, or by nvidia-smi where the library cannot be used."""

from __future__ import annotations

import os
from collections.abc import Iterator

from opentelemetry.instrumentation.hardware import vocabulary as v
from opentelemetry.instrumentation.hardware.config import Config
from opentelemetry.instrumentation.hardware.drivers import Kernel, Refusal
from opentelemetry.instrumentation.hardware.machine import machine
from opentelemetry.instrumentation.hardware.model import Kept, Point, Scope, Unavailable
from opentelemetry.instrumentation.hardware.owners import Owners
from opentelemetry.instrumentation.hardware.sources import Source
from opentelemetry.instrumentation.hardware.sources.nvidia import nvml as n
from opentelemetry.instrumentation.hardware.sources.nvidia.library import Library
from opentelemetry.instrumentation.hardware.sources.nvidia.nvml import Nvml

_COMPUTE = "/dev/nvidia-uvm"
"""What a program opens to compute; NVML does not."""

_HOST_PIDS = (
    "process.gpu.*: the driver names processes by the numbers of the host, which cannot be seen from this container; "
    "start it in the host's process namespace (--pid=host, hostPID: true)"
)


class Nvidia(Source):
    """The GPUs, and what of them the observed program and its children use."""

    name = "nvidia"
    scope = Scope.PROCESS

    @classmethod
    def prepare(cls, config: Config) -> None:
        """Import the library's binding, where there is something to bind to."""
        if config.nvml not in (None, "auto", "off") or n.is_here(os.path.exists):
            import pynvml  # noqa: F401

    def open(self) -> None:
        """Find the GPUs.

        Raises:
            Unavailable: where there is no driver, or no way to ask it.
        """
        self._of = Kept()
        kernel = self._kernel()
        self._machine = machine(self.site.drivers)
        self._nvml = self._library(kernel)
        self._gpus = Library(self._nvml)
        self._owners = Owners(self._machine, kernel, self.site.pid, _COMPUTE)
        if not self.site.member:
            self._gpus.listen()

    def _kernel(self) -> Kernel | None:
        try:
            return self.site.drivers.kernel()
        except Unavailable:
            return None

    def _library(self, kernel: Kernel | None) -> Nvml:
        where = self.site.config.nvml or "auto"
        path = "" if where == "auto" else where
        if not path and not n.is_here(os.path.exists if kernel is None else kernel.exists):
            raise Unavailable("no NVIDIA driver is loaded: there is neither /sys/module/nvidia nor /proc/driver/nvidia")
        try:
            return self.site.drivers.own("nvml", lambda: Nvml(path))
        except Refusal as refusal:
            raise Unavailable(f"NVML: {refusal.text}") from None

    def read(self) -> Iterator[Point]:
        """Some ten calls for each GPU."""
        if not self.site.member:
            yield from self._gpus.read()

    def read_seldom(self) -> Iterator[Point]:
        """What hardly changes, errors, and whose processes use the GPUs."""
        if not self.site.member:
            yield from self._gpus.read_seldom()
        yield from self._used()
        self.missing = self._gpus.missing()
        if self._blind:
            self.missing.append(_HOST_PIDS)

    def _used(self) -> Iterator[Point]:
        """What the observed program uses of each device."""
        self._owners.look()
        seen = False
        for gpu, users in self._gpus.users():
            ours = self._owners.among(users)
            seen = seen or bool(ours)
            if not ours:
                continue
            sizes = [size for pid in ours if (size := users[pid]) is not None]
            if sizes:
                yield self._of[v.PROCESS_GPU_MEMORY_USAGE, v.HW_ID, gpu.device.id](sum(sizes))
            shares = gpu.shares()
            for task in ("sm", "memory", "encoder", "decoder") if shares else ():
                share = sum(shares[pid][task] for pid in ours if pid in shares)
                yield self._of[v.PROCESS_GPU_UTILIZATION, v.HW_ID, gpu.device.id, v.GPU_TASK, task](min(1.0, share))
        self._blind = not (seen or self._owners.on_host) and self._owners.computing()

    def close(self) -> None:
        """Let go of the GPUs: an open library keeps them from being reset."""
        nvml = getattr(self, "_nvml", None)
        if nvml is not None:
            nvml.release()
        super().close()
