"""What the programs that use the TPU say of it: the runtime in each of them serves metrics of its own.

While no program runs nobody answers, which is no trouble. https://github.com/AI-Hypercomputer/cloud-accelerator-diagnostics
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.model import Number
from opentelemetry.instrumentation.hardware.sources.tpu.driver import (
    INVALID_ARGUMENT,
    NOT_FOUND,
    UNAVAILABLE,
    UNIMPLEMENTED,
    Sample,
    Services,
)

DUTY: Final = "tpu.runtime.tensorcore.dutycycle.percent"
USED: Final = "tpu.runtime.hbm.memory.usage.bytes"
TOTAL: Final = "tpu.runtime.hbm.memory.total.bytes"
BANDWIDTH: Final = "tpu.runtime.hbm.utilization.percent"
IDLE: Final = "tpu.runtime.tensorcore.idle_duration.seconds"
QUEUE: Final = "hlo.queue.size.gauge"
EXECUTION: Final = "hlo.execution.timing.distribution.microseconds"
TRANSFERS: Final = {
    kind: f"megascale.{name}_latencies.microsecond.cumulative.distribution"
    for kind, name in {
        "dcn": "dcn_transfer",
        "dcn_inbound": "dcn_inbound_transfer",
        "host_to_device": "host_to_device_transfer",
        "device_to_host": "device_to_host_transfer",
        "collective": "collective_end_to_end",
        "compute": "mxla_compute",
    }.items()
}
ROUND_TRIP: Final = "megascale.grpc_tcp_min_rtt.microsecond.cumulative.distribution"
DELIVERY: Final = "megascale.grpc_tcp_delivery_rate.Mbps.cumulative.distribution"

OFTEN: Final = (DUTY, USED, TOTAL, BANDWIDTH, QUEUE)
SELDOM: Final = (IDLE, EXECUTION, *TRANSFERS.values())

ROWS: Final = {
    DUTY: "hw.npu.utilization (general)",
    USED: "hw.npu.memory.usage",
    TOTAL: "hw.npu.memory.limit",
    BANDWIDTH: "hw.npu.utilization (hbm)",
    QUEUE: "google.tpu.hlo.queue.size",
    IDLE: "google.tpu.idle.duration",
    EXECUTION: "google.tpu.hlo.execution.*",
    **{name: f"google.tpu.transfer.* ({kind})" for kind, name in TRANSFERS.items()},
    ROUND_TRIP: "W&B's tpu.grpcTcpMinRtt",
    DELIVERY: "W&B's tpu.grpcTcpDeliveryRate",
}
"""What is missing where a metric of the runtime's is."""

_UNKNOWN: Final = (INVALID_ARGUMENT, NOT_FOUND, UNIMPLEMENTED)
"""The statuses of a metric that a runtime does not have."""

_LONGEST = 30
"""The most readings for which one that fails is left alone."""

MOST: Final = 1 << 50
"""More than any amount that is said here can be."""

Answers: TypeAlias = "dict[str, list[Sample]]"


@dataclass
class _Care:
    """How one of the things that a server is asked has gone: what is wrong, how often in a row, and its rest."""

    trouble: str = ""
    failures: int = 0
    rest: int = 0

    def fail(self, error: DriverError) -> None:
        """Leave it alone, longer each time."""
        self.trouble = error.text
        self.rest = min(_LONGEST, (1 << self.failures) - 1)
        self.failures = min(self.failures + 1, 10)


@dataclass
class _Server:
    """One place, and how it has behaved."""

    address: str
    away: str = ""
    refused: dict[str, str] = field(default_factory=dict)
    care: dict[tuple[str, ...], _Care] = field(default_factory=dict)


class Runtime:
    """The metric services of the programs of this host.

    Args:
        services: calls them.
        addresses: where they are.
    """

    def __init__(self, services: Services, addresses: Sequence[str]) -> None:
        self._services = services
        self._servers = [_Server(address) for address in addresses]

    def ask(self, names: tuple[str, ...]) -> list[tuple[str, Answers]]:
        """What each of them says, by its address; one that fails is left out, and left alone for a while."""
        found = []
        for server in self._servers:
            care = server.care.setdefault(names, _Care())
            if care.rest:
                care.rest -= 1
                continue
            try:
                answers = dict(self._of(server, names))
            except DriverError as error:
                care.fail(error)
            else:
                server.care[names] = _Care()
                if not server.away:
                    found.append((server.address, answers))
        return found

    def _of(self, server: _Server, names: Iterable[str]) -> Iterator[tuple[str, list[Sample]]]:
        server.away, away = "", server.away
        for name in names:
            if name in server.refused:
                continue
            try:
                answer = self._services.metric(server.address, name, len(self._servers) > 1)
            except DriverError as refusal:
                if refusal.code == UNAVAILABLE:
                    server.away = refusal.text
                    server.refused.clear()  # the next program may know more
                    return
                if refusal.code not in _UNKNOWN:
                    server.away = away
                    raise
                server.refused[name] = refusal.text
            else:
                yield name, [Sample(**each) for each in answer]

    def errors(self) -> list[str]:
        """Who fails, and how."""
        said = ((server.address, care.trouble) for server in self._servers for care in server.care.values())
        return [*dict.fromkeys(f"the TPU runtime at {address}: {trouble}" for address, trouble in said if trouble)]

    def unsupported(self) -> Iterator[str]:
        """What is not said, and why."""
        for server in self._servers:
            if server.away:
                yield (
                    f"hw.npu.*: no program that uses the TPU serves its metrics at {server.address}, which is normal "
                    f"while none runs ({server.away})"
                )
            reasons: dict[str, list[str]] = {}
            for name, reason in server.refused.items():
                reasons.setdefault(reason, []).append(ROWS[name])
            for reason, rows in reasons.items():
                yield f"{', '.join(rows)}: the TPU runtime at {server.address} says {reason!r}"


def merged(said: Iterable[tuple[str, Answers]]) -> Answers:
    """What several say, as if one had said it."""
    found: Answers = {}
    for _, answers in said:
        for name, series in answers.items():
            found.setdefault(name, []).extend(series)
    return found


def device(series: Sample) -> int | None:
    """Which device a number is of; the runtime numbers those of all its hosts, so they may begin anywhere."""
    said = series.labels.get("device-id", series.labels.get("device_ordinal"))
    if said is None:
        said = next((value for value in series.labels.values() if isinstance(value, int)), None)
    if isinstance(said, str):
        said = int(said) if said.isascii() and said.isdigit() and len(said) < 10 else None
    return said if said is not None and 0 <= said < 1 << 24 else None


def believed(series: Sample, most: float = MOST) -> tuple[int, Number] | None:
    """The device and value of a gauge, if it can be true."""
    number, value = device(series), series.value
    return None if number is None or value is None or not 0 <= value <= most else (number, value)


def by_device(answer: Iterable[Sample], most: float = MOST) -> dict[int, Number]:
    """The gauges of an answer that can be true, by device; of two of the same the first."""
    found: dict[int, Number] = {}
    for series in answer:
        pair = believed(series, most)
        if pair is not None:
            found.setdefault(*pair)
    return dict(sorted(found.items()))


def word(text: object, form: str) -> str:
    """A label that can stand in an attribute; "" for what looks like none of its kind."""
    said = str(text or "").lower()
    return said if re.fullmatch(form, said) else ""


def core_type(series: Sample) -> str:
    """Of which type of core of a device a number is: ``tensorcore``, ``sparsecore``; "" where that is not said."""
    return word(series.labels.get("core_type"), "[a-z][a-z0-9_]{0,31}")


class Total(NamedTuple):
    """All that a cumulative distribution has seen: how many, and seconds."""

    events: int
    seconds: float


def totals(answer: Sequence[Sample], key: str = "") -> dict[str | int, Total]:
    """Counts and times of distributions of microseconds, put together by what a label says, if one is named."""
    found: dict[str | int, tuple[int, int]] = {}
    for series in answer:
        said = series.distribution or {}
        count, mean, total = said.get("count"), said.get("mean"), said.get("sum")
        if not isinstance(count, int) or not 0 <= count < 1 << 53:
            continue
        if total is None and mean is not None:
            total = count * mean
        if total is None or not 0 <= total <= MOST:
            continue
        label = series.labels.get(key, "") if key else ""
        before = found.get(label, (0, 0))
        found[label] = before[0] + count, before[1] + round(total)
    return {label: Total(count, microseconds / 1e6) for label, (count, microseconds) in found.items()}
