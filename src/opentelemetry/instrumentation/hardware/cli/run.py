"""``otel-hardware run``: exports this machine's metrics, alone or for as long as a program runs."""

from __future__ import annotations

import argparse
import logging
import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from opentelemetry.instrumentation.hardware.cli import program, settings
from opentelemetry.instrumentation.hardware.cli.messages import Mistake, collected_logs, say
from opentelemetry.instrumentation.hardware.cli.settings import seconds
from opentelemetry.instrumentation.hardware.cli.signals import CHILD, ENDING, FORWARDED, Signals

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

    from opentelemetry.instrumentation.hardware.pipeline.reporter import Reporter
    from opentelemetry.instrumentation.hardware.pipeline.session import Session

HELP = "export this machine's metrics over OTLP, alone or with a program"

DESCRIPTION = """\
Exports this machine's metrics over OTLP until it is stopped. With a program, it starts the program, also exports what
the program and its descendants use, and stops when the program ends. The program itself is not changed.

examples:
  otel-hardware run                        to the Collector on this machine
  otel-hardware run -- python train.py     with the resources that the program uses
  otel-hardware run --attach 4711          with those that a running process uses, until it ends
  OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4317 otel-hardware run
  OTEL_METRICS_EXPORTER=console otel-hardware run --duration 20

The standard variables configure export: OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_PROTOCOL (grpc or
http/protobuf), OTEL_EXPORTER_OTLP_HEADERS, OTEL_METRICS_EXPORTER, OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME
(default: otel-hardware). If an endpoint does not accept connections, export is retried. Only on a terminal, or with a
program, and if no endpoint is set, nothing is exported, and a table shows the values instead.

At the end, the last values are exported within 5 seconds. If that fails, a message says so. As process 1 of a
container, the command also reaps orphaned processes, so no separate init is needed.

exit status: 0 after SIGINT, SIGTERM or --duration; with a program its own (128 + n if signal n killed it, 126 or 127
if it cannot be started); 2 for wrong arguments. An invalid variable causes a warning, and its default is used.
"""

_FIRST_READING = 0.5
"""Seconds to wait for the first reading of the program."""

_LAST_READING = 0.5
"""Seconds to wait for the last reading."""

_LAST_EXPORT = 5.0
"""Seconds to wait for the last export."""

_LAST_EXPORT_ATTACHED = 2.0

_LAST_EXPORT_WITHOUT_CONNECTION = 0.5

_TABLE_INTERVAL = 2.0
"""Seconds between two tables on a terminal."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags and the program."""
    parser.usage = "otel-hardware run [flags] [-- PROGRAM ARGUMENT ...]"
    parser.add_argument(
        "--interval",
        type=seconds,
        metavar="SECONDS",
        help="time between two exports; default: OTEL_METRIC_EXPORT_INTERVAL (milliseconds), else 15",
    )
    parser.add_argument("--duration", type=seconds, metavar="SECONDS", help="stop after this time")
    parser.add_argument(
        "--attach",
        type=int,
        metavar="PID",
        help="also export what this running process and its descendants use; stop when it ends",
    )
    parser.add_argument("--console", action="store_true", help="also show a live table in the terminal")
    settings.add(parser)
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="-- PROGRAM ...", help="program to start")


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


def _run_alone(arguments: argparse.Namespace) -> int:
    from opentelemetry.instrumentation.hardware.cli.otlp import set_defaults

    with Signals(ENDING, even_ignored=True) as signals:
        set_defaults(os.environ, arguments.interval)
        target = _target(arguments)
        with _reporting(arguments, os.getpid(), target) as session:
            if target:
                say(f"exporting metrics of {socket.gethostname()} {target}; Ctrl-C stops")
            if arguments.console or not target:
                _watch(session, arguments, signals, f"exporting {target}" if target else _NOT_EXPORTED)
            else:
                signals.wait(arguments.duration)
    return 0


_NOT_EXPORTED = "nothing is exported (no Collector)"


def _watch(session: Session, arguments: argparse.Namespace, signals: Signals, note: str) -> None:
    """Show tables until a signal or the end of the duration."""
    from opentelemetry.instrumentation.hardware.cli.screen import Screen
    from opentelemetry.instrumentation.hardware.cli.view import Viewer

    viewer = Viewer(session)
    due = time.monotonic()
    end = due + (arguments.duration or math.inf)
    with Screen(sys.stdout, live=True) as screen:
        interval = arguments.interval or (_TABLE_INTERVAL if screen.in_place else _interval())
        wait = min(interval, 1.0)  # the first table comes soon
        while True:
            due = max(due + wait, time.monotonic())
            has_ended = signals.wait(max(0.0, min(due, end) - time.monotonic())) or time.monotonic() >= end
            if not has_ended or wait != interval or due >= end:
                view = viewer.collect()
                # Within a job the host has a reporter already, and only the process is left.
                screen.show(view.of_host() if session.is_reporter else view, f"otel-hardware run: {note}; Ctrl-C stops")
            if has_ended:
                return
            wait = interval


def _run_attached(arguments: argparse.Namespace) -> int:
    """Report a running process until it ends. Its last values are those of the last reading before its end."""
    from opentelemetry.instrumentation.hardware.cli.otlp import set_defaults

    with Signals(ENDING, even_ignored=True) as signals:
        process = program.Attached(arguments.attach)
        set_defaults(os.environ, arguments.interval, service=None)
        with _reporting(arguments, process.pid, _target(arguments)):
            while not process.wait(signals, _interval()):
                pass
    return 0


def _run_with_program(command: Sequence[str], arguments: argparse.Namespace) -> int:
    from opentelemetry.instrumentation.hardware.pipeline.reporter import Reporter

    environ = dict(os.environ)
    reporter = Reporter(environ)
    reporter.join()
    reporter.update()  # before the program: it leaves the host's metrics to this process if it is instrumented
    with Signals((*FORWARDED, CHILD) if CHILD else FORWARDED) as signals:
        child = program.started(command, environ)
        try:
            _report_program(child, arguments, signals, reporter)
        except Exception as error:  # no failure may affect the program
            say(f"{error}; the program continues without being reported")
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
    target = _target(arguments, has_program=True)
    with _reporting(arguments, child.pid, target, reporter) as session:
        viewer = Viewer(session, child.pid) if arguments.console or not target else None
        if viewer is None:  # a table shows it
            _warn_if_process_is_missing(session)
        while not program.has_ended(child, signals, _interval()):
            if viewer is not None:
                viewer.keep_sampling()
        if viewer is not None:
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


def _target(arguments: argparse.Namespace, has_program: bool = False) -> str:
    """Return the destination of metrics, for messages; "" after a message if nothing is exported."""
    from opentelemetry.instrumentation.hardware.cli import otlp

    if os.environ.get("OTEL_CONFIG_FILE"):
        return f"as configured in {os.environ['OTEL_CONFIG_FILE']}"
    words = otlp.exporters(os.environ)
    is_disabled = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if is_disabled or not words:
        if arguments.console:
            return ""
        variable = "OTEL_SDK_DISABLED=true" if is_disabled else "OTEL_METRICS_EXPORTER=none"
        raise Mistake(f"metrics export is disabled by {variable}; unset it, or use --console for a table")
    found = otlp.destination(os.environ)
    if found is None:
        return f"every {_interval():g} s to {', '.join(words)}"
    if found.mismatch:
        say(found.mismatch)
    reason = otlp.connection_error(found)
    # Else a Collector may start later.
    is_watched = arguments.attach is None and (has_program or arguments.console or sys.stdout.isatty())
    if reason and not found.variable and words == [found.exporter] and is_watched:
        instead = "a table follows when the program ends" if has_program else "a table follows"
        say(
            f"nothing is exported: no endpoint is set, and connecting to {found.url} failed ({reason}); {instead}; "
            "to export, start a Collector or set OTEL_EXPORTER_OTLP_ENDPOINT"
        )
        return ""
    if reason:
        say(f"cannot connect to {found.url} ({reason}); export is retried")
    return f"every {_interval():g} s to {found.url} ({found.protocol})"


def _interval() -> float:
    from opentelemetry.instrumentation.hardware.settings import export_interval

    return export_interval()


@contextmanager
def _reporting(
    arguments: argparse.Namespace, pid: int, target: str, reporter: Reporter | None = None
) -> Iterator[Session]:
    """Run a session, which is exported if there is a target. Without one, it does not keep others from reporting."""
    from opentelemetry.instrumentation.hardware.pipeline.reporter import Reporter
    from opentelemetry.instrumentation.hardware.pipeline.session import Session

    config = settings.config(arguments)
    reporter = reporter or Reporter(os.environ)
    reporter.mode = config.reporter or "auto"
    if not reporter.update(has_reader=bool(target)) and target and arguments.attach is None:
        if reporter.mode == "never":
            reason = "OTEL_PYTHON_HARDWARE_REPORTER=never"
        else:
            reason = f"process {reporter.holder() or 'of another user'} reports the host of this job already"
        from opentelemetry.instrumentation.hardware.accelerators.selection import selection_words

        is_restricted = selection_words(config.devices, os.environ) == ["visible"]
        also = ", and devices that no other process of the job reports" if is_restricted else " only"
        say(f"{reason}; this command reports process.*{also if reporter.mode != 'never' else ' only'}")
    session = Session(config, pid, all_processes=pid == os.getpid(), reporter=reporter if target else None)
    try:
        if target:
            with _exported(session, pid, arguments.attach is not None):
                yield session
        else:
            session.start()
            yield session
    finally:
        session.close()


@contextmanager
def _exported(session: Session, pid: int, attached: bool) -> Iterator[None]:
    from opentelemetry.metrics import get_meter_provider

    from opentelemetry.instrumentation.hardware.cli.otlp import configure
    from opentelemetry.instrumentation.hardware.instrumentor import HardwareInstrumentor

    configure(pid)
    provider = get_meter_provider()
    instrumentor = HardwareInstrumentor()
    if instrumentor.is_instrumented_by_opentelemetry:  # OTEL_CONFIG_FILE did it; this session takes its place
        instrumentor.uninstrument()
    instrumentor.instrument(meter_provider=provider, session=session)
    try:
        yield
    finally:
        session.read_now(_LAST_READING)
        _shut_down(provider, _LAST_EXPORT_ATTACHED if attached else _LAST_EXPORT)
        instrumentor.uninstrument()


def _shut_down(provider: MeterProvider, limit: float) -> None:
    """Export once more, in so many seconds. Without a connection, do not wait."""
    from opentelemetry.instrumentation.hardware.cli import otlp

    found = None if os.environ.get("OTEL_CONFIG_FILE") else otlp.destination(os.environ)
    reason = otlp.connection_error(found, 1.0) if found is not None else ""
    if found is not None and reason:
        say(f"cannot connect to {found.url} ({reason}); the last values are lost")
    shutdown = getattr(provider, "shutdown", None)
    if shutdown is not None:
        limit = _LAST_EXPORT_WITHOUT_CONNECTION if reason else limit
        start = time.monotonic()
        with collected_logs(logging.ERROR) as errors:  # the exporter logs a failure, and raises nothing
            try:
                shutdown(timeout_millis=1000 * limit)
            except Exception as error:
                errors.append(str(error))
        if time.monotonic() - start >= limit:
            errors.append(f"no success within {limit:g} s")
        if errors and not reason:
            say(f"the last values were not exported: {errors[-1]}")
