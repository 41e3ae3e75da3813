"""W&B's keys of AMD GPUs, which are formulas over the output of ``rocm-smi``."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.fields import Reading
from opentelemetry.instrumentation.hardware.accelerators.selection import DeviceFilter
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.model import Metric, Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources.amd import amd_smi, is_expected, rocm_smi
from opentelemetry.instrumentation.hardware.sources.amd.card import Card, text
from opentelemetry.instrumentation.hardware.sources.amd.files import Sysfs
from opentelemetry.instrumentation.hardware.sources.amd.listing import Listing, Tool, by_amd_smi, run
from opentelemetry.instrumentation.hardware.sources.amd.processes import Processes
from opentelemetry.instrumentation.hardware.sources.amd.reading import Card as Said
from opentelemetry.instrumentation.hardware.sources.amd.topology import Topology
from opentelemetry.instrumentation.hardware.system.files import Files
from opentelemetry.instrumentation.hardware.system.machine import machine
from opentelemetry.instrumentation.hardware.wandb.probe import Key, device_key, percent
from opentelemetry.instrumentation.hardware.wandb.probe import Probe as BaseProbe

Words: TypeAlias = "Mapping[str, str]"
"""What the tool calls something, and its text."""

_SPOKEN: Final = {
    "GPU use (%)": ("utilization.general", 100),
    "GPU Memory Read/Write Activity (%)": ("utilization.memory", 100),
    "Temperature (Sensor memory) (C)": ("temperature.memory", 1),
    "Average Graphics Package Power (W)": ("power", 1),
    "Max Graphics Package Power (W)": ("power.limit.enforced", 1),
}
"""How ROCm 6 calls our quantities, and what they are times there."""


class Probe(BaseProbe["Mapping[int, Words]"]):
    """The selected GPUs: from sysfs files, which rocm-smi reads too; else from rocm-smi, else from amd-smi."""

    def __init__(self, config: Config, pid: int) -> None:
        super().__init__(config, pid)
        self._drivers = Drivers()
        self._ask: Callable[[], dict[int, Words]] | None = None
        self.expected = is_expected(config, os.path.exists)

    def read(self) -> Mapping[int, Words]:
        """Each GPU by its number, in the order of their addresses; none where they do not answer."""
        try:
            self._ask = self._ask or self._open()
            words = self._ask()
        except (Unavailable, OSError, ValueError) as error:
            self._ask = None
            self.error = str(error)
            return {}
        self.error = ""
        return words

    def _open(self) -> Callable[[], dict[int, Words]]:
        kernel = self._drivers.files()
        topology = Topology(kernel)
        choice = DeviceFilter(self.config.devices, os.environ, topology.way(), kernel)
        gpus, say = self._way(kernel, choice, topology)
        processes = Processes(kernel, machine(self._drivers), self.pid, topology.cards(gpus.addresses))

        def ask() -> dict[int, Words]:
            gpus.look()
            if choice.by_use:
                gpus.use(processes.look())
            return say()

        return ask

    def _way(
        self, kernel: Files, choice: DeviceFilter, topology: Topology
    ) -> tuple[Sysfs | Listing, Callable[[], dict[int, Words]]]:
        reasons = []
        if self.config.amdgpu != "off":
            try:
                files = Sysfs(kernel, choice, topology)
                return files, lambda: {card.index: self._of_files(card) for card in files.awake()}
            except Unavailable as gone:
                reasons.append(gone.reason)
        if self.config.rocm_smi != "off":
            try:
                return self._by_rocm_smi(choice)
            except Unavailable as gone:
                reasons.append(gone.reason)
        if self.config.amd_smi != "off":
            try:
                tool = by_amd_smi(self._drivers.command(amd_smi.TOOL.with_setting(self.config.amd_smi)))
                listing = Listing(tool, choice)
                return listing, lambda: {card.number: words(card.numbers) for card in listing.cards()}
            except Unavailable as gone:
                reasons.append(gone.reason)
        raise Unavailable("; ".join(reasons) or "the files of amdgpu, rocm-smi and amd-smi are switched off")

    def _by_rocm_smi(self, choice: DeviceFilter) -> tuple[Listing, Callable[[], dict[int, Words]]]:
        """Its own texts."""
        command = self._drivers.command(rocm_smi.TOOL.with_setting(self.config.rocm_smi))
        texts: dict[int, Words] = {}

        def read() -> tuple[str | None, list[Said]]:
            printed = run(command, rocm_smi.TOOL.name, rocm_smi.ARGUMENTS)
            texts.update(rocm_smi.said(printed)[1])
            return rocm_smi.parse(printed)

        listing = Listing(Tool(rocm_smi.TOOL.name, read), choice)
        return listing, lambda: {card.number: texts[card.number] for card in listing.cards()}

    def _of_files(self, card: Card) -> Words:
        found = words({**card.numbers(), **card.numbers_seldom()})
        overdrive = text(self._drivers.files(), f"{card.folder}/pp_mclk_od")
        return {**found, "GPU Memory OverDrive value (%)": overdrive} if overdrive else found

    def close(self) -> None:
        """Let go of the files."""
        self._ask = None
        self._drivers.close()


def words(said: Reading) -> Words:
    """What is said of a GPU, as ROCm 6 words it."""
    found = {
        name: f"{said[quantity] * times}"
        for name, (quantity, times) in _SPOKEN.items()
        if isinstance(said.get(quantity), (int, float))
    }
    used, total = said.get("memory.used"), said.get("memory.total")
    if isinstance(used, int) and isinstance(total, int) and total:
        found["GPU Memory Allocated (VRAM%)"] = f"{used / total * 100}"
    return found


def _number(words: Words, *names: str) -> float | None:
    """The first text of a name that is a number."""
    texts = (words[name] for name in names if name in words)
    return next((float(text) for text in texts if re.fullmatch("[0-9]{1,15}([.][0-9]{1,20})?", text)), None)


_POWER: Final = ("Average Graphics Package Power (W)", "Current Socket Graphics Package Power (W)")


def _key(
    name: str, unit: str, formula: str, value: Callable[[Words], float | None], *metrics: Metric
) -> Key[Mapping[int, Words]]:
    return device_key(f"gpu.{{i}}.{name}", unit, formula, value, *metrics)


KEYS: Final[tuple[Key[Mapping[int, Words]], ...]] = (
    _key("gpu", "%", "`GPU use (%)`", lambda words: _number(words, "GPU use (%)"), c.HW_GPU_UTILIZATION),
    _key(
        "memoryAllocated", "%",
        "`GPU memory use (%)`, which is activity (ROCm 5); else `GPU Memory Allocated (VRAM%)`",
        lambda words: _number(words, "GPU memory use (%)", "GPU Memory Allocated (VRAM%)"),
        c.HW_GPU_MEMORY_UTILIZATION,
    ),
    _key(
        "memoryReadWriteActivity", "%", "`GPU Memory Read/Write Activity (%)`",
        lambda words: _number(words, "GPU Memory Read/Write Activity (%)"), c.HW_GPU_UTILIZATION,
    ),
    _key(
        "memoryOverDrive", "%", "`GPU Memory OverDrive value (%)`",
        lambda words: _number(words, "GPU Memory OverDrive value (%)"),
    ),
    _key(
        "temp", "°C", "temperature of the memory", lambda words: _number(words, "Temperature (Sensor memory) (C)"),
        c.HW_TEMPERATURE,
    ),
    _key(
        "powerWatts", "W", "average power, else that of the socket", lambda words: _number(words, *_POWER), c.HW_POWER
    ),
    _key(
        "powerPercent", "%", "the same / `Max Graphics Package Power (W)`",
        lambda words: percent(_number(words, *_POWER), _number(words, "Max Graphics Package Power (W)")),
        c.HW_POWER_UTILIZATION,
    ),
)  # fmt: skip
"""What W&B reports of an AMD GPU. It reports 0 for what is missing; here the key is absent."""
