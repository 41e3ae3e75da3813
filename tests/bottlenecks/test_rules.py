"""The table of rules: each case holds on one side of each of its thresholds only, and never with an unknown signal."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from opentelemetry.instrumentation.hardware.bottlenecks.rules import (
    BEFORE_WAITING,
    FAULTS,
    IDLE,
    NONE,
    RULES,
    WAITING,
    Condition,
    Rule,
    match,
)
from opentelemetry.instrumentation.hardware.bottlenecks.signals import SIGNALS

CASES = [
    pytest.param(rule, case, id=f"{rule.name}-{number}")
    for rule in (*RULES, IDLE, NONE, WAITING)
    for number, case in enumerate(rule.cases)
]


def moved(condition: Condition, share: float) -> float:
    """A value that is past the threshold by a share of it; by a negative share, not yet."""
    beyond = share * (condition.threshold or 1.0)
    return condition.threshold + (beyond if condition.operator.startswith(">") else -beyond)


def fulfilled(case: Sequence[Condition], share: float = 0.02) -> dict[str, float]:
    """Signals that are just past all thresholds of a case. A signal with two thresholds is between them."""
    found: dict[str, list[float]] = {}
    for each in case:
        found.setdefault(each.signal, []).append(moved(each, share))
    return {signal: sum(values) / len(values) for signal, values in found.items()}


@pytest.mark.parametrize(("rule", "case"), CASES)
def test_case_holds_past_all_of_its_thresholds(rule: Rule, case: Sequence[Condition]) -> None:
    assert match(Rule(rule.name, "", [case], "", ""), fulfilled(case))[0] == case


@pytest.mark.parametrize(("rule", "case"), CASES)
def test_case_does_not_hold_10_percent_before_any_of_its_thresholds(rule: Rule, case: Sequence[Condition]) -> None:
    for each in case:
        signals = fulfilled(case) | {each.signal: moved(each, -0.1)}
        assert match(Rule(rule.name, "", [case], "", ""), signals)[0] is None, each


@pytest.mark.parametrize(("rule", "case"), CASES)
def test_unknown_signal_leaves_a_case_undecided(rule: Rule, case: Sequence[Condition]) -> None:
    for each in case:
        signals = {name: value for name, value in fulfilled(case).items() if name != each.signal}
        assert match(Rule(rule.name, "", [case], "", ""), signals) == (None, (each.signal,))


def test_case_is_decided_by_one_condition_that_does_not_hold() -> None:
    (storage,) = (rule for rule in RULES if rule.name == "storage")
    assert match(storage, {"busy": 0.9}) == (None, ())
    assert match(storage, {"busy": 0.1}) == (None, ("io_stall", "iowait"))
    assert match(storage, {"busy": 0.1, "iowait": 0.0}) == (None, ()), "one case is decided: it was asked"


def test_active_verdict_ends_at_80_percent_of_the_threshold() -> None:
    (storage,) = (rule for rule in RULES if rule.name == "storage")
    for stall, expected in ((0.11, True), (0.09, True), (0.07, False)):
        signals = {"busy": 0.2, "io_stall": stall, "iowait": 0.0}
        assert (match(storage, signals, is_active=True)[0] is not None) is expected


def test_rules_are_known_words_with_advice_and_a_source() -> None:
    names = [rule.name for rule in RULES]
    assert len({*names}) == len(names)
    assert {*FAULTS, *BEFORE_WAITING} <= {*names}
    for rule in RULES:
        assert rule.meaning
        assert rule.advice
        assert rule.source
    for rule in (*RULES, IDLE, NONE, WAITING):
        for case in rule.cases:
            assert {each.signal for each in case} <= {*SIGNALS}
