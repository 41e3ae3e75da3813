"""What ``otel-hardware run`` exports, where to, and for how long."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import NamedTuple

from opentelemetry.metrics import MeterProvider, get_meter_provider

from opentelemetry.instrumentation.hardware.cli import exporters
from opentelemetry.instrumentation.hardware.cli.delivery import drop_unread
from opentelemetry.instrumentation.hardware.cli.exports import Exports, watched
from opentelemetry.instrumentation.hardware.cli.failures import Failure
from opentelemetry.instrumentation.hardware.cli.messages import Mistake, say
from opentelemetry.instrumentation.hardware.pipeline import session as pipeline
from opentelemetry.instrumentation.hardware.pipeline.reporter import Reporter
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.settings.redaction import redacted
from opentelemetry.instrumentation.hardware.settings.sdk_variables import export_interval, is_disabled
from opentelemetry.instrumentation.hardware.spans.demand import Demand
from opentelemetry.instrumentation.hardware.system.limits import shortage

_LAST_READING = 0.5  # seconds to wait for the last reading

# Seconds to wait for the last export.
_LAST_EXPORT, _LAST_EXPORT_ATTACHED, _LAST_EXPORT_WITHOUT_CONNECTION = 5.0, 2.0, 0.5


class Target(NamedTuple):
    """Where metrics are exported to.

    Attributes:
        text: The destination, for messages; "" if nothing is exported.
        url: The endpoint of OTLP; "" for another exporter or a configuration file.
        down: Why the endpoint does not accept connections; None if it does, or if that is not known.
        is_default: Whether no variable sets the endpoint, and there is no other exporter.
    """

    text: str = ""
    url: str = ""
    down: Failure | None = None
    is_default: bool = False

    @property
    def shows_table(self) -> bool:
        """Whether nothing accepts connections at the default endpoint: then the live view is shown, too."""
        return not self.text or (self.down is not None and self.is_default)


def find_target(arguments: argparse.Namespace, service: str | None = exporters.SERVICE) -> Target:
    """Return the destination of metrics, after :func:`.exporters.set_defaults`. Problems with it are printed.

    Raises:
        Mistake: Export is disabled, and there is neither a table nor a program with spans.
        MemoryError: A limit leaves too little memory; gRPC would abort this process.
    """
    exporters.set_defaults(os.environ, arguments.interval, service)
    if (unread := drop_unread(os.environ)) is not None:
        say(str(unread))
    file = os.environ.get("OTEL_CONFIG_FILE")
    words = exporters.selected(os.environ)
    is_off = is_disabled(os.environ)
    if not file and (is_off or not words):
        if arguments.console or (arguments.ledgers and not is_off):  # spans need no export of metrics
            return Target()
        variable = "OTEL_SDK_DISABLED=true" if is_off else "OTEL_METRICS_EXPORTER=none"
        raise Mistake(f"metrics export is disabled by {variable}; unset it, or use --console for a table")
    if (reason := shortage()) is not None:
        raise MemoryError(reason)
    if file:
        return Target(f"as configured in {file}")
    for problem in exporters.header_problems(os.environ):
        say(problem)
    found = exporters.destination(os.environ)
    if (unknown := exporters.unknown_protocol(found)) is not None:
        raise Mistake(str(unknown))
    if words == ["prometheus"]:
        return Target("to prometheus at each scrape")
    if found is None:
        return Target(f"every {export_interval():g} s to {', '.join(words)}")
    text = f"every {export_interval():g} s to {found.url} ({found.protocol})"
    down = exporters.connection_failure(found)
    if down is not None:
        if found.mismatch:
            say(found.mismatch)
        other = "" if found.variable else "; OTEL_EXPORTER_OTLP_ENDPOINT sets another endpoint"
        say(f"cannot connect to {found.url} ({down.reason}); waiting for a Collector{other}")
    return Target(text, found.url, down, not found.variable and words == [found.exporter])


@contextmanager
def reporting(
    arguments: argparse.Namespace, config: Config, pid: int, target: Target, reporter: Reporter | None = None
) -> Iterator[tuple[pipeline.Session, Sequence[Exports]]]:
    """Run a session, which is exported if there is a target. Without one, it does not keep others from reporting."""
    reporter = reporter or Reporter(os.environ)
    reporter.mode = config.reporter or "auto"
    if not reporter.update(has_reader=bool(target.text)) and target.text and not arguments.agent:
        reason, also = "OTEL_PYTHON_HARDWARE_REPORTER=never", " only"
        if reporter.mode != "never":
            from opentelemetry.instrumentation.hardware.accelerators.selection import selection_words

            reason = f"process {reporter.holder() or 'of another user'} reports the host of this job already"
            if selection_words(config.devices, os.environ) == ["visible"]:
                also = ", and devices that no other process of the job reports"
        say(f"{reason}; this command reports process.*{also}")
    demand: Demand | None = None
    if arguments.ledgers:  # the application has made the memory that is this program's standard input
        from opentelemetry.instrumentation.hardware.spans.shared import AgentDemand

        try:
            demand = AgentDemand(sys.stdin.fileno())
        except (OSError, ValueError) as error:
            say(f"the spans of the program are not measured: standard input has no ledgers: {error}")
    lock, of_all = reporter if target.text else None, pid == os.getpid()
    session = pipeline.Session(config, pid, export_interval(), all_processes=of_all, reporter=lock, demand=demand)
    with closing(session):
        if target.text:
            limit = _LAST_EXPORT if arguments.attach is None else _LAST_EXPORT_ATTACHED
            with _exported(session, pid, target, limit) as exports:
                yield session, exports
        else:
            session.start()
            yield session, ()


@contextmanager
def _exported(session: pipeline.Session, pid: int, target: Target, limit: float) -> Iterator[Sequence[Exports]]:
    """Export a session during the block, and once more at its end, which takes so many seconds at most."""
    from opentelemetry.instrumentation.hardware.instrumentor import HardwareInstrumentor

    exporters.configure(pid, is_simulated=session.config.simulate is not None)
    provider = get_meter_provider()
    instrumentor = HardwareInstrumentor()
    if instrumentor.is_instrumented_by_opentelemetry:  # OTEL_CONFIG_FILE did it; this session takes its place
        instrumentor.uninstrument()
    with watched(provider, target.url, say) as exports:
        for each in exports:
            if each.name == target.url:
                each.failure = target.down  # its sentence has been printed
        instrumentor.instrument(meter_provider=provider, session=session)
        try:
            yield exports
        finally:
            session.read_now(_LAST_READING, is_last=True)
            for each in exports:
                each.end()
            _shut_down(provider, limit)
            instrumentor.uninstrument()
    for each in exports:
        if each.summary:
            say(each.summary)


def _shut_down(provider: MeterProvider, limit: float) -> None:
    """Export once more, in so many seconds. Without a connection, do not wait."""
    found = None if os.environ.get("OTEL_CONFIG_FILE") else exporters.destination(os.environ)
    if found is not None and exporters.connection_failure(found, 1.0) is not None:
        limit = _LAST_EXPORT_WITHOUT_CONNECTION
    shutdown = getattr(provider, "shutdown", lambda timeout_millis: None)
    try:
        shutdown(timeout_millis=1000 * limit)
    except Exception as error:
        say(f"the last values were not exported: {error}")


def note(target: Target, exports: Sequence[Exports]) -> str:
    """Return the state of export, for the first line of the screen."""
    status = next((each.status for each in exports if each.status), "")
    return redacted(status or (f"exporting {target.text}" if target.text else "nothing is exported"))


def exit_status(exports: Sequence[Exports]) -> int:
    """Return the exit status: 1 if no metrics were delivered to an exporter's destination."""
    return int(any(not each.arrived for each in exports))
