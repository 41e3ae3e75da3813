"""The sources to be read and their drivers, according to the settings and the signs of presence on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from opentelemetry.instrumentation.hardware.catalog import CATALOG
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.model import Metric, Scope
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.settings.log import logger
from opentelemetry.instrumentation.hardware.settings.redaction import redacted
from opentelemetry.instrumentation.hardware.sources import Source, discover, unknown_source
from opentelemetry.instrumentation.hardware.system.files import Files

_LOG = logger(__name__)


class FoundSource(NamedTuple):
    """A source to be read.

    Attributes:
        instances: See :meth:`Source.instances`.
        expected: Whether there is a sign of it on this machine.
    """

    name: str
    make: type[Source]
    instances: Sequence[str]
    expected: bool

    @property
    def has_devices(self) -> bool:
        """Return whether it is one of accelerators that a program can be restricted to."""
        return getattr(self.make, "is_selectable", False)

    @property
    def reports_host(self) -> bool:
        """Return whether it has metrics of the host."""
        return self.has_any(metric for metric in CATALOG if metric.scope is Scope.HOST)

    def has_any(self, metrics: Iterable[Metric]) -> bool:
        """Whether it has one of these metrics."""
        return any(metric.name.startswith(self.make.rows) for metric in metrics)


def find_sources(config: Config, can_report: bool, all_expected: bool) -> list[FoundSource]:
    """Return the sources to read. Those that cannot be loaded are left out, with one warning for each reason.

    If this process may not report the host, its sources are left out. All are expected if the drivers are those of
    another machine, so that nothing is known about presence.
    """
    from opentelemetry.instrumentation.hardware.system import linux, psutil_backend  # noqa: F401 - see Source.prepare

    known = discover()
    config = _without_unknown_sources(config, known)
    sources = []
    failed: dict[str, list[str]] = {}  # names by reason
    for name, load in known.items():
        if not config.selects(name):
            continue
        try:
            make = load()
            if not issubclass(make, Source):
                raise TypeError(f"{make!r} is not a Source")
            if can_report or make.scope is Scope.PROCESS:
                expected = make.prepare(config) or all_expected
                sources.append(FoundSource(name, make, [*make.instances(config)], expected))
        except (Exception, SystemExit) as error:  # a module may call sys.exit()
            failed.setdefault(f"{type(error).__name__}: {error}", []).append(name)
    for reason, names in failed.items():
        _LOG.warning("Source%s %s cannot be loaded: %s", "s" if len(names) > 1 else "", ", ".join(names), reason)
    return sources


def drivers_of(config: Config, pid: int) -> Drivers:
    """Return the drivers of this machine, or of a simulated one. The process with this PID uses the simulated GPUs."""
    simulated = config.simulate
    if simulated is None or (simulated.host is None and simulated.vendor == "nvidia"):
        return Drivers()
    from opentelemetry.instrumentation.hardware.drivers.simulated import SimulatedDrivers, SimulatedHost
    from opentelemetry.instrumentation.hardware.simulator.machine import machine

    gpus = machine(simulated, config.simulate_speed)
    host = Files() if simulated.host is None else SimulatedHost(simulated.host, gpus.now, pid)
    return SimulatedDrivers(gpus, host, pid)


def any_host_metric(sources: Iterable[FoundSource], config: Config) -> bool:
    """Whether a source that is expected here has a wanted metric of the host."""
    wanted = [metric for metric in CATALOG if metric.scope is Scope.HOST and config.wants(metric)]
    return any(found.expected and found.has_any(wanted) for found in sources)


def _without_unknown_sources(config: Config, known: Iterable[str]) -> Config:
    """Return the settings without unknown names in ``SOURCES``, and log a warning for each of them."""
    for word in config.sources or ():
        if word.removeprefix("-") not in known and word != "auto":
            config = config.changed(sources=[other for other in config.sources or () if other != word])
            problem = unknown_source(redacted(word.removeprefix("-")), known)
            used = "it is ignored" if config.sources else "all sources are read"
            _LOG.warning("%s: %s (%s)", config.name_of("sources"), problem, used)
    return config
