"""``otel-hardware run``: exports this machine's metrics, alone or for as long as a program runs."""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from opentelemetry.instrumentation.hardware.cli import program, settings, top
from opentelemetry.instrumentation.hardware.cli.messages import Mistake, say
from opentelemetry.instrumentation.hardware.cli.settings import seconds
from opentelemetry.instrumentation.hardware.cli.signals import CHILD, ENDING, FORWARDED, Signals
from opentelemetry.instrumentation.hardware.redaction import redacted

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

    from opentelemetry.instrumentation.hardware.cli.exports import Exports
    from opentelemetry.instrumentation.hardware.cli.failures import Failure
    from opentelemetry.instrumentation.hardware.pipeline.ledger import Demand
    from opentelemetry.instrumentation.hardware.pipeline.reporter import Reporter
    from opentelemetry.instrumentation.hardware.pipeline.session import Session

HELP = "export this machine's metrics over OTLP, alone or with a program"

DESCRIPTION = """\
Exports this machine's metrics over OTLP until it is stopped. With a program, it also exports what the program and its
descendants use, and stops when the program ends. The program itself is not changed.

examples:
  otel-hardware run                      to the Collector on this machine
  otel-hardware run -- python train.py   with the resources that the program uses
  otel-hardware run --attach 4711        with those of a running process
  OTEL_METRICS_EXPORTER=console otel-hardware run --duration 20

OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_METRICS_EXPORTER and the other variables of the SDK configure export. It is retried
until a Collector accepts it.

exit status: 0; 1 if nothing arrived; with a program its own; 2 for wrong arguments.
"""

DETAILS = """\
The variables that are used most are OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_PROTOCOL (grpc or http/protobuf),
OTEL_EXPORTER_OTLP_HEADERS, OTEL_METRICS_EXPORTER, OTEL_METRIC_EXPORT_INTERVAL, OTEL_RESOURCE_ATTRIBUTES and
OTEL_SERVICE_NAME (default: otel-hardware). An invalid variable causes a warning, and its default is used.

If nothing accepts connections at the default endpoint, a table on the terminal, or at the end of the program, shows the
values, while export is retried. Failures are printed once for each reason, and counted at the end. At the end, the last
values are exported within 5 seconds.

The exit status of a program that signal n killed is 128 + n; that of one that cannot be started is 126 or 127. As
process 1 of a container, the command also reaps orphaned processes, so no separate init is needed.
"""

_FIRST_READING = 0.5
"""Seconds to wait for the first reading of the program."""

_LAST_READING = 0.5
"""Seconds to wait for the last reading."""

_LAST_EXPORT = 5.0
"""Seconds to wait for the last export."""

_LAST_EXPORT_ATTACHED = 2.0

_LAST_EXPORT_WITHOUT_CONNECTION = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags and the program."""
    parser.usage = "otel-hardware run [flags] [-- PROGRAM ARGUMENT ...]"
    parser.add_argument(
        "--interval",
        type=seconds,
        metavar="SECONDS",
        help="time between two exports; default: 15",
    )
    parser.add_argument("--duration", type=seconds, metavar="SECONDS", help="stop after this time")
    parser.add_argument(
        "--attach",
        type=int,
        metavar="PID",
        help="also export what this process uses; stop when it ends",
    )
    parser.add_argument("--ledgers", action="store_true", help=argparse.SUPPRESS)  # standard input is their memory
    parser.add_argument("--console", action="store_true", help="also show the live view of 'otel-hardware top'")
    settings.add(parser)
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="-- PROGRAM ...", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Export until the program or the duration ends."""
    command = arguments.program[1:] if arguments.program[:1] == ["--"] else arguments.program
    if arguments.attach is not None:
        for other, given in {
            "a program": command,
            "--duration": arguments.duration,
            "--console": arguments.console,
        }.items():
            if given:
                raise Mistake(f"--attach cannot be used with {other}")
        return _run_attached(arguments)
    if not command:
        return _run_alone(arguments)
    if arguments.duration is not None:
        raise Mistake("--duration cannot be used with a program")
    status = program.run_as_init() if os.getpid() == 1 and hasattr(os, "fork") else None
    return _run_with_program(command, arguments) if status is None else status


class _Target(NamedTuple):
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


def _run_alone(arguments: argparse.Namespace) -> int:
    from opentelemetry.instrumentation.hardware.cli.otlp import set_defaults

    with Signals(ENDING, even_ignored=True) as signals:
        set_defaults(os.environ, arguments.interval)
        target = _target(arguments)
        with _reporting(arguments, os.getpid(), target) as (session, exports):
            if target.text:
                say(f"exporting metrics of {socket.gethostname()} {target.text}; Ctrl-C stops")
            if arguments.console or (target.shows_table and sys.stdout.isatty()):
                interval = None if top.is_terminal() else arguments.interval
                top.show(session, signals, interval, arguments.duration, lambda: _note(target, exports))
            else:
                signals.wait(arguments.duration)
    return _status(exports)


def _note(target: _Target, exports: Sequence[Exports]) -> str:
    """Return the state of export, for the first line of the screen."""
    status = next((each.status for each in exports if each.status), "")
    return redacted(status or (f"exporting {target.text}" if target.text else "nothing is exported"))


def _status(exports: Sequence[Exports]) -> int:
    """Return the exit status: 1 if nothing arrived at an exporter's destination."""
    return int(any(not each.arrived for each in exports))


def _run_attached(arguments: argparse.Namespace) -> int:
    """Report a running process until it ends. Its last values are those of the last reading before its end.

    Raises:
        Mistake: There is no such process, or it reports itself.
    """
    from opentelemetry.instrumentation.hardware.cli.otlp import set_defaults
    from opentelemetry.instrumentation.hardware.pipeline.reporter import reports_itself

    with Signals(ENDING, even_ignored=True) as signals:
        process = program.Attached(arguments.attach)
        is_reported = not process.is_parent() and reports_itself(process.pid)
        if is_reported and settings.config(arguments).reporter != "always":
            fix = "with OTEL_PYTHON_HARDWARE_REPORTER=always this command reports it a second time"
            raise Mistake(f"process {process.pid} is instrumented and reports itself; {fix}")
        set_defaults(os.environ, arguments.interval, service=None)
        with _reporting(arguments, process.pid, _target(arguments), _reporter_of(process)) as (_, exports):
            while not process.wait(signals, _interval()):
                pass
    return _status(exports)


def _reporter_of(process: program.Attached) -> Reporter:
    """Return the lock of the job of a running process. An agent has the environment of the process already."""
    from opentelemetry.instrumentation.hardware.pipeline.reporter import Reporter

    if not process.is_parent():
        with suppress(OSError):
            return Reporter(process.environ(), pid=process.pid)
    return Reporter(os.environ)


def _run_with_program(command: Sequence[str], arguments: argparse.Namespace) -> int:
    from opentelemetry.instrumentation.hardware.pipeline.reporter import Reporter

    environ = dict(os.environ)
    reporter = Reporter(environ)
    reporter.join()
    reporter.update()  # before the program: it leaves the host's metrics to this process if it is instrumented
    with Signals((*FORWARDED, CHILD) if CHILD else FORWARDED) as signals:
        try:
            child = program.started(command, environ)
            try:
                _report_program(child, arguments, signals, reporter)
            except Exception as error:  # no failure may affect the program
                say(f"{error}; the program continues without being reported")
        finally:
            reporter.release()  # a program that is not reported may report the host itself
        while not program.has_ended(child, signals):
            pass
    return program.exit_status(child)


def _report_program(
    child: subprocess.Popen[bytes], arguments: argparse.Namespace, signals: Signals, reporter: Reporter
) -> None:
    """Report a program until it has exited. It is reaped later, so that its last values can still be read."""
    from opentelemetry.instrumentation.hardware.cli.otlp import set_defaults
    from opentelemetry.instrumentation.hardware.cli.screen import Screen
    from opentelemetry.instrumentation.hardware.cli.view import Viewer

    set_defaults(os.environ, arguments.interval)
    target = _target(arguments)
    with _reporting(arguments, child.pid, target, reporter) as (session, exports):
        viewer = Viewer(session, child.pid) if arguments.console or target.shows_table else None
        if viewer is None:  # a table shows it
            _warn_if_process_is_missing(session)
        while not program.has_ended(child, signals, _interval()):
            if viewer is not None:
                viewer.keep_sampling()
        if viewer is not None and (arguments.console or not any(each.arrived for each in exports)):
            with Screen(sys.stderr) as screen:
                screen.show(viewer.collect().of_process())


def _warn_if_process_is_missing(session: Session) -> None:
    """Print why the program itself is not reported, if its source is not available."""
    from opentelemetry.instrumentation.hardware.pipeline.runner import State
    from opentelemetry.instrumentation.hardware.pipeline.thread import read_all

    own = [runner for runner in session.runners if runner.name == "process"]
    read_all([each for each in session.threads if {*own} & {*each.runners}], _FIRST_READING)
    for runner in own:
        if runner.state is State.ABSENT and runner.problem is not None:
            fix = f" ({runner.problem.fix})" if runner.problem.fix else ""
            say(f"the program itself is not reported: {runner.problem.reason}{fix}")


# -- export


def _target(arguments: argparse.Namespace) -> _Target:
    """Return the destination of metrics. Problems with it are printed.

    Raises:
        Mistake: Export is disabled, and there is neither a table nor a program with spans.
    """
    from opentelemetry.instrumentation.hardware.cli import otlp

    if os.environ.get("OTEL_CONFIG_FILE"):
        return _Target(f"as configured in {os.environ['OTEL_CONFIG_FILE']}")
    words = otlp.exporters(os.environ)
    is_disabled = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if is_disabled or not words:
        if arguments.console or (arguments.ledgers and not is_disabled):  # spans need no export of metrics
            return _Target()
        variable = "OTEL_SDK_DISABLED=true" if is_disabled else "OTEL_METRICS_EXPORTER=none"
        raise Mistake(f"metrics export is disabled by {variable}; unset it, or use --console for a table")
    for problem in otlp.header_problems(os.environ):
        say(problem)
    found = otlp.destination(os.environ)
    if found is None:
        return _Target(f"every {_interval():g} s to {', '.join(words)}")
    text = f"every {_interval():g} s to {found.url} ({found.protocol})"
    down = otlp.connection_failure(found)
    if down is not None:
        if found.mismatch:
            say(found.mismatch)
        other = "" if found.variable else "; OTEL_EXPORTER_OTLP_ENDPOINT sets another endpoint"
        say(f"cannot connect to {found.url} ({down.reason}); waiting for a Collector{other}")
    return _Target(text, found.url, down, not found.variable and words == [found.exporter])


def _interval() -> float:
    from opentelemetry.instrumentation.hardware.settings import export_interval

    return export_interval()


@contextmanager
def _reporting(
    arguments: argparse.Namespace, pid: int, target: _Target, reporter: Reporter | None = None
) -> Iterator[tuple[Session, Sequence[Exports]]]:
    """Run a session, which is exported if there is a target. Without one, it does not keep others from reporting."""
    from opentelemetry.instrumentation.hardware.pipeline.reporter import Reporter
    from opentelemetry.instrumentation.hardware.pipeline.session import Session

    config = settings.config(arguments)
    reporter = reporter or Reporter(os.environ)
    reporter.mode = config.reporter or "auto"
    if not reporter.update(has_reader=bool(target.text)) and target.text and arguments.attach != os.getppid():
        if reporter.mode == "never":
            reason = "OTEL_PYTHON_HARDWARE_REPORTER=never"
        else:
            reason = f"process {reporter.holder() or 'of another user'} reports the host of this job already"
        from opentelemetry.instrumentation.hardware.accelerators.selection import selection_words

        is_restricted = selection_words(config.devices, os.environ) == ["visible"]
        also = ", and devices that no other process of the job reports" if is_restricted else " only"
        say(f"{reason}; this command reports process.*{also if reporter.mode != 'never' else ' only'}")
    demand = _shared_demand() if arguments.ledgers else None
    reporter_of_session = reporter if target.text else None
    session = Session(config, pid, all_processes=pid == os.getpid(), reporter=reporter_of_session, demand=demand)
    try:
        if target.text:
            with _exported(
                session, pid, target, _LAST_EXPORT if arguments.attach is None else _LAST_EXPORT_ATTACHED
            ) as exports:
                yield session, exports
        else:
            session.start()
            yield session, ()
    finally:
        session.close()


def _shared_demand() -> Demand | None:
    """Return whether the application records spans. It has made the memory that is this program's standard input."""
    from opentelemetry.instrumentation.hardware.pipeline.shared_ledgers import SharingDemand

    try:
        return SharingDemand(sys.stdin.fileno())
    except (OSError, ValueError) as error:
        say(f"the spans of the program are not measured: standard input has no ledgers: {error}")
        return None


@contextmanager
def _exported(session: Session, pid: int, target: _Target, limit: float) -> Iterator[Sequence[Exports]]:
    """Export a session during the block, and once more at its end, which takes so many seconds at most."""
    from opentelemetry.metrics import get_meter_provider

    from opentelemetry.instrumentation.hardware.cli.exports import watched
    from opentelemetry.instrumentation.hardware.cli.otlp import configure
    from opentelemetry.instrumentation.hardware.instrumentor import HardwareInstrumentor

    configure(pid)
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
            session.read_now(_LAST_READING)
            for each in exports:
                each.end()
            _shut_down(provider, limit)
            instrumentor.uninstrument()
    for each in exports:
        if each.summary:
            say(each.summary)


def _shut_down(provider: MeterProvider, limit: float) -> None:
    """Export once more, in so many seconds. Without a connection, do not wait."""
    from opentelemetry.instrumentation.hardware.cli import otlp

    found = None if os.environ.get("OTEL_CONFIG_FILE") else otlp.destination(os.environ)
    if found is not None and otlp.connection_failure(found, 1.0) is not None:
        limit = _LAST_EXPORT_WITHOUT_CONNECTION
    shutdown = getattr(provider, "shutdown", None)
    if shutdown is None:
        return
    try:
        shutdown(timeout_millis=1000 * limit)
    except Exception as error:
        say(f"the last values were not exported: {error}")
