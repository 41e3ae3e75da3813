"""nvidia-smi as a driver, for processes that cannot use NVML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from xml.etree.ElementTree import Element

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import Device, DeviceFailed
from opentelemetry.instrumentation.hardware.accelerators.driver import AcceleratorDriver, Holders, Occupancy, Usage
from opentelemetry.instrumentation.hardware.accelerators.facts import fact, known
from opentelemetry.instrumentation.hardware.accelerators.fields import Field
from opentelemetry.instrumentation.hardware.accelerators.source import AcceleratorSource
from opentelemetry.instrumentation.hardware.drivers.backoff import Backoff
from opentelemetry.instrumentation.hardware.model import Point, Series
from opentelemetry.instrumentation.hardware.sources.nvidia import fields as f
from opentelemetry.instrumentation.hardware.sources.nvidia import tool_output as output
from opentelemetry.instrumentation.hardware.sources.nvidia.calls import REMEDIES
from opentelemetry.instrumentation.hardware.sources.nvidia.components import component, fabric_state
from opentelemetry.instrumentation.hardware.sources.nvidia.jetson import Host
from opentelemetry.instrumentation.hardware.sources.nvidia.processes import shared_memory, usage
from opentelemetry.instrumentation.hardware.sources.nvidia.visible import cuda_aliases
from opentelemetry.instrumentation.hardware.system.files import integer
from opentelemetry.instrumentation.hardware.system.tree import ProcessTree

# Minimum seconds between two runs. A run takes tens of milliseconds, or seconds if it has to load the driver.
MIN_INTERVAL: Final = 10.0

_MODES: Final = ("EXCLUSIVE_PROCESS", "PROHIBITED")  # those in which not every process may compute


class SmiDevice(Device):
    """A GPU or MIG instance of the newest document.

    Attributes:
        texts: The texts of its element by path.
        users: By PID of each process that uses it, the bytes in use.
        computing: The PIDs of the processes that compute.
    """

    def __init__(self, id: str, name: str, index: int, parent: str = "") -> None:  # noqa: A002
        super().__init__(id, name, parent=parent, index=index)
        self.backoff = Backoff(1, 1)  # the tool was run anyway
        self.state = "ok"
        self.texts: Mapping[str, str] = {}
        self.users: dict[int, int | None] = {}
        self.computing: set[int] = set()

    def values(self, table: Mapping[Field, Sequence[str]]) -> dict[Field, object]:
        """Return the first plausible value of each field. Used memory is not plausible without a total."""
        found: dict[Field, object] = {}
        for field, spellings in table.items():
            try:
                found[field] = output.plausible(self.texts, field, spellings)
            except ValueError as error:
                self.unsupported[field.series] = str(error)
        if f.XML_USED in found and f.XML_TOTAL not in found:
            del found[f.XML_USED]
            self.unsupported[f.XML_USED.series] = "the total is missing"
        return found


class SmiInstance(SmiDevice):
    """A MIG instance.

    Attributes:
        ids: The driver's numbers of GPU instance and compute instance.
    """

    def __init__(self, gpu: SmiGpu, id: str, slot: int, ids: tuple[int | None, int | None]) -> None:  # noqa: A002
        super().__init__(id, f"MIG {gpu.index}/{slot}", gpu.index, gpu.id)
        self.ids = ids
        self.aliases = () if None in ids else (f"MIG-{gpu.id}/{ids[0]}/{ids[1]}",)
        self.address = gpu.address

    def read(self) -> Iterator[Point]:
        values = self.values({field: f.XML[field] for field in (f.XML_TOTAL, f.XML_USED)})
        self.unsupported.clear()  # its GPU has the same elements
        yield from self.points(values)


class SmiGpu(SmiDevice):
    """A GPU."""

    remedies = REMEDIES
    parts: dict[int, SmiInstance]  # type: ignore[assignment]

    def __init__(self, id: str, index: int, host: Host, wants_errors: bool = False) -> None:  # noqa: A002
        super().__init__(id, f"GPU {index}", index)
        self.is_unidentified = id == f"gpu{index}"
        self.aliases = () if self.is_unidentified else cuda_aliases(id)
        self._fan = self.new_fan(0)
        self._fabric = component(self, "fabric", "network")
        self._components = {name: component(self, name, name) for name in f.XML_SCOPES}
        self._fields = f.XML | f.XML_VOLATILE_ERRORS if wants_errors else f.XML
        self._host = host
        self._lost = ""
        self._has_processes = False

    def update(self, element: Element, driver: str, cuda: str = "") -> None:
        """Store the values of the newest document."""
        self.texts = words = output.texts(element)
        self._lost = next((text for text in words.values() if text in output.LOST), "")
        self.address = output.pci_address(words.get("pci/pci_bus_id", "")) or output.pci_address(element.get("id", ""))
        facts: dict[str, str | int] = {
            c.HW_VENDOR: "NVIDIA",
            c.HW_MODEL: fact(words.get("product_name", "")),
            c.HW_SERIAL_NUMBER: fact(words.get("serial", ""), "[0-9A-Za-z-]{1,64}"),
            c.HW_DRIVER_VERSION: driver,
            c.HW_FIRMWARE_VERSION: fact(words.get("vbios_version", ""), "[0-9A-Fa-f.]{1,64}"),
            c.PCI_BDF: self.address,
            c.GPU_TYPE: self._type(),
            c.GPU_ECC_MODE: fact(words.get("ecc_mode/current_ecc", ""), "Enabled|Disabled").lower(),
            c.GPU_PERSISTENCE_MODE: fact(words.get("persistence_mode", ""), "Enabled|Disabled").lower(),
            c.GPU_CUDA_VERSION: cuda,
            c.GPU_INDEX: self.index,
        }
        self.facts = known(facts)
        is_pending = any(words.get(path) == "Yes" for path in f.XML_DEGRADED)
        self.state = "degraded" if is_pending or fact(words.get("gpu_recovery_action", "")) else "ok"
        self._fabric.state = "" if self._lost else self._fabric_state()
        self.parts = {} if self._lost else dict(self._instances(element))
        self.is_divided = bool(self.parts) or words.get("mig_mode/current_mig") == "Enabled"
        self._take_users(element)

    def _type(self) -> str:
        """Return ``integrated`` for a GPU that shares the memory of the host and so reports no memory of its own."""
        whole = self.texts.get("fb_memory_usage")
        texts = [self.texts.get(f"fb_memory_usage/{part}", whole) for part in ("total", "used")]
        return "integrated" if all(text in ("N/A", "Not Supported") for text in texts) else "discrete"

    def _fabric_state(self) -> str:
        """Return the state of the NVLink fabric by the rules of :func:`~.components.fabric_state`."""
        texts = self.texts
        state = f.XML_FABRIC.get(texts.get("fabric/state", ""), 0)
        has_error = fact(texts.get("fabric/status", "")) not in ("", "Success")
        has_fault = any(texts.get(f"fabric/health/{name}") == word for name, word in f.XML_FABRIC_FAULTS)
        return fabric_state(state, int(has_error), int(has_fault))

    def _instances(self, element: Element) -> Iterator[tuple[int, SmiInstance]]:
        for each in element.iter("mig_device"):
            words = output.texts(each)
            slot = integer(words.get("index", ""))
            if slot is None:
                continue
            ids = output.instance_ids(words)
            uuid = fact(words.get("uuid", ""), "MIG-[0-9a-fA-F/GPU-]{4,100}") or f"{self.id}/{ids[0]}/{ids[1]}"
            part = self.parts.get(slot)
            if part is None or part.id != uuid:
                part = SmiInstance(self, uuid, slot, ids)
            part.texts = words
            part.facts = {**self.facts, c.GPU_TYPE: "partition"}
            yield slot, part

    def _take_users(self, element: Element) -> None:
        """Store the processes of the GPU, or of its instances."""
        listed = element.find("processes")
        self._has_processes = (
            listed is not None
            and output.clean(listed.text or "") in ("", "None")
            and all(integer(pid.text or "") for pid in listed.iter("pid"))
        )
        for device in (self, *self.parts.values()):
            device.users, device.computing = {}, set()
        instances = {part.ids: part for part in self.parts.values()}
        for pid, ids, size, computes in () if self._lost else output.processes(element):
            user_of = instances.get(ids) if instances else self
            if user_of is not None:
                user_of.users[pid] = size
                if computes:
                    user_of.computing.add(pid)

    def read(self) -> Iterator[Point]:
        self.unsupported.clear()
        found = self.values(self._fields)
        if self._lost or (not found and output.UNKNOWN in self.texts.values()):
            raise DeviceFailed(self._lost or output.UNKNOWN)
        reasons: dict[Field, object] = {}
        for field, spellings in f.XML_REASONS.items():
            text = next((self.texts[path] for path in spellings if path in self.texts), "")
            if text in ("Active", "Not Active"):
                reasons[field] = int(text == "Active")
        found = {field: value for field, value in found.items() if field.series not in self.integrated}
        host: dict[Field, object] = {}
        if self.facts[c.GPU_TYPE] == "integrated":
            found = {field: value for field, value in found.items() if field not in f.NOT_INTEGRATED}
            self.unsupported.update((field.series, reason) for field, reason in f.NOT_INTEGRATED.items())
            memory = shared_memory(self.users if self._has_processes else {0: None}, self._host.total_memory())
            host = self._host.jetson.values() | {field: size for field, size in memory.items() if size is not None}
        fan = found.pop(f.FAN_RATIO, None)
        yield from self.points({**host, **reasons, **found})
        if fan is not None:
            yield from self._fan.points({f.FAN_RATIO: fan})
        for name, paths in f.XML_SCOPES.items():
            path = next((path for path in paths if f.XML_POWER.is_plausible(self.texts.get(path))), "")
            if path:
                yield from self._components[name].points({f.XML_POWER: self.texts[path]})
        for series in [key for key in self.unsupported if isinstance(key, Series) and key.metric.opt_in]:
            del self.unsupported[series]
        self.unsupported.update((field.series, output.NOT_REPORTED) for field in f.NOT_IN_XML)
        self.unsupported[c.PROCESS_GPU_UTILIZATION.name] = output.NOT_REPORTED

    def identity_points(self) -> Iterator[Point]:
        yield from super().identity_points()
        yield from self._fabric.identity_points()

    def check_suspended(self) -> bool:
        """Whether all GPUs are suspended. The tool would wake all of them."""
        return self._host.power.are_all_suspended()


class NvidiaSmi(AcceleratorDriver):
    """The tool. Opening and sampling it raise the errors of :func:`.tool_output.run`."""

    min_interval = MIN_INTERVAL
    is_fresh = True

    def __init__(self, source: AcceleratorSource, host: Host) -> None:
        context = source.context
        self._source = source
        self._command = context.drivers.command(output.TOOL.with_setting(context.config.nvidia_smi))
        self._host = host
        self._gpus: dict[str, SmiGpu] = {}
        self._take(output.run(self._command))

    def _take(self, document: output.Document) -> None:
        self.errors = [document.problem] if document.problem else []
        self._listed: list[SmiGpu] = []
        wants_errors = self._source.context.config.wants(c.HW_GPU_MEMORY_ERRORS)
        for index, element in enumerate(document.gpus):
            uuid = fact(element.findtext("uuid") or "", "(GPU-)?[0-9a-fA-F-]{4,64}") or f"gpu{index}"
            gpu = self._gpus.setdefault(uuid, SmiGpu(uuid, index, self._host, wants_errors))
            gpu.update(element, document.driver, document.cuda)
            self._listed.append(gpu)
        self._units = [unit for gpu in self._listed for unit in gpu.parts.values() or (gpu,)]

    def devices(self) -> Sequence[SmiGpu]:
        return self._listed

    def sample(self) -> bool:
        """Run the tool, unless it would wake the GPUs."""
        if not self._host.power.are_all_suspended():
            self._take(output.run(self._command))
        return True

    def usage(self, program: ProcessTree) -> Iterator[Usage]:
        selection = self._source.selection
        program_pids = program.among(pid for device in self._units for pid in device.users)
        for device in self._units:
            own = program_pids & device.users.keys()
            if own and (selection.by_use or device.id in selection):
                yield device, usage(device.users, own)

    def holders(self) -> Iterator[tuple[Device, Holders]]:
        return ((device, device.users) for device in self._units)

    def occupancy(self) -> Iterator[tuple[Device, Occupancy]]:
        for gpu in self._listed:
            mode = gpu.texts.get("compute_mode", "").upper()
            for device in gpu.parts.values() or (gpu,):
                yield device, Occupancy(device.computing, mode if mode in _MODES else "")
