"""The live view on simulated machines."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from math import sin
from pathlib import Path
from unittest.mock import patch

from rich.style import Style
from tests.cli.pictures import colors
from tests.sources import machines
from tests.sources.sensors import driver
from tests.sources.tree import Fabricated, Tree
from tests.support.children import environment
from tests.support.commands import Time, simulated
from tests.tools.nvml import MIB, FakeNvml, Gpu, Value, h100, listed
from textual.pilot import Pilot
from textual.strip import Strip

from opentelemetry.instrumentation.hardware.cli.top.app import Top
from opentelemetry.instrumentation.hardware.cli.top.feed import Feed
from opentelemetry.instrumentation.hardware.cli.top.processes import Process, ProcessReader
from opentelemetry.instrumentation.hardware.cli.top.widgets import Panel
from opentelemetry.instrumentation.hardware.pipeline import session
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.system import tree
from opentelemetry.instrumentation.hardware.system.files import FilesystemSpace

CORES = 32
STEPS = 40  # readings before a screen is compared, so that there is some history

# -- a machine that trains


def _wave(tick: int, phase: float, slow: float = 9.0) -> float:
    """A number from 0 to 1 that looks like a load."""
    return (2 + sin(tick / slow + phase) + sin(tick / (0.37 * slow) + 2.1 * phase)) / 4


def trainer(tick: int) -> Fabricated:
    """A server for training: 32 cores, disks, an Ethernet and an InfiniBand port, sensors."""
    loads = [sum(0.25 + 0.75 * _wave(second, 0.5 * core) for second in range(tick)) for core in range(CORES)]
    rows = [
        [int(70 * load), 0, int(12 * load), 100 * tick - int(85 * load), int(3 * load), 0, 0, 0, 0, 0] for load in loads
    ]
    stat = [("", [sum(column) for column in zip(*rows)]), *((str(core), row) for core, row in enumerate(rows))]
    moved = sum(int(100 * _wave(second, 1.0, 5.0)) for second in range(tick))
    received = sum(int(100 * _wave(second, 2.0, 7.0)) for second in range(tick))
    total, used = 512 << 20, int((180 + 60 * _wave(tick, 0.3, 40.0)) * (1 << 20))
    files: machines.Files = {
        "/proc/stat": "\n".join(f"cpu{name} {' '.join(map(str, row))}" for name, row in stat) + "\nbtime 1762000000\n",
        "/proc/loadavg": "14.20 12.80 11.90 9/2300 90000\n",
        "/proc/meminfo": machines.meminfo(total, total - used - (80 << 20), 1 << 20, 88 << 20, (33 << 20, 31 << 20)),
        "/proc/vmstat": machines.vmstat(tick),
        "/proc/diskstats": machines.diskstats(["nvme0n1"], 0)
        + f" 259       1 nvme1n1 1 0 {9000 * moved} 9 7 0 {1100 * moved} 0 0 {4 * moved} 9\n",
        "/proc/net/dev": machines.dev(["lo"], 0)
        + f"  eth0: {8_000_000 * received} 1 0 0 0 0 0 0 {3_100_000 * received} 1 0 0 0 0 0 0\n",
        "/sys/block/nvme0n1/device/model": "some disk\n",
        "/sys/block/nvme1n1/device/model": "some disk\n",
        "/sys/class/net/eth0/device/vendor": "0x15b3\n",
        "/sys/class/net/lo/mtu": "65536\n",
        "/proc/filesystems": machines.FILESYSTEMS,
        "/proc/{pid}/mountinfo": machines.mountinfo(machines.ROOT, machines.DATA),
        **_pressure(tick),
        **driver(0, "k10temp", "pci/0000:00:18.3", temp1_label="Tctl", temp1_input=71_000 + 100 * (tick % 20)),
        **driver(1, "nvme", "nvme/nvme0", temp1_label="Composite", temp1_input=48_850, temp1_max=81_850),
        **driver(2, "nvme", "nvme/nvme1", temp1_label="Composite", temp1_input=74_850, temp1_max=81_850),
    }
    spaces = {
        "/": FilesystemSpace(440 << 30, 210 << 30, 188 << 30),
        "/data": FilesystemSpace(14_000 << 30, 1_500 << 30, 1_500 << 30),
    }
    return Fabricated(Tree(files, spaces, CORES, 1_345_600.25 + tick))


def _pressure(tick: int) -> machines.Files:
    files: machines.Files = {}
    for resource, share in (("cpu", 31_000), ("memory", 400), ("io", 164_000)):
        files[f"/proc/pressure/{resource}"] = "".join(
            f"{kind} avg10=0.00 avg60=0.00 avg300=0.00 total={part * tick}\n"
            for kind, part in (("some", share), ("full", share // 3))
        )
    return files


_STILL: tuple[str, ...] = (
    "Name",
    "UUID",
    "PciInfo",
    "Architecture",
    "MinorNumber",
    "UtilizationRates",
    "MemoryInfo",
    "Temperature",
)
_STILL += ("PowerUsage", "EnforcedPowerLimit", "CurrentClocks", "ClockInfo", "MaxClockInfo", "MigMode", "MaxMig")
"""The NVML calls with values that do not depend on the real time."""

FIRST_PID = 4_100_000


def gpu(index: int) -> Gpu:
    """An H100 that a rank of a training uses. The third is held but idle, the fourth is throttled."""
    known: Gpu = {call: value for call, value in h100(index).items() if call.startswith(_STILL)}
    slowed = {"CurrentClocksEventReasons": 4, "ClockInfo.0": 1410, "ClockInfo.1": 1410} if index % 16 == 3 else {}
    return known | slowed | {"ComputeRunningProcesses": listed((FIRST_PID + 7 * index, _used(index) * MIB))}


def _used(index: int) -> int:
    return 78_300 if index % 16 == 1 else 61_500 + 137 * index


def _gpu_at(index: int, tick: int) -> dict[str, Value]:
    busy = 0 if index % 16 == 2 else round(100 - 60 * _wave(tick, 0.9 * index, 6.0) ** 3)
    busy = 8 if index % 16 != 2 and tick % 60 in range(24, 32) else busy  # a checkpoint
    return {
        f"gpu{index}.UtilizationRates": (busy, busy // 2),
        f"gpu{index}.MemoryInfo": (81_559 * MIB, 557 * MIB, (81_002 - _used(index)) * MIB, _used(index) * MIB),
        f"gpu{index}.PowerUsage": 700_000 if index % 16 == 3 else 118_000 + 5_400 * busy + 900 * index,
        f"gpu{index}.TemperatureV.0": (84 if index % 16 == 3 else 41 + busy // 4 + index % 5),
        f"gpu{index}.Temperature.0": (84 if index % 16 == 3 else 41 + busy // 4 + index % 5),
    }


# The other processes of the machine.
OTHERS = {
    1: Process(1, "root", "/sbin/init", 0.0, 12 << 20, 1_345_000.0, 0),
    812: Process(812, "root", "/usr/sbin/sshd -D", 0.0, 9 << 20, 1_344_000.0, 1),
    3300: Process(3300, "alice", "tmux new -s train", 0.0, 5 << 20, 9_000.0, 1),
    3400: Process(3400, "alice", "/usr/bin/bash", 0.0, 6 << 20, 8_900.0, 3300),
    3401: Process(3401, "alice", "torchrun --nproc-per-node 16 train.py", 0.01, 310 << 20, 7_265.0, 3400),
    5120: Process(5120, "postgres", "postgres: checkpointer", 0.11, 1 << 30, 600_000.0, 1),
    9001: Process(9001, "bob", "rsync -a /data/shards/ store:/backup", 0.64, 24 << 20, 66.0, 812),
}


class Ranks(ProcessReader):
    """The processes of the training, and others."""

    def everything(self, wanted: Iterable[int]) -> dict[int, Process]:
        return OTHERS | {pid: self._rank(pid) for pid in wanted}

    @staticmethod
    def _rank(pid: int) -> Process:
        rank = (pid - FIRST_PID) // 7
        if rank == 2:
            return Process(
                pid, "bob", "/opt/conda/bin/python -m ipykernel_launcher -f kernel.json", 0.0, 3 << 30, 190_000.0, 812
            )
        command = f"/opt/conda/bin/python train.py --config llama-8b.yaml --rank {rank}"
        return Process(pid, "alice", command, 1.02 + 0.03 * rank, (21 << 30) + (rank << 28), 7_260.0, 3401)


# -- the view on it


def on(
    folder: Path,
    gpus: int,
    size: tuple[int, int],
    act: Act,
    steps: int = STEPS,
    detail: Sequence[str] = ("cpu",),
) -> None:
    """Show a machine with so many GPUs, and act on the view after some readings.

    Args:
        folder: For the library.
        gpus: The number of GPUs of the simulated library.
        size: Columns and lines.
        act: What is done.
        steps: Readings before it.
        detail: The setting.
    """
    fake = FakeNvml(folder, *map(gpu, range(gpus))) if gpus else None
    env = environment({"TZ": "UTC", **(fake.environment if fake else {})})
    with (
        patch.dict(os.environ, env, clear=True),
        patch.object(tree, "_is_host_namespace", lambda files: True),
        simulated(trainer) as clock,
    ):
        asyncio.run(_on(View(fake, gpus, clock), size, act, steps, {"detail": [*detail]}))


class View:
    """The machine, and the view on it.

    Attributes:
        app: The view.
        pilot: Presses keys.
    """

    app: Top
    pilot: Pilot[None]

    def __init__(self, fake: FakeNvml | None, gpus: int, clock: Time) -> None:
        self._fake = fake
        self._gpus = gpus
        self._clock = clock
        self._step = 0

    async def read(self) -> None:
        """Let two seconds pass, and show the machine."""
        self._clock.sleep(2.0)
        if self._fake is not None:
            lines = (_gpu_at(index, 2 * self._step).items() for index in range(self._gpus))
            self._fake.set_lines({key: value for each in lines for key, value in each})
        self._step += 1
        await self.app.read()

    async def press(self, *keys: str) -> None:
        """Press keys, and wait until the screen shows their effect."""
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def resize(self, size: tuple[int, int]) -> None:
        """Change the size of the terminal."""
        await self.pilot.resize_terminal(*size)
        await self.until(lambda: self.app.screen.size == size)

    async def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        """Wait until a condition holds, or some seconds: the screen shows a change a moment later."""
        deadline = time.monotonic() + seconds
        while not condition() and time.monotonic() < deadline:
            await self.pilot.pause(0.01)

    async def shows(self, *words: str) -> None:
        """Wait until these words are on the screen."""
        await self.until(lambda: all(word in self.text for word in words))
        assert all(word in self.text for word in words), f"{words}:\n{self.text}"

    async def hides(self, word: str) -> None:
        """Wait until a word is not on the screen any more."""
        await self.until(lambda: word not in self.text)
        assert word not in self.text

    async def equals(self, path: Path, found: Callable[[], str], rewrite: bool) -> None:
        """Wait until what is found is the text of a file; or write the file."""
        if rewrite:
            await self.until(lambda: False, 2.0)
            path.parent.mkdir(exist_ok=True)
            path.write_text(found(), encoding="utf-8")
        expected = path.read_text(encoding="utf-8")
        await self.until(lambda: found() == expected)
        assert found().splitlines() == expected.splitlines()

    def panel(self, name: str) -> Panel:
        return self.app.query_one(f"#{name}", Panel)

    @property
    def strips(self) -> list[Strip]:
        """The lines of the screen with their styles."""
        return self.app.screen._compositor.render_strips()

    @property
    def text(self) -> str:
        return "".join(f"{strip.text.rstrip()}\n" for strip in self.strips)

    def style(self, word: str) -> str:
        """Return the colour of the first piece of text that has this word."""
        for strip in self.strips:
            for segment in strip:
                if word in segment.text:
                    return colors(segment.style or Style())[0]
        raise AssertionError(f"{word!r} is not on the screen:\n{self.text}")


Act = Callable[[View], Awaitable[None]]


async def _on(view: View, size: tuple[int, int], act: Act, steps: int, settings: Mapping[str, object]) -> None:
    config = Config.read({**settings, "sources": ["-process"]})
    started = session.Session(config, interval=2.0, all_processes=True)
    started.start()
    feed = Feed(started, Ranks())
    view.app = Top(feed, None, lambda: "exporting every 15 s to http://localhost:4317 (grpc)")
    try:
        async with view.app.run_test(size=size, notifications=True) as view.pilot:
            for _ in range(steps):
                await view.read()
            await view.pilot.pause()
            await act(view)
    finally:
        started.close()
