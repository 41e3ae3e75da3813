"""Programs that wait for all of their children, exec or drop their privileges, and agents that are stopped or killed.

Each runs with the package in the program, with an agent, and with tools: one that keeps running, one that is called.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Final

from tests.slow.matrix.case import ABSENT, AGENT, Case, Run, Surroundings, python, reports_host
from tests.slow.matrix.groups.resources import needs, world
from tests.slow.matrix.groups.tools import after_tool, script, was_started
from tests.sources.npus import TRN1, report
from tests.support.relatives import agents

_REPORT: Final = json.dumps(report([], 1, 1, TRN1))
_MODES: Final[Mapping[str, tuple[Mapping[str, str], Surroundings | None]]] = {
    "program": ({}, None),
    "agent": (AGENT, None),
    "neuron-monitor": ({}, script("neuron-monitor", f"while :; do echo '{_REPORT}'; sleep 1; done")),
    "nvidia-smi": ({}, script("nvidia-smi", "exit 0")),
}
_WAITS: Final = ("wait", "wait3", "waitid", "group", "prefork", "handler", "ignored", "children", "kill", "killpg")
_ADOPTS: Final = "a program that is process 1 or adopts orphans is the parent of what keeps running (docs/SECURITY.md)"
_FAST: Final = {"wait-agent", "wait-neuron-monitor", "exec-agent", "stopped-agent-exit"}


def _waits() -> Iterator[Case]:
    for mode, (settings, around) in _MODES.items():

        def case(
            name: str,
            command: tuple[str, ...],
            expected: str = "",
            around: Surroundings | None = around,
            settings: Mapping[str, str] = settings,
            check: Callable[[Path], str] = was_started if around else lambda folder: "",
        ) -> Case:
            return Case(
                name,
                command,
                settings=settings,
                around=around or (lambda folder: nullcontext({})),
                act=after_tool,
                lines=1,
                check=check,
                expected=expected,
                fast=name in _FAST,
            )

        for kind in _WAITS:
            yield case(f"{kind}-{mode}", python("waits", kind))
        expected = "" if mode in ("program", "nvidia-smi") else _ADOPTS
        yield case(f"wait-subreaper-{mode}", python("waits", "wait", "subreaper"), expected)
        if around is None:
            flags = ("--pid", "--fork", "--mount-proc")
            line = ("unshare", *flags, "--kill-child", *python("waits", "wait", "init"))
            yield case(f"wait-init-{mode}", line, expected, needs(*flags))


def _users(pid: int) -> set[int]:
    """Return the users of a process and its agents."""
    found = set()
    for each in (pid, *agents(pid)):
        with suppress(FileNotFoundError):
            found.add(Path(f"/proc/{each}").stat().st_uid)
    return found


def _becomes(reports: bool = True) -> Callable[[Run], None]:
    """Let the program become another one; the program that follows may report or not, and has one agent at most."""

    def act(run: Run) -> None:
        run.until(run.has_started)
        run.until(lambda: not run.is_on or any(map(reports_host, run.sink.exports)))
        (run.folder / "go.next").touch()
        run.until(lambda: not (run.folder / "go.next").exists())
        before = len(run.sink.exports)

        def has_reported() -> bool:
            new = run.sink.exports[before:]
            return not run.is_on or not reports or sum(map(reports_host, new)) >= 4

        if not run.until(has_reported):
            run.notes.append("nobody reports the host afterwards")
        if not run.until(lambda: len(agents(run.process.pid)) <= int(reports), 20):
            run.notes.append(f"{len(agents(run.process.pid))} agents")
        if not run.until(lambda: len(_users(run.process.pid)) == 1, 20):
            run.notes.append(f"the program and its agents have the users {_users(run.process.pid)}")
        run.go()

    return act


def _changes() -> Iterator[Case]:
    act, silent = _becomes(), _becomes(reports=False)
    for mode, settings in (("program", {}), ("agent", AGENT)):
        for kind in ("exec", "exec-shell"):
            yield Case(
                f"{kind}-{mode}",
                python("becomes", kind),
                {"MATRIX_OWN": ABSENT} if kind == "exec-shell" else {},
                settings=settings,
                act=silent if kind == "exec-shell" else act,
                fast=f"{kind}-{mode}" in _FAST,
            )
        for kind in ("setuid", "setuid-uninstrument"):
            yield Case(
                f"{kind}-{mode}",
                python("becomes", kind),
                settings=settings,
                around=world,
                shared=True,
                act=act if kind == "setuid" else silent,
                lines=1,
            )


def _agent(number: int, seconds: float = 0.0) -> Callable[[Run], None]:
    """Send a signal to the agent when it reports, and let the program end so many seconds later."""

    def act(run: Run) -> None:
        run.until(run.has_started)
        run.until(run.has_reported, 30)
        for pid in agents(run.process.pid):
            os.kill(pid, number)
        time.sleep(seconds)
        run.go()

    return act


def _until_reported_again(number: int) -> Callable[[Run], None]:
    """Send a signal to the agent when it reports, and let the program end when the host is reported again."""

    def act(run: Run) -> None:
        run.until(run.has_started)
        run.until(run.has_reported, 30)
        found = agents(run.process.pid)
        for pid in found:
            os.kill(pid, number)
        run.until(lambda: not {*found} & {*agents(run.process.pid)}, 60)
        before = len(run.sink.exports)
        if run.is_on and not run.until(lambda: any(map(reports_host, run.sink.exports[before:])), 30):
            run.notes.append("the host is not reported again")
        run.go()

    return act


def _agents() -> Iterator[Case]:
    def case(name: str, way: str, act: Callable[[Run], None], lines: int = 0) -> Case:
        return Case(name, python("app", way), settings=AGENT, act=act, lines=lines, fast=name in _FAST)

    for way in ("return", "exit", "exception", "term", "abort", "_exit", "kill"):
        yield case(f"agent-{way}", way, _agent(0))
    for way in ("exit", "kill"):
        yield case(f"stopped-agent-{way}", way, _agent(signal.SIGSTOP))
    yield case("stopped-agent-5-s", "exit", _agent(signal.SIGSTOP, 5))
    yield case("stopped-agent-replaced", "exit", _until_reported_again(signal.SIGSTOP), 1)
    for name in ("SIGKILL", "SIGTERM", "SIGSEGV", "SIGHUP"):
        yield case(f"killed-agent-{name}", "exit", _until_reported_again(getattr(signal, name)))


def cases() -> list[Case]:
    return [*_waits(), *_changes(), *_agents()]
