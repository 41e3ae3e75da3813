"""Few descriptors, processes, memory or files; parts of the file system that are missing, full or read-only."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.slow.matrix.case import APP, PROGRAMS, Case, Surroundings
from tests.tools import Missing

_MIB: Final = 1 << 20

_LIMITS: Final = (
    *(f"NOFILE={number}" for number in (9, 10, 12, 14, 16, 18, 20, 24, 32, 48, 64, 256, 1024)),
    *(f"AS={number * _MIB}" for number in (150, 200, 300, 400, 600, 1000)),
    *(f"DATA={number * _MIB}" for number in (50, 100, 200)),
    *(
        "FSIZE=0",
        "CORE=0",
        "MEMLOCK=0",
        "STACK=262144",
        "STACK=1048576",
        "SIGPENDING=0",
        "CPU=30",
        "NICE=0",
        "RTPRIO=0",
    ),
)

# Limits that leave no room for all threads or files of the package. One warning says so.
_TOO_LITTLE: Final = {
    *(f"NOFILE={number}" for number in (9, 10, 12, 14, 16, 18)),
    *(f"AS={number * _MIB}" for number in (150, 200, 300, 400, 600)),
    *(f"DATA={number * _MIB}" for number in (50, 100)),
}

_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    **{
        f"closed-{'-'.join(each)}": tuple(f"close={one}" for one in each)
        for each in ("0", "1", "2", "01", "02", "12", "012")
    },
    "full-stdout": ("full=1",),
    "full-stderr": ("full=2",),
    "broken-stdout": ("broken=1",),
    "broken-stderr": ("broken=2",),
    **{f"umask-{mask}": (f"umask={mask}",) for mask in ("000", "027", "077", "777")},
    "cwd-removed": ("cwd=",),
    "nice-19": ("nice=19",),
    "one-cpu": ("affinity=",),
    "many-inherited": ("inherit=300",),
    "many-inherited-few-left": ("inherit=40", "NOFILE=64"),
    "cwd-removed-closed-012": ("cwd=", "close=0", "close=1", "close=2"),
    **{f"ignored-{name}": (f"ignore={name}",) for name in ("SIGCHLD", "SIGPIPE", "SIGTERM", "SIGHUP", "SIGINT")},
    **{f"blocked-{name}": (f"block={name}",) for name in ("SIGCHLD", "SIGTERM", "SIGALRM")},
}

# Shell commands in a mount namespace; $1 is a folder, $2 is the temporary folder, and $3 is the home folder.
_MOUNTS: Final = {
    "no-proc": "mount -t tmpfs none /proc",
    "no-sys": "mount -t tmpfs none /sys",
    "no-proc-no-sys": "mount -t tmpfs none /proc; mount -t tmpfs none /sys",
    "proc-of-others-hidden": "mount -t proc -o hidepid=2 proc /proc",  # a remount would change that of the machine
    "no-run": "mount -t tmpfs none /run",
    "no-dev-shm": "mount -t tmpfs -o ro none /dev/shm",
    "no-etc-hosts": "mount --bind /dev/null /etc/hosts",
    "no-etc-passwd": "mount --bind /dev/null /etc/passwd",
    "no-machine-id": "[ -e /etc/machine-id ] && mount --bind /dev/null /etc/machine-id",
    **{
        f"empty-{path.strip('/').replace('/', '-')}": f"mount --bind /dev/null {path}"
        for path in (
            *("/proc/stat", "/proc/meminfo", "/proc/vmstat", "/proc/diskstats", "/proc/loadavg", "/proc/uptime"),
            *("/proc/cpuinfo", "/proc/net/dev", "/proc/self/mountinfo", "/proc/self/stat", "/proc/self/status"),
        )
    },
    **{
        f"odd-{path.strip('/').replace('/', '-')}": f'printf "x y\\n-1 \\377 99999999999999999999\\n" > "$1/odd"; '
        f'mount --bind "$1/odd" {path}'
        for path in ("/proc/stat", "/proc/meminfo", "/proc/vmstat", "/proc/diskstats", "/proc/loadavg", "/proc/uptime")
    },
    "random-meminfo": 'head -c 5000 /dev/urandom > "$1/odd"; mount --bind "$1/odd" /proc/meminfo',
    "huge-meminfo": 'yes "MemFree: 1 kB" | head -c 3000000 > "$1/odd"; mount --bind "$1/odd" /proc/meminfo',
    "full-tmp": 'mount -t tmpfs -o size=4k none "$2"; head -c 9000 /dev/zero > "$2/full" 2>/dev/null; true',
    "read-only-tmp": 'mount -t tmpfs -o ro none "$2"',
    "no-inodes-tmp": 'mount -t tmpfs -o nr_inodes=1 none "$2"',
    "noexec-tmp": 'mount -t tmpfs -o noexec none "$2"',
    "read-only-home": 'mount -t tmpfs -o ro none "$3"',
    "many-mounts": 'for n in $(seq 300); do mkdir -p "$1/m$n"; mount -t tmpfs none "$1/m$n"; done',
}

_NAMESPACES: Final = {
    "pid-namespace": ("--pid", "--fork"),
    "pid-namespace-with-proc": ("--pid", "--fork", "--mount-proc"),
    "user-namespace": ("--user", "--map-root-user"),
    "ipc-namespace": ("--ipc",),
    "uts-namespace": ("--uts",),
    "cgroup-namespace": ("--cgroup",),
    "time-namespace": ("--time", "--boottime", "100000", "--monotonic", "100000"),
}


@functools.cache
def _is_allowed(*flags: str) -> str:
    """Return why a namespace cannot be made here; empty if it can."""
    try:
        made = subprocess.run(["unshare", *flags, "true"], capture_output=True, text=True, check=False)
    except OSError as error:
        return f"unshare cannot be run: {error.strerror}"
    return "" if made.returncode == 0 else f"no permission for unshare {' '.join(flags)}"


def needs(*flags: str) -> Surroundings:
    """Namespaces that not every user may make."""

    @contextmanager
    def around(folder: Path) -> Iterator[Mapping[str, str]]:
        if why := _is_allowed(*flags):
            raise Missing(why)
        yield {}

    return around


def _limited(*words: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", str(PROGRAMS / "limited.py"), *words, "--", *APP)


def _mounted(command: str) -> tuple[str, ...]:
    code = f'{{ {command}; }} || exit 99; shift 3; exec "$@"'
    places = ("{folder}/made", "{folder}/tmp", "{folder}/home")
    return ("unshare", "--mount", "sh", "-c", code, "sh", *places, *APP)


def cases() -> list[Case]:
    found = []
    for limit in _LIMITS:
        hosts = None if limit in _TOO_LITTLE else 1
        found.append(Case(f"limit-{limit}", _limited(limit), lines=2, hosts=hosts, fast=limit == "NOFILE=20"))
    found += [Case(name, _limited(*words), lines=1, fast=name == "cwd-removed") for name, words in _WORDS.items()]
    for name, command in _MOUNTS.items():
        found.append(Case(name, _mounted(command), around=needs("--mount"), lines=2))
    found += [
        Case(
            name, ("unshare", *flags, *APP), around=needs(*flags), lines=1, hosts=None if name.startswith("pid") else 1
        )
        for name, flags in _NAMESPACES.items()
    ]
    found += [
        Case(
            f"nproc-{number}-user",
            _limited(f"NPROC={number}", f"user={54321 + number}"),  # the limit holds for all processes of a user
            around=world,
            shared=True,
            lines=2,
            hosts=None,
        )
        for number in (1, 2, 4, 8)
    ]
    found.append(Case("other-user", _limited("user=54321"), around=world, shared=True, lines=1))
    return found


@contextmanager
def world(folder: Path) -> Iterator[Mapping[str, str]]:
    """Let another user write into the folders of the case."""
    if os.geteuid() != 0:
        raise Missing("only root can run a program as another user")
    interpreter = Path(sys.executable).resolve()
    if not all(path.stat().st_mode & 1 for path in interpreter.parents):
        raise Missing("other users may not run this interpreter")
    for path in (folder, *folder.iterdir()):
        path.chmod(0o777)
    yield {}
