"""Graphcore: its IPUs, by the library gcipuinfo in a process of its own."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.fields import Device
from opentelemetry.instrumentation.hardware.accelerators.selection import DeviceFilter, FoundDevice, VisibilityRule
from opentelemetry.instrumentation.hardware.accelerators.unsupported import sentences
from opentelemetry.instrumentation.hardware.drivers.streaming import PERIODS
from opentelemetry.instrumentation.hardware.drivers.subprocess import named
from opentelemetry.instrumentation.hardware.model import Point, Scope, SeriesCache, Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import Source
from opentelemetry.instrumentation.hardware.sources.graphcore.place import NAME, Place, tool
from opentelemetry.instrumentation.hardware.sources.graphcore.reading import Ipu, parse
from opentelemetry.instrumentation.hardware.system.files import Files
from opentelemetry.instrumentation.hardware.system.machine import machine
from opentelemetry.instrumentation.hardware.system.process_tree import ProcessTree

_NO_IPU: Final = "there is no IPU: neither /dev/ipu*, nor a partition that the environment names (IPUOF_*)"

_PATIENCE: Final = 4.0
"""Seconds that opening waits for the first look: where IPUs are shared, a server is asked."""

_SELDOM: Final = 30.0
"""Seconds between two looks where it is read with collections only."""

_HOST_PIDS: Final = (
    f"{c.PROCESS_NPU_UTILIZATION.name}: the library names processes by the numbers of the host, which cannot be seen "
    "from this container; start it in the host's process namespace (--pid=host, hostPID: true)"
)

_NONE_NOW: Final = (
    f"hw.npu.*: {NAME} finds no IPU now; without DEVICES=all it looks at those of the active partition only, which may "
    "come later"
)

_EVERY_PARTITION: Final = ("all",)

_WAY: Final = VisibilityRule("IPU", "hw.npu.*")
"""A program is shown the IPUs of its partition, and the library sees the same."""


class Graphcore(Source):
    """The IPUs, and what of them the observed program and its children use.

    Attributes:
        newest: what they said last.
    """

    name = "graphcore"
    scope = Scope.PROCESS
    rows = ("hw.", "process.npu.")

    @classmethod
    def prepare(cls, config: Config) -> bool:
        """Whether there may be an IPU."""
        return is_expected(config, os.environ, _nodes(os.listdir))

    def open(self) -> None:
        """Find the IPUs.

        Raises:
            Unavailable: where there are none, or no library to ask.
            OSError: where the library cannot see them now.
        """
        config, drivers = self.context.config, self.context.drivers
        setting = named(config.gcipuinfo)
        self._kernel: Files = drivers.files()
        nodes = _nodes(self._kernel.names)
        if not is_expected(config, self.context.environ, nodes):
            raise Unavailable(_NO_IPU)
        if config.gcipuinfo == "off":
            raise Unavailable(f"{NAME} is switched off")
        folder = drivers.custom(NAME, lambda: Place(setting)).folder()
        self._of = SeriesCache()
        self._ipus: dict[int, Device] = {}
        self._boards: dict[str, Device] = {}
        self.newest: list[Ipu] = []
        self.choice = DeviceFilter(config.devices, self.context.environ, _WAY)
        self._at = self._kernel.uptime()
        self._owners = ProcessTree(machine(drivers), self._kernel, self.context.pid, *nodes)
        self._owners.look()
        self._seen: set[int] = set()
        self._blind = False
        self._stream = drivers.stream(tool())
        self._period = float(math.ceil(min(config.interval or _SELDOM, 60.0)))
        discovery = "all" if tuple(config.devices or ()) == _EVERY_PARTITION else "active"
        self._arguments = [folder, discovery, f"{self._period:g}"]
        self._listens = self._heard = False
        if self.context.is_reporter or not nodes:
            self._begin()

    def _begin(self) -> None:
        self._listens = True
        self.errors = [f"{NAME} has not answered yet"]
        self._stream.open(self._arguments, self._period)
        self._at = self._kernel.uptime()
        self._hear(_PATIENCE)

    def _hear(self, seconds: float = 0.0) -> None:
        """The newest look.

        Raises:
            OSError: the child has ended, is silent, or cannot see the IPUs.
        """
        now = self._kernel.uptime()
        for line in self._stream.read(seconds):
            try:
                found, error = parse(line)
            except ValueError:
                continue
            if error:
                raise OSError(error)
            self.newest, self._at, self._heard = found, now, True
            self.errors = []
        if now - self._at > PERIODS * self._period:
            self.newest, self._heard = [], False  # nobody has listened for a while
        if self.newest:  # else it is not known yet what there is
            places = ((ipu.id, ipu.facts.get(c.PCI_BDF, "").lower()) for ipu in self.newest)
            self.choice.look([FoundDevice(number, f"ipu{number}", address=bdf) for number, bdf in places])

    def chosen(self) -> list[Ipu]:
        """Those that are reported."""
        return [ipu for ipu in self.newest if f"ipu{ipu.id}" in self.choice]

    # -- what they say

    def read(self) -> Iterator[Point]:
        """What changes of each IPU, and what the program uses of it."""
        if not self._listens:
            return
        self._hear()
        used = [*self._used()]  # first: it may be for their use that IPUs are reported
        if self.context.is_reporter:
            for ipu in self.chosen():
                own = {name: value for name, value in ipu.said.items() if name not in ("session", "board.power")}
                yield from self._device(ipu).points(own)
            yield from self._of_boards()
        yield from used

    def _of_boards(self) -> Iterator[Point]:
        """Power of each board, which its IPUs share."""
        watts = {ipu.board: ipu.said["board.power"] for ipu in self.chosen() if "board.power" in ipu.said and ipu.board}
        for serial, power in watts.items():
            if serial not in self._boards:
                self._boards[serial] = Device(f"board-{serial}", f"Board {serial}", "board")
            yield from self._boards[serial].points({"power": power})

    def _used(self) -> Iterator[Point]:
        """Of each IPU that the observed program or a child of it uses."""
        pids = {ipu.pid for ipu in self.newest if ipu.pid is not None}
        if pids != self._seen:
            self._owners.look()
            self._seen = pids
        ours = self._owners.among(pids)
        self._blind = bool(pids) and not ours and not self._owners.on_host
        for ipu in self.newest:
            if ipu.pid not in ours:
                continue
            self.choice.use(f"ipu{ipu.id}")
            if f"ipu{ipu.id}" in self.choice and "session" in ipu.said:
                yield self._of[c.PROCESS_NPU_UTILIZATION, c.HW_ID, f"ipu{ipu.id}"](ipu.said["session"])

    def read_slow(self) -> Iterator[Point]:
        """What each IPU is, and how it is."""
        self._owners.look()
        if not self._listens and self._owners.computing():
            self._begin()
        if self.context.is_reporter:
            for ipu in self.chosen():
                device = self._device(ipu)
                yield device.series(c.HW_NPU_INFO, {c.HW_VENDOR: "Graphcore", **ipu.facts})(1)
                if ipu.state:
                    yield from device.status(ipu.state)
        unclear = [
            (f"IPU {ipu.id}", {name: f"{NAME} says {value!r}" for name, value in ipu.unclear}) for ipu in self.chosen()
        ]
        self.unsupported = [*self.choice.unsupported(), *sentences(unclear)]
        if self._heard and not self.newest:
            self.unsupported.append(_NONE_NOW)
        if self._blind and self._owners.computing():
            self.unsupported.append(_HOST_PIDS)

    def _device(self, ipu: Ipu) -> Device:
        if ipu.id not in self._ipus:
            self._ipus[ipu.id] = Device(f"ipu{ipu.id}", f"IPU {ipu.id}", "npu")
        return self._ipus[ipu.id]


def is_expected(config: Config, environ: Mapping[str, str], nodes: Sequence[str]) -> bool:
    """Whether there may be an IPU: here, in a partition that is reached over the network, or as the settings say."""
    return bool(nodes or named(config.gcipuinfo)) or any(name.startswith("IPUOF_") for name in environ)


def _nodes(names: Callable[[str], Sequence[str]]) -> list[str]:
    """The device files of IPUs."""
    try:
        return sorted(f"/dev/{name}" for name in names("/dev") if name.startswith("ipu"))
    except OSError:
        return []
