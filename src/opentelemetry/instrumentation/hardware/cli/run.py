"""``otel-hardware run``: exports this machine's metrics, alone or for as long as a program runs."""

from __future__ import annotations

import argparse
import os
import stat
import subprocess
import sys
from collections.abc import MutableMapping, Sequence
from contextlib import suppress

from opentelemetry.instrumentation.hardware.agent import BEAT
from opentelemetry.instrumentation.hardware.cli import exporters, fleet, program, settings, top
from opentelemetry.instrumentation.hardware.cli.messages import Mistake, say
from opentelemetry.instrumentation.hardware.cli.reporting import exit_status, find_target, note, reporting
from opentelemetry.instrumentation.hardware.cli.screen import Screen
from opentelemetry.instrumentation.hardware.cli.settings import duration, seconds
from opentelemetry.instrumentation.hardware.cli.signals import ALWAYS_ENDING, CHILD, ENDING, FORWARDED, Signals
from opentelemetry.instrumentation.hardware.pipeline.reporter import Reporter, reports_itself
from opentelemetry.instrumentation.hardware.pipeline.runner import State
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.pipeline.thread import read_all
from opentelemetry.instrumentation.hardware.pipeline.view import Viewer
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.settings.sdk_variables import export_interval
from opentelemetry.instrumentation.hardware.system.identity import host_name

HELP = "export this machine's metrics over OTLP, alone or with a program"

DESCRIPTION = """\
Exports this machine's metrics over OTLP until it is stopped. With a program, it also exports what the program and its
descendants use, and stops when the program ends. The program itself is not changed.

examples:
  otel-hardware run                      to the Collector on this machine
  otel-hardware run -- python train.py   with the resources that the program uses
  otel-hardware run --attach 4711        with those of a running process
  OTEL_METRICS_EXPORTER=console otel-hardware run --duration 20
  otel-hardware run --simulate 8xH100 --hosts 50 --backfill 1h   a fleet that does not exist

OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_METRICS_EXPORTER and the other variables of the SDK configure export. It is retried
until a Collector accepts it.

exit status: the program's, else 0; 1 if no export arrived; 2 for mistakes.
"""

DETAILS = """\
The variables that are used most are OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_PROTOCOL (grpc or http/protobuf),
OTEL_EXPORTER_OTLP_HEADERS, OTEL_METRICS_EXPORTER, OTEL_METRIC_EXPORT_INTERVAL, OTEL_RESOURCE_ATTRIBUTES and
OTEL_SERVICE_NAME (default: otel-hardware). An invalid variable causes a warning, and its default is used.

If nothing accepts connections at the default endpoint, a table on the terminal, or at the end of the program, shows the
values, while export is retried. Failures are printed once for each reason, and counted at the end. The final export may
take up to 5 seconds.

The exit status of a program that signal n killed is 128 + n; that of one that cannot be started is 126 or 127. As
process 1 of a container, the command also reaps orphaned processes, so no separate init is needed.
"""

_FIRST_READING = 0.5  # seconds to wait for the first reading of the program


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "otel-hardware run [flags] [-- PROGRAM ARGUMENT ...]"
    parser.add_argument("--interval", type=seconds, metavar="SECONDS", help="time between two exports; default: 15")
    parser.add_argument("--duration", type=duration, metavar="SECONDS", help="stop after this time")
    parser.add_argument(
        "--attach", type=settings.count, metavar="PID", help="also report this process; stop when it exits"
    )
    parser.add_argument("--agent", action="store_true", help=argparse.SUPPRESS)  # that process has started this one
    parser.add_argument("--ledgers", action="store_true", help=argparse.SUPPRESS)  # standard input is their memory
    parser.add_argument("--console", action="store_true", help="also show the live view of 'otel-hardware top'")
    fleet.add_arguments(parser)
    settings.add(parser)
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="-- PROGRAM ...", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Export until the program or the duration ends."""
    command = arguments.program[1:] if arguments.program[:1] == ["--"] else arguments.program
    if fleet.is_wanted(arguments):
        export, flags = fleet.run, "--hosts, --scenarios and --backfill"
        others = {"a program": command, "--attach": arguments.attach is not None, "--console": arguments.console}
    elif arguments.attach is not None:
        export, flags = _run_attached, "--attach"
        others = {"a program": command, "--duration": arguments.duration is not None, "--console": arguments.console}
    else:
        export, flags = _run_alone, "--duration"
        others = {"a program": command and arguments.duration is not None}
    for other, given in others.items():
        if given:
            raise Mistake(f"{flags} cannot be used with {other}")
    config = settings.config(arguments)
    if command:
        status = program.run_as_init() if os.getpid() == 1 and hasattr(os, "fork") else None
        return _run_with_program(command, arguments, config) if status is None else status
    with Signals(ENDING, even_ignored=ALWAYS_ENDING) as signals:
        return export(arguments, config, signals)


def _run_alone(arguments: argparse.Namespace, config: Config, signals: Signals) -> int:
    target = find_target(arguments)
    with reporting(arguments, config, os.getpid(), target) as (session, exports):
        if target.text:
            say(f"exporting metrics for {host_name()} {target.text}; Ctrl-C stops")
        if arguments.console or (target.shows_table and sys.stdout.isatty()):
            interval = None if top.is_terminal() else arguments.interval
            top.show(session, signals, interval, arguments.duration, lambda: note(target, exports))
        else:
            prints = "console" in exporters.selected(os.environ) and stat.S_ISFIFO(os.fstat(1).st_mode)
            prints = prints and sys.platform != "win32"  # where select() takes no pipes
            signals.wait(arguments.duration, *([1] if prints else []))  # a pipe is ready when its reader has closed it
    return exit_status(exports)


def _run_attached(arguments: argparse.Namespace, config: Config, signals: Signals) -> int:
    """Report a running process until it ends. Its last values are those of the last reading before its end.

    Raises:
        Mistake: There is no such process, or it reports itself.
    """
    process = program.Attached(arguments.attach, arguments.agent)
    environ: MutableMapping[str, str] = os.environ
    if not arguments.agent:  # an agent has the environment of the process already
        if reports_itself(process.pid) and config.reporter != "always":
            fix = "with OTEL_PYTHON_HARDWARE_REPORTER=always this command reports it a second time"
            raise Mistake(f"process {process.pid} is instrumented and reports itself; {fix}")
        with suppress(OSError):
            environ = process.environ()
    reporter, target = Reporter(environ, pid=process.pid), find_target(arguments, service=None)
    with reporting(arguments, config, process.pid, target, reporter) as (session, exports):
        if not arguments.agent:
            _warn_if_process_is_missing(session)
        has_ended = False
        while not has_ended:
            if arguments.agent:
                with suppress(OSError):
                    os.write(sys.stdout.fileno(), b"\n")  # the program waits for a sign of life
            has_ended = process.wait(signals, BEAT) or (arguments.agent and process.has_other_user())
    return exit_status(exports)


def _run_with_program(command: Sequence[str], arguments: argparse.Namespace, config: Config) -> int:
    environ = dict(os.environ)
    reporter = Reporter(environ)
    reporter.join()
    reporter.update()  # before the program: it leaves the host's metrics to this process if it is instrumented
    with Signals((*FORWARDED, CHILD) if CHILD else FORWARDED) as signals:
        try:
            child = program.started(command, environ)
            try:
                _report_program(child, arguments, config, signals, reporter)
            except Exception as error:  # no failure may affect the program
                say(f"{error}; the program continues without being reported")
        finally:
            reporter.release()  # a program that is not reported may report the host itself
        while not program.has_ended(child, signals):
            pass
    return program.exit_status(child)


def _report_program(
    child: subprocess.Popen[bytes],
    arguments: argparse.Namespace,
    config: Config,
    signals: Signals,
    reporter: Reporter,
) -> None:
    """Report a program until it has exited. It is reaped later, so that its last values can still be read."""
    target = find_target(arguments)
    with reporting(arguments, config, child.pid, target, reporter) as (session, _):
        viewer = Viewer(session, child.pid) if arguments.console else None
        if viewer is None:  # a table shows it
            _warn_if_process_is_missing(session)
        while not program.has_ended(child, signals, export_interval()):
            if viewer is not None:
                viewer.keep_sampling()
        if viewer is not None:
            with Screen(sys.stderr) as screen:
                screen.show(viewer.collect().of_process())


def _warn_if_process_is_missing(session: Session) -> None:
    """Print why the program itself is not reported, if its source is not available."""
    own = [runner for runner in session.runners if runner.name == "process"]
    read_all([each for each in session.threads if {*own} & {*each.runners}], _FIRST_READING)
    for runner in own:
        if runner.state is State.ABSENT and runner.problem is not None:
            fix = f" ({runner.problem.fix})" if runner.problem.fix else ""
            say(f"the program itself is not reported: {runner.problem.reason}{fix}")
