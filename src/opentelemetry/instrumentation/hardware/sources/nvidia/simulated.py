"""SimulatedNvml: takes the place of :class:`.nvml.Nvml` on a simulated machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.simulator.cards import Card
from opentelemetry.instrumentation.hardware.simulator.machine import Gpu, Machine
from opentelemetry.instrumentation.hardware.sources.nvidia import codes
from opentelemetry.instrumentation.hardware.sources.nvidia import nvml as n

_MIB: Final = 1 << 20

_NOT_SUPPORTED: Final = (codes.NOT_SUPPORTED, "Not Supported")

_ALL_LINKS: Final = 0xFFFFFFFF

_SYSTEM: Final = {"DriverVersion": "580.95.05", "CudaDriverVersion": 13000, "NVMLVersion": "13.580.95.05"}

# Bits of ``nvmlDeviceGetCurrentClocksEventReasons``.
_REASONS: Final = {"power": 0x04, "thermal": 0x20, "brake": 0x80}

# Fields with the nanoseconds for which a limit lowered the clocks.
_THROTTLED: Final = {(74, 0): "power", (269, 0): "thermal", (271, 0): "brake"}

_ECC: Final = frozenset({5, 6})  # fields that are 0 on a card with ECC memory without defects

_RETIRED: Final = frozenset({29, 30, 31})  # the same up to Turing

_AMPERE: Final = frozenset({22, 23, 142, 143, 144, 145, 173, 179, 180, 230})  # the same from Ampere on

_RESET: Final = 1  # the recovery action for uncorrected errors: the GPU should be reset

_EVER: Final = frozenset({76, 94, 270})  # fields that are 0 on every card

# ``NVML_GPM_METRIC_*``, from the means since the previous call: percent, and MiB per second.
_PROFILED: Final[dict[int, Callable[[dict[str, float]], float]]] = {
    1: lambda mean: 100 * mean["busy"],
    2: lambda mean: 100 * mean["sm"],
    3: lambda mean: 60 * mean["sm"],
    5: lambda mean: 100 * mean["tensor"],
    7: lambda mean: 100 * mean["tensor"],
    10: lambda mean: 100 * mean["dram"],
    11: lambda mean: 0.0,
    12: lambda mean: 12 * mean["sm"],
    13: lambda mean: 6 * mean["sm"],
    20: lambda mean: mean["sent"] / _MIB,
    21: lambda mean: mean["received"] / _MIB,
    60: lambda mean: mean["linked"] / _MIB,
    61: lambda mean: mean["linked"] / _MIB,
}


class SimulatedNvml:
    """The library on a simulated machine. Its methods are those of :class:`.nvml.Nvml`."""

    def __init__(self, machine: Machine, pid: int) -> None:
        self._machine = machine
        self._pid = pid
        self._listening: list[str] = []
        self._taken: dict[int, int] = {}
        self._before: dict[str, tuple[float, dict[str, float]]] = {}
        self._means: dict[str, dict[str, float]] = {}

    def _gpu(self, device: str) -> Gpu:
        if "/" in device:
            raise DriverError(codes.NOT_FOUND, "Not Found")
        self._machine.advance()
        gpu = self._machine.gpus[int(device)]
        if gpu.load.is_lost:
            raise DriverError(codes.LOST, "GPU is lost")
        return gpu

    def system(self, name: str) -> Any:
        return _answer(_SYSTEM, name)

    def count(self) -> int:
        return len(self._machine.gpus)

    def get(self, device: str, name: str, *arguments: object) -> Any:
        gpu = self._gpu(device)
        if name == "ClockInfo":
            return _clock(gpu, int(str(arguments[0])))
        if name == "MaxClockInfo":
            return gpu.card.clocks[int(str(arguments[0]))]
        if name == "Temperature" and arguments != (0,):
            name = ""
        return _answer(_of_card(gpu) | _of_state(gpu), name)

    def fields(self, device: str, ids: n.Fields) -> Sequence[Sequence[Any]]:
        return [answer[:2] for answer in self.stamped_fields(device, ids)]

    def stamped_fields(self, device: str, ids: n.Fields) -> Sequence[Sequence[Any]]:
        """Return the same, with the time of the last step."""
        gpu, stamp = self._gpu(device), int(1e6 * self._machine.updated)
        found: list[Sequence[Any]] = []
        for each in ids:
            value = _field(gpu, each)
            found.append((*_NOT_SUPPORTED, stamp) if value is None else (0, value, stamp))
        return found

    def structure(self, device: str, name: str, version: int) -> list[int]:
        """Return a structure of zeros: nothing needs a repair."""
        self._gpu(device)
        if name == "GpuFabricInfoV":
            raise DriverError(*_NOT_SUPPORTED)
        return [version] + [0] * ((version & 0xFFFFFF) // 4 - 1)

    def samples(self, device: str, kind: int, since: int) -> Sequence[Any]:
        if kind != 1:
            raise DriverError(*_NOT_SUPPORTED)
        gpu, start = self._gpu(device), self._machine.start
        newer = [(int(1e6 * (start + at)), round(100 * share)) for at, share in gpu.samples]
        newer = [(at, percent) for at, percent in newer if at > since]
        return max((at for at, _ in newer), default=since), [percent for _, percent in newer]

    def processes(self, device: str, kind: str) -> list[Sequence[Any]]:
        gpu = self._gpu(device)
        return [(self._pid, _used(gpu))] if gpu.load.memory and kind == "Compute" else []

    def shares(self, device: str, since: int) -> list[Sequence[int]]:
        gpu, now = self._gpu(device), int(1e6 * self._machine.updated)
        if not gpu.load.memory or now <= since:
            return []
        return [(self._pid, now, round(100 * gpu.load.busy), round(100 * gpu.load.dram), 0, 0)]

    def slots(self, device: str) -> list[int]:
        """Return no slot: it is not divided."""
        del device
        return []

    def gpm(self, device: str, ids: Sequence[int], instance: int | None = None) -> list[Sequence[Any]] | None:
        """Return the means of the profiling counters since the previous call; None at the first one.

        Within a step of the simulation, it returns the previous answer, as the driver does within a tenth of a second.
        """
        del instance
        gpu = self._gpu(device)
        if not gpu.card.has_profiling:
            raise DriverError(codes.NOT_SUPPORTED, "GPM needs a Hopper GPU or a newer one")
        now = {**gpu.work, "sent": gpu.sent, "received": gpu.received, "linked": gpu.linked}
        time, before = self._before.setdefault(device, (self._machine.elapsed, now))
        elapsed = self._machine.elapsed - time
        if elapsed > 0.0:
            self._before[device] = self._machine.elapsed, now
            self._means[device] = {name: (total - before[name]) / elapsed for name, total in now.items()}
        mean = self._means.get(device)
        if mean is None:
            return None
        return [(0, _PROFILED[each](mean)) if each in _PROFILED else _NOT_SUPPORTED for each in ids]

    def listen(self, devices: Sequence[str]) -> list[str]:
        self._listening += [device for device in devices if device not in self._listening]
        return [*self._listening]

    def deafen(self) -> None:
        self._listening.clear()

    def events(self) -> list[Sequence[Any]]:
        self._machine.advance()
        found: list[Sequence[Any]] = []
        for gpu in self._machine.gpus:
            taken, self._taken[gpu.index] = self._taken.get(gpu.index, 0), len(gpu.xids)
            if str(gpu.index) in self._listening:
                found += [(str(gpu.index), number) for number in gpu.xids[taken:]]
        return found

    def forget(self, device: str) -> None:
        """Do nothing: there are no handles."""

    def release(self) -> None:
        """Do nothing: there is no library."""


def _answer(answers: dict[str, Any], name: str) -> Any:
    if name not in answers:
        raise DriverError(*_NOT_SUPPORTED)
    return answers[name]


def _clock(gpu: Gpu, domain: int) -> int:
    highest = gpu.card.clocks[domain]
    return highest if domain == 2 and gpu.load.memory else int(highest * gpu.clock)


def _used(gpu: Gpu) -> int:
    return int(gpu.load.memory * (gpu.card.memory - _reserved(gpu.card)))


def _reserved(card: Card) -> int:
    return card.memory // 128


def _of_card(gpu: Gpu) -> dict[str, Any]:
    """Return the answers that never change."""
    card = gpu.card
    limit = int(1000 * card.limit)
    generation, width = card.pcie
    answers = {
        "Name": card.model,
        "UUID": f"GPU-{0x51310000 + gpu.seed:08x}-{card.device:04x}-4000-8000-{gpu.index:012x}",
        "Serial": "SIMULATED",
        "MinorNumber": gpu.index,
        "PciInfo": {"busId": f"00000000:{0x1A + gpu.index:02X}:00.0"},
        "VbiosVersion": "SIMULATED",
        "PersistenceMode": 1,
        "ComputeMode": 0,
        "CudaComputeCapability": [*card.capability],
        "EccMode": [1, 1],
        "MigMode": [0, 0],
        "EnforcedPowerLimit": limit,
        "PowerManagementDefaultLimit": limit,
        "PowerManagementLimitConstraints": [limit // 3, limit],
        "CurrPcieLinkGeneration": generation,
        "CurrPcieLinkWidth": int(width * gpu.load.lanes),
        "MaxPcieLinkGeneration": generation,
        "MaxPcieLinkWidth": width,
        "SupportedEventTypes": n.XID,
        "NumFans": card.fans,
    }
    if not card.is_reliable:
        del answers["Serial"], answers["EccMode"]
    if not card.fans:
        del answers["NumFans"]
    return answers


def _of_state(gpu: Gpu) -> dict[str, Any]:
    """Return the answers that follow from what it does now. Up to Ampere's A100, power is no mean of a second."""
    card, load = gpu.card, gpu.load
    used, reserved = _used(gpu), _reserved(card)
    fan = max(30, min(100, round(2 * gpu.temperature - 60)))
    return {
        "MemoryInfo": {"total": card.memory, "reserved": reserved, "used": used, "free": card.memory - reserved - used},
        "UtilizationRates": {"gpu": round(100 * load.busy), "memory": round(100 * load.dram)},
        "Temperature": round(gpu.temperature),
        "PowerUsage": round(1000 * (gpu.power if card.capability <= (8, 0) else sum(gpu.powers) / len(gpu.powers))),
        "CurrentClocksEventReasons": _REASONS.get(gpu.reason, 0 if load.busy else 1),
        "PerformanceState": 0 if load.memory else 8,
        "EncoderUtilization": [0, 167_000],
        "DecoderUtilization": [0, 167_000],
        "FanSpeed": fan,
        "FanSpeed_v2": fan,
        "FanSpeedRPM": 30 * fan,
    }


def _field(gpu: Gpu, field: tuple[int, int]) -> int | None:
    """Return the value of a field; None if the card does not support it."""
    card = gpu.card
    if field == (83, 0):
        return round(1000 * gpu.energy)
    if field == (82, 0):
        return round(gpu.temperature + 6 + 8 * gpu.load.dram) if card.has_memory_sensor else None
    if field in _THROTTLED:
        return round(1e9 * gpu.throttled[_THROTTLED[field]])
    if field == (91, 0):
        return card.links or None
    if field in ((138, _ALL_LINKS), (139, _ALL_LINKS)):
        return round(gpu.linked / 1024) if card.links else None
    if field[0] == 165 and field[1] < card.links:
        return 1
    zeros = _EVER
    if card.is_reliable:
        zeros = zeros | _ECC | (_AMPERE if card.capability >= (8, 0) else _RETIRED)
    if field[0] not in zeros or field[1]:
        return None
    return {6: gpu.load.errors, 23: gpu.load.errors, 230: _RESET if gpu.load.errors else 0}.get(field[0], 0)
