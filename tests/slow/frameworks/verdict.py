"""The verdict of a case: which spans are lost, and which have no value or a wrong one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.slow.frameworks.receiver import Span
from tests.tools.load import Random, is_near

# The load of the GPU: 300 to 700 W. An idle GPU may use less energy in 0.3 s than the bound, and then has no value.
LOAD = Random(seed=7, base=300)

LEAST_SECONDS = 0.3  # shorter spans need no energy

ENERGY, CPU_TIME, BOUND = "hw.energy", "process.cpu.time", "hw.uncertainty.energy"


@dataclass(frozen=True)
class Run:
    """What a run of a program left.

    Attributes:
        spans: The spans that arrived.
        problem: How it ended, if that was not in order.
        errors: What it printed to standard error.
    """

    spans: Sequence[Span] = ()
    problem: str = ""
    errors: str = ""


@dataclass(frozen=True)
class Counted:
    """How many spans must have a value, and how many of those have it."""

    have: int = 0
    must: int = 0

    def __str__(self) -> str:
        return f"{self.have} of {self.must}"


@dataclass(frozen=True)
class Verdict:
    """The verdict of a case.

    Attributes:
        energy: The spans with `hw.energy`.
        cpu_time: The spans with `process.cpu.time`.
        problems: What is wrong, as sentences.
    """

    energy: Counted
    cpu_time: Counted
    problems: tuple[str, ...]


def judge(without: Run, beside: Run) -> Verdict:
    """Compare the run without this package with the one beside it, whose spans must have values."""
    energy = [span for span in beside.spans if span.seconds >= LEAST_SECONDS]
    roots = [span for span in beside.spans if span.is_local_root]
    return Verdict(
        _counted(energy, ENERGY),
        _counted(roots, CPU_TIME),
        (*_different(without, beside), *_missing(energy, ENERGY), *_wrong(energy), *_missing(roots, CPU_TIME)),
    )


def _different(without: Run, beside: Run) -> Iterator[str]:
    if without.problem:
        yield f"without this package: {without.problem}"
    elif not without.spans:
        yield "without this package, no span arrives"
    if beside.problem and beside.problem != without.problem:
        yield f"with this package: {beside.problem}"
    one, other = (Counter((span.name, span.parent) for span in run.spans) for run in (without, beside))
    for word, difference in (("lost", one - other), ("added", other - one)):
        if difference:
            yield f"{word}: {_words(difference.elements(), lambda pair: ' in '.join(filter(None, pair)))}"


def _counted(spans: Sequence[Span], attribute: str) -> Counted:
    return Counted(sum(attribute in span.numbers for span in spans), len(spans))


def _missing(spans: Sequence[Span], attribute: str) -> Iterator[str]:
    if without := [span.name for span in spans if attribute not in span.numbers]:
        yield f"no {attribute}: {_words(without)}"


def _wrong(spans: Sequence[Span]) -> Iterator[str]:
    """An energy must be that of the span's time, within the bound that the span states."""
    for span in spans:
        expected = LOAD.joules(span.begin, span.begin + span.seconds)
        found = span.numbers.get(ENERGY)
        if found is not None and not is_near(found, span.numbers.get(BOUND, 0.0), expected):
            yield f"{ENERGY} of {span.name} is {found:.0f} J instead of {expected:.0f} J"


def _words(items: Iterable[object], word: Callable[..., str] = str) -> str:
    return ", ".join(f"{count} x {word(item)}" for item, count in Counter(items).items())
