"""AMD's GPUs as ``rocm-smi`` words them at one moment, for formulas that are not ours."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from opentelemetry.instrumentation.hardware.accelerators.fields import Reading
from opentelemetry.instrumentation.hardware.accelerators.selection import DeviceFilter
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.model import Unavailable
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


class Raw:
    """The GPUs that are meant: by the files of their driver, which rocm-smi reads too; else by that, else by amd-smi.

    Args:
        config: the settings.
        pid: the observed process.

    Attributes:
        expected: whether there is a driver, or the settings say where a tool is; if not, there is nothing to read.
        trouble: why there was nothing to read the last time.
    """

    def __init__(self, config: Config, pid: int) -> None:
        self.trouble = ""
        self._config = config
        self._pid = pid
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
            self.trouble = str(error)
            return {}
        self.trouble = ""
        return words

    def _open(self) -> Callable[[], dict[int, Words]]:
        kernel = self._drivers.files()
        topology = Topology(kernel)
        choice = DeviceFilter(self._config.devices, os.environ, topology.way(), kernel)
        gpus, say = self._way(kernel, choice, topology)
        processes = Processes(kernel, machine(self._drivers), self._pid, topology.cards(gpus.addresses))

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
        if self._config.amdgpu != "off":
            try:
                files = Sysfs(kernel, choice, topology)
                return files, lambda: {card.index: self._of_files(card) for card in files.awake()}
            except Unavailable as gone:
                reasons.append(gone.reason)
        if self._config.rocm_smi != "off":
            try:
                return self._by_rocm_smi(choice)
            except Unavailable as gone:
                reasons.append(gone.reason)
        if self._config.amd_smi != "off":
            try:
                tool = by_amd_smi(self._drivers.command(amd_smi.TOOL.with_setting(self._config.amd_smi)))
                listing = Listing(tool, choice)
                return listing, lambda: {card.number: words(card.numbers) for card in listing.cards()}
            except Unavailable as gone:
                reasons.append(gone.reason)
        raise Unavailable("; ".join(reasons) or "the files of amdgpu, rocm-smi and amd-smi are switched off")

    def _by_rocm_smi(self, choice: DeviceFilter) -> tuple[Listing, Callable[[], dict[int, Words]]]:
        """Its own texts."""
        command = self._drivers.command(rocm_smi.TOOL.with_setting(self._config.rocm_smi))
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
