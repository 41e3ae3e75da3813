"""One NVIDIA GPU by NVML: which calls are made, how often, and what they say in our words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.fields import Device, Reading
from opentelemetry.instrumentation.hardware.accelerators.unsupported import note
from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.model import Number, Point, Rate
from opentelemetry.instrumentation.hardware.sources.nvidia import nvml as n
from opentelemetry.instrumentation.hardware.sources.nvidia.calls import END, GONE, NOTHING, Calls, Failed, Pause, Read
from opentelemetry.instrumentation.hardware.sources.nvidia.nvml import Nvml
from opentelemetry.instrumentation.hardware.sources.nvidia.quantities import (
    DOMAINS,
    ENGINES,
    ERRORS,
    GPM,
    MEMORY_ERRORS,
    OFTEN,
    REASONS,
    SELDOM,
    SIGNS,
    TASKS,
    THRESHOLDS,
    address,
    known,
    rate,
    share,
    times,
)

_FANS = 16
"""Fans that a device has at most; a driver that says more says nonsense."""

_TURNING: Final = ("fan.ratio", "fan.speed")
"""What is said of a fan."""

_MEMORY_V2 = 0x02000028

_GENERAL_SAMPLES = 1
"""The driver's own buffer of general utilization."""


class Gpu(Calls):
    """A GPU and the calls that it answers.

    Args:
        nvml: the library.
        name: what the library calls it.

    Attributes:
        device: makes its points; as long as it never answered, by its index.
        trouble: why it is out of order.
        facts: the attributes of ``hw.gpu.info``.
        parts: its MIG instances by slot.
        xids: critical events since we listen.
        is_back: whether it was out of order while we listened; who listens anew sets it back.
    """

    def __init__(self, nvml: Nvml, name: str) -> None:
        super().__init__(nvml, name)
        self.device = Device(f"gpu{name}", f"GPU {name}")
        self.trouble = ""
        self.xids: int | None = None
        self.is_back = False
        self._pause = Pause()
        self.facts: dict[str, str | int] = {}
        self._fixed: dict[str, Number | Rate] = {}
        self.parts: dict[int, Part] = {}
        self._degraded = self.divided = False
        self._seen = self._shared = -1
        self._once: list[Read] = []
        self._often: list[Read] = []
        self._seldom: list[Read] = []
        self._fans: list[Device] = []
        self._turning: dict[int, dict[str, Number | Rate]] = {}
        self._counted: dict[str, int] = {}

    # -- what it is

    def open(self) -> None:
        """Find out what the device is and what it never changes.

        Raises:
            Failed: where it does not answer.
            DriverError: where the library does not.
        """
        self.unsupported = {}
        try:
            self._identify()
            self.device.limit = times(self._perhaps("EnforcedPowerLimit"), 1e-3) or 0
        except DriverError as refusal:
            if refusal.code in END:
                raise
            raise Failed(refusal.text) from None
        self._fixed, self._once = {}, self._limits()
        self._settle()
        self._often, self._seldom = self._reads()

    def _identify(self) -> None:
        uuid = str(self.get("UUID"))
        if self.facts and uuid != self.device.id:
            raise DriverError(n.NOT_FOUND, f"{uuid} answers in its place")
        if uuid != self.device.id:
            self.device = Device(uuid, f"GPU {self.name}")
        self._fans = [self._fan(number) for number in range(self._number_of_fans())]
        self.divided = (self._perhaps("MigMode") or [0])[0] == 1
        bus = self._perhaps("PciInfo") or {}
        self.facts = known(
            {
                c.HW_VENDOR: "NVIDIA",
                c.HW_MODEL: self._perhaps("Name"),
                c.HW_SERIAL_NUMBER: self._perhaps("Serial"),
                c.HW_DRIVER_VERSION: n.driver(self.nvml) or None,
                c.HW_FIRMWARE_VERSION: self._perhaps("VbiosVersion"),
                c.PCI_BDF: address(bus.get("busId")),
                c.GPU_INDEX: int(self.name),
                c.GPU_TYPE: self._type(),
            }
        )

    def _type(self) -> str:
        """A part that shares the machine's memory has none of its own to tell of."""
        try:
            self._memory()
        except DriverError as refusal:
            if refusal.code in (*GONE, *END):
                raise
            return "integrated" if refusal.code == n.NOT_SUPPORTED else "discrete"
        return "discrete"

    def _number_of_fans(self) -> int:
        try:
            count, reason = self.get("NumFans"), "it has no fan"
        except DriverError as refusal:
            if refusal.code in (*GONE, *END):
                raise
            count, reason = 0, refusal.text
        if count == 0:
            self.unsupported |= dict.fromkeys(_TURNING, reason)
        return int(min(count, _FANS))

    def _fan(self, number: int) -> Device:
        return Device(f"{self.device.id}/fan{number}", f"{self.device.name} fan {number}", "fan", self.device.id)

    def _reads(self) -> tuple[list[Read], list[Read]]:
        """The calls that are made at every reading, and those that are made seldom."""
        return [
            Read(self._utilization, "utilization.general", "utilization.memory"),
            Read(self._samples),
            Read(self._memory, "memory.used", "memory.total"),
            Read(lambda: known({"temperature.gpu": self.get("Temperature", 0)}), "temperature.gpu"),
            Read(lambda: known({"power": times(self.get("PowerUsage"), 1e-3)}), "power"),
            *(self._clock(domain) for domain in ("sm", "memory")),
            Read(self._reasons, *(f"throttle.{reason}" for reason in REASONS)),
            Read(self._gpm, *GPM.values()),
            Read(self._counters, *(quantity for quantity, _ in OFTEN.values())),
        ], [
            *(self._engine(engine, task) for engine, task in ENGINES.items()),
            *(self._clock(domain) for domain in ("graphics", "video")),
            Read(self._state, "performance_state"),
            Read(self._enforced, "power.limit.enforced"),
            Read(self._errors, *ERRORS, *MEMORY_ERRORS),
            *(self._fan_ratio(number) for number in range(len(self._fans))),
            *(Read(self._fan_speed, "fan.speed") for _ in self._fans[:1]),  # the binding asks the first one only
        ]

    def _limits(self) -> list[Read]:
        """What a device may draw, heat up and clock to at most."""
        return [
            self._limit("power.limit.default", 1e-3, "PowerManagementDefaultLimit"),
            self._limit("power.limit.max", 1e-3, "PowerManagementLimitConstraints"),
            *(
                self._limit(f"temperature.limit.{limit}", 1, "TemperatureThreshold", number)
                for limit, number in THRESHOLDS.items()
            ),
            *(
                self._limit(f"frequency.limit.{domain}", 1_000_000, "MaxClockInfo", number)
                for domain, number in DOMAINS.items()
            ),
        ]

    def _limit(self, quantity: str, unit: float, name: str, *arguments: object) -> Read:
        """A call that says a limit, or the least and the most that it may be set to; none is zero."""

        def ask() -> Reading:
            said = self.get(name, *arguments)
            most = said[-1] if isinstance(said, list) else said
            return {quantity: most * unit} if most else {}

        return Read(ask, quantity)

    def _settle(self) -> None:
        """Ask for what never changes, unless it is known, or known not to be said."""
        self._fixed |= self._said(self._once)
        self._once = [read for read in self._once if read.strikes]

    def start(self) -> None:
        """Open it; one that does not answer is tried again later."""
        try:
            self.open()
        except Failed as failed:
            self._ill(str(failed))

    # -- what it does, sampled

    def _utilization(self) -> Reading:
        said = self.get("UtilizationRates")
        return known({"utilization.general": share(said["gpu"]), "utilization.memory": share(said["memory"])})

    def _samples(self) -> Reading | None:
        """The driver looks several times a second and remembers: nothing between two readings is missed."""
        first = self._seen < 0
        self._seen, percents = self.nvml.samples(self.name, _GENERAL_SAMPLES, max(0, self._seen))
        shares = [each for each in map(share, percents) if each is not None]
        if first or not shares:  # what was before us is nobody's
            return None
        return {"utilization.general": sum(shares) / len(shares), "utilization.peak": max(shares)}

    def _memory(self) -> Reading:
        try:
            said = self.get("MemoryInfo", _MEMORY_V2)
        except DriverError as refusal:
            if refusal.code not in (n.FUNCTION_NOT_FOUND, n.ARGUMENT_VERSION, n.INVALID_ARGUMENT):
                raise
            said = self.get("MemoryInfo")
        used, total = said["used"], said["total"]
        if total == 0 or (used is not None and total is not None and used > total):
            raise DriverError(n.NO_DATA, f"the driver says that {used} of {total} bytes are in use")
        return known({"memory.used": used, "memory.total": total})

    def _clock(self, domain: str) -> Read:
        def ask() -> Reading:
            return {f"frequency.{domain}": self.get("ClockInfo", DOMAINS[domain]) * 1_000_000}

        return Read(ask, f"frequency.{domain}")

    def _reasons(self) -> Reading:
        try:
            bits = self.get("CurrentClocksEventReasons")
        except DriverError as refusal:
            if refusal.code != n.FUNCTION_NOT_FOUND:
                raise
            bits = self.get("CurrentClocksThrottleReasons")  # its name before 535
        return {f"throttle.{reason}": Rate(float(bool(bits & bit))) for reason, bit in REASONS.items()}

    def _counters(self) -> Reading:
        found: dict[str, Number] = {}
        for (quantity, unit), (code, said) in zip(OFTEN.values(), self._fields(tuple(OFTEN))):
            if code:
                self.unsupported[quantity] = said
            else:
                found[quantity] = said * unit
        return found

    def _gpm(self) -> Reading | None:
        return self._metrics(self.nvml.gpm(self.name, list(GPM)))

    def _metrics(self, said: list[Sequence[Any]] | None) -> Reading | None:
        if said is None:
            return None
        found: dict[str, Number | Rate | None] = {}
        for quantity, (code, value) in zip(GPM.values(), said):
            if code:
                self.unsupported[quantity] = value
            else:
                found[quantity] = rate(value) if quantity.startswith("io.") else share(value)
        return known(found)

    # -- what it does, seldom

    def _engine(self, engine: str, task: str) -> Read:
        quantity = f"utilization.{task}"
        return Read(lambda: known({quantity: share(self.get(f"{engine}Utilization")[0])}), quantity)

    def _enforced(self) -> Reading:
        return known({"power.limit.enforced": times(self.get("EnforcedPowerLimit"), 1e-3)})

    def _state(self) -> Reading:
        state = self.get("PerformanceState")
        return {"performance_state": state} if 0 <= state <= 15 else {}

    def _errors(self) -> Reading:
        said = {field: answer for (field, _), answer in zip(SELDOM, self._fields(SELDOM))}
        found: dict[str, Number] = {}
        for quantity, fields in (*ERRORS.items(), *self._memory_errors(said)):
            reasons = [reason for code, reason in map(said.__getitem__, fields) if code]
            if reasons:
                self.unsupported[quantity] = reasons[0]
            else:
                found[quantity] = sum(said[field][1] for field in fields)
        self._degraded = any(said[sign][1] for sign in SIGNS if not said[sign][0])
        return found

    def _memory_errors(self, said: Mapping[int, Sequence[Any]]) -> Iterator[tuple[str, tuple[int, ...]]]:
        """The field that counts each kind of error."""
        for quantity, fields in MEMORY_ERRORS.items():
            answered = [field for field in fields if not said[field][0]]
            if answered:
                self._counted.setdefault(quantity, answered[0])
            yield quantity, (self._counted.get(quantity, fields[-1]),)

    def _fan_ratio(self, number: int) -> Read:
        def ask() -> None:
            self._turn(number, "fan.ratio", self.get("FanSpeed_v2", number) * 1e-2)

        return Read(ask, "fan.ratio")

    def _fan_speed(self) -> None:
        self._turn(0, "fan.speed", self.get("FanSpeedRPM"))

    def _turn(self, number: int, quantity: str, value: Number) -> None:
        """A fan is a device of its own."""
        self._turning.setdefault(number, {})[quantity] = value
        self.unsupported.pop(quantity, None)

    # -- reading it

    def read(self) -> Iterator[Point]:
        """What is sampled. A device that is out of order says nothing, until it is tried again."""
        if self._pause.lasts():
            return
        try:
            if self.trouble:
                self.nvml.forget(self.name)
                self.open()
                self.is_back = self.xids is not None
            reading = self._said(self._often)
            if "power" in reading:
                self.unsupported.pop("energy", None)  # its integral
        except Failed as failed:
            self._ill(str(failed))
        else:
            self._well()
            yield from self.device.points(reading)

    def read_slow(self) -> Iterator[Point]:
        """What hardly changes, and how the device is."""
        if not self.trouble:
            try:
                self._turning = {}
                self._settle()
                reading = {**self._fixed, **self._said(self._seldom)}
            except Failed as failed:
                self._ill(str(failed))
            else:
                yield from self.device.points(reading)
                for number, said in self._turning.items():
                    yield from self._fans[number].points(said)
        if self.xids is not None:  # also of a device that is out of order: they say why
            yield from self.device.points({"errors.xid": self.xids})
        yield self.device.info(self.facts)
        yield from self.device.status(self._condition())

    def _condition(self) -> str:
        return "failed" if self.trouble else "degraded" if self._degraded else "ok"

    def _ill(self, reason: str) -> None:
        note(self.device.name, self.device.id, self.trouble, reason)
        self.trouble = reason
        self._pause.failed()

    def _well(self) -> None:
        note(self.device.name, self.device.id, self.trouble, "")
        self.trouble = ""
        self._pause.well()

    # -- its parts, and who uses it

    def divide(self) -> Iterable[Part]:
        """The MIG instances that there are now."""
        if self.divided and not self.trouble:
            try:
                found = {slot: self._part(slot) for slot in self.nvml.slots(self.name)}
            except DriverError as refusal:
                if refusal.code in END:
                    raise
                self.unsupported["MIG instances"] = refusal.text
            else:
                self.unsupported.pop("MIG instances", None)
                self.parts = {slot: part for slot, part in found.items() if part is not None}
        return self.parts.values()

    def _part(self, slot: int) -> Part | None:
        """The instance in a slot; None for one that does not say who it is, such as one of another container."""
        known = self.parts.get(slot)
        if known is not None and known.is_there():
            return known
        part = Part(self.nvml, self, slot)
        self.nvml.forget(part.name)
        try:
            part.open()
        except Failed as failed:
            self.unsupported[f"MIG instance {part.name}"] = str(failed)
            return None
        self.unsupported.pop(f"MIG instance {part.name}", None)
        return part

    def users(self, kinds: Iterable[str] = ("Compute", "Graphics")) -> Mapping[int, int | None]:
        """The processes that use it, by the driver's numbers, with the bytes that each has in use, where known."""
        found: dict[int, int | None] = {}
        for kind in kinds:
            try:
                processes = self.nvml.processes(self.name, kind)
            except DriverError as refusal:
                if refusal.code in END:
                    raise
                if kind == "Compute":
                    self.unsupported["process.gpu.memory.usage"] = refusal.text
                continue
            if kind == "Compute":
                self.unsupported.pop("process.gpu.memory.usage", None)
            for pid, used in processes:
                found[pid] = max((each for each in (used, found.get(pid)) if each is not None), default=None)
        return found

    def shares(self) -> Mapping[int, Mapping[str, float]] | None:
        """What each process used of the device since this was asked before: the mean share by task.

        A process that is not named used nothing. None where that is not known.
        """
        first = self._shared < 0
        try:
            said = self.nvml.shares(self.name, max(0, self._shared))
        except DriverError as refusal:
            if refusal.code in END:
                raise
            if refusal.code not in NOTHING:
                self.unsupported["process.gpu.utilization"] = refusal.text
                return None
            said = []
        self.unsupported.pop("process.gpu.utilization", None)
        self._shared = max([0, self._shared, *(at for _, at, *_ in said)])
        if first:  # what was before us is nobody's
            return None
        samples: dict[int, list[Sequence[int]]] = {}
        for pid, _, *percents in said:
            if all(0 <= percent <= 100 for percent in percents):
                samples.setdefault(pid, []).append(percents)
        return {
            pid: {task: sum(column) / len(each) / 100 for task, column in zip(TASKS, zip(*each))}
            for pid, each in samples.items()
        }


class Part(Gpu):
    """A MIG instance: a part of a GPU, which has memory and units of its own, and everything else in common."""

    def __init__(self, nvml: Nvml, whole: Gpu, slot: int) -> None:
        super().__init__(nvml, f"{whole.name}/{slot}")
        self._whole = whole

    def _identify(self) -> None:
        self.device = Device(str(self.get("UUID")), f"MIG {self.name}", parent=self._whole.device.id)
        self._instance = int(self.get("GpuInstanceId"))
        self.facts = {
            **self._whole.facts,
            **known({c.HW_MODEL: self._perhaps("Name")}),
            c.GPU_TYPE: "partition",
        }

    def _limits(self) -> list[Read]:
        return []

    def _reads(self) -> tuple[list[Read], list[Read]]:
        return [Read(self._memory, "memory.used", "memory.total"), Read(self._gpm, *GPM.values())], []

    def _gpm(self) -> Reading | None:
        """Of its GPU instance, whose units it shares with other compute instances where there are such."""
        if any(part._instance == self._instance for part in self._whole.parts.values() if part is not self):
            raise DriverError(n.NO_DATA, "the compute instances of one GPU instance are counted as one")
        return self._metrics(self.nvml.gpm(self.name, list(GPM), self._instance))

    def is_there(self) -> bool:
        """Whether the instance is still the one in its slot, and says something."""
        return bool(self._often) and self._perhaps("UUID") == self.device.id

    def read(self) -> Iterator[Point]:
        """What is sampled; nothing as long as the whole is out of order."""
        if not self._whole.trouble:
            yield from super().read()

    def _condition(self) -> str:
        return "failed" if self._whole.trouble else super()._condition()
