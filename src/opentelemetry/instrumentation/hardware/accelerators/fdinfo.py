"""Usage of GPUs and NPUs by processes, from the files that the Direct Rendering Manager writes for each open device.

https://docs.kernel.org/gpu/drm-usage-stats.html describes ``/proc/PID/fdinfo/FD``. A *client* is one opening of a
device file. It can have several descriptors, also in several processes, and counts once. Buffers that clients share
count for each of them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.accelerators.driver import Holders, Usage
from opentelemetry.instrumentation.hardware.accelerators.fields import Field
from opentelemetry.instrumentation.hardware.accelerators.sleep import is_suspended
from opentelemetry.instrumentation.hardware.accelerators.sysfs import Card, cards_of, node_names
from opentelemetry.instrumentation.hardware.system.files import Files, names_or_empty
from opentelemetry.instrumentation.hardware.system.tree import ProcessTree

# The engines of a GPU, by the names of its driver, and the tasks of ``process.gpu.utilization``.
TASKS: Final[Mapping[str, str]] = {
    # amdgpu
    **dict.fromkeys(("gfx", "compute"), "general"),
    **dict.fromkeys(("enc", "enc_1"), "encoder"),
    "dec": "decoder",
    "jpeg": "jpeg",
    # i915, which also has compute
    "render": "general",
    **dict.fromkeys(("video", "video-enhance"), "video"),
    "copy": "copy",
    # xe
    **dict.fromkeys(("rcs", "ccs"), "general"),
    **dict.fromkeys(("vcs", "vecs"), "video"),
    "bcs": "copy",
    # panfrost, panthor, msm, lima, v3d (which also has render)
    **dict.fromkeys(("fragment", "vertex-tiler", "panthor", "gpu", "gp", "pp", "bin", "csd"), "general"),
}

MEMORY: Final = {"gpu": Field(c.PROCESS_GPU_MEMORY_USAGE), "npu": Field(c.PROCESS_NPU_MEMORY_USAGE)}
UTILIZATION: Final[Mapping[str, Field]] = {
    task: Field(c.PROCESS_GPU_UTILIZATION, {c.GPU_TASK: task}) for task in TASKS.values()
}
NPU_UTILIZATION: Final = Field(c.PROCESS_NPU_UTILIZATION)

_LINE: Final = re.compile(rb"^drm-([a-z0-9_-]+):[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_COUNT: Final = re.compile(rb"([0-9]{1,20})(?: ns)?")
_SIZE: Final = re.compile(rb"([0-9]{1,15}) ?(|KiB|MiB|GiB)")
_WORD: Final = re.compile("[ -~]{0,64}")
_UNITS: Final = {b"": 1, b"KiB": 1 << 10, b"MiB": 1 << 20, b"GiB": 1 << 30}

_DEVICE_FILES: Final = ("/dev/dri/", "/dev/accel/")

# Open files of a process that are examined, and processes of a walk. Others have their turn in the next walk.
_MAX_FILES: Final = 20_000
MAX_PROCESSES: Final = 500

# Minimum seconds between two walks over the processes of the machine.
_BETWEEN_WALKS: Final = 9.5


class Engine(NamedTuple):
    """How long a client has kept a kind of engine busy.

    Attributes:
        busy: Nanoseconds, or cycles.
        total: Cycles that passed; None if ``busy`` is in nanoseconds.
        capacity: Number of engines.
    """

    busy: int
    total: int | None
    capacity: int


class Client(NamedTuple):
    """One opening of a device file.

    Attributes:
        driver: The kernel driver of the device.
        address: The PCI address of the device; "" if it is on no PCI bus.
        id: Its number, which is unique for the device.
        regions: Bytes that it has by kind of memory: ``vram``, ``gtt``.
        engines: By name.
    """

    driver: str
    address: str
    id: str
    regions: Mapping[str, int]
    engines: Mapping[str, Engine]

    @property
    def memory(self) -> int | None:
        """Bytes of the GPU's memory that it has, or of the host's if the GPU has none; None if unknown."""
        own = [size for region, size in self.regions.items() if region.startswith(("vram", "local"))]
        return sum(own or self.regions.values()) if self.regions else None


class Held(NamedTuple):
    """A client, and the first process that has it open.

    Attributes:
        process: The folder of the process.
        client: The client.
    """

    process: str
    client: Client


# By device, see :attr:`.sysfs.Card.place`, and by number, its clients.
Found = Mapping[str, Mapping[str, Held]]


def parse(text: bytes) -> Client | None:
    """Return the client of an open file; None if the file is no device of the Direct Rendering Manager."""
    lines = {key.decode(): value for key, value in _LINE.findall(text)}
    number, driver, address = (lines.get(key, b"").decode(errors="replace") for key in ("client-id", "driver", "pdev"))
    if not (driver and re.fullmatch("[0-9]{1,20}", number) and _WORD.fullmatch(driver) and _WORD.fullmatch(address)):
        return None
    return Client(driver, address.lower(), number, _regions(lines), _engines(lines))


def _regions(lines: Mapping[str, bytes]) -> dict[str, int]:
    """Return the resident bytes by kind of memory. Of amdxdna only the size of all buffers is known."""
    regions: dict[str, int] = {}
    for beginning in ("total-memory", "memory-", "resident-"):  # the later name has precedence
        for key, value in lines.items():
            size = _SIZE.fullmatch(value) if key.startswith(beginning) else None
            if size:
                regions[key.partition("-")[2]] = int(size[1]) * _UNITS[size[2]]
    return regions


def _engines(lines: Mapping[str, bytes]) -> dict[str, Engine]:
    counts = {key: int(match[1]) for key, value in lines.items() if (match := _COUNT.fullmatch(value))}
    engines = {}
    for key, busy in counts.items():
        name = key.removeprefix("engine-").removeprefix("cycles-")
        capacity = counts.get(f"engine-capacity-{name}", 1)
        if key.startswith("engine-") and not key.startswith("engine-capacity-") and lines[key].endswith(b" ns"):
            engines[name] = Engine(busy, None, capacity)
        elif key.startswith("cycles-") and f"total-cycles-{name}" in counts and f"engine-{name}" not in counts:
            engines[name] = Engine(busy, counts[f"total-cycles-{name}"], capacity)
    return {name: engine for name, engine in engines.items() if engine.capacity > 0}


def _share(before: Engine, engine: Engine, elapsed: float) -> float | None:
    """Return the share of the time in which the engines were busy; None if unknown."""
    if before.total is not None and engine.total is not None:
        passed = float(engine.total - before.total)
    else:
        passed = elapsed * 1e9 if before.total is engine.total else 0.0
    return (engine.busy - before.busy) / passed / engine.capacity if passed > 0 else None


class Clients:
    """Reads the clients of processes.

    Attributes:
        found: The clients at the newest reading.
        hidden: Processes that could not be examined at the newest reading.
    """

    def __init__(self, files: Files, drivers: Collection[str]) -> None:
        self._files = files
        self._drivers = drivers
        self._cards: dict[str, Card] = {}
        self._has_listed = False
        self._engines: Mapping[tuple[str, str, str], Engine] = {}
        self._compared_at = 0.0
        self.found: Found = {}
        self.hidden = 0

    def read(self, processes: Iterable[str]) -> Found:
        """Return the clients of processes, given by their folders. Those beyond a limit are left out.

        Devices that are suspended are not read, which may wake them; their clients are as they were.
        """
        found: dict[str, dict[str, Held]] = {}
        asleep: dict[str, bool] = {}
        self.hidden, self._has_listed = 0, False
        for process in islice(processes, MAX_PROCESSES):
            try:
                names = self._files.names(f"{process}/fd")[:_MAX_FILES]
            except PermissionError:
                self.hidden += 1
                continue
            except OSError:  # it has ended
                continue
            for name in names:
                with suppress(OSError):
                    self._read_file(process, name, found, asleep)
        self.found = found
        return found

    def _read_file(self, process: str, name: str, found: dict[str, dict[str, Held]], asleep: dict[str, bool]) -> None:
        path = self._files.link(f"{process}/fd/{name}")
        if not path.startswith(_DEVICE_FILES):
            return
        if path not in self._cards and not self._has_listed:  # unknown: of a partition, or in a container
            self._cards = {node: card for card in cards_of(self._files) for node in node_names(self._files, card)}
            self._has_listed = True
        card = self._cards.get(path)
        if card is not None:
            if card.driver not in self._drivers:
                return
            if card.place not in asleep:
                asleep[card.place] = is_suspended(self._files, card.folder)
            if asleep[card.place]:
                found.setdefault(card.place, {}).update(self.found.get(card.place, {}))
                return
        client = parse(self._files.read(f"{process}/fdinfo/{name}"))
        if client is not None and client.driver in self._drivers:
            place = client.address or ("" if card is None else card.place)
            if place:
                found.setdefault(place, {}).setdefault(client.id, Held(process, client))

    def utilization(self) -> Mapping[str, Mapping[str, float]]:
        """Return by device and task the utilization since the previous call, without unknown engines.

        A count may fall for a while, and then catches up; meanwhile the larger one holds.
        """
        now = self._files.uptime()
        elapsed, self._compared_at = now - self._compared_at, now
        current: dict[tuple[str, str, str], Engine] = {}
        engines: dict[tuple[str, str], float] = {}
        for place, clients in self.found.items():
            for number, held in clients.items():
                for name, engine in held.client.engines.items():
                    key = place, number, name
                    before = self._engines.get(key)
                    most = engine if before is None else engine._replace(busy=max(engine.busy, before.busy))
                    current[key] = most
                    share = None if before is None else _share(before, most, elapsed)
                    if share is not None:
                        engines[place, name] = engines.get((place, name), 0.0) + share
        self._engines = current
        tasks: dict[str, dict[str, float]] = {}
        for (place, name), share in engines.items():  # engines of one task run in parallel
            task = TASKS.get(name, "general" if name.startswith("npu") else "")
            if task:
                known = tasks.setdefault(place, {})
                known[task] = min(1.0, max(share, known.get(task, 0.0)))
        return tasks

    def usage(self, program: ProcessTree, devices: Sequence[Device], only_looks: bool) -> Iterator[Usage]:
        """Yield the memory and utilization of each device by the observed program."""
        found = self.read(program.folders)
        utilization = {} if only_looks else self.utilization()
        for device in devices:
            place = device.address or device.id
            if place in found and not device.trouble:
                sizes = [held.client.memory for held in found[place].values() if held.client.memory is not None]
                values: dict[Field, object] = {MEMORY[device.type]: sum(sizes)} if sizes else {}
                for task, share in utilization.get(place, {}).items():
                    if device.type == "gpu":
                        values[UTILIZATION[task]] = share
                    elif task == "general":
                        values[NPU_UTILIZATION] = share
                yield device, values


class AllClients(Clients):
    """Reads the clients of all processes of the machine.

    Attributes:
        is_complete: Whether the newest walk saw every process that can have a client.
    """

    def __init__(self, files: Files, drivers: Collection[str]) -> None:
        super().__init__(files, drivers)
        self._walked_at = float("-inf")
        self._turn = 0
        self.is_complete = False

    def walk(self) -> bool:
        """Examine the processes with clients, and then as many others as a walk may. Their turn comes.

        Returns:
            Whether the last walk is long enough ago; else nothing is read.
        """
        now = self._files.uptime()
        if now - self._walked_at < _BETWEEN_WALKS:
            return False
        self._walked_at = now
        known = {held.process for clients in self.found.values() for held in clients.values()}
        every = [f"/proc/{name}" for name in names_or_empty(self._files, "/proc") if name.isdecimal()]
        others = [process for process in every if process not in known]
        room = max(1, MAX_PROCESSES - len(known))
        begin = self._turn % len(others) if len(others) > room else 0
        self._turn = begin + room
        self.read([*sorted(known), *(others[begin:] + others[:begin])[:room]])
        self.is_complete = not self.hidden and len(others) <= room
        return True

    def holders(self, devices: Sequence[Device]) -> Iterator[tuple[Device, Holders]]:
        """Yield the processes that use each device, with their memory of it."""
        self.walk()
        for device in devices:
            sizes: dict[int, int | None] = {}
            for held in self.found.get(device.id, {}).values():
                pid, size = int(held.process.rpartition("/")[2]), held.client.memory
                sizes[pid] = size if sizes.get(pid) is None else (sizes[pid] or 0) + (size or 0)
            yield device, sizes
