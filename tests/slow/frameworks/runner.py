"""Run the program of a case, with or without this package, and receive its spans."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil
from tests.slow.frameworks.cases import Case
from tests.slow.frameworks.driving import Driven
from tests.slow.frameworks.receiver import Receiver
from tests.slow.frameworks.verdict import LOAD, Run
from tests.support import children
from tests.support.waiting import wait_for
from tests.tools.daemon import free_addresses
from tests.tools.load import loaded
from tests.tools.nvml import MIB, FakeNvml, h100, listed

QUIET = 1.5  # seconds without a new span after which a server has exported all of them


def run(case: Case, environment: Path, ours: Path | None, openai: str, folder: Path) -> Run:
    """Run the program of a case until it ends, or until it has been driven and its spans have arrived.

    Args:
        case: The case.
        environment: The virtual environment of its framework.
        ours: The folder with this package, or None to run without it.
        openai: The address of the model.
        folder: An empty folder for its files.
    """
    fake = FakeNvml(folder, {**loaded(h100(0), LOAD), "ComputeRunningProcesses": ""})
    with Receiver() as receiver:
        (address,) = free_addresses(1)
        words = {"folder": str(folder), "port": address.rpartition(":")[2], "endpoint": receiver.endpoint}
        settings = {
            "PATH": f"{environment / 'bin'}:/usr/bin:/bin",
            "HOME": str(folder),
            "NO_PROXY": "*",
            "OPENAI_BASE_URL": openai,
            "OPENAI_API_KEY": "none",
            "OTEL_SERVICE_NAME": case.name,
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_LOGS_EXPORTER": "none",
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_BSP_SCHEDULE_DELAY": "200",  # some servers end without an export
            **({"PYTHONPATH": str(ours)} if ours else {}),
            **fake.environment,
            **{name: value.format(**words) for name, value in case.environment.items()},
        }
        line = [str(environment / "bin" / case.command[0]), *(each.format(**words) for each in case.command[1:])]
        driven = Driven(folder, int(words["port"]), environment / "bin" / "python", children.environment(settings))
        problem, errors = _to_the_end(case, line, settings, fake, driven, receiver)
        return Run(receiver.spans(), problem, errors)


def _to_the_end(
    case: Case, line: list[str], settings: Mapping[str, str], fake: FakeNvml, driven: Driven, receiver: Receiver
) -> tuple[str, str]:
    """Run the program. Return how it ended, or nothing if that was in order, and its standard error."""
    problem = ""
    with (
        children.started(line, settings, cwd=driven.folder) as child,
        ThreadPoolExecutor(1) as pool,
        _computing(fake, child.pid, case.computes),
    ):
        ended = pool.submit(child.communicate, timeout=children.PATIENCE)
        if case.drive is not None:
            try:
                case.drive(driven)
                wait_for(lambda: time.monotonic() - receiver.newest > QUIET, children.PATIENCE, "end of the spans")
            except (AssertionError, OSError, subprocess.SubprocessError) as error:
                problem = f"{error}; "
            child.terminate()
        try:
            _, errors = ended.result()
        except subprocess.TimeoutExpired:
            return f"{problem}it did not end within {children.PATIENCE:g} s", ""
    if problem or (child.returncode and case.drive is None):
        last = (errors.strip().splitlines() or [""])[-1]
        problem += f"exit status {child.returncode}: {last[:300]}"
    return problem, errors


@contextmanager
def _computing(fake: FakeNvml, root: int, with_root: bool) -> Iterator[None]:
    """Let a program and its descendants, or only these, use the simulated GPU."""
    stop = threading.Event()

    def follow() -> None:
        known: list[int] | None = None
        while not stop.wait(0.05 if known is not None else 0):
            try:
                pids = sorted(child.pid for child in psutil.Process(root).children(recursive=True))
            except psutil.NoSuchProcess:
                return
            pids += [root] * with_root
            if pids != known:
                fake.set_lines({"gpu0.ComputeRunningProcesses": listed(*((pid, 700 * MIB) for pid in pids))})
                known = pids

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
