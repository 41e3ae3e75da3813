"""One GPU or MIG instance of NVML: the calls, how often they are made, and the fields that they fill."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache, cached_property
from itertools import count
from typing import Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.accelerators.facts import known
from opentelemetry.instrumentation.hardware.accelerators.fields import Field
from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.model import Point
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources.nvidia import codes
from opentelemetry.instrumentation.hardware.sources.nvidia import fields as f
from opentelemetry.instrumentation.hardware.sources.nvidia import nvml as n
from opentelemetry.instrumentation.hardware.sources.nvidia.calls import FATAL, LOST, Call, NvmlDevice, Values
from opentelemetry.instrumentation.hardware.sources.nvidia.components import component, fans
from opentelemetry.instrumentation.hardware.sources.nvidia.counters import Counters
from opentelemetry.instrumentation.hardware.sources.nvidia.health import RARELY, Health
from opentelemetry.instrumentation.hardware.sources.nvidia.jetson import Host
from opentelemetry.instrumentation.hardware.sources.nvidia.mig import MigInstance, instances
from opentelemetry.instrumentation.hardware.sources.nvidia.nvml import Nvml
from opentelemetry.instrumentation.hardware.sources.nvidia.processes import shared_memory
from opentelemetry.instrumentation.hardware.sources.nvidia.visible import cuda_aliases

_ENERGY: Final = f.SAMPLED[83, 0]

_GENERAL_SAMPLES: Final = 1  # ``NVML_GPU_UTILIZATION_SAMPLES``


class Gpu(NvmlDevice):
    """A GPU.

    Args:
        name: Its name in :class:`~.nvml.Nvml`: ``0``.
        config: The settings, which decide what is read on request only.

    Attributes:
        xids: Critical events (Xid) since the driver was opened, by field; None while they are not received.
        has_returned: Whether it responds again after a failure, so that its events must be registered again.
        successor: The UUID of another GPU that responds in its place; "" if there is none.
    """

    def __init__(self, nvml: Nvml, name: str, host: Host, config: Config) -> None:
        super().__init__(nvml, name, f"GPU {name}")
        self.is_unidentified = True
        self.xids: Counter[Field] | None = None
        self.has_returned = False
        self.successor = ""
        self.parts: dict[int, MigInstance] = {}  # type: ignore[assignment]
        self._host = host
        self._config = config
        is_detailed = "gpu" in (config.detail or ())
        self._health = Health(self, is_detailed, has_link_bytes=config.wants(c.HW_GPU_NVLINK_IO))
        self.gpm_fields = f.GPM | f.PIPES if is_detailed else f.GPM
        self._fans: list[tuple[Device, list[Call]]] = []
        self._sampled = f.sampled(n.driver_version(nvml))
        self._has_junction = f.branch(n.driver_version(nvml)) >= 615
        self.counters = {field.series for field in self._sampled.values()}
        self._counted = Counters(self, self._sampled)
        self._newest_sample = -1

    # -- what it is

    def open(self) -> None:
        super().open()
        if self.trouble:
            self.has_returned = self.xids is not None

    def identify(self) -> None:
        uuid = str(self.get("UUID"))
        self.successor = uuid if self.facts and uuid != self.id else ""
        if self.successor:
            raise DriverError(codes.NOT_FOUND, f"{uuid} responds in its place")
        self.set_id(uuid)
        most = (self.get_optional("PowerManagementLimitConstraints") or [None])[-1]
        limits = {f.POWER_ENFORCED: self.get_optional("EnforcedPowerLimit"), f.POWER_MAX: most}
        self.parse({field: limit for field, limit in limits.items() if limit is not None})  # for the first reading
        self.aliases = cuda_aliases(uuid)
        self.is_unidentified = False
        self._fans = fans(self)
        self._fabric = component(self, "fabric", "network")
        self._counted.identify(self._config.wants(c.HW_POWER_INSTANT))
        self.is_divided = (self.get_optional("MigMode") or [0])[0] == 1
        self.address = n.pci_address((self.get_optional("PciInfo") or {}).get("busId"))
        facts = {
            c.HW_VENDOR: "NVIDIA",
            c.HW_MODEL: self.get_optional("Name"),
            c.HW_SERIAL_NUMBER: self.get_optional("Serial"),
            c.HW_DRIVER_VERSION: n.driver_version(self.nvml),
            c.HW_FIRMWARE_VERSION: self.get_optional("VbiosVersion"),
            c.PCI_BDF: self.address,
            c.GPU_INDEX: self.index,
            c.GPU_TYPE: self._type(),
            c.GPU_ECC_MODE: _mode((self.get_optional("EccMode") or [None])[0]),
            c.GPU_PERSISTENCE_MODE: _mode(self.get_optional("PersistenceMode")),
            c.GPU_CUDA_VERSION: n.cuda_version(self.nvml),
        }
        self.facts = known(facts)
        if "GH200" in str(self.facts.get(c.HW_MODEL)):  # it counts the module's: github.com/ml-energy/zeus/pull/172
            self.counters.discard(_ENERGY.series)

    def _type(self) -> str:
        """Return ``integrated`` for a GPU that shares the memory of the host and so reports no memory of its own."""
        try:
            self.memory()
        except DriverError as error:
            if error.code in (*LOST, *FATAL):
                raise
            return "integrated" if error.code == codes.NOT_SUPPORTED else "discrete"
        return "discrete"

    def check_suspended(self) -> bool:
        return self._host.power.is_suspended(self.address)

    # -- the calls

    def read_calls(self) -> tuple[list[Call], list[Call]]:
        wants, counted = self._config.wants, self._counted
        clocks = {
            domain: self.call(field, "ClockInfo", number) for number, (domain, field) in enumerate(f.CLOCKS.items())
        }
        often = [
            # First: its general utilization is that of the last resort.
            Call(lambda: counted.compared(self.gpm()), *self.gpm_fields.values()),
            Call(self._utilization, f.GENERAL, f.MEMORY_BUSY),
            Call(self._samples),
            Call(self.memory, f.MEMORY_USED, f.MEMORY_TOTAL),
            Call(self._temperature, f.TEMPERATURE),
            self.call(f.POWER, "PowerUsage"),
            *(clocks[domain] for domain in ("sm", "memory")),
            Call(self._reasons, *f.REASONS.values()),
            Call(counted.read, *self._sampled.values()),
        ]
        slow = [
            *(self.call(field, f"{name}Utilization") for name, field in f.ENGINES.items()),
            *(clocks[domain] for domain in ("graphics", "video")),
            self.call(f.PERFORMANCE_STATE, "PerformanceState"),
            self.call(f.POWER_ENFORCED, "EnforcedPowerLimit"),
            *([self.call(f.JUNCTION, "TemperatureV", 1)] if self._has_junction else []),
            Call(self._health.read, *self._health.fields),
            *(self._rarely(field, name) for name, field in f.PCIE_NOW.items()),
            *(self._limit(field, name) for name, field in f.PCIE_MAX.items()),
            *(
                self.call(field, "MemoryErrorCounter", kind, n.VOLATILE_ECC, n.DEVICE_MEMORY)
                for kind, field in enumerate(f.VOLATILE_ERRORS)
                if wants(c.HW_GPU_MEMORY_ERRORS)
            ),
            *([Call(self._bar1, *f.BAR1)] if any(wants(field.series.metric) for field in f.BAR1) else []),
            self._limit(f.POWER_DEFAULT, "PowerManagementDefaultLimit"),
            self._limit(f.POWER_MAX, "PowerManagementLimitConstraints"),
            *(self._limit(field, "TemperatureThreshold", number) for number, field in enumerate(f.THRESHOLDS)),
            *(self._limit(field, "MaxClockInfo", number) for number, field in enumerate(f.CLOCK_LIMITS.values())),
        ]
        if self.facts[c.GPU_TYPE] != "integrated":
            return often, slow
        # The host replaces some calls of an integrated GPU, and others are left out.
        files = self._host.jetson.paths()
        left_out = {field.series for field in (*files, f.MEMORY_USED, f.MEMORY_TOTAL, *f.NOT_INTEGRATED)}
        if f.JETSON_LOAD not in files:  # Thor: NVML has a temperature while the GPU is off
            left_out.discard(f.TEMPERATURE.series)
        self.unsupported.update((field.series, reason) for field, reason in f.NOT_INTEGRATED.items())
        often, slow = (
            [call for call in calls if not call.fields or {field.series for field in call.fields} - left_out]
            for calls in (often, slow)
        )
        if files or "nvgpu" in str(self.facts.get(c.HW_MODEL)):  # at its start, after NVML
            often.insert(0, Call(self._host.jetson.values, *files))
        slow.append(Call(self._shared_memory, f.MEMORY_USED, f.MEMORY_TOTAL))
        return often, slow

    @cached_property
    def _span_calls(self) -> tuple[list[Call], list[Call]]:
        """Return the calls for spans: those that are made ten times per second, and those once per second."""

        def power() -> Values:
            return {} if _ENERGY.series in self.counters else {f.POWER: self.get("PowerUsage")}

        def busy() -> Values:
            return {f.GENERAL: self.get("UtilizationRates")["gpu"]}

        return [Call(self._counted.read_for_spans), Call(power), Call(busy, f.GENERAL)], [
            Call(lambda: {f.MEMORY_USED: self.memory()[f.MEMORY_USED]}, f.MEMORY_USED),
            Call(self._reasons, *f.REASONS.values()),
        ]

    def _limit(self, field: Field, name: str, *arguments: object) -> Call:
        """The call of a limit, which is read until it succeeds once. Of least and most, it is the most."""
        call = self.call(field, name, *arguments, at=-1)
        return Call(cache(call.function), field)

    def _rarely(self, field: Field, name: str) -> Call:
        """The call of a value that seldom changes, which is read once a minute."""
        found: dict[Field, object] = {}
        turns = count()

        def call() -> Values:
            if next(turns) % RARELY == 0:
                found[field] = self.get(name)
            return found

        return Call(call, field)

    def _bar1(self) -> Values:
        answer = self.get("BAR1MemoryInfo")
        return dict(zip(f.BAR1, (answer["bar1Used"], answer["bar1Total"])))

    def _temperature(self) -> Values:
        try:
            return {f.TEMPERATURE: self.get("Temperature", 0)}
        except DriverError as error:
            if error.code not in (codes.FUNCTION_NOT_FOUND, codes.DEPRECATED):
                raise
            return {f.TEMPERATURE: self.get("TemperatureV", 0)}  # since 13.0 the call to use

    def _utilization(self) -> Values:
        answer = self.get("UtilizationRates")
        memory = {} if self.facts[c.GPU_TYPE] == "integrated" else {f.MEMORY_BUSY: answer["memory"]}
        return {f.GENERAL: answer["gpu"], **memory}

    def _samples(self) -> Values | None:
        """Return mean and peak of the driver's samples since the previous reading. It takes several per second."""
        is_first = self._newest_sample < 0
        since = max(0, self._newest_sample)
        self._newest_sample, percents = self.nvml.samples(self.key, _GENERAL_SAMPLES, since)
        plausible = [percent for percent in percents if 0 <= percent <= 100]
        if is_first or not plausible:
            return None
        return {f.GENERAL: sum(plausible) / len(plausible), f.GENERAL_PEAK: max(plausible)}

    def _shared_memory(self) -> Values:
        """Return used and total memory of a GPU that uses the host's."""
        users: dict[int, int | None] = {}
        for kind in ("Compute", "Graphics"):
            for pid, used in self.nvml.processes(self.key, kind):
                users[pid] = max((size for size in (used, users.get(pid)) if size is not None), default=None)
        return shared_memory(users, self._host.total_memory())

    def _reasons(self) -> Values:
        try:
            bits = self.get("CurrentClocksEventReasons")
        except DriverError as error:
            if error.code != codes.FUNCTION_NOT_FOUND:
                raise
            bits = self.get("CurrentClocksThrottleReasons")  # its name before 535
        return {field: int(bool(bits & bit)) for bit, field in f.REASONS.items()}

    def read(self) -> Iterator[Point]:
        self._counted.powers.clear()
        yield from super().read()
        for device, milliwatts in self._counted.powers.items():
            yield from device.points({f.POWER_INSTANT if device is self else f.POWER: milliwatts})

    def read_energy(self) -> Iterator[Point]:
        return self.points(self.values(self._span_calls[0]))

    def read_memory(self) -> Iterator[Point]:
        return self.points(self.values(self._span_calls[1]))

    def read_slow(self) -> Iterator[Point]:
        """Yield limits, errors, fans, and values that are only needed for a collection."""
        yield from super().read_slow()
        for fan, calls in self._fans:
            yield from fan.points(self.values(calls))
        self._fabric.state = self._health.fabric
        yield from self._fabric.identity_points()

    def identity_points(self) -> Iterator[Point]:
        """Yield info, status, and critical events, which may be the cause of a failure."""
        yield from super().identity_points()
        if self.xids is not None:
            yield from self.points(self.xids)

    # -- parts

    def find_parts(self) -> None:
        if not self.is_divided or self.trouble:
            return
        self.unsupported.pop("MIG instances", None)
        try:
            self.parts = instances(self)
        except DriverError as error:
            if error.code in FATAL:
                raise
            self.unsupported["MIG instances"] = error.text


def _mode(flag: int | None) -> str | None:
    """Return a mode of the driver in words."""
    return None if flag is None else ("disabled", "enabled")[bool(flag)]
