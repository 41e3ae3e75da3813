"""``otel-hardware why``: what holds each GPU back."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from opentelemetry.instrumentation.hardware.bottlenecks.judge import LEAST, WINDOW, Judge, Verdict
from opentelemetry.instrumentation.hardware.bottlenecks.rules import RULES, Condition
from opentelemetry.instrumentation.hardware.bottlenecks.signals import SIGNALS, signals
from opentelemetry.instrumentation.hardware.cli import replay, settings
from opentelemetry.instrumentation.hardware.cli.interrupt import interruptible
from opentelemetry.instrumentation.hardware.cli.messages import Mistake, say
from opentelemetry.instrumentation.hardware.cli.settings import seconds
from opentelemetry.instrumentation.hardware.cli.text import duration, wrap
from opentelemetry.instrumentation.hardware.pipeline.collector import may_be_limited
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.pipeline.view import View, Viewer
from opentelemetry.instrumentation.hardware.settings import Config

HELP = "say what holds each GPU back"

DESCRIPTION = """\
Watches the GPUs, the host and the program for a minute, and says for each GPU what holds it back, with the figures and
the next step. Experimental: most thresholds are our own, see --list.

examples:
  otel-hardware why
  otel-hardware why --pid 4711               and how the program uses its CPUs
  otel-hardware why --for 300 --format json
  otel-hardware why --simulate 2xH100:storage --simulate-speed 30

exit status: 0 if nothing holds a GPU back, 3 if something does, 4 if nothing is known; 1 without a GPU, 2 for
wrong arguments.
"""

_STEP = 2.0  # seconds between two samples

_BOTTLENECK, _UNKNOWN = 3, 4  # exit statuses


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "otel-hardware why [flags]"
    shown = parser.add_mutually_exclusive_group()
    text = "the program; default: the process that uses the GPUs, if exactly one does"
    shown.add_argument("--pid", metavar="PID", help=text)
    replay.add_argument(shown)
    text = f"how long to watch, at least {LEAST:g}; default: {WINDOW:g}"
    parser.add_argument("--for", dest="seconds", metavar="SECONDS", type=seconds, default=WINDOW, help=text)
    parser.add_argument("--format", choices=("table", "json"), default="table", help="default: table")
    parser.add_argument("--list", action="store_true", help="print the rules with the sources of their thresholds")
    settings.add(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the verdicts.

    Raises:
        Mistake: There is no GPU, no process with this PID, or not enough time.
    """
    if arguments.list:
        print("\n".join(_listed()))
        return 0
    if arguments.seconds < LEAST:
        raise Mistake(f"--for: {arguments.seconds:g} s are too few; a verdict needs at least {LEAST:g}")
    config = settings.config(arguments).changed(preset="all")
    given = None if arguments.pid is None else settings.pid(arguments.pid)
    pid = given if given is not None or arguments.replay is not None else _program(arguments, config)
    names, verdicts = _watch(arguments, config, pid)
    if arguments.format == "json":
        print(json.dumps([_as_json(names[device], each) for device, each in verdicts.items()], indent=2))
    else:
        width = max(40, shutil.get_terminal_size((100, 24)).columns)
        for device, each in verdicts.items():
            print("\n".join(_as_text(names[device], each, width)))
        if pid is None and arguments.replay is None:
            say("which program? Its CPU use was not looked at; --pid PID names it")
    if any(each.is_bottleneck for each in verdicts.values()):
        return _BOTTLENECK
    return _UNKNOWN if all(each.name == "unknown" for each in verdicts.values()) else 0


# -- watching


def _session(
    arguments: argparse.Namespace, config: Config, pid: int | None, clock: Callable[[], float] = time.monotonic
) -> Session:
    return replay.session_of(arguments, config, pid, interval=_STEP, clock=clock, all_processes=pid is None)


@contextmanager
def _time(config: Config) -> Iterator[tuple[Callable[[], float], Callable[[float], None]]]:
    """Provide a clock, and a way to wait so many of its seconds.

    A quick simulation stands still while the sources are read: on a busy machine they would be late by its clock.
    """
    if config.simulate is None or config.simulate_speed is None:
        yield time.monotonic, time.sleep
        return
    from opentelemetry.instrumentation.hardware.simulator.machine import machine

    gpus, speed = machine(config.simulate, config.simulate_speed), config.simulate_speed
    real, now = gpus.clock, gpus.clock()

    def wait(seconds: float) -> None:
        nonlocal now
        time.sleep(seconds / speed)
        now += seconds / speed

    gpus.clock = lambda: now
    try:
        yield gpus.now, wait
    finally:
        gpus.clock = real


def _program(arguments: argparse.Namespace, config: Config) -> int | None:
    """Return the process that uses the GPUs; None if there is none or more than one."""
    from opentelemetry.instrumentation.hardware.cli.top.processes import holders

    if config.simulate:
        return os.getpid()
    with closing(_session(arguments, config.changed(sources=["nvidia", "amd"]), None)) as session:
        session.start()
        session.read_now(_STEP)
        pids = {holder.pid for _, holder in holders(session) if holder.pid}
    return pids.pop() if len(pids) == 1 else None


def _watch(
    arguments: argparse.Namespace, config: Config, pid: int | None
) -> tuple[Mapping[str, str], dict[str, Verdict]]:
    """Return the name of each GPU, and its verdict after some seconds."""
    speed, window, is_replayed = config.simulate_speed or 1.0, arguments.seconds, arguments.replay is not None
    judge = Judge(min(window, WINDOW))
    with _time(config) as (clock, wait), closing(_session(arguments, config, pid, clock)) as session:
        session.start()
        viewer = Viewer(session)
        view = viewer.collect()
        names = dict(view.names)
        if not observe(judge, session, view, session.clock(), _STEP):
            reasons = [each for each in view.unsupported if each.startswith(("nvidia", "amd"))]
            raise Mistake(f"no GPU is reported here ({'; '.join(reasons) or 'see otel-hardware doctor'})", 1)
        if arguments.format == "table" and not is_replayed and sys.stderr.isatty():
            say(f"watching for {duration(window / speed)}; Ctrl-C stops")
        start = before = session.clock()
        with interruptible():
            while before < start + window:
                for _ in range(4):
                    wait(0.0 if is_replayed else _STEP / 4)
                    session.clock()  # it takes longer steps for a stop of the process
                view, now = viewer.collect(), session.clock()
                if now == before:  # the recording has ended
                    break
                observe(judge, session, view, now, now - before)
                names |= view.names  # a device can be lost
                before = now
        return names, judge.verdicts()


def observe(judge: Judge, session: Session, view: View, now: float, seconds: float) -> bool:
    """Show the view of a session to the judge. Returns whether it has a GPU."""
    found = signals(view.snapshot.values, view.rates, may_be_limited(session.runners))
    judge.observe(now, seconds, found)
    return bool(found)


# -- printing


def _value(condition: Condition, value: float) -> str:
    unit = SIGNALS[condition.signal].unit
    if unit == "s":
        return duration(value)
    if unit == "By/s":
        return f"{value / 1e9:.3g} GB/s"
    return f"{value:.0%}".replace("%", " %") if unit == "%" else f"{value:.3g}{unit}"


def compared(condition: Condition, value: float) -> str:
    """Format a condition, such as ``waiting for disks 41 %, at least 10 %``."""
    words = {">": "above", ">=": "at least", "<": "below", "<=": "at most"}
    limit = _value(condition, condition.threshold)
    return f"{SIGNALS[condition.signal].text} {_value(condition, value)}, {words[condition.operator]} {limit}"


def sentence(verdict: Verdict) -> str:
    """Format a verdict, such as ``storage: the host waits for disks; for 40 s``."""
    since = f"; for {duration(verdict.since)}" if verdict.since else ""
    return f"{verdict.name}: {verdict.meaning}{since}"


def _as_text(name: str, verdict: Verdict, width: int) -> Iterator[str]:
    share = f", in {100 * verdict.share:.0f} % of the samples" if verdict.is_bottleneck and verdict.share < 1.0 else ""
    yield from wrap(f"{name}  {sentence(verdict)}{share}", width, "", "    ")
    for condition, value in verdict.evidence:
        text, source = f"    {compared(condition, value):54}", SIGNALS[condition.signal].source
        yield f"{text}  {source}" if len(text) + 2 + len(source) <= width else text.rstrip()
    if verdict.advice:
        yield from wrap(verdict.advice, width, "  -> ", "     ")
    if verdict.runner_up:
        yield f"    nearly: {verdict.runner_up}"
    for rule, missing in verdict.undecided.items():
        needs = ", ".join(SIGNALS[each].text for each in missing)
        yield from wrap(f"not decided: {rule}, which needs {needs}", width, "    ", "      ")


def _as_json(name: str, verdict: Verdict) -> dict[str, Any]:
    return {
        "device": name,
        "bottleneck": verdict.name,
        "meaning": verdict.meaning,
        "since": round(verdict.since, 1),
        "share": round(verdict.share, 3),
        "evidence": [
            {
                "signal": condition.signal,
                "source": SIGNALS[condition.signal].source,
                "value": round(value, 4),
                "operator": condition.operator,
                "threshold": condition.threshold,
            }
            for condition, value in verdict.evidence
        ],
        "not_asked": {rule: list(missing) for rule, missing in verdict.undecided.items()},
        "runner_up": verdict.runner_up,
        "advice": verdict.advice,
    }


def _listed() -> Iterator[str]:
    """Yield the rules. The first one that matches is the verdict."""
    for rule in RULES:
        yield f"{rule.name}: {rule.meaning}"
        for case in rule.cases:
            words = (f"{each.signal} {each.operator} {each.threshold:g}" for each in case)
            yield f"    if {' and '.join(words)}"
        yield f"  -> {rule.advice}"
        yield f"    thresholds: {rule.source}"
