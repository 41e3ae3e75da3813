"""The GPUs and NPUs of the kernel's drivers, the only way to read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from opentelemetry.instrumentation.hardware.accelerators.drm import DrmDriver
from opentelemetry.instrumentation.hardware.accelerators.source import AcceleratorSource
from opentelemetry.instrumentation.hardware.sources.drm.device import DrmDevice, Gpu, Npu
from opentelemetry.instrumentation.hardware.sources.drm.fields import GPU_STATS, NPU_BUSY
from opentelemetry.instrumentation.hardware.system.files import Files, read_integer

# Names of drivers in the files of processes, where they differ from the bus.
_NAMES: Final = ("msm", "amdxdna_accel_driver")

# Drivers that list the memory of a process, but not its time.
_UNTIMED: Final = ("nouveau",)

# By driver, what turns on its counters of time, which are off by default.
_PROFILING: Final = {"panfrost": 1, "panthor": 2}

_EACH: Final = "the time of each process only"


class Kernel(DrmDriver):
    """The devices. Their drivers report little more than the processes that use them.

    Their utilization is the sum over all processes, where all can be examined.
    """

    def __init__(self, source: AcceleratorSource, files: Files, gpus: Sequence[str], npus: Sequence[str]) -> None:
        self._source = source
        self._has_walked = False
        makers = {**dict.fromkeys(gpus, Gpu), **dict.fromkeys(npus, Npu)}
        super().__init__(files, makers, _NAMES, source.absent)

    def sample_slow(self) -> None:
        """Add up the utilization of each device, if no program is observed."""
        if not (self._source.context.all_processes and self.everybody.walk()):
            return
        tasks = self.everybody.utilization()
        is_complete = self.everybody.is_complete and self._source.program.on_host
        unused = {"general": 0.0} if self._has_walked else {}
        self._has_walked = True
        for device in self._devices.values():
            assert isinstance(device, DrmDevice)
            known = tasks.get(device.id, {}) if device.id in self.everybody.found else unused
            device.shared = known if is_complete else {}

    def unsupported(self) -> Iterator[str]:
        """Yield why a utilization is missing."""
        for device in self.devices():
            counts = (self._files.exists(f"{device.card.folder}/{name}") for name in (NPU_BUSY, GPU_STATS))
            if (
                any(counts)
                or device.trouble
                or device.is_suspended
                or (isinstance(device, DrmDevice) and device.shared)
            ):
                continue
            hidden = self.everybody.hidden
            path, mode = f"{device.card.folder}/profiling", _PROFILING.get(device.card.driver, 0)
            profiling = read_integer(self._files, path)
            if device.card.driver in _UNTIMED:
                why = f"{device.card.driver} reports none"
            elif mode and profiling is not None and not profiling & mode:
                why = f"{device.card.driver} counts the time only after you write {mode} to {path}"
            elif not self._source.context.all_processes:
                why = f"{device.card.driver} counts {_EACH}; otel-hardware run, as root, adds them up"
            elif hidden:
                why = f"{device.card.driver} counts {_EACH}, and {hidden} cannot be examined; run as root"
            else:
                why = f"{device.card.driver} counts {_EACH}; their sum is known from the second reading on"
            yield f"hw.{device.type}.utilization of {device.name}: {why}"
