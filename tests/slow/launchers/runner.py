"""Run one case, and compare what the Collector received with what was expected."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from tests.slow.launchers.cases import QUICK, Case
from tests.support import children, marker
from tests.tools.collector import Collector, Point
from tests.tools.daemon import own

HOST, PROCESS = "system.memory.usage", "process.memory.usage"
EXPORTS = 2  # exports of a process that a case waits for, so that a second reporter has time to appear

# Milliseconds between exports of a process that forks at its start. The SDK cannot export in a child that was forked
# during a collection, and the end of such a child takes 30 s.
_FORKING = "3000"


@dataclass(frozen=True)
class Outcome:
    """What a case reported.

    Attributes:
        hosts: The most resources that reported the host at the same time.
        reporters: How many reported it, one after the other.
        processes: How many processes of each role reported ``process.*``.
        problems: Differences from what was expected, as sentences.
    """

    hosts: int = 0
    reporters: int = 0
    processes: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


@dataclass
class _Resource:
    """The exports of one ``service.instance.id``: times in nanoseconds."""

    pid: int
    attributes: Mapping[str, object]
    host: list[int] = field(default_factory=list)
    process: list[int] = field(default_factory=list)


def run(
    case: Case, collector: Collector, folder: Path, flush: bool = False, patience: float = children.PATIENCE
) -> Outcome:
    """Run a case until each expected process has exported, and end it.

    Args:
        case: The case.
        collector: Where it exports to.
        folder: Where its files are.
        flush: Whether processes that fork export only at their end, so that no child is forked during an export.
        patience: Seconds to wait for the exports.
    """
    case.check()
    folder = own(folder, case.name)
    service = f"{case.name}-{uuid4().hex[:8]}"
    settings = QUICK | {
        "LAUNCHED": str(folder),
        "HOME": str(folder),  # gunicorn makes a socket there
        "OTEL_SERVICE_NAME": service,
        "OTEL_METRICS_EXPORTER": "otlp",
        "OTEL_TRACES_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.http,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": "hardware_job",
        "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": children.PEERS,
        "NO_PROXY": "*",
        **case.environment,
    }
    exporting = set(case.expected) - {"launcher"}
    flush &= case.forks
    if case.forks:
        settings["OTEL_METRIC_EXPORT_INTERVAL"] = _FORKING
    if flush:
        settings |= {"OTEL_METRIC_EXPORT_INTERVAL": "3600000", "LAUNCHED_FLUSH": "1"}
        exporting -= {"parent"}

    def points() -> list[Point]:
        return [point for point in collector.metrics() if point.resource.get("service.name") == service]

    def is_complete(_: list[Point]) -> bool:
        roles = _roles(folder)
        if Counter(roles.values()) != Counter({**case.expected, **case.announced, "launcher": 0}):
            return False
        found = _resources(points()).values()
        exported = {each.pid for each in found if len(each.process) >= EXPORTS}
        has_host = any(len(each.host) >= EXPORTS for each in found)
        return {pid for pid, role in roles.items() if role in exporting} <= exported and (has_host or flush)

    problems: list[str] = []
    with case.around(folder) as inside, children.started([*inside, *case.command], settings) as launcher:
        try:
            collector.wait(is_complete, patience)
        except AssertionError:
            problems.append(f"not complete within {patience:g} s")
        (folder / "stop").touch()
        if not case.stops:
            launcher.terminate()
        with suppress(subprocess.TimeoutExpired):
            launcher.communicate(timeout=patience)
        if case.stops and launcher.returncode:
            problems.append(f"exit status {launcher.returncode}")
    marker.settle(collector)
    roles = {launcher.pid: "launcher"} | _roles(folder)
    # A process that is busy for two intervals may lose the host to another one, and get it back.
    gap = 2 * float(_FORKING if case.forks and not flush else QUICK["OTEL_METRIC_EXPORT_INTERVAL"]) / 1000
    return _judged(case, points(), roles, problems, gap)


def _roles(folder: Path) -> dict[int, str]:
    return {int(path.stem): path.read_text() for path in folder.glob("*.role")}


def _resources(points: list[Point]) -> dict[object, _Resource]:
    found: dict[object, _Resource] = {}
    for point in points:
        pid = point.resource["process.pid"]
        assert isinstance(pid, int)
        resource = found.setdefault(point.resource["service.instance.id"], _Resource(pid, point.resource))
        times = {HOST: resource.host, PROCESS: resource.process}.get(point.name)
        if times is not None and point.time not in times:
            times.append(point.time)
    return found


def _judged(case: Case, points: list[Point], roles: Mapping[int, str], problems: list[str], gap: float) -> Outcome:
    resources = [*_resources(points).values()]
    hosts = [each for each in resources if each.host]
    reporting = [each for each in resources if each.process]
    processes = Counter(roles.get(each.pid, "unknown") for each in reporting)
    at_a_time = max((sum(_overlap(one, other, gap) for other in hosts) for one in hosts), default=0)
    if at_a_time != 1:
        problems.append(f"{at_a_time} resources report the host at the same time")
    if processes != Counter(case.expected):
        problems.append(f"expected {words(case.expected)}, not {words(processes)}")
    if len({each.pid for each in resources}) < len(resources):
        problems.append("a process has two resources")
    series = Counter(
        (point.resource["service.instance.id"], point.name, frozenset(point.attributes.items()), point.time)
        for point in points
    )
    problems += [f"duplicate {key[1]}" for key, count in series.items() if count > 1][:1]
    ranks = [each for each in reporting if roles.get(each.pid) == "rank"]
    problems += _wrong_attributes(case, ranks)
    return Outcome(at_a_time, len(hosts), dict(processes), tuple(problems))


def _overlap(one: _Resource, other: _Resource, gap: float) -> bool:
    """Whether a resource reported the host between two exports of another that are less than `gap` seconds apart."""
    pairs = [(begin, end) for begin, end in zip(sorted(one.host), sorted(one.host)[1:]) if end - begin < gap * 1e9]
    return one is other or any(begin <= time <= end for begin, end in pairs for time in other.host)


def _wrong_attributes(case: Case, ranks: list[_Resource]) -> Iterator[str]:
    for name, value in case.attributes.items():
        if wrong := [each.attributes.get(name) for each in ranks if each.attributes.get(name) != value]:
            yield f"{name}={wrong[0]!r} instead of {value!r}"
    if "dl.world_size" in case.attributes:
        for name in ("dl.rank", "dl.local_rank"):
            if {each.attributes.get(name) for each in ranks} != {*range(len(ranks))}:
                yield f"{name} is not 0 to {len(ranks) - 1}"


def words(processes: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {role}" for role, count in sorted(processes.items()) if count) or "none"
