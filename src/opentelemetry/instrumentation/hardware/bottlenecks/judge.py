"""Judge: keeps the signals of the last minute, and gives the verdict for each device."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware.bottlenecks import rules
from opentelemetry.instrumentation.hardware.bottlenecks.rules import Condition, Rule, match
from opentelemetry.instrumentation.hardware.bottlenecks.signals import Signals

WINDOW: Final = 60.0  # seconds that a verdict looks at, by default

_WARM_UP: Final = 120.0  # seconds of a program for which there is no verdict: it loads and compiles

_LOADING: Final = 0.02  # growth of the memory in use, as a share of all per second, that is loading

LEAST: Final = 40.0  # a verdict needs the samples of so many seconds

_EMPTY: Final = 0.02  # highest share of the memory that an unused GPU uses
_QUIET: Final = 0.05  # and of the time

# Seconds over which the usual power of a device is a moving mean. It must outlast a hang.
_USUAL: Final = 1000.0

# A rule is the runner-up if all of its conditions miss their thresholds by at most this share.
_CLOSE: Final = 0.2

# Signals of which a window has the highest value; of the others, the mean.
_MAXIMA: Final = ("failed", "recovery", "power_peak", "xids", "uncorrected", "oom_kills")


class Verdict(NamedTuple):
    """What holds a device back.

    Attributes:
        name: The rule; ``none``, ``waiting`` or ``unknown`` if none matches.
        meaning: The same in words.
        since: Seconds for which it has been the verdict.
        share: The share of the samples of the window for which the conditions hold.
        evidence: The conditions, with the values of their signals.
        advice: What to do.
        undecided: The rules that could not be decided, with the signals that are missing.
        runner_up: The name of a rule that nearly matches; "" if there is none.
    """

    name: str
    meaning: str
    since: float = 0.0
    share: float = 1.0
    evidence: Sequence[tuple[Condition, float]] = ()
    advice: str = ""
    undecided: Mapping[str, Sequence[str]] = {}
    runner_up: str = ""

    @property
    def is_bottleneck(self) -> bool:
        """Whether it is one of the rules."""
        return self.name in {rule.name for rule in rules.RULES}


class _Device:
    """What is known about a device."""

    def __init__(self) -> None:
        self.samples: deque[tuple[float, float, Signals]] = deque()  # end, seconds, signals
        self.ready = 0.0  # when the program has loaded
        self.was_empty = False
        self.idle_since: float | None = None
        self.usual_power: float | None = None
        self.verdict = ""
        self.since = 0.0


class Judge:
    """Gives verdicts, each on the signals of the last seconds."""

    def __init__(self, window: float = WINDOW) -> None:
        self._window = window
        self._devices: dict[str, _Device] = {}
        self._present: frozenset[str] = frozenset()

    def observe(self, now: float, seconds: float, signals: Mapping[str, Signals]) -> None:
        """Add the signals of some seconds, by device. ``now`` is their end, on a monotonic clock."""
        self._present = frozenset(signals)
        for name, each in signals.items():
            device = self._devices.setdefault(name, _Device())
            _note(device, now, each)
            if now >= device.ready:
                device.samples.append((now, seconds, each))
            while device.samples and device.samples[0][0] <= now - self._window:
                _, length, old = device.samples.popleft()
                if old.get("busy", 0.0) >= 0.5 and "watts" in old:
                    usual = old["watts"] if device.usual_power is None else device.usual_power
                    device.usual_power = usual + (old["watts"] - usual) * min(1.0, length / _USUAL)

    def verdicts(self) -> dict[str, Verdict]:
        """Return the verdict for each device that was observed."""
        return {
            name: self._verdict(device) if name in self._present else Verdict("unknown", "it is not reported any more")
            for name, device in self._devices.items()
        }

    def _verdict(self, device: _Device) -> Verdict:
        if sum(seconds for _, seconds, _ in device.samples) < LEAST:
            return Verdict("unknown", "the program is loading, or there are too few samples yet")
        now = device.samples[-1][0]
        signals = _merged(device)
        found = _decided(signals, device.verdict)
        if found.name != device.verdict:
            device.verdict, device.since = found.name, device.samples[0][0]
        matching = [
            all(each.signal not in sample or each.holds(sample[each.signal]) for each, _ in found.evidence)
            for _, _, sample in device.samples
        ]
        return found._replace(since=now - device.since, share=sum(matching) / len(matching))


def _note(device: _Device, now: float, signals: Signals) -> None:
    """Record whether the device is unused, and whether its program loads."""
    memory, busy = signals.get("memory"), signals.get("busy")
    if busy is not None:
        if busy > _QUIET:
            device.idle_since = None
        elif device.idle_since is None:
            device.idle_since = now
        signals["least_busy"] = busy
        signals["idle_time"] = 0.0 if device.idle_since is None else now - device.idle_since
    if memory is None:
        return
    is_empty = memory < _EMPTY
    if device.was_empty and not is_empty:
        device.ready = now + _WARM_UP
        device.samples.clear()
    device.was_empty = is_empty
    if device.samples:
        end, _, before = device.samples[-1]
        if now > end and (memory - before.get("memory", memory)) / (now - end) > _LOADING:
            device.ready = max(device.ready, now + _WARM_UP / 4)
            device.samples.clear()


def _merged(device: _Device) -> Signals:
    """Return the signals of the whole window. A signal that any sample lacks is unknown."""
    names = set.intersection(*({*each} for _, _, each in device.samples))
    total = sum(seconds for _, seconds, _ in device.samples)
    merged = {}
    for name in names:
        values = [each[name] for _, _, each in device.samples]
        if name in _MAXIMA:
            merged[name] = max(values)
        elif name == "least_busy":
            merged[name] = min(values)
        elif name == "idle_time":
            merged[name] = values[-1]
        else:
            merged[name] = sum(seconds * each[name] for _, seconds, each in device.samples) / total
    if "watts" in merged and device.usual_power:
        merged["power_before"] = merged["watts"] / device.usual_power
    return merged


def _decided(signals: Signals, active: str) -> Verdict:
    """Return the first rule that matches, or what else is known."""
    undecided: dict[str, Sequence[str]] = {}
    for rule in rules.RULES:
        case, missing = match(rule, signals, rule.name == active)
        if case is not None:
            evidence = [(each, signals[each.signal]) for each in case]
            return Verdict(
                rule.name,
                rule.meaning,
                evidence=evidence,
                advice=rule.advice,
                undecided=undecided,
                runner_up=_runner_up(rule, signals),
            )
        if missing:
            undecided[rule.name] = missing
    for rule in (rules.IDLE, rules.NONE, rules.WAITING):
        case, _ = match(rule, signals)
        if case is not None and (rule is not rules.WAITING or not undecided.keys() & {*rules.BEFORE_WAITING}):
            meaning = rule.meaning
            if rule is rules.NONE and signals.get("power_cap", 0.0) >= 0.5:
                meaning = f"at its power limit; {meaning}"
            evidence = [(each, signals[each.signal]) for each in case]
            if rule is rules.IDLE:
                undecided = {}
            return Verdict(rule.name, meaning, evidence=evidence, advice=rule.advice, undecided=undecided)
    busy = signals.get("busy")
    if busy is None:
        meaning = "its utilization is not known"
    elif busy >= 0.9 and "sm" not in signals:
        meaning = (
            f"busy {100 * busy:.0f} %; only Hopper and newer cards show whether with small kernels or communication"
        )
    else:
        meaning = f"busy {100 * busy:.0f} %; no rule matches"
    return Verdict("unknown", meaning, undecided=undecided, runner_up=_runner_up(None, signals))


def _runner_up(chosen: Rule | None, signals: Signals) -> str:
    """Return the name of a further rule that matches or nearly does. A fault is there or not."""

    def is_close(each: Condition) -> bool:
        value, threshold = signals.get(each.signal), each.threshold
        if value is None:
            return False
        return each.holds(value) or (threshold > 0.0 and abs(value - threshold) <= _CLOSE * threshold)

    for rule in rules.RULES:
        if (
            rule is not chosen
            and rule.name not in rules.FAULTS
            and any(all(map(is_close, case)) for case in rule.cases)
        ):
            return rule.name
    return ""
