"""The cards that can be simulated, with the values of their data sheets."""

from __future__ import annotations

from typing import Final, NamedTuple

MIB: Final = 1 << 20
GIB: Final = 1 << 30


class Card(NamedTuple):
    """A card.

    Attributes:
        model: The name that its driver reports.
        device: PCI device ID.
        capability: Compute capability.
        memory: Bytes that the driver reports.
        idle: Watts without load.
        limit: The power limit in watts.
        heat: Kelvins above the air per watt, in a chassis that cools it well.
        slowdown: Degrees Celsius at which it lowers its clocks.
        clocks: Highest clocks of graphics, SM, memory and video in MHz.
        links: Number of NVLinks.
        link_rate: Bytes per second of all NVLinks, in one direction.
        pcie: Generation and width of the PCIe link.
        is_reliable: Whether it has ECC memory and a serial number.
        has_profiling: Whether it has the counters of GPM, which Hopper introduced.
        has_memory_sensor: Whether it reports the temperature of the memory.
        fans: Number of fans that the driver controls.
        vendor: The name of the source that reads it.
    """

    model: str
    device: int
    capability: tuple[int, int]
    memory: int
    idle: float
    limit: float
    heat: float
    slowdown: int
    clocks: tuple[int, int, int, int]
    links: int = 0
    link_rate: float = 0.0
    pcie: tuple[int, int] = (4, 16)
    is_reliable: bool = True
    has_profiling: bool = False
    has_memory_sensor: bool = True
    fans: int = 0
    vendor: str = "nvidia"

    @property
    def pcie_rate(self) -> float:
        """Bytes per second of the PCIe link, in one direction."""
        generation, width = self.pcie
        return 0.985e9 * 2.0 ** (generation - 3) * width


# By the name in a specification.
CARDS: Final = {
    "t4": Card(
        "Tesla T4", 0x1EB8, (7, 5), 15_360 * MIB, 10.0, 70.0, 0.62, 93, (1590, 1590, 5001, 1470), pcie=(3, 16),
        has_memory_sensor=False,
    ),
    "a100": Card(
        "NVIDIA A100-SXM4-80GB", 0x20B2, (8, 0), 81_920 * MIB, 55.0, 400.0, 0.085, 89, (1410, 1410, 1593, 1290), 12,
        300e9,
    ),
    "h100": Card(
        "NVIDIA H100 80GB HBM3", 0x2330, (9, 0), 81_559 * MIB, 70.0, 700.0, 0.055, 87, (1980, 1980, 2619, 1545), 18,
        450e9, (5, 16), has_profiling=True,
    ),
    "h200": Card(
        "NVIDIA H200", 0x2335, (9, 0), 143_771 * MIB, 75.0, 700.0, 0.055, 87, (1980, 1980, 3201, 1545), 18,
        450e9, (5, 16), has_profiling=True,
    ),
    "b200": Card(
        "NVIDIA B200", 0x2901, (10, 0), 183_359 * MIB, 140.0, 1000.0, 0.042, 87, (1965, 1965, 3996, 1965), 18, 900e9,
        (5, 16), has_profiling=True,
    ),
    "rtx4090": Card(
        "NVIDIA GeForce RTX 4090", 0x2684, (8, 9), 24_564 * MIB, 25.0, 450.0, 0.095, 96, (3105, 3105, 10501, 2415),
        is_reliable=False, has_memory_sensor=False, fans=2,
    ),
    "mi300x": Card(
        "AMD Instinct MI300X OAM", 0x74A1, (9, 4), 192 * GIB, 140.0, 750.0, 0.052, 100, (2100, 2100, 1300, 1000), 7,
        448e9, (5, 16), vendor="amd",
    ),
    "mi210": Card(
        "AMD Instinct MI210", 0x740F, (9, 0), 64 * GIB, 42.0, 300.0, 0.13, 100, (1700, 1700, 1600, 1000), vendor="amd",
    ),
}  # fmt: skip
