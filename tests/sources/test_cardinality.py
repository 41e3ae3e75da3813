"""How many points a large machine gives by default: 64 cores, 8 disks, 4 interfaces, counted as they are exported."""

from __future__ import annotations

from collections import Counter

from tests.sources.machines import metal
from tests.sources.playing import playing

SOURCES = ["host", "infiniband", "powercap", "container", "filesystem", "process"]
MOST = 130


def test_large_host_gives_at_most_130_points_by_default() -> None:
    """In the third collection, when every mean and share is there; all of our own included."""
    machines = {source: metal(0, energy=False) for source in SOURCES}
    with playing(machines.__getitem__, {"sources": SOURCES, "sample_interval": 10}) as stage:
        for tick in range(3):
            for machine in machines.values():
                machine.become(metal(tick, energy=False))
            found = stage.tick()
            stage.clock.now += 10
    points = [line for line in found if not line.startswith("#")]
    rows = Counter(line.partition("{")[0] for line in points)
    table = "\n".join(f"{count:4} {name}" for name, count in rows.most_common())
    assert len(points) <= MOST, f"{len(points)} points:\n{table}"
    assert len(points) > MOST * 0.9, f"only {len(points)} points: is a row missing?\n{table}"
