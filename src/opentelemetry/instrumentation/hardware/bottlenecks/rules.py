"""Rules: conditions on signals, what they mean, and what to do. The first rule that matches is the verdict."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

_OPERATORS: Final = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}

_HYSTERESIS: Final = 0.8  # a verdict ends when a signal has fallen to this share of its threshold


class Condition(NamedTuple):
    """A comparison of a signal with a threshold."""

    signal: str
    operator: str
    threshold: float

    def holds(self, value: float, is_active: bool = False) -> bool:
        """Whether the condition holds. For the verdict that is active, the threshold is easier to keep."""
        factor = _HYSTERESIS if is_active else 1.0
        threshold = self.threshold * factor if self.operator.startswith(">") else self.threshold / factor
        return bool(_OPERATORS[self.operator](value, threshold))


class Rule(NamedTuple):
    """One verdict.

    Attributes:
        name: The value of ``hw.gpu.bottleneck``.
        meaning: What holds the GPU back, in a few words.
        cases: The rule matches if all conditions of one of them hold.
        advice: The next step.
        source: Where the thresholds come from; "ours" for those without a published source.
    """

    name: str
    meaning: str
    cases: Sequence[Sequence[Condition]]
    advice: str
    source: str


def match(
    rule: Rule, signals: Mapping[str, float], is_active: bool = False
) -> tuple[Sequence[Condition] | None, Sequence[str]]:
    """Return the conditions of a case that hold, None if no case does; and the signals without which none is decided.

    An unknown signal never counts as 0: a case that needs it is not decided. A condition that is known not to hold
    decides its case, also if other signals are unknown.
    """
    missing: dict[str, None] = {}
    is_decided = False
    for case in rule.cases:
        known = [each for each in case if each.signal in signals]
        if not all(each.holds(signals[each.signal], is_active) for each in known):
            is_decided = True
        elif len(known) == len(case):
            return case, ()
        else:
            missing.update(dict.fromkeys(each.signal for each in case if each.signal not in signals))
    return None, () if is_decided else tuple(missing)


def _rule(name: str, meaning: str, cases: str, advice: str, source: str) -> Rule:
    """Return a rule. Its cases are conditions such as ``busy < 0.5, io_stall >= 0.1``, with "or" between them."""
    conditions = ([each.split() for each in case.split(",")] for case in cases.split(" or "))
    parsed = (tuple(Condition(signal, sign, float(least)) for signal, sign, least in case) for case in conditions)
    return Rule(name, meaning, tuple(parsed), advice, source)


# The first one that matches counts. Conditions on unknown signals leave a rule undecided.
RULES: Final[Sequence[Rule]] = (
    _rule(
        "failed",
        "the GPU failed",
        "failed > 0 or recovery > 0 or uncorrected > 0 or xids > 0",
        "move the work away; 'otel-hardware doctor' and docs/events.md say what the driver requires",
        "NVIDIA's catalog of Xids",
    ),
    _rule(
        "throttled",
        "its clocks are lowered",
        "thermal_hw > 0.01 or power_brake > 0.01 or slowdown_hw > 0.01 or thermal_sw > 0.1 or "
        "application_clocks > 0.5, clock < 0.9",
        "heat: check fans, air and neighbouring GPUs; power brake: check the power supply; application clocks: "
        "nvidia-smi --reset-applications-clocks",
        "DCGM's health checks for any time; the shares 0.1 and 0.9 are ours",
    ),
    _rule(
        "link",
        "its link is slower than it could be",
        "width < 1 or generation < 1, busy >= 0.5 or nvlinks < 1 or replays > 1",
        "reseat the GPU, try another slot or cable, check the BIOS settings of the slot",
        "DCGM's health checks: a bit error rate of 1e-12",
    ),
    _rule(
        "stuck",
        "a kernel waits and does not end",
        "least_busy >= 0.99, power_peak <= 1.05, power < 0.45, sm < 0.2, tensor < 0.01, links < 1e7 or "
        "least_busy >= 0.99, power_peak <= 1.05, power < 0.45, power_before < 0.6",
        "find the rank that the others wait for: py-spy dump, or NCCL's flight recorder",
        "ours, after reports of NCCL hangs (nccl#968, soperator#796)",
    ),
    _rule(
        "held",
        "a program holds its memory and does not use it",
        "idle_time >= 900, memory >= 0.1",
        "'otel-hardware top' shows who holds it",
        "ours",
    ),
    _rule(
        "cpu_quota",
        "the CPU limit of the container throttles the program",
        "busy < 0.5, quota > 0.25",
        "raise or remove the CPU limit of the container",
        "the Kubernetes mixin's alert CPUThrottlingHigh",
    ),
    _rule(
        "storage",
        "the host waits for disks",
        "busy < 0.5, io_stall >= 0.1 or busy < 0.5, iowait >= 0.2",
        "use local or faster storage, larger files, or more prefetching",
        "ours",
    ),
    _rule(
        "host_memory",
        "the host is short of memory",
        "busy < 0.5, memory_stall >= 0.05 or busy < 0.5, major_faults >= 500 or busy < 0.5, oom_kills > 0",
        "use less memory: fewer workers, smaller caches; or raise the limit",
        "ours; cgroup v2 OOM daemons act at 0.1 and more",
    ),
    _rule(
        "cpu",
        "the program's own CPU work is the limit",
        "busy < 0.5, program >= 0.9 or busy < 0.5, program_cpus >= 0.9, program_cpus <= 1.1, processes <= 2, cpus >= 2",
        "load data in more processes, such as DataLoader(num_workers=8), or make its transforms cheaper",
        "ours",
    ),
    _rule(
        "neighbours",
        "other programs use the CPUs",
        "busy < 0.5, host_busy >= 0.85, program_share < 0.5 or busy < 0.5, cpu_stall >= 0.3, program_share < 0.5 or "
        "busy < 0.5, steal >= 0.05",
        "'otel-hardware top' shows them; reserve CPUs for the program",
        "ours",
    ),
    _rule(
        "transfer",
        "the PCIe link is busy and the SMs are not",
        "pcie >= 0.3, sm < 0.3",
        "copy less, overlap copies with computation, pin the memory of the host",
        "ours",
    ),
    _rule(
        "communication",
        "the GPU exchanges data with others and computes little",
        "busy >= 0.9, sm < 0.3, links >= 1e9",
        "overlap communication with computation, use larger messages, check the placement of the ranks",
        "ours",
    ),
    _rule(
        "kernels_small",
        "its kernels are too small for the GPU",
        "busy >= 0.4, sm < 0.25, pcie < 0.3, links < 1e9",
        "use larger batches, CUDA graphs or torch.compile",
        "ours",
    ),
)

NONE: Final = _rule("none", "as fast as this card runs", "busy >= 0.9, sm >= 0.25", "", "ours")
IDLE: Final = _rule("none", "no program uses it", "memory < 0.02, busy < 0.05", "", "ours")
FAULTS: Final = ("failed", "throttled", "link", "stuck")  # the rules about the GPU itself

# If all of these are decided and none matches, the program itself gives the GPU nothing to do.
BEFORE_WAITING: Final = ("cpu_quota", "storage", "host_memory", "cpu", "neighbours", "transfer")

# What is said if no rule matches. They are not bottlenecks.
WAITING: Final = _rule(
    "waiting",
    "the program gives it nothing to do",
    "busy < 0.5, program < 0.3 or busy < 0.5, program_cpus < 0.9",
    "it waits for requests, locks or the network, which are not measured here",
    "ours",
)
