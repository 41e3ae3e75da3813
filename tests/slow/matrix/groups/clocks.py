"""Clocks that jump, and programs that are stopped and continued.

A library that is loaded before libc moves the clocks for the program, and corrects the deadlines of its waits.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.slow.matrix.case import Case, Run, Surroundings, reports_host
from tests.slow.matrix.compiled import library

_SOURCE: Final = """
static double at, real, mono;
static int (*get)(clockid_t, struct timespec *);
static int (*wait_)(sem_t *, clockid_t, const struct timespec *);
static int (*nap)(clockid_t, int, const struct timespec *, struct timespec *);
static int (*cond)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);

__attribute__((constructor)) static void begin(void) {
    struct timespec now;
    get = dlsym(RTLD_NEXT, "clock_gettime");
    wait_ = dlsym(RTLD_NEXT, "sem_clockwait");
    nap = dlsym(RTLD_NEXT, "clock_nanosleep");
    cond = dlsym(RTLD_NEXT, "pthread_cond_clockwait");
    get(CLOCK_MONOTONIC, &now);
    at = now.tv_sec + now.tv_nsec / 1e9 + atof(getenv("CLOCK_AFTER"));
    real = atof(getenv("CLOCK_REAL")), mono = atof(getenv("CLOCK_MONO"));
}
static double offset(clockid_t id) {
    struct timespec now;
    if (!get) get = dlsym(RTLD_NEXT, "clock_gettime");
    get(CLOCK_MONOTONIC, &now);
    if (now.tv_sec + now.tv_nsec / 1e9 < at) return 0;
    return id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE ? real
         : id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_COARSE || id == CLOCK_BOOTTIME ? mono : 0;
}
static struct timespec moved(const struct timespec *t, double by) {
    long seconds = (long)by;
    return (struct timespec){t->tv_sec + seconds, t->tv_nsec};
}
int clock_gettime(clockid_t id, struct timespec *t) {
    double by = offset(id);
    int code = get(id, t);
    *t = moved(t, by);
    return code;
}
time_t time(time_t *t) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (t) *t = now.tv_sec;
    return now.tv_sec;
}
int gettimeofday(struct timeval *t, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    t->tv_sec = now.tv_sec, t->tv_usec = now.tv_nsec / 1000;
    return 0;
}
int clock_nanosleep(clockid_t id, int flags, const struct timespec *t, struct timespec *left) {
    struct timespec until = flags & TIMER_ABSTIME ? moved(t, -offset(id)) : *t;
    return nap(id, flags, &until, left);
}
int sem_clockwait(sem_t *s, clockid_t id, const struct timespec *t) {
    struct timespec until = moved(t, -offset(id));
    return wait_(s, id, &until);
}
int pthread_cond_clockwait(pthread_cond_t *c, pthread_mutex_t *m, clockid_t id, const struct timespec *t) {
    struct timespec until = moved(t, -offset(id));
    return cond(c, m, id, &until);
}
"""

_HOUR: Final = 3600
_YEAR: Final = 365 * 86400

# Seconds by which the time of day and the monotonic clock jump.
_STEPS: Final = {
    "real-1-s-back": (-1, 0),
    "real-1-s-forwards": (1, 0),
    "real-1-h-back": (-_HOUR, 0),
    "real-1-h-forwards": (_HOUR, 0),
    "real-1-y-back": (-_YEAR, 0),
    "real-1-y-forwards": (_YEAR, 0),
    "real-to-1970": (-1_700_000_000, 0),
    "real-to-2040": (14 * _YEAR, 0),
    "real-to-2200": (174 * _YEAR, 0),
    "mono-10-s-forwards": (0, 10),
    "mono-1-h-forwards": (0, _HOUR),
    "mono-1-y-forwards": (0, _YEAR),
    "both-1-h-forwards": (_HOUR, _HOUR),
    "both-30-s-forwards": (30, 30),
}


def _clock(after: float, real: int, mono: int) -> Surroundings:
    @contextmanager
    def around(folder: Path) -> Iterator[Mapping[str, str]]:
        yield {
            "LD_PRELOAD": str(library(_SOURCE)),
            "CLOCK_AFTER": str(after),
            "CLOCK_REAL": str(real),
            "CLOCK_MONO": str(mono),
        }

    return around


def _stopped(seconds: float, times: int = 1, early: bool = False) -> Callable[[Run], None]:
    """Stop the program, continue it, and let it end after two exports more, which must have the host."""

    def act(run: Run) -> None:
        run.until(run.has_started)
        if not early:
            run.until(run.has_reported)
        for _ in range(times):
            os.killpg(run.process.pid, signal.SIGSTOP)
            time.sleep(seconds)
            os.killpg(run.process.pid, signal.SIGCONT)
            before = len(run.sink.exports)
            run.until(lambda before=before: len(run.sink.exports) >= before + 2, 20)  # type: ignore[misc]
            without = [not reports_host(export) for export in run.sink.exports[before + 1 :]]
            if run.is_on and not early and any(without):
                run.notes.append(f"{sum(without)} exports without the host after it continued")
        run.go()

    return act


def after_jump(run: Run) -> None:
    """Let the program end after four exports, two of them after the jump."""
    run.until(run.has_started)
    time.sleep(1.5)
    before = len(run.sink.exports)
    run.until(lambda: len(run.sink.exports) >= before + 2 and run.has_reported(), 20)
    run.go()


def cases() -> list[Case]:
    found = []
    for name, (real, mono) in _STEPS.items():
        variables = {"MATRIX_CLOCK": "1"}
        for when, after in (("at-start", 0.0), ("later", 2.5)):
            around = _clock(after, real, mono)
            found.append(Case(f"{name}-{when}", environment=variables, around=around, shared=True, act=after_jump))
    for name, act in {
        "stopped-1-s": _stopped(1),
        "stopped-5-s": _stopped(5),
        "stopped-12-s": _stopped(12),
        "stopped-three-times": _stopped(1.5, 3),
        "stopped-at-start": _stopped(3, early=True),
    }.items():
        pause = {"MATRIX_CLOCK": "none"}
        found.append(Case(name, environment=pause, act=act))
    return found
