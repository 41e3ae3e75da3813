"""A simulated machine that a judge watches, as fast as it can be read: minutes pass in a second.

python -m tests.bottlenecks.trial            the confusion matrix, for docs/why.md
python -m tests.bottlenecks.trial --write    writes it there
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.stage import Clock
from tests.support.stepped import Stepped

from opentelemetry.instrumentation.hardware.bottlenecks.judge import Judge, Verdict
from opentelemetry.instrumentation.hardware.bottlenecks.signals import signals
from opentelemetry.instrumentation.hardware.drivers.simulated import SimulatedDrivers, SimulatedHost
from opentelemetry.instrumentation.hardware.pipeline.view import Viewer
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.simulator.machine import Machine, Spec
from opentelemetry.instrumentation.hardware.simulator.scenarios import HostLoad
from opentelemetry.instrumentation.hardware.system.files import Files

STEP = 2.0

# What may be said of the GPUs of a scenario; ``unknown`` may be said of each.
EXPECTED: Mapping[str, tuple[str, ...]] = {
    "training": ("none",),
    "inference": ("waiting",),
    "idle": ("none",),
    "held": ("waiting", "held"),
    "hot": ("throttled",),
    "brake": ("throttled",),
    "stuck": ("waiting", "stuck"),
    "small-kernels": ("kernels_small",),
    "transfer": ("transfer",),
    "xid": ("failed", "none"),
    "memory-leak": ("none",),
    "lost": ("failed", "none"),
    "straggler": ("throttled", "none"),
    "ecc": ("failed", "none"),
    "link": ("link", "none"),
    "one-core": ("cpu",),
    "quota": ("cpu_quota",),
    "storage": ("storage",),
    "neighbours": ("neighbours",),
    "full-disk": ("none",),
}

# What should be said of at least one GPU of a scenario.
TRUE = {
    "hot": "throttled",
    "brake": "throttled",
    "stuck": "stuck",
    "small-kernels": "kernels_small",
    "transfer": "transfer",
    "lost": "failed",
    "straggler": "throttled",
    "ecc": "failed",
    "link": "link",
    "one-core": "cpu",
    "quota": "cpu_quota",
    "storage": "storage",
    "neighbours": "neighbours",
}

SECONDS: Mapping[str, float] = {"held": 960.0}  # how long it takes; 120 s for the others


@contextmanager
def opened(text: str, host: HostLoad | None = None, pid: int | None = None) -> Iterator[tuple[Clock, Stepped]]:
    """A clock that the test sets, and a session of a simulated machine.

    Args:
        text: What to simulate.
        host: What happens on its host; by default that of the scenario, or a quiet one.
        pid: A real process; its host is real, too.
    """
    clock = Clock() if pid is None else Clock(time.monotonic())
    spec = Spec.parse(text)
    machine = Machine(spec, clock)

    held_back = SimulatedHost(host or spec.host or HostLoad(), machine.now, os.getpid())
    drivers = SimulatedDrivers(machine, Files() if pid else held_back, pid or os.getpid())
    settings = {"sources": [spec.vendor, "host", "process", "container"], "detail": ["bottlenecks"]}
    config = Config.read({"simulate": text, "preset": "all", **settings}, {})
    session = Stepped(config, pid, STEP, lambda name: drivers, clock)
    session.has_started = True
    try:
        yield clock, session
    finally:
        session.close()


@contextmanager
def watched(text: str, host: HostLoad | None = None, pid: int | None = None) -> Iterator[tuple[Clock, Viewer]]:
    """The same, with what is read of it."""
    with opened(text, host, pid) as (clock, session):
        yield clock, Viewer(session)


def verdicts(text: str, seconds: float | None = None, host: HostLoad | None = None) -> dict[str, Verdict]:
    """The verdicts after some simulated seconds, by device."""
    seconds = SECONDS.get(Spec.parse(text).scenario, 120.0) if seconds is None else seconds
    judge = Judge()
    with watched(text, host) as (clock, viewer):
        start = clock.now
        while clock.now < start + seconds:
            clock.now += STEP
            view = viewer.collect()
            judge.observe(clock.now, STEP, signals(view.snapshot.values, view.rates, is_limited=False))
    return judge.verdicts()


# -- the confusion matrix


QUIET = ("none", "waiting", "unknown")


def matrix(cards: tuple[str, ...], seeds: int) -> str:
    """How often each verdict is given, as a table in Markdown with a row for each scenario and card."""
    said: dict[tuple[str, str], Counter[str]] = {}
    runs = found = 0
    for scenario in EXPECTED:
        for card in cards:
            count = said.setdefault((scenario, card), Counter())
            for seed in range(seeds):
                names = [each.name for each in verdicts(f"2x{card}:{scenario}@{seed}").values()]
                count.update(names)
                runs += scenario in TRUE
                found += TRUE.get(scenario) in names
    rows = [
        f"| {scenario} | {card} | {', '.join(f'{name} {number}' for name, number in count.most_common())} |"
        for (scenario, card), count in said.items()
    ]
    named = [(scenario, name, number) for (scenario, _), count in said.items() for name, number in count.items()]
    named = [each for each in named if each[1] not in QUIET]
    total = sum(number for _, _, number in named)
    right = sum(number for scenario, name, number in named if name in EXPECTED[scenario])
    summary = (
        f"{total} bottlenecks were named, and {right} of them were right: a precision of {right / total:.3f}. "
        f"{runs} runs had a bottleneck, and it was found in {found}: a recall of {found / runs:.2f}."
    )
    return "\n".join(["| scenario | card | verdicts |", "|---|---|---|", *rows, "", summary])


if __name__ == "__main__":
    table = matrix(("H100", "A100", "T4", "MI300X"), int(os.environ.get("SEEDS", "20")))
    if "--write" not in sys.argv:
        print(table)
        sys.exit()
    page = Path(__file__).parents[2] / "docs" / "why.md"
    text = page.read_text(encoding="utf-8")
    page.write_text(
        re.sub(r"(?s)(<!-- matrix -->\n).*?(?=\n<!-- end -->)", lambda found: found[1] + table, text), encoding="utf-8"
    )
