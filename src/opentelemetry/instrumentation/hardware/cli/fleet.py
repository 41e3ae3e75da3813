"""``otel-hardware run --simulate 8xH100 --hosts 50``: many simulated hosts in one process, also in the past.

Each host has a session of its own, which is read in this thread, on a clock that goes from one reading to the next. So
an hour of the past takes as long as its readings.
"""

from __future__ import annotations

import argparse
import os
import time
import uuid
from collections.abc import Callable, Sequence
from heapq import heapreplace
from math import inf
from typing import TYPE_CHECKING, Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.cli import exporters, settings
from opentelemetry.instrumentation.hardware.cli.exports import Exports, listened
from opentelemetry.instrumentation.hardware.cli.messages import Mistake, say
from opentelemetry.instrumentation.hardware.cli.reporting import exit_status, find_target
from opentelemetry.instrumentation.hardware.cli.signals import Signals
from opentelemetry.instrumentation.hardware.cli.text import counted
from opentelemetry.instrumentation.hardware.model import Kind
from opentelemetry.instrumentation.hardware.pipeline import session as pipeline
from opentelemetry.instrumentation.hardware.pipeline.collector import Reader
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.settings.sdk_variables import export_interval
from opentelemetry.instrumentation.hardware.simulator.machine import Machine, Spec, unknown
from opentelemetry.instrumentation.hardware.simulator.scenarios import SCENARIOS, HostLoad
from opentelemetry.instrumentation.hardware.version import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricExporter, MetricsData

_SOURCES: Final = ("nvidia", "amd", "host", "filesystem", "holders")  # what a simulated host has

# What the agent of a simulated host would need is not known.
_OWN: Final = (c.OWN_CPU_TIME.name, c.SOURCE_READ_DURATION.name)

_RETRY: Final = 1.0  # seconds between two attempts to export while nothing has arrived yet

_BEHIND: Final = 3  # intervals of export by which the clock may lag behind before a warning


class _Agent:
    """The agent of a simulated host.

    Its names and ids follow from the seed of what it simulates. Its place is its number in the job, and that of all its
    hosts. The interval is the seconds between two exports.
    """

    def __init__(
        self, spec: Spec, place: tuple[int, int], config: Config, clock: Callable[[], float], interval: float
    ) -> None:
        from opentelemetry.sdk.resources import Resource

        from opentelemetry.instrumentation.hardware.drivers.simulated import PROGRAM, SimulatedDrivers, SimulatedServer

        self._clock = clock
        self._interval = interval
        rank, size = place
        self._next_export = clock() + interval * (1.0 + rank / size)
        self._start = int(1e9 * clock())
        machine = Machine(spec, clock, config.simulate_speed or 1.0)
        job = spec.seed - rank + 1
        server = SimulatedServer(spec.host or HostLoad(), machine.now, spec.gpus, job)
        self._session = pipeline.Session(
            config.changed(simulate=spec),
            PROGRAM,
            interval,
            drivers=lambda name: SimulatedDrivers(machine, server, PROGRAM),
            clock=clock,
            all_processes=True,
        )
        self._reader = Reader()
        host = uuid.uuid5(uuid.NAMESPACE_DNS, f"sim-{spec.seed}.otel-hardware")
        self.name = f"sim-{spec.seed}"
        self._resource = Resource.create(
            {
                "host.name": self.name,
                "host.id": host.hex,
                "host.arch": "amd64",
                "service.instance.id": str(uuid.uuid5(host, os.environ.get("OTEL_SERVICE_NAME", ""))),
                "training_job.id": str(job),
                "training_job.system": "slurm",
                "slurm.job.id": str(job),
                "dl.rank": rank,
                "dl.node_rank": rank,
                "dl.world_size": size,
                "otel_hardware.simulated": True,
            }
        )

    def read(self) -> MetricsData | None:
        """Read what is due. Returns an export if that is due, too."""
        now = self._clock()
        is_due = now >= self._next_export
        for runner in self._session.runners:
            if is_due or runner.next_reading(now) <= now:
                runner.read(everything=is_due)
        if not is_due:
            return None
        self._next_export += self._interval
        return self._export()

    def next_reading(self) -> float:
        """Return when the next reading or export is due."""
        now = self._clock()
        due = min((runner.next_reading(now) for runner in self._session.runners), default=self._next_export)
        return min(max(due, now + 0.1), self._next_export)

    def _export(self) -> MetricsData:
        from opentelemetry.sdk.metrics import export
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        session, now = self._session, int(1e9 * self._clock())
        metrics = []
        for metric, points in session.collect(self._reader).values.items():
            keeps = session.config.exported(metric)
            rows = [
                export.NumberDataPoint(attributes, self._start, now, value)
                for value, attributes in points
                if keeps is None or keeps(attributes)
            ]
            if rows:
                data: export.Gauge | export.Sum = export.Gauge(rows)
                if metric.kind is not Kind.GAUGE:
                    cumulative = export.AggregationTemporality.CUMULATIVE
                    data = export.Sum(rows, cumulative, metric.kind is Kind.COUNTER)
                metrics.append(export.Metric(metric.name, metric.help, metric.unit, data))
        scope = export.ScopeMetrics(InstrumentationScope(c.SCOPE, __version__, c.SCHEMA_URL), metrics, c.SCHEMA_URL)
        return export.MetricsData([export.ResourceMetrics(self._resource, [scope], self._resource.schema_url)])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("simulated hosts, with --simulate")
    group.add_argument(
        "--hosts", type=settings.count, metavar="N", help="export as N hosts with the seeds SEED, SEED+1, ..."
    )
    group.add_argument("--scenarios", metavar="NAMES", help="scenarios of the first hosts; others have SIMULATE's")
    group.add_argument("--backfill", type=settings.seconds, metavar="TIME", help="send the past first, such as 1h")


def is_wanted(arguments: argparse.Namespace) -> bool:
    return any(each is not None for each in (arguments.hosts, arguments.scenarios, arguments.backfill))


def run(arguments: argparse.Namespace, config: Config, signals: Signals) -> int:
    """Export simulated hosts until the duration ends.

    Raises:
        Mistake: There is nothing to simulate, or no exporter for it.
    """
    config, specs = _specs(arguments, config)
    target = find_target(arguments)
    os.environ["OTEL_EXPERIMENTAL_RESOURCE_DETECTORS"] = "otel"  # the others describe the real host
    exporter = _exporter()
    with listened([exporter], target.url, say) as (exports,):
        _export(specs, config, arguments, exporter, exports, signals)
        exporter.shutdown()
    if exports.summary:
        say(exports.summary)
    return exit_status([exports])


def _specs(arguments: argparse.Namespace, config: Config) -> tuple[Config, list[Spec]]:
    spec: Spec | None = config.simulate
    if spec is None:
        raise Mistake("--hosts, --scenarios and --backfill need --simulate, such as --simulate 8xH100")
    scenarios = [word.strip() for word in (arguments.scenarios or "").split(",") if word.strip()]
    for word in scenarios:
        if word not in SCENARIOS:
            raise Mistake(f"--scenarios: {unknown('scenario', word, SCENARIOS)}")
    hosts = arguments.hosts or 1
    if len(scenarios) > hosts:
        raise Mistake(f"--scenarios names {len(scenarios)} scenarios, for {counted(hosts, 'host')}")
    scenarios += [spec.scenario] * (hosts - len(scenarios))
    specs = [spec._replace(seed=spec.seed + rank, scenario=name) for rank, name in enumerate(scenarios)]
    others = {"nvidia", "amd"} - {spec.vendor}
    sources = [name for name in _SOURCES if config.selects(name) and name not in others]
    return config.changed(sources=sources, exclude_metrics=[*(config.exclude_metrics or ()), *_OWN]), specs


def _exporter() -> MetricExporter:
    words = exporters.selected(os.environ)
    where = exporters.destination(os.environ)
    if os.environ.get("OTEL_CONFIG_FILE") or len(words) != 1 or (where is None and words != ["console"]):
        raise Mistake("simulated hosts are exported over OTLP: unset OTEL_METRICS_EXPORTER and OTEL_CONFIG_FILE")
    for problem in exporters.problems(words, where).values():
        raise Mistake(str(problem))
    make: Callable[[], MetricExporter] = exporters.load(exporters.entry_point(words[0], where))
    return make()


def _export(
    specs: Sequence[Spec],
    config: Config,
    arguments: argparse.Namespace,
    exporter: MetricExporter,
    exports: Exports,
    signals: Signals,
) -> None:
    interval, begin = export_interval(), time.time()
    end = begin + (inf if arguments.duration is None else arguments.duration)
    now = begin - (arguments.backfill or 0.0)
    agents = [_Agent(spec, (rank, len(specs)), config, lambda: now, interval) for rank, spec in enumerate(specs)]
    names = f"{len(agents)} simulated hosts, {agents[0].name} to {agents[-1].name}"
    say(f"exporting {names if len(agents) > 1 else f'the simulated host {agents[0].name}'}; Ctrl-C stops")
    is_past, is_late = arguments.backfill is not None, False
    due = [(now, number) for number in range(len(agents))]
    while due[0][0] <= end:
        now, number = due[0]
        if is_past and now >= begin:
            is_past, begin = False, time.time()
            say(f"the past is exported; the present follows {begin - now:.0f} s later")
        pause = now - time.time()
        if pause < -_BEHIND * interval and not is_past and not is_late:
            is_late = True
            say("this machine is too slow for so many hosts: use fewer, a longer --interval or --sample-interval")
        if signals.wait(max(0.0, pause)):
            return
        data = agents[number].read()
        while data is not None:
            exporter.export(data)
            if exports.arrived:
                break
            if time.time() >= end or signals.wait(_RETRY):  # nothing has arrived yet: the past waits for a Collector
                return
        heapreplace(due, (agents[number].next_reading(), number))
