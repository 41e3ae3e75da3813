"""How many points a large machine gives by default: 64 cores, 8 disks, 4 interfaces, counted as they are exported."""

from __future__ import annotations

from collections import Counter

from tests.sources.machines import DISKS, OTHERS, PARTS, PORTS, SLAVES, VIRTUAL, metal
from tests.sources.playing import playing

SOURCES = ["host", "infiniband", "powercap", "container", "filesystem", "process"]
MOST = 130


def _points(energy: bool) -> list[str]:
    """The points of the third collection, when every mean and share is there; all of our own included."""
    machines = {source: metal(0, energy) for source in SOURCES}
    with playing(machines.__getitem__, {"sources": SOURCES, "sample_interval": 10}) as stage:
        for tick in range(3):
            for machine in machines.values():
                machine.become(metal(tick, energy))
            found = stage.tick()
            stage.clock.now += 10
    return [line for line in found if not line.startswith("#")]


def _rows(points: list[str]) -> Counter[str]:
    return Counter(line.partition("{")[0] for line in points)


def test_large_host_gives_at_most_130_points_by_default() -> None:
    points = _points(energy=False)
    table = "\n".join(f"{count:4} {name}" for name, count in _rows(points).most_common())
    assert len(points) <= MOST, f"{len(points)} points:\n{table}"
    assert len(points) > MOST * 0.9, f"only {len(points)} points: is a row missing?\n{table}"


def test_cpu_time_series_do_not_depend_on_cores() -> None:
    assert _rows(_points(energy=False))["system.cpu.time"] == 7


def test_rapl_zones_and_rdma_ports_add_few_points() -> None:
    plain, more = _rows(_points(energy=False)), _rows(_points(energy=True))
    assert dict(more - plain) == {
        "hw.energy": 4,
        "hw.host.energy": 1,
        "hw.network.io": 2,
        "hw.network.up": 2,
        "hw.errors": 8,
        "otel_hardware.source.up": 2,
    }
    assert not plain - more


def test_partitions_and_virtual_interfaces_add_no_points() -> None:
    points = "\n".join(_points(energy=True))
    for name in [*DISKS, *PORTS]:
        assert f"={name}}}" in points or f"={name}," in points, f"{name} is missing"
    for name in [*PARTS, *OTHERS, *SLAVES, *VIRTUAL]:
        assert f"system.device.name={name}}}" not in points, f"{name} is counted"
        assert f"network.interface.name={name}," not in points, f"{name} is counted"
    devices = {
        line.partition("system.device.name=")[2].partition(",")[0]
        for line in points.splitlines()
        if "filesystem" in line
    }
    assert devices - {""} == {"/dev/nvme0n1p2", "/dev/md0"}
