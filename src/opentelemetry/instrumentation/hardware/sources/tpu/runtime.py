"""The metric services of the programs on this host, and counters that are summed over them.

Each program that uses the TPU has its own service.

While no program runs, connections are refused; that is not an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from opentelemetry.instrumentation.hardware.drivers import DriverError, rpc
from opentelemetry.instrumentation.hardware.drivers.backoff import Backoff
from opentelemetry.instrumentation.hardware.model import Number
from opentelemetry.instrumentation.hardware.sources.tpu.fields import METRICS
from opentelemetry.instrumentation.hardware.sources.tpu.services import Services

# The statuses for a metric that a runtime does not have.
_NOT_SUPPORTED: Final = (rpc.INVALID_ARGUMENT, rpc.NOT_FOUND, rpc.UNIMPLEMENTED)

_MOST_READINGS: Final = 31  # maximum number of readings for which a failing call is not repeated

_MAX_MICROSECONDS: Final = 1 << 50

Key = TypeVar("Key")


class Sample(NamedTuple):
    """One value or distribution of a runtime metric.

    Attributes:
        labels: The attributes of the runtime, such as ``device-id``.
        value: The value of a gauge; None for a distribution, and for a gauge without a finite number.
        distribution: ``count``, ``mean``, ``buckets`` and ``bounds`` (their upper ends, one fewer), where valid.
    """

    labels: Mapping[str, str | int]
    value: Number | None = None
    distribution: Mapping[str, Any] | None = None

    @property
    def device(self) -> int | None:
        """The number of the device, unique over all hosts of a slice; None if there is no plausible number."""
        labels = self.labels
        number = labels.get("device-id", labels.get("device_ordinal"))
        if number is None:
            number = next((value for value in labels.values() if isinstance(value, int)), None)
        if isinstance(number, str):
            number = int(number) if re.fullmatch("[0-9]{1,8}", number) else None
        return number if number is not None and 0 <= number < 1 << 24 else None

    def label(self, name: str, pattern: str) -> str:
        """A label in lower case; "" if it does not match the pattern."""
        text = str(self.labels.get(name, "")).lower()
        return text if re.fullmatch(pattern, text) else ""

    @property
    def core_type(self) -> str:
        """``tensorcore`` or ``sparsecore``; "" if it is not reported."""
        return self.label("core_type", "[a-z][a-z0-9_]{0,31}")


Samples: TypeAlias = "Mapping[str, Sequence[Sample]]"  # by metric of the runtime


@dataclass
class _Server:
    """One metric service.

    Attributes:
        refused: Why there is no connection; "" if there is one.
        readings: Number of readings so far.
        failures: Failed calls, by the metrics that are read together, and when they are repeated.
        unsupported: The same by metric. A runtime may support a metric only after its program has run on the TPU.
    """

    address: str
    refused: str = ""
    readings: int = 0
    failures: dict[tuple[str, ...], Backoff] = field(default_factory=dict)
    unsupported: dict[str, Backoff] = field(default_factory=dict)

    def is_due(self, failure: Backoff | None) -> bool:
        """Whether a call that may have failed is made now."""
        return failure is None or not failure.is_waiting(self.readings)


class Runtime:
    """The metric services."""

    def __init__(self, services: Services, addresses: Sequence[str]) -> None:
        self._services = services
        self._servers = [_Server(address) for address in addresses]

    def read(self, names: tuple[str, ...]) -> dict[str, Samples]:
        """Return the samples of some metrics by address. A failing service is left out and retried with backoff."""
        answers: dict[str, Samples] = {}
        for server in self._servers:
            server.readings += 1
            if not server.is_due(server.failures.get(names)):
                continue
            try:
                answers[server.address] = self._samples(server, names)
                server.refused = ""
            except DriverError as error:
                if error.code != rpc.UNAVAILABLE:
                    server.failures.setdefault(names, Backoff(1, _MOST_READINGS)).fail(server.readings, error.text)
                    continue
                server.refused = error.text
                server.unsupported.clear()  # the next program may support more
            server.failures.pop(names, None)
        return answers

    def _samples(self, server: _Server, names: tuple[str, ...]) -> Samples:
        samples: dict[str, Sequence[Sample]] = {}
        for name in names:
            if not server.is_due(server.unsupported.get(name)):
                continue
            try:
                answer = self._services.metric(server.address, name, len(self._servers) > 1)
            except DriverError as error:
                if error.code not in _NOT_SUPPORTED:
                    raise
                unsupported = server.unsupported.setdefault(name, Backoff(_MOST_READINGS, _MOST_READINGS))
                unsupported.fail(server.readings, error.text)
            else:
                server.unsupported.pop(name, None)
                samples[name] = [Sample(**each) for each in answer]
        return samples

    def ended(self) -> list[str]:
        """Return the addresses at which no program serves its metrics."""
        return [server.address for server in self._servers if server.refused]

    def errors(self) -> list[str]:
        failed = ((server.address, failure) for server in self._servers for failure in server.failures.values())
        return [*dict.fromkeys(f"the TPU runtime at {address}: {failure.reason}" for address, failure in failed)]

    def unsupported(self) -> Iterator[str]:
        for server in self._servers:
            if server.refused:
                yield (
                    f"hw.npu.*: no program that uses the TPU serves its metrics at {server.address}, which is normal "
                    f"while none runs ({server.refused})"
                )
            reasons: dict[str, list[str]] = {}
            for name, failure in server.unsupported.items():
                reasons.setdefault(failure.reason, []).append(METRICS.get(name, name))
            for reason, metrics in reasons.items():
                yield f"{', '.join(metrics)}: the TPU runtime at {server.address} reports {reason!r}"


def merged(answers: Mapping[str, Samples]) -> dict[str, list[Sample]]:
    """Return the samples of all services together."""
    together: dict[str, list[Sample]] = {}
    for samples in answers.values():
        for name, listed in samples.items():
            together.setdefault(name, []).extend(listed)
    return together


class Total(NamedTuple):
    """The accumulated count and sum of a distribution."""

    events: int = 0
    seconds: float = 0.0


def total(samples: Iterable[Sample]) -> Total | None:
    """Return the accumulated total of distributions of microseconds; None if there is no valid one."""
    events, microseconds, is_valid = 0, 0, False
    for sample in samples:
        count: Number = (sample.distribution or {}).get("count", -1)
        spent: Number = count * (sample.distribution or {}).get("mean", -1)
        if 0 <= count < 1 << 53 and 0 <= spent <= _MAX_MICROSECONDS:
            events, microseconds, is_valid = events + int(count), microseconds + round(spent), True
    return Total(events, microseconds / 1e6) if is_valid else None


class Accumulator:
    """Monotonic totals over programs that each count from 0."""

    def __init__(self) -> None:
        self._last: dict[tuple[object, str], Total] = {}
        self._sums: dict[object, Total] = {}

    def sums(self, name: str, answers: Mapping[str, Samples], key: Callable[[Sample], Key | None]) -> dict[Key, Total]:
        """Return the totals of a distribution over all programs, by a key of its samples; None leaves one out."""
        sums: dict[Key, Total] = {}
        for program, samples in answers.items():
            groups: dict[Key, list[Sample]] = {}
            for sample in samples.get(name, ()):
                group = key(sample)
                if group is not None:
                    groups.setdefault(group, []).append(sample)
            for group, listed in groups.items():
                now = total(listed)
                if now is not None:
                    sums[group] = self._add((name, group), program, now)
        return sums

    def forget(self, program: str) -> None:
        """Record that the next totals at this address come from another program."""
        self._last = {key: last for key, last in self._last.items() if key[1] != program}

    def _add(self, key: object, program: str, now: Total) -> Total:
        """Add the increase of a program's total since its last answer."""
        last = self._last.get((key, program), Total())
        if now.events < last.events:  # another program
            last = Total()
        before = self._sums.get(key, Total())
        # Seconds are a count times a rounded mean, which may fall a little.
        seconds = before.seconds + max(0.0, now.seconds - last.seconds)
        self._last[key, program] = now
        self._sums[key] = Total(before.events + now.events - last.events, seconds)
        return self._sums[key]


_QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p999": 0.999}


def statistics(distributions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return mean and quantiles of several distributions together, as tpu-info and W&B compute them.

    Quantiles are those of the distributions with the same buckets as the first one. Counts are spread evenly within
    their buckets; the last bucket has no upper end.
    """
    means = [(each["count"], each["mean"]) for each in distributions if "mean" in each]
    found = {"mean": sum(count * mean for count, mean in means) / sum(count for count, _ in means)} if means else {}
    bounds = distributions[0].get("bounds", ())
    counts = [
        sum(column) for column in zip(*(each["buckets"] for each in distributions if each.get("bounds") == bounds))
    ]
    for name, share in _QUANTILES.items():
        rank, below = share * sum(counts), 0
        for place, count in enumerate(counts):
            if count > 0 and below + count >= rank:
                low = bounds[place - 1] if place else 0.0
                high = bounds[place] if place < len(bounds) else low
                found[name] = float(low + (rank - below) / count * (high - low))
                break
            below += count
    return found
