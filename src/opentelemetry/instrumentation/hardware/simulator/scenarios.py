"""Scenarios: what a program does on each GPU at each time, and what happens on its host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import pi, sin
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias


class Load(NamedTuple):
    """The load of a GPU at one time, as shares from 0 to 1.

    Attributes:
        busy: Of time in which a kernel ran.
        sm: Of the SMs that had work.
        tensor: Of the tensor cores.
        dram: Of the bandwidth of the memory.
        memory: Of the memory that is in use by the program. 0: no program holds the GPU.
        pcie: Of the bandwidth of the PCIe link, in both directions.
        links: Of the bandwidth of NVLink.
        air: Degrees Celsius of the air at its inlet.
        brake: Of the power limit that an external signal leaves.
        xid: The number of a critical event that happens at this time; 0 for none.
        is_lost: Whether it does not respond any more.
        errors: Uncorrected errors of the memory until now.
        lanes: Of the lanes of the PCIe link that are in use.
    """

    busy: float = 0.0
    sm: float = 0.0
    tensor: float = 0.0
    dram: float = 0.0
    memory: float = 0.0
    pcie: float = 0.0
    links: float = 0.0
    air: float = 30.0
    brake: float = 1.0
    xid: int = 0
    is_lost: bool = False
    errors: int = 0
    lanes: float = 1.0


class HostLoad(NamedTuple):
    """What happens on a host that holds its program back.

    Attributes:
        program: CPUs that the program uses.
        others: The share of all CPUs that other programs use.
        iowait: The share of time in which a CPU waits for a disk.
        quota: CPUs that the control group of the program may use; 0: no limit.
        throttled: The share of the periods in which that limit acts.
        stalls: The share of time in which some or all programs wait, by resource and kind.
        disk: The share of the file system that is full, on a simulated server.
    """

    program: float = 0.2
    others: float = 0.02
    iowait: float = 0.0
    quota: float = 0.0
    throttled: float = 0.0
    stalls: Mapping[tuple[str, str], float] = MappingProxyType({})
    disk: float = 0.4

    def busy(self, cpu: int) -> float:
        """Return the share of time in which a CPU works: the program uses the first ones."""
        return min(1.0, self.others + min(1.0, max(0.0, self.program - cpu)))


# Returns the load of a GPU: at a time in seconds, by the index of the GPU and the number of GPUs.
Scenario: TypeAlias = Callable[[float, int, int], Load]

_TRAINING: Final = Load(busy=0.97, sm=0.9, tensor=0.62, dram=0.55, memory=0.82, pcie=0.06, links=0.35)


def _training(time: float, index: int, count: int) -> Load:
    """Steps of a second, and a checkpoint of three seconds in each minute."""
    if time % 60.0 >= 57.0:
        return Load(busy=0.08, sm=0.03, dram=0.05, memory=0.82, pcie=0.3)
    return _TRAINING if time % 1.0 < 0.9 else _TRAINING._replace(tensor=0.2, links=0.9)  # gradients are exchanged


def _inference(time: float, index: int, count: int) -> Load:
    """A service. Its traffic rises and falls."""
    traffic = 0.45 + 0.25 * sin(2 * pi * (time / 45.0 + index / 7.0))
    return Load(busy=traffic, sm=0.7 * traffic, tensor=0.35 * traffic, dram=0.8 * traffic, memory=0.9, pcie=0.02)


def _straggler(time: float, index: int, count: int) -> Load:
    """The last GPU is in warm air and lowers its clocks. The others wait for it."""
    load = _training(time, index, count)
    if index == count - 1:
        return load._replace(air=66.0)
    return load._replace(tensor=0.66 * load.tensor, dram=0.66 * load.dram, sm=0.66 * load.sm)


def _stuck(time: float, index: int, count: int) -> Load:
    """After 20 s one GPU stands still. The others wait in a kernel that exchanges data."""
    if time < 20.0:
        return _training(time, index, count)
    return Load(busy=1.0 if index else 0.0, sm=0.12 if index else 0.0, memory=0.82)


def _xid(time: float, index: int, count: int) -> Load:
    """After 20 s the program on the first GPU accesses an invalid address, and after 60 s its memory has an error."""
    number = {20: 31, 60: 94}.get(int(time), 0) if index == 0 and time % 1.0 < 0.1 else 0
    return _training(time, index, count)._replace(xid=number)


def _lost(time: float, index: int, count: int) -> Load:
    """After 30 s the last GPU falls off the bus."""
    is_last = index == count - 1
    is_now = is_last and 30.0 <= time < 30.1
    return _training(time, index, count)._replace(is_lost=is_last and time >= 30.1, xid=79 if is_now else 0)


def _ecc(time: float, index: int, count: int) -> Load:
    """From 60 s on, the memory of the first GPU has an uncorrected error every 30 s."""
    errors = max(0, int(time / 30.0) - 1) if index == 0 else 0
    return _training(time, index, count)._replace(errors=errors)


def _starved(time: float, index: int, count: int) -> Load:
    """The GPU waits for data, in half of each second for most of it."""
    busy = 0.42 if time % 1.0 < 0.5 else 0.2
    return Load(busy=busy, sm=0.8 * busy, tensor=0.55 * busy, dram=0.5 * busy, memory=0.8, pcie=0.02)


def _memory_leak(time: float, index: int, count: int) -> Load:
    """Memory fills up in five minutes. The program ends, and starts again."""
    used = 0.4 + 0.6 * (time % 310.0) / 300.0
    return _training(time, index, count)._replace(memory=used) if used < 1.0 else Load()


def _stalls(**some: float) -> Mapping[tuple[str, str], float]:
    """Return the stalls of a host. All programs wait in half of the time in which some do."""
    resources = {"cpu": 0.0, "memory": 0.0, "io": 0.0, **some}
    return {
        (name, kind): share * part for name, share in resources.items() for kind, part in (("some", 1), ("full", 0.5))
    }


# By name. The first one is the default.
SCENARIOS: Final[dict[str, Scenario]] = {
    "training": _training,
    "inference": _inference,
    "idle": lambda time, index, count: Load(),
    "held": lambda time, index, count: Load(memory=0.7),
    "hot": lambda time, index, count: _training(time, index, count)._replace(air=70.0),
    "brake": lambda time, index, count: _training(time, index, count)._replace(brake=0.5),
    "stuck": _stuck,
    "small-kernels": lambda time, index, count: Load(busy=0.93, sm=0.22, tensor=0.04, dram=0.1, memory=0.5, pcie=0.02),
    "transfer": lambda time, index, count: Load(busy=0.35, sm=0.2, tensor=0.12, dram=0.15, memory=0.6, pcie=0.93),
    "xid": _xid,
    "lost": _lost,
    "straggler": _straggler,
    "memory-leak": _memory_leak,
    "ecc": _ecc,
    "link": lambda time, index, count: _training(time, index, count)._replace(lanes=0.5 if index == count - 1 else 1.0),
    "full-disk": _training,
    "one-core": _starved,
    "quota": _starved,
    "storage": _starved,
    "neighbours": _starved,
}

# By the name of the scenario. In the others, the host is the real one.
HOSTS: Final[dict[str, HostLoad]] = {
    "one-core": HostLoad(program=1.0),
    "quota": HostLoad(program=2.0, quota=2.0, throttled=0.7, stalls=_stalls(cpu=0.6)),
    "storage": HostLoad(iowait=0.4, stalls=_stalls(io=0.55)),
    "neighbours": HostLoad(program=0.3, others=0.93, stalls=_stalls(cpu=0.7)),
    "full-disk": HostLoad(disk=0.97),
}
