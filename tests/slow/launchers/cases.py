"""The cases: how each launcher is started, and which of its processes should report."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.slow.launchers.slurm import Slurm
from tests.tools import Missing

APPS: Final = Path(__file__).parent / "apps"
BIN: Final = Path(sys.executable).parent
INSTRUMENT: Final = str(BIN / "opentelemetry-instrument")

QUICK: Final = {"OTEL_METRIC_EXPORT_INTERVAL": "500", "OTEL_PYTHON_HARDWARE_SAMPLE_INTERVAL": "0.25"}


@dataclass(frozen=True)
class Case:
    """One launcher.

    Attributes:
        name: Its name in the table.
        command: The command line.
        expected: How many processes of each role report ``process.*``. A role is what the process announces;
            ``launcher`` is the process of the command itself, if it announces nothing.
        announced: How many processes of each role announce themselves without reporting.
        environment: Additional variables.
        needs: The Python module or the program that must be installed, and how to install it.
        around: What must run around it: a cluster. Its value is put before the command.
        attributes: Attributes of the resource of all ranks.
        forks: Whether workers are forked from a process that has the SDK.
        stops: Whether the processes end by themselves when the case ends. Others get SIGTERM.
    """

    name: str
    command: tuple[str, ...]
    expected: Mapping[str, int]
    announced: Mapping[str, int] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, str] = ("", "")
    around: Callable[[Path], AbstractContextManager[tuple[str, ...]]] = lambda folder: nullcontext(())
    attributes: Mapping[str, object] = field(default_factory=dict)
    forks: bool = False
    stops: bool = False

    def check(self) -> None:
        """Check that the launcher is installed.

        Raises:
            Missing: It is not.
        """
        what, how = self.needs
        if what and not _path(what) and ("." in what or importlib.util.find_spec(what) is None):
            raise Missing(f"{what} is not installed: {how}")


def _path(name: str) -> str | None:
    return shutil.which(name, path=f"{BIN}:/usr/sbin:/usr/bin:/bin")


def _app(name: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, str(APPS / f"{name}.py"), *arguments)


def _multiprocessing(way: str, *, instrument: bool) -> Case:
    reports = instrument or way == "spawn"
    return Case(
        f"multiprocessing-{way}{'-instrument' if instrument else ''}",
        (INSTRUMENT, *_app("workers", way, *(["instrument"] if instrument else []))),
        expected={"parent": 1, **({"worker": 2} if reports else {})},
        announced={} if reports else {"worker": 2},
        forks=way != "spawn",
        stops=True,
    )


def _gunicorn(name: str, *arguments: str, hooks: bool = True, preload: bool = False) -> Case:
    config = ("-c", str(APPS / "gunicorn_hooks.py")) if hooks else ()
    return Case(
        f"gunicorn-{name}",
        (
            INSTRUMENT,
            str(BIN / "gunicorn"),
            *arguments,
            *config,
            "-w",
            "2",
            "-t",
            "600",
            "-b",
            "127.0.0.1:0",
            _WEB + ":wsgi",
        ),
        expected={"parent": 1, "worker": 2} if hooks else {"launcher": 1},
        announced={} if hooks else {"worker": 2},
        environment={"LAUNCHED_PRELOAD": "1"} if hooks else {},
        needs=("gunicorn", "pip install gunicorn"),
        forks=True,
    )


def _celery(*, hook: bool) -> Case:
    return Case(
        f"celery-prefork{'' if hook else '-without-hook'}",
        (
            INSTRUMENT,
            str(BIN / "celery"),
            "-A",
            "tests.slow.launchers.apps.tasks",
            "worker",
            "-c",
            "2",
            "--pool=prefork",
        ),
        expected={"parent": 1, **({"worker": 2} if hook else {})},
        announced={} if hook else {"worker": 2},
        environment={"LAUNCHED_HOOK": "1"} if hook else {},
        needs=("celery", "pip install celery"),
        forks=True,
    )


def _torchrun(ranks: int, *, outside: bool = True) -> Case:
    torchrun = (str(BIN / "torchrun"), "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--rdzv-id=run-7")
    size = f"--nproc-per-node={ranks}"
    inside = ("--no-python", INSTRUMENT)
    command = (INSTRUMENT, *torchrun, size) if outside else (*torchrun, size, *inside, sys.executable)
    return Case(
        f"torchrun-{ranks}{'' if outside else '-ranks-only'}",
        (*command, str(APPS / "train.py")),
        expected={"rank": ranks, **({"launcher": 1} if outside else {})},
        environment={"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
        needs=("torch", "pip install torch numpy"),
        attributes={"training_job.id": "run-7", "training_job.system": "torchelastic", "dl.world_size": ranks},
        stops=True,
    )


def _mpi(name: str, program: str, *options: str, package: str, attributes: Mapping[str, object]) -> Case:
    return Case(
        name,
        (program, *options, "-n", "2", INSTRUMENT, *_app("plain")),
        expected={"rank": 2},
        needs=(program, f"apt-get install {package}"),
        attributes={"dl.world_size": 2, **attributes},
        stops=True,
    )


_WEB: Final = "tests.slow.launchers.apps.web"
_TASKS: Final = "tests.slow.launchers.apps.tasks"

CASES: Final = (
    _multiprocessing("fork", instrument=False),
    _multiprocessing("fork", instrument=True),
    _multiprocessing("spawn", instrument=False),
    _multiprocessing("forkserver", instrument=False),
    _multiprocessing("forkserver", instrument=True),
    _gunicorn("sync-without-hook", hooks=False),
    _gunicorn("sync"),
    _gunicorn("sync-preload", "--preload"),
    _gunicorn("gthread", "-k", "gthread", "--threads", "2"),
    _gunicorn("gthread-preload", "-k", "gthread", "--threads", "2", "--preload"),
    Case(
        "gunicorn-workers-only",
        (
            *(str(BIN / "gunicorn"), "-w", "2", "-b", "127.0.0.1:0"),
            *("-c", str(APPS / "gunicorn_alone.py"), _WEB + ":wsgi"),
        ),
        expected={"worker": 2},
        environment={"LAUNCHED_PRELOAD": "1"},
        needs=("gunicorn", "pip install gunicorn"),
    ),
    Case(
        "uvicorn-workers",
        (
            INSTRUMENT,
            str(BIN / "uvicorn"),
            "--workers",
            "2",
            "--timeout-worker-healthcheck",
            "600",
            "--port",
            "0",
            _WEB + ":asgi",
        ),
        expected={"launcher": 1, "worker": 2},
        needs=("uvicorn", "pip install uvicorn"),
    ),
    _celery(hook=False),
    _celery(hook=True),
    Case(
        "ray",
        (INSTRUMENT, *_app("rays")),
        expected={"parent": 1, "worker": 2},
        environment={"RAY_USAGE_STATS_ENABLED": "0"},
        needs=("ray", "pip install ray"),
        stops=True,
    ),
    _torchrun(2),
    _torchrun(4),
    _torchrun(2, outside=False),
    _torchrun(4, outside=False),
    Case(
        "slurm",
        ("srun", "-n2", INSTRUMENT, *_app("plain")),
        expected={"rank": 2},
        needs=("slurmctld", "apt-get install slurm-wlm munge"),
        around=Slurm,
        attributes={"slurm.job.id": "1", "training_job.system": "slurm", "dl.world_size": 2, "dl.node_rank": 0},
        stops=True,
    ),
    _mpi(
        "openmpi",
        "mpirun.openmpi",
        "--allow-run-as-root",
        "--oversubscribe",
        package="openmpi-bin",
        attributes={"training_job.system": "mpi"},
    ),
    _mpi("mpich", "mpiexec.hydra", package="mpich", attributes={}),
)
