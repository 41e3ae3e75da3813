"""Web servers, task queues, processes, threads, event loops and signals."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.slow.matrix.case import ABSENT, PROGRAMS, Case, Run, Surroundings, python
from tests.tools import Missing

_BIN: Final = Path(sys.executable).parent
_INSTRUMENT: Final = str(_BIN / "opentelemetry-instrument")
_NO_OWN: Final = {"MATRIX_OWN": ABSENT, "PYTHONPATH": str(PROGRAMS)}


def _serving(workers: int, *signals: int, group: bool = False, quiet: bool = False) -> Callable[[Run], None]:
    """Wait until all workers answer and the host is reported; send the signals; the last one ends the server."""

    def act(run: Run) -> None:
        _answers(run, workers)
        run.until(lambda: quiet or run.has_reported(), 20)
        for number in signals[:-1]:
            run.stop(number)
            time.sleep(1)
            _answers(run, workers)
        run.acted = time.monotonic()
        (os.killpg if group else os.kill)(run.process.pid, signals[-1])

    return act


def _answers(run: Run, workers: int) -> None:
    """Ask until each worker has answered."""
    seen: set[bytes] = set()

    def ask() -> bool:
        with suppress(OSError):
            request = urllib.request.Request(f"http://{run.address}/", headers={"Connection": "close"})
            seen.add(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10).read())
        return len(seen) >= workers

    if not run.until(ask, 40):
        run.notes.append(f"{len(seen)} of {workers} workers answer")


def _killed_worker(run: Run) -> None:
    """Kill a worker, which the server starts again."""
    _answers(run, 2)
    run.until(run.has_reported, 20)
    children = Path(f"/proc/{run.process.pid}/task/{run.process.pid}/children").read_text().split()
    workers = [int(pid) for pid in children if b"gunicorn" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(workers[0], signal.SIGKILL)
    time.sleep(1)
    _answers(run, 2)
    run.stop(signal.SIGTERM)


def _needs(module: str) -> Surroundings:
    @contextmanager
    def around(folder: Path) -> Iterator[Mapping[str, str]]:
        if importlib.util.find_spec(module) is None:
            raise Missing(f"{module} is not installed")
        yield {}

    return around


def _gunicorn() -> Iterator[Case]:
    quiet = ("--log-level", "critical", "-w", "2", "-t", "600", "-b", "{address}", "web:wsgi")
    kinds = {"sync": (), "gthread": ("-k", "gthread", "--threads", "2"), "gevent": ("-k", "gevent")}
    for kind, options in kinds.items():
        base = (_INSTRUMENT, str(_BIN / "gunicorn"), *options)
        around = _needs("gunicorn")

        def case(name: str, *more: str, act: Callable[[Run], None], base: tuple[str, ...] = base) -> Case:
            # gunicorn reports the loss of a worker; a worker of gevent may be interrupted in its end.
            return Case(name, (*base, *more, *quiet), _NO_OWN, around=around, act=act, delay=10.0)  # noqa: B023

        for hook in (False, True):
            hooked = ("-c", str(PROGRAMS / "gunicorn_hook.py")) if hook else ()
            for preload in (False, True):
                name = f"gunicorn-{kind}{'-preload' if preload else ''}{'-hook' if hook else ''}"
                more = (*hooked, *(("--preload",) if preload else ()))
                yield case(f"{name}-term", *more, act=_serving(2, signal.SIGTERM))
                yield case(f"{name}-int", *more, act=_serving(2, signal.SIGINT))
        yield case(f"gunicorn-{kind}-quit", act=_serving(2, signal.SIGQUIT))
        yield case(f"gunicorn-{kind}-reload", act=_serving(2, signal.SIGHUP, signal.SIGTERM))
        yield case(f"gunicorn-{kind}-more-workers", act=_serving(2, signal.SIGTTIN, signal.SIGTERM))
        yield case(f"gunicorn-{kind}-max-requests", "--max-requests", "3", act=_serving(4, signal.SIGTERM))
        yield case(f"gunicorn-{kind}-worker-killed", act=_killed_worker)


def _uvicorn() -> Iterator[Case]:
    host = ("--log-level", "critical", "--timeout-worker-healthcheck", "600", "--app-dir", str(PROGRAMS), "web:asgi")
    for workers in (1, 2):
        for number in (signal.SIGTERM, signal.SIGINT):
            line = (_INSTRUMENT, "sh", "-c", 'exec uvicorn --host "${0%:*}" --port "${0#*:}" "$@"', "{address}")
            yield Case(
                f"uvicorn-{workers}-{number.name[3:].lower()}",
                (*line, "--workers", str(workers), *host),
                _NO_OWN,
                around=_needs("uvicorn"),
                act=_serving(workers, number),
                delay=10.0,
            )


_UWSGI: Final = {
    "alone": ("--enable-threads",),
    "alone-without-threads": (),
    "master": ("--master", "--processes=2"),
    "master-threads": ("--master", "--processes=2", "--enable-threads", "--threads=2"),
    "master-lazy": ("--master", "--processes=2", "--lazy-apps"),
    "master-lazy-threads": ("--master", "--processes=2", "--lazy-apps", "--enable-threads"),
    "without-master": ("--processes=2", "--enable-threads"),
    "without-master-lazy": ("--processes=2", "--lazy-apps"),
    "max-requests": ("--master", "--processes=2", "--enable-threads", "--max-requests=5"),
    "cheaper": ("--master", "--processes=4", "--cheaper=1", "--enable-threads"),
}
_NO_THREADS: Final = ("alone-without-threads", "without-master-lazy")


def _uwsgi() -> Iterator[Case]:
    for name, options in _UWSGI.items():
        workers = 2 if "--processes=2" in options else 1
        line = (_INSTRUMENT, str(_BIN / "uwsgi"), "--http-socket={address}", "--module=web:wsgi", *options)
        quiet = ("--need-app", "--disable-logging", "--logto=/dev/null")
        for end, group in (("kill", True), ("quit", False)):
            yield Case(
                f"uwsgi-{name}-{end}",
                (*line, *quiet),
                _NO_OWN,
                around=_needs("uwsgidecorators"),
                act=_serving(workers, signal.SIGKILL if group else signal.SIGQUIT, group=group),
                hosts=None if name in _NO_THREADS else 1,
                delay=15.0,
            )


def _celery() -> Iterator[Case]:
    def working(run: Run) -> None:
        if not run.until(run.has_started):
            run.notes.append("the worker is not ready")
        run.until(run.has_reported, 20)
        run.stop(signal.SIGTERM)

    for pool in ("prefork", "threads", "solo", "gevent", "eventlet"):
        line = (
            _INSTRUMENT,
            str(_BIN / "celery"),
            "-A",
            "tasks",
            "worker",
            "-c",
            "2",
            f"--pool={pool}",
            "--loglevel=CRITICAL",
        )
        around = _needs("celery")
        yield Case(f"celery-{pool}", line, _NO_OWN, around=around, act=working, shared=True, delay=10.0, lines=1)


_METHODS: Final = ("fork", "spawn", "forkserver")
_KINDS: Final = (
    *(f"mp-{method}-{kind}" for method in _METHODS for kind in ("process", "daemon", "terminated", "pool", "executor")),
    *(f"mp-{method}-{kind}-instrument" for method in _METHODS for kind in ("process", "pool", "executor")),
    *(f"fork-{kind}" for kind in ("exit", "_exit", "exec", "c", "storm")),
    *(f"child-{kind}" for kind in ("run", "shell", "tree", "spawn", "system", "killed")),
    *(f"threads-{kind}" for kind in ("daemon", "many", "busy", "exception", "collect", "late", "executor")),
    *(f"asyncio-{kind}" for kind in ("run", "child", "cancelled", "timers", "signal")),
    *(f"timer-{kind}" for kind in ("real", "prof", "virtual")),
)

_SIGNALS: Final = (
    "SIGTERM",
    "SIGINT",
    "SIGHUP",
    "SIGUSR1",
    "SIGUSR2",
    "SIGALRM",
    "SIGPROF",
    "SIGCHLD",
    "SIGQUIT",
    "SIGWINCH",
)

_FAST: Final = {"asyncio-child"}


def _signalled(number: int) -> Callable[[Run], None]:
    def act(run: Run) -> None:
        run.until(run.has_started)
        run.until(run.has_reported, 20)
        run.stop(number)
        time.sleep(0.3)
        run.go()

    return act


def cases() -> list[Case]:
    found = [*_gunicorn(), *_uvicorn(), *_uwsgi(), *_celery()]
    found += [Case(kind, python("crowd", kind), fast=kind in _FAST) for kind in _KINDS]
    for library in ("gevent", "eventlet"):
        for kind in (library, f"{library}-exception"):
            found.append(Case(f"green-{kind}", python("greens", kind), around=_needs(library), delay=10.0))
    for name in _SIGNALS:
        for way in ("default", "handler", "ignored", "raises"):
            act = _signalled(getattr(signal, name))
            found.append(Case(f"signal-{name}-{way}", python("signals", name, way), {"MATRIX_OWN": ABSENT}, act=act))
    return found
