"""Machine: simulated GPUs. Each has one physical state, from which every answer of its driver follows."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import cache
from random import Random
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware.settings.log import logger
from opentelemetry.instrumentation.hardware.simulator.cards import CARDS, Card
from opentelemetry.instrumentation.hardware.simulator.scenarios import HOSTS, SCENARIOS, HostLoad, Load, Scenario

_LOG = logger(__name__)

STEP: Final = 0.1  # seconds of a step. The energy counter is updated once in each.

_LONGEST: Final = 3600.0  # seconds that are caught up at once, after a pause of the program

_COOLING: Final = 40.0  # seconds in which the temperature approaches its end to a third

_BEFORE: Final = 10  # steps that precede the first answer, so that it is none of an idle GPU

_SAMPLES: Final = 100  # steps of which the driver keeps the utilization

_DYNAMIC: Final = 2.2  # the exponent of the clock in the power of a load: voltage falls with the clock

_SLOWEST: Final = 0.2  # lowest clock under load, as a share of the highest

_MOST: Final = 16  # GPUs of a machine


class Spec(NamedTuple):
    """What to simulate, as in ``8xH100:training@7``.

    Attributes:
        gpus: Their number.
        card: A key of :data:`.cards.CARDS`.
        scenario: A key of :data:`.scenarios.SCENARIOS`.
        seed: The seed of the noise.
    """

    gpus: int
    card: str
    scenario: str
    seed: int

    @property
    def host(self) -> HostLoad | None:
        """What happens on the host; None if it is the real one."""
        return HOSTS.get(self.scenario)

    @property
    def vendor(self) -> str:
        """The name of the source that reads the GPUs."""
        return CARDS[self.card].vendor

    @property
    def text(self) -> str:
        """Return the specification as :meth:`parse` takes it."""
        return f"{self.gpus}x{self.card}:{self.scenario}@{self.seed}"

    def __str__(self) -> str:
        return f"{self.gpus} x {CARDS[self.card].model}, scenario {self.scenario}"

    @classmethod
    def parse(cls, text: str) -> Spec:
        """Parse a specification.

        Raises:
            ValueError: It is none. The message says which part is wrong; it is empty if the text has another shape.
        """
        shape = r"(?:(\d{1,9})x)?([^\W\d]\w*)(?::([\w-]+))?(?:@(\d{1,9}))?"
        found = re.fullmatch(shape, text.strip(), re.IGNORECASE)
        if found is None:
            raise ValueError
        gpus, card, scenario = int(found[1] or 1), found[2], found[3] or next(iter(SCENARIOS))
        if card.lower() not in CARDS:
            raise ValueError(unknown("card", card, map(str.upper, CARDS)))
        if scenario.lower() not in SCENARIOS:
            raise ValueError(unknown("scenario", scenario, SCENARIOS))
        if not 1 <= gpus <= _MOST:
            raise ValueError(f"1 to {_MOST} GPUs can be simulated")
        return cls(gpus, card.lower(), scenario.lower(), int(found[4] or 0))


def unknown(what: str, word: str, known: Iterable[str]) -> str:
    """Describe a word that is not the name of a card or scenario: the name that it may mean, else all of them."""
    from difflib import get_close_matches  # rarely needed

    names = {name.lower(): name for name in known}
    similar = get_close_matches(word.lower(), names, 2, cutoff=0.7)
    if len(similar) == 1:  # V100 is as similar to A100 as to H100, and means neither
        return f"there is no {what} {word}; did you mean {names[similar[0]]}?"
    return f"there is no {what} {word}; the {what}s are {', '.join(names.values())}"


class Gpu:
    """A simulated GPU.

    Attributes:
        seed: The seed of its noise, which its UUID contains.
        load: What the program does now.
        clock: Its clock as a share of the highest.
        power: Watts.
        temperature: Degrees Celsius.
        energy: Joules since the start.
        throttled: Seconds since the start in which a limit lowered the clocks: ``power``, ``thermal`` or ``brake``.
        reason: The limit that lowers them now; "" for none.
        sent, received: Bytes over PCIe since the start.
        linked: Bytes over NVLink since the start, in each direction.
        age: Seconds since the start.
        work: Seconds since the start, times the share of SMs, tensor cores, memory bandwidth and time in use.
        samples: Times and shares of utilization of the last steps.
        powers: Watts in the steps of the last second.
        xids: Critical events since the start.
    """

    def __init__(self, card: Card, index: int, count: int, scenario: Scenario, seed: int) -> None:
        self.card = card
        self.index = index
        self.seed = seed
        self.load = Load()
        self.clock = 0.2
        load = scenario(0.0, index, count)
        self.power = card.idle
        self.temperature = min(load.air + card.heat * (card.idle + self._wanted(load)), card.slowdown)
        self.age = self.energy = self.sent = self.received = self.linked = 0.0
        self.throttled = {"power": 0.0, "thermal": 0.0, "brake": 0.0}
        self.reason = ""
        self.work = {"sm": 0.0, "tensor": 0.0, "dram": 0.0, "busy": 0.0}
        self.samples: deque[tuple[float, float]] = deque(maxlen=_SAMPLES)
        self.powers: deque[float] = deque([card.idle], maxlen=round(1.0 / STEP))
        self.xids: list[int] = []
        self._count = count
        self._scenario = scenario
        self._noise = Random(f"{seed}/{index}")
        self._drift = 0.0

    def _wanted(self, load: Load) -> float:
        """Return the watts that a load takes at the highest clock, above those of an idle card."""
        share = 0.15 * load.busy + 0.1 * load.sm + 0.72 * load.tensor + 0.3 * load.dram
        return (self.card.limit - self.card.idle) * share

    def step(self, at: float) -> None:
        """Go on by a step that begins at a time."""
        load = self._scenario(at, self.index, self._count)
        self._drift = 0.9 * self._drift + 0.1 * self._noise.gauss(0.0, 1.0)
        factor = max(0.0, 1.0 + 0.06 * self._drift)
        sm, tensor, dram = (min(1.0, factor * share) for share in (load.sm, load.tensor, load.dram))
        busy = min(1.0, factor * load.busy) if load.busy < 1.0 else 1.0
        self.load = load = load._replace(busy=busy, sm=sm, tensor=tensor, dram=dram)
        if load.xid:
            self.xids.append(load.xid)
        if load.is_lost:
            return
        card = self.card
        wanted = self._wanted(load)
        limits = {
            "power": card.limit - card.idle,
            "brake": load.brake * card.limit - card.idle,
            "thermal": (card.slowdown - load.air) / card.heat - card.idle
            if self.temperature >= card.slowdown
            else wanted,
        }
        reason = min(limits, key=limits.__getitem__)
        allowed = max(limits[reason], wanted * _SLOWEST**_DYNAMIC)
        self.reason = reason if allowed < wanted else ""
        allowed = min(allowed, wanted)
        self.clock = (allowed / wanted) ** (1 / _DYNAMIC) if busy and wanted else _SLOWEST
        self.power = card.idle + allowed
        self.temperature += (load.air + card.heat * self.power - self.temperature) * STEP / _COOLING
        self.age += STEP
        self.powers.append(self.power)
        self.energy += self.power * STEP
        if self.reason:
            self.throttled[self.reason] += STEP
        self.sent += 0.3 * load.pcie * card.pcie_rate * STEP
        self.received += load.pcie * card.pcie_rate * STEP
        self.linked += load.links * card.link_rate * STEP
        for name, share in (("sm", sm), ("tensor", tensor * self.clock), ("dram", dram * self.clock), ("busy", busy)):
            self.work[name] += share * STEP
        self.samples.append((at + STEP, busy))


class Machine:
    """A machine with simulated GPUs. :meth:`advance` brings them up to the current time.

    Its clock returns seconds since the epoch; another one that continues it may take its place. Its speed is simulated
    seconds per second.
    """

    def __init__(self, spec: Spec, clock: Callable[[], float] = time.time, speed: float = 1.0) -> None:
        card, scenario = CARDS[spec.card], SCENARIOS[spec.scenario]
        self.spec = spec
        self.gpus = [Gpu(card, index, spec.gpus, scenario, spec.seed) for index in range(spec.gpus)]
        self.start = clock()
        self.clock = clock
        self._speed = speed
        self._steps = -_BEFORE

    @property
    def elapsed(self) -> float:
        """Simulated seconds since the start, up to the last step."""
        return self._steps * STEP

    @property
    def updated(self) -> float:
        """When the last step ended, in seconds since the epoch."""
        return self.start + self.elapsed / self._speed

    def now(self) -> float:
        """Simulated seconds since the start."""
        return (self.clock() - self.start) * self._speed

    def advance(self) -> None:
        """Bring the GPUs up to the current time."""
        due = int(self.now() / STEP)
        self._steps = max(self._steps, due - int(_LONGEST / STEP))
        while self._steps < due:
            for gpu in self.gpus:
                gpu.step(max(0, self._steps) * STEP)
            self._steps += 1


@cache
def announce(setting: str, spec: Spec, vendor: str) -> None:
    """Log once what is not real."""
    host = " and the host's CPU times, pressure and control group" if spec.host else ""
    _LOG.warning("%s: the %s GPUs%s are simulated: %s", setting, vendor, host, spec)


@cache
def machine(spec: Spec, speed: float | None) -> Machine:
    """Return the simulated machine of this process. It continues when a source is opened again."""
    return Machine(spec, speed=speed or 1.0)
