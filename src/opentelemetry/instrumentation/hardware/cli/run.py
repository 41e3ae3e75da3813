"""``otel-hardware run``: the standalone agent, by itself or around a program."""

from __future__ import annotations

import argparse
import math
import os
import shlex
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from opentelemetry.instrumentation.hardware.cli import settings
from opentelemetry.instrumentation.hardware.cli.messages import Mistake, say
from opentelemetry.instrumentation.hardware.cli.settings import seconds
from opentelemetry.instrumentation.hardware.cli.signals import CHILD, ENDING, KEYS, MEANT, Signals

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

    from opentelemetry.instrumentation.hardware.pipeline.session import Session

_DESCRIPTION = """\
The standalone agent: reports this machine over OTLP until it is told to end, or starts a program and reports
what it and its children use, seen from outside, until the program ends.

examples:
  otel-hardware run                        to the Collector on this machine
  otel-hardware run -- python train.py     the same, and what the program uses
  OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4317 otel-hardware run
  OTEL_METRICS_EXPORTER=console otel-hardware run --duration 20

The standard variables say where to: OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_PROTOCOL (grpc or
http/protobuf), OTEL_EXPORTER_OTLP_HEADERS, OTEL_METRICS_EXPORTER, OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME
(default: otel-hardware). With no endpoint set and nobody at the default one, a table in the terminal shows the
numbers instead.

As the first process of a container it reaps what others leave behind, and so needs no init in front of it.

At the end the last numbers are sent, for which it waits 5 seconds at most; a line says so where they are lost.

exit status: 0 after SIGINT, SIGTERM or --duration; around a program the program's own (128 + n where signal n
killed it, 126 or 127 where it cannot be started); 2 for a mistake in the arguments. A variable that makes no sense
costs a warning, and its default is used.
"""

_FIRST_READING = 0.5
"""Seconds that the start waits for a first reading of the program."""

_LAST_READING = 0.5
"""Seconds that the end waits for a last reading."""

_LAST_EXPORT = 5.0
"""Seconds that the end waits for the last export: nobody's program ends late because a backend does not answer."""

_NO_EXPORT = 0.5
"""The same where nobody answers."""

_GLANCE = 2.0
"""Seconds between two tables on a terminal."""


class Run:
    """The agent."""

    name = "run"
    help = "report this machine over OTLP, by itself or around a program"
    description = _DESCRIPTION

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """The flags, and the program."""
        parser.usage = "otel-hardware run [flags] [-- PROGRAM ARGUMENT ...]"
        parser.add_argument(
            "--interval",
            type=seconds,
            metavar="SECONDS",
            help="time between two exports; default: OTEL_METRIC_EXPORT_INTERVAL (milliseconds), else 15",
        )
        parser.add_argument("--duration", type=seconds, metavar="SECONDS", help="end after so long")
        parser.add_argument("--console", action="store_true", help="show a live table in the terminal as well")
        settings.add(parser)
        parser.add_argument("program", nargs=argparse.REMAINDER, metavar="-- PROGRAM ...", help="what to start")

    def run(self, arguments: argparse.Namespace) -> int:
        """Report."""
        program = arguments.program[1:] if arguments.program[:1] == ["--"] else arguments.program
        if not program:
            return _alone(arguments)
        if arguments.duration is not None:
            raise Mistake("--duration is for the agent alone; a program ends when it ends")
        status = _as_init() if os.getpid() == 1 and hasattr(os, "fork") else None
        return _around(program, arguments) if status is None else status


# -- the agent by itself


def _alone(arguments: argparse.Namespace) -> int:
    from opentelemetry.instrumentation.hardware.cli.otlp import prepare

    with Signals(ENDING, even_ignored=True) as signals:
        prepare(os.environ, arguments.interval)
        target = _target(arguments)
        with _reporting(arguments, os.getpid(), target) as session:
            if target:
                say(f"{socket.gethostname()} is reported {target}; Ctrl-C ends it")
            if arguments.console or not target:
                _watch(session, arguments, signals, target or "nothing is exported")
            else:
                signals.wait(arguments.duration)
    return 0


def _watch(session: Session, arguments: argparse.Namespace, signals: Signals, target: str) -> None:
    """Show tables until a signal or the end of the duration."""
    from opentelemetry.instrumentation.hardware.cli.screen import Screen
    from opentelemetry.instrumentation.hardware.cli.view import Viewer

    viewer = Viewer(session, os.getpid())
    note = f"otel-hardware run: {target}; Ctrl-C ends it"
    due = time.monotonic()
    end = due + (arguments.duration or math.inf)
    with Screen(sys.stdout, live=True) as screen:
        step = arguments.interval or (_GLANCE if screen.in_place else _interval())
        wait = min(step, 1.0)  # the first table keeps nobody waiting
        while True:
            due = max(due + wait, time.monotonic())
            ended = signals.wait(max(0.0, min(due, end) - time.monotonic())) or time.monotonic() >= end
            if not ended or wait != step or due >= end:
                screen.show(viewer.look(), note)
            if ended:
                return
            wait = step


# -- the agent around a program


def _around(program: Sequence[str], arguments: argparse.Namespace) -> int:
    from opentelemetry.instrumentation.hardware.pipeline import reporter as identity

    environ = dict(os.environ)
    identity.join(environ, os.getpid())  # an instrumented program leaves the host's numbers to us
    with Signals((*MEANT, CHILD) if CHILD else MEANT) as signals:
        try:
            child = subprocess.Popen(program, env=environ)
        except FileNotFoundError:
            raise Mistake(f"{program[0]} is not found; is it spelled as in the shell, and on the PATH?", 127) from None
        except OSError as error:
            raise Mistake(f"{program[0]} cannot be started: {(error.strerror or str(error)).lower()}", 126) from None
        try:
            _accompany(child, textwrap.shorten(shlex.join(program), 60, placeholder=" …"), arguments, signals)
        except Exception as error:  # whatever it is, it must not cost the program
            say(f"{error}; the program goes on and is not reported")
        while not _ended(child, signals):
            pass
    status = child.wait()
    return status if status >= 0 else 128 - status


def _accompany(child: subprocess.Popen[bytes], program: str, arguments: argparse.Namespace, signals: Signals) -> None:
    """Report a program until it has ended. It is still to be waited for then, so that its last numbers can be read."""
    from opentelemetry.instrumentation.hardware.cli.otlp import prepare
    from opentelemetry.instrumentation.hardware.cli.screen import Screen
    from opentelemetry.instrumentation.hardware.cli.view import Viewer

    prepare(os.environ, arguments.interval)
    target = _target(arguments, program)
    with _reporting(arguments, child.pid, target) as session:
        viewer = Viewer(session, child.pid) if arguments.console or not target else None
        if viewer is None:  # a table says it
            _say_if_not_told(session)
        while not _ended(child, signals, _interval()):
            if viewer is not None:
                viewer.stay()
        if viewer is not None:
            with Screen(sys.stderr) as screen:
                screen.show(viewer.look().of_process())


def _say_if_not_told(session: Session) -> None:
    """Say why the program itself is not reported, where its own source is absent."""
    from opentelemetry.instrumentation.hardware.pipeline.runner import State
    from opentelemetry.instrumentation.hardware.pipeline.thread import read_all

    own = [runner for runner in session.runners if runner.name == "process"]
    read_all([each for each in session.threads if {*own} & {*each.runners}], _FIRST_READING)
    for runner in own:
        if runner.state is State.ABSENT and runner.problem is not None:
            fix = f" ({runner.problem.fix})" if runner.problem.fix else ""
            say(f"the program itself is not reported: {runner.problem.reason}{fix}")


def _ended(child: subprocess.Popen[bytes], signals: Signals, seconds: float | None = None) -> bool:
    """Wait for a signal, pass it on, and tell whether the program has ended."""
    if _is_over(child):
        return True
    number = signals.wait(seconds if CHILD else 0.1)
    if number and number != CHILD and not (number in KEYS and _from_keyboard()):
        try:
            child.send_signal(number)
        except PermissionError:  # it is sudo, say
            say(f"signal {number} cannot be passed on: the program is another user's by now")
    return _is_over(child)


def _is_over(child: subprocess.Popen[bytes]) -> bool:
    if child.returncode is not None or not hasattr(os, "waitid"):
        return child.poll() is not None
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _from_keyboard() -> bool:
    """Whether such a signal went to the program as well: the terminal sends Ctrl-C to all in the foreground."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _as_init() -> int | None:
    """The first process of a container, which inherits what others leave behind: pass signals on, and reap.

    The agent is a process of its own: it knows its children, and nobody reaps them behind its back.

    Returns:
        The exit status of the agent; in the agent, None.
    """
    with Signals((*MEANT, CHILD), even_ignored=True) as signals:  # before the program can run, so that it hears all
        agent = os.fork()
        while agent:
            ended, status = os.waitpid(-1, os.WNOHANG)
            if ended == agent:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            number = 0 if ended else signals.wait()
            if number and number != CHILD:
                os.kill(agent, number)
    return None


# -- both


def _target(arguments: argparse.Namespace, program: str = "") -> str:
    """Where the numbers go, in words; "" where nobody is there, which is said."""
    from opentelemetry.instrumentation.hardware.cli import otlp

    if os.environ.get("OTEL_CONFIG_FILE"):
        return f"as {os.environ['OTEL_CONFIG_FILE']} says"
    words = otlp.exporters(os.environ)
    off = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if off or not words:
        if arguments.console:
            return ""
        variable = "OTEL_SDK_DISABLED=true" if off else "OTEL_METRICS_EXPORTER=none"
        raise Mistake(f"{variable} leaves nothing to report to; unset it, or take --console for a table")
    found = otlp.destination(os.environ)
    if found is None:
        return f"every {_interval():g} s to {', '.join(words)}"
    if found.mismatch:
        say(found.mismatch)
    reason = otlp.silence(found)
    if reason and not found.variable and words == [found.exporter]:
        instead = f"a table of what {program} used follows at its end" if program else "here is a live table instead"
        say(
            f"no endpoint is set and nobody answers at {found.url} ({reason}): {instead}; "
            "to export, start a Collector or set OTEL_EXPORTER_OTLP_ENDPOINT"
        )
        return ""
    if reason:
        say(f"nobody answers at {found.url} ({reason}); exporting goes on trying")
    return f"every {_interval():g} s to {found.url} ({found.protocol})"


def _interval() -> float:
    from opentelemetry.instrumentation.hardware.settings import export_interval

    return export_interval()


@contextmanager
def _reporting(arguments: argparse.Namespace, pid: int, target: str) -> Iterator[Session]:
    """A session that is exported; the end makes a last reading and a last export, in bounded time."""
    from opentelemetry.instrumentation.hardware.pipeline.reporter import JOB
    from opentelemetry.instrumentation.hardware.pipeline.session import Session

    session = Session(settings.config(arguments), pid, all_processes=pid == os.getpid())
    if not session.is_reporter:
        reporter = os.environ[JOB].partition(".")[0]
        say(f"process {reporter}, which started this one, reports the host already; here it is process.* alone")
    try:
        if target:
            with _exported(session):
                yield session
        else:
            session.start()
            yield session
    finally:
        session.close()


@contextmanager
def _exported(session: Session) -> Iterator[None]:
    from opentelemetry.metrics import get_meter_provider

    from opentelemetry.instrumentation.hardware.cli.otlp import configure
    from opentelemetry.instrumentation.hardware.instrumentor import HardwareInstrumentor

    configure()
    provider = get_meter_provider()
    instrumentor = HardwareInstrumentor()
    if instrumentor.is_instrumented_by_opentelemetry:  # by OTEL_CONFIG_FILE: ours takes its place
        instrumentor.uninstrument()
    instrumentor.instrument(meter_provider=provider, session=session)
    try:
        yield
    finally:
        session.read_now(_LAST_READING)
        _flush(provider)
        instrumentor.uninstrument()


def _flush(provider: MeterProvider) -> None:
    """Export once more, in bounded time; where nobody answers at all there is nothing to wait for."""
    from opentelemetry.instrumentation.hardware.cli import otlp

    found = None if os.environ.get("OTEL_CONFIG_FILE") else otlp.destination(os.environ)
    reason = otlp.silence(found, 1.0) if found is not None else ""
    if found is not None and reason:
        say(f"nobody answers at {found.url} ({reason}); the last numbers are lost")
    shutdown = getattr(provider, "shutdown", None)
    if shutdown is not None:
        try:
            shutdown(timeout_millis=1000 * (_NO_EXPORT if reason else _LAST_EXPORT))
        except Exception as error:
            say(f"the last numbers were not exported: {error}")
