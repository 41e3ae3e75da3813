"""NVML as a driver: the list of GPUs and MIG instances, critical events, and processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, cast

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import Device, DeviceFailed
from opentelemetry.instrumentation.hardware.accelerators.driver import AcceleratorDriver, Holders, Occupancy, Usage
from opentelemetry.instrumentation.hardware.accelerators.presence import exists
from opentelemetry.instrumentation.hardware.accelerators.source import AcceleratorSource
from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.drivers.subprocess import setting_path
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.settings.log import logger
from opentelemetry.instrumentation.hardware.sources import SourceContext
from opentelemetry.instrumentation.hardware.sources.nvidia import codes
from opentelemetry.instrumentation.hardware.sources.nvidia import fields as f
from opentelemetry.instrumentation.hardware.sources.nvidia import nvml as n
from opentelemetry.instrumentation.hardware.sources.nvidia.calls import FATAL, NvmlDevice
from opentelemetry.instrumentation.hardware.sources.nvidia.device import Gpu
from opentelemetry.instrumentation.hardware.sources.nvidia.jetson import Host
from opentelemetry.instrumentation.hardware.sources.nvidia.processes import usage
from opentelemetry.instrumentation.hardware.sources.nvidia.xids import CATALOG, XIDS, Xid
from opentelemetry.instrumentation.hardware.system.files import read_text
from opentelemetry.instrumentation.hardware.system.tree import ProcessTree

_LOG = logger(__name__)

# Codes after which this process cannot use the library any more, and what to do.
_PERMANENT: Final = {
    codes.NO_PERMISSION: "this user needs to read and write /dev/nvidiactl and the GPUs' files, /dev/nvidia0 and so on",
    codes.DRIVER_NOT_LOADED: "modprobe nvidia; a container needs to be started with the GPUs (docker run --gpus all)",
    codes.NO_LIBRARY: "",
    codes.FUNCTION_NOT_FOUND: "",
    codes.VERSION_MISMATCH: "the driver was exchanged while it ran: restart the machine, or recreate the container",
}

# The variable with the folder of the pipes of CUDA's multi-process service (MPS), and its default.
_MPS_VARIABLE: Final = "CUDA_MPS_PIPE_DIRECTORY"
_MPS_FOLDER: Final = "/tmp/nvidia-mps"
_MPS_LIST: Final = "MPSCompute"  # the list of its clients, which are in no other list
_MPS_SERVER: Final = "nvidia-cuda-mps"  # the first 15 characters of its server's name, which are those in /proc

# By NVML's compute mode, who may compute; all others are the default.
_MODES: Final = {2: "PROHIBITED", 3: "EXCLUSIVE_PROCESS"}

# Driver versions, from the first to before the second, with a process list in an undeclared format.
_BROKEN_LISTS: Final = ((535, 43), (535, 98))


class Library(AcceleratorDriver):
    """NVML in this process.

    Raises:
        Unavailable: This process cannot use the library.
        DriverError: The library cannot be used now.
    """

    reads_for_spans = True

    def __init__(self, source: AcceleratorSource, host: Host) -> None:
        self._source = source
        self._host = host
        try:
            self.nvml: n.Nvml = source.context.drivers.custom("nvml", lambda: _library(source.context))
        except DriverError as error:
            if error.code in _PERMANENT:
                raise Unavailable(error.text, _PERMANENT[error.code]) from None
            raise
        self._logged: set[tuple[str, int]] = set()
        self._users: Sequence[tuple[Device, Holders]] = ()
        try:
            has_mps = exists(source.context.environ.get(_MPS_VARIABLE) or _MPS_FOLDER, source.files)
            self._lists = ("Compute", "Graphics", *((_MPS_LIST,) if has_mps else ()))
            version = tuple(int(part) for part in n.driver_version(self.nvml).split(".") if part.isdecimal())
            self._has_broken_lists = _BROKEN_LISTS[0] <= version < _BROKEN_LISTS[1]
            self.gpus = [self._opened(index) for index in range(self.nvml.count())]
        except BaseException:
            self.nvml.release()
            raise

    def _opened(self, index: int) -> Gpu:
        config = self._source.context.config
        gpu = Gpu(self.nvml, str(index), self._host, config)
        if config.simulate:
            gpu.name = f"{gpu.name} simulated"
        try:
            gpu.open()
        except DeviceFailed as failed:
            gpu.fail(str(failed))
        return gpu

    def devices(self) -> Sequence[Gpu]:
        known = {gpu.id for gpu in self.gpus}
        for index, gpu in enumerate(self.gpus):
            if gpu.trouble and gpu.successor and gpu.successor not in known:
                _LOG.info("%s (%s) has been replaced by %s", gpu.name, gpu.id, gpu.successor)
                self.gpus[index] = self._opened(index)
        for gpu in self.gpus:
            gpu.find_parts()
        if self._source.context.is_reporter:
            self._listen()
        return self.gpus

    def sample(self) -> bool:
        self._take_events()
        return False

    # -- events

    def _listen(self) -> None:
        """Register for critical events of the GPUs that respond."""
        responding = [gpu for gpu in self.gpus if not gpu.trouble]
        new = [gpu for gpu in responding if gpu.xids is None and f.XID.series not in gpu.unsupported]
        if any(gpu.has_returned for gpu in responding):  # what its reset left of the registrations is not known
            self._take_events()
            self.nvml.deafen()
            new += [gpu for gpu in self.gpus if gpu.xids is not None]
        if not new:
            return
        registered: list[str] = []
        reason = "the driver reports no events"
        try:
            registered = self.nvml.listen([gpu.key for gpu in new])
        except DriverError as error:
            reason = error.text
        for gpu in new:
            gpu.has_returned = False
            if gpu.key in registered:
                gpu.xids = gpu.xids or Counter({f.xid(number): 0 for number in (*f.HARDWARE_XIDS, "other")})
            elif not gpu.trouble:
                gpu.xids, gpu.unsupported[f.XID.series] = None, reason

    def _take_events(self) -> None:
        listening = {gpu.key: gpu for gpu in self.gpus if gpu.xids is not None}
        try:
            events = self.nvml.events() if listening else []
        except DriverError as error:
            if error.code in FATAL:
                raise
            return  # they cannot be read while a device is lost
        for key, xid in events:
            gpu = listening.get(key)
            if gpu is None or gpu.xids is None:
                continue
            gpu.xids[f.xid(xid)] += 1
            known = XIDS.get(xid, Xid("not in the table of this package", f"see {CATALOG}"))
            facts = {c.GPU_XID: str(xid), c.FAULT_REMEDY: known.remedy}
            gpu.add_event(c.XID_EVENT, not known.is_of_program, f"Xid {xid}: {known.meaning}", facts)
            if (key, xid) not in self._logged and gpu.id in self._source.selection:
                self._logged.add((key, xid))
                _LOG.warning("%s (%s): Xid %d: %s; see %s", gpu.name, gpu.id, xid, known.meaning, CATALOG)

    # -- processes

    def usage(self, program: ProcessTree) -> Iterator[Usage]:
        if self._has_broken_lists:
            for gpu in self.gpus:
                gpu.unsupported[f.PROCESS_MEMORY.series] = (
                    "the process list of this driver is not readable; 535.98 and later are"
                )
            return
        users = self._listed()
        files = self._source.files
        if files is not None and _MPS_LIST not in self._lists:  # any user can start MPS at any time
            names = (read_text(files, f"/proc/{pid}/comm") for pids in users.values() for pid in pids)
            if _MPS_SERVER in names:
                self._lists = (*self._lists, _MPS_LIST)
                users = self._listed()
        self._users = [*users.items()]
        program_pids = program.among(pid for listed in users.values() for pid in listed)
        for device, listed in users.items():
            own = program_pids & listed.keys()
            if own:
                shares = None if self.only_looks else device.shares()
                found = usage(listed, own, shares if shares is not None and program.exist(shares) else None)
                if device.facts.get(c.GPU_TYPE) == "integrated":
                    found.pop(f.PROCESS_UTILIZATION[1], None)  # of its memory, always 0 as that of the GPU
                yield device, found

    def _listed(self) -> dict[NvmlDevice, Holders]:
        """Return the processes of each GPU, or of its MIG instances."""
        selection = self._source.selection
        return {
            device: device.users(self._lists)
            for gpu in self.gpus
            if not (gpu.trouble or gpu.check_suspended())
            for device in gpu.parts.values() or (gpu,)
            if selection.by_use or device.id in selection
        }

    def holders(self) -> Iterable[tuple[Device, Holders]]:
        """Return the processes that use each GPU, or its MIG instances, as of the newest :meth:`usage`."""
        return [(device, users) for device, users in self._users if f.PROCESS_MEMORY.series not in device.unsupported]

    def shares(self, device: Device) -> Mapping[int, float] | None:
        """Return the share of the time in which each process ran on the SMs."""
        percents = cast(NvmlDevice, device).shares()
        return None if percents is None else {pid: percent[0] / 100 for pid, percent in percents.items()}

    def occupancy(self) -> Iterator[tuple[Device, Occupancy]]:
        for gpu in self.gpus:
            if gpu.trouble or gpu.check_suspended():
                continue
            mode = ""
            with suppress(DriverError):
                mode = _MODES.get(self.nvml.get(gpu.key, "ComputeMode"), "")
            for device in gpu.parts.values() or (gpu,):
                pids = None
                with suppress(DriverError):
                    if not self._has_broken_lists:
                        pids = {pid for pid, _ in self.nvml.processes(device.key, "Compute")}
                        if _MPS_LIST in self._lists:  # GPUs before Volta have none
                            pids |= {pid for pid, _ in self.nvml.processes(device.key, _MPS_LIST)}
                yield device, Occupancy(pids, mode)

    def close(self) -> None:
        """Release the library. While it is open, the GPUs cannot be reset."""
        self.nvml.release()


def _library(context: SourceContext) -> n.Nvml:
    """Return NVML, or what takes its place on a simulated machine."""
    config = context.config
    if config.simulate is None:
        return n.Nvml(setting_path(config.nvml))
    from opentelemetry.instrumentation.hardware.drivers.simulated import SimulatedDrivers
    from opentelemetry.instrumentation.hardware.simulator.machine import announce, machine
    from opentelemetry.instrumentation.hardware.sources.nvidia.simulated import SimulatedNvml

    announce(config.name_of("simulate"), config.simulate, "NVIDIA")
    drivers = context.drivers
    if isinstance(drivers, SimulatedDrivers):
        return cast("n.Nvml", SimulatedNvml(drivers.simulated, context.pid))
    return cast("n.Nvml", SimulatedNvml(machine(config.simulate, config.simulate_speed), context.pid))
