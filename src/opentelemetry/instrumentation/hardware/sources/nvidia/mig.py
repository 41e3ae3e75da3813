"""The MIG instances of a GPU by NVML."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import DeviceFailed
from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.model import Point
from opentelemetry.instrumentation.hardware.sources.nvidia import codes
from opentelemetry.instrumentation.hardware.sources.nvidia import fields as f
from opentelemetry.instrumentation.hardware.sources.nvidia.calls import Call, NvmlDevice, Values


class MigInstance(NvmlDevice):
    """A part of a GPU with its own memory and compute units. It shares everything else with the GPU."""

    def __init__(self, whole: NvmlDevice, slot: int) -> None:
        super().__init__(whole.nvml, f"{whole.key}/{slot}", f"MIG {whole.key}/{slot}")
        self.parent = whole.id
        self._whole = whole
        self._instance = -1
        self.gpm_fields = whole.gpm_fields

    def identify(self) -> None:
        self.set_id(str(self.get("UUID")))
        self._instance = int(self.get("GpuInstanceId"))
        self.aliases = ()
        with suppress(DriverError):  # the name that CUDA uses for it before driver 470
            self.aliases = (f"MIG-{self._whole.id}/{self._instance}/{self.get('ComputeInstanceId')}",)
        self.address = self._whole.address
        name = self.get_optional("Name")
        self.facts = {**self._whole.facts, **({c.HW_MODEL: name} if name else {}), c.GPU_TYPE: "partition"}

    def read_calls(self) -> tuple[list[Call], list[Call]]:
        return [Call(self.memory, f.MEMORY_USED, f.MEMORY_TOTAL), Call(self._gpm, *self.gpm_fields.values())], []

    def _gpm(self) -> Values | None:
        """Return the values of its GPU instance, unless that is shared with other compute instances."""
        others = [part for part in self._whole.parts.values() if part is not self]
        if any(isinstance(part, MigInstance) and part._instance == self._instance for part in others):
            raise DriverError(codes.NO_DATA, "the compute instances of one GPU instance are counted as one")
        return self.gpm(self._instance)

    def check_suspended(self) -> bool:
        return self._whole.check_suspended()

    def exists(self) -> bool:
        return bool(self._often) and self.get_optional("UUID") == self.id

    def read(self) -> Iterator[Point]:
        """Yield the sampled values; none while the GPU has failed."""
        if not self._whole.trouble:
            yield from super().read()

    def condition(self) -> str:
        """Return the state; that of the GPU if the GPU has failed."""
        return "failed" if self._whole.trouble else super().condition()


def instances(whole: NvmlDevice) -> dict[int, MigInstance]:
    """Return the instances of a GPU that exist now by slot, without those that cannot be identified.

    Raises:
        DriverError: They cannot be listed.
    """
    found = {slot: _instance(whole, slot) for slot in whole.nvml.slots(whole.key)}
    return {slot: part for slot, part in found.items() if part is not None}


def _instance(whole: NvmlDevice, slot: int) -> MigInstance | None:
    """Return the instance in a slot; None if it cannot be identified, such as one of another container."""
    known = whole.parts.get(slot)
    if isinstance(known, MigInstance) and known.exists():
        return known
    part = MigInstance(whole, slot)
    whole.nvml.forget(part.key)
    try:
        part.open()
    except DeviceFailed as failed:
        whole.unsupported[f"MIG instance {part.key}"] = str(failed)
        return None
    whole.unsupported.pop(f"MIG instance {part.key}", None)
    return part
