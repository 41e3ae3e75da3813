"""Run the program of a case with and without the package, and compare."""

from __future__ import annotations

import importlib.util
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from tests.slow.matrix.case import ABSENT, OWN, Case, Run, reports_host
from tests.support.children import PEERS
from tests.support.journal import OURS, Export, repeated
from tests.support.sink import Sink
from tests.support.waiting import wait_for
from tests.tools.daemon import free_addresses

from opentelemetry.instrumentation.hardware.catalog import CATALOG
from opentelemetry.instrumentation.hardware.model import Kind

LIMIT: Final = 90.0  # seconds after which a program counts as hung

# Seconds for which an application may stand still longer than without the package. Machines can be slow.
PAUSE: Final = 4.0

SETTLE: Final = 5.0  # seconds that other processes have to end after the program

_COUNTERS: Final = {metric.name for metric in CATALOG if metric.kind is Kind.COUNTER}
_LOCKS: Final = re.compile(r"otel-hardware.*\.lock$")
_VARYING: Final = re.compile(r"0x[0-9a-f]+|\d+(\.\d+)?|/tmp/\S+|Modules that had direct imports.*")


@dataclass
class Outcome:
    """What a run did.

    Attributes:
        status: The exit status; None if it did not end.
        seconds: How long it ran.
        end: How long it took to end.
        pause: The longest pause of the application.
        output: Its lines on standard output.
        errors: Its lines on standard error.
        left: Names of the processes that it left behind.
        files: Names of the files that it left behind.
        hosts: Processes that reported the host.
        names: Our metrics that arrived.
        own: The values of the application's own metric.
        wrong: Points that must not exist, and what the check of the case found.
        notes: What was observed while it ran.
    """

    status: int | None = None
    seconds: float = 0.0
    end: float = 0.0
    pause: float = 0.0
    output: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    files: set[str] = field(default_factory=set)
    hosts: int = 0
    names: set[str] = field(default_factory=set)
    own: list[Any] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        status = "hangs" if self.status is None else str(self.status)
        return f"{status} {self.seconds:.1f} s"


def site_folder() -> str:
    """Return the folder with the `sitecustomize` that `opentelemetry-instrument` puts on PYTHONPATH."""
    found = importlib.util.find_spec("opentelemetry.instrumentation.auto_instrumentation")
    assert found is not None
    assert found.origin is not None
    return str(Path(found.origin).parent)


def environment(folder: Path, sink: Sink, is_on: bool) -> dict[str, str]:
    """Return the environment of a program: nothing of the caller's, as after `opentelemetry-instrument`."""
    made = sink.environment(0.5) | {
        "PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "LANG": "C.UTF-8",
        "PYTHONPATH": site_folder(),
        "MATRIX_GO": str(folder / "go"),
        "MATRIX_OWN": "1",
        "OTEL_PYTHON_HARDWARE_SAMPLE_INTERVAL": "0.25",
    }
    del made["OTEL_PYTHON_HARDWARE_EXIT_TIMEOUT"]
    if not is_on:
        made["OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"] = f"hardware,{PEERS}"
    return made


def run(case: Case, is_on: bool, patience: float = 1.0) -> Outcome:
    """Run the program once; on a slow machine, waits take so many times as long.

    Raises:
        Missing: The machine lacks something that the case needs.
    """
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="matrix-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        for name in ("home", "tmp", "work", "made"):
            (folder / name).mkdir()
        sink = stack.enter_context(Sink())
        variables = environment(folder, sink, is_on) | dict(case.environment)
        around = case.around(folder) if is_on or case.shared else nullcontext({})
        variables |= stack.enter_context(around)
        variables |= case.settings if is_on else {}
        (address,) = free_addresses(1)
        began = time.monotonic()
        process = subprocess.Popen(
            [_filled(word, folder, address) for word in case.command],
            env={name: _filled(value, folder, address) for name, value in variables.items() if value != ABSENT},
            cwd=folder / "work",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        outcome = _watched(
            case, Run(process, sink, folder, is_on, address, variables["MATRIX_OWN"] != ABSENT, patience), began
        )
        outcome.files = {
            _VARYING.sub("#", str(path.relative_to(folder)))
            for part in ("home", "tmp", "work")
            for path in (folder / part).rglob("*")
            if not _LOCKS.search(path.name) and "nowhere" not in path.parts  # where a case lets Python keep its cache
        }
        outcome.wrong += filter(None, [case.check(folder)] if is_on else [])
        _received(outcome, [*sink.exports])
        return outcome


def _filled(text: str, folder: Path, address: str) -> str:
    return text.replace("{folder}", str(folder)).replace("{address}", address)


def _watched(case: Case, program: Run, began: float) -> Outcome:
    process = program.process
    texts: dict[str, bytes] = {"stdout": b"", "stderr": b""}

    def read(name: str) -> None:
        with getattr(process, name) as pipe:
            while chunk := pipe.read1(65536):
                if len(texts[name]) < 1 << 20:
                    texts[name] += chunk

    readers = [threading.Thread(target=read, args=(name,), daemon=True) for name in texts]
    for reader in readers:
        reader.start()
    outcome = Outcome()
    try:
        case.act(program)
        with suppress(subprocess.TimeoutExpired):
            process.wait(LIMIT * program.patience)
        outcome.status = process.returncode
        ended = time.monotonic()
        outcome.seconds, outcome.end = ended - began, ended - program.acted
        with suppress(AssertionError):
            wait_for(lambda: not _remaining(program), SETTLE * program.patience, "end of all processes")
        outcome.left = sorted(_remaining(program).values())
        outcome.notes = program.notes
    finally:
        process.kill()
        process.wait()
        for pid in _remaining(program):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    for reader in readers:
        reader.join(SETTLE)
    outcome.output = texts["stdout"].decode(errors="replace").splitlines()
    outcome.errors = texts["stderr"].decode(errors="replace").split("\n")  # any other character stays in its line
    outcome.pause = max((float(line[6:]) for line in outcome.output if line.startswith("pause ")), default=0.0)
    outcome.output = [line for line in outcome.output if not line.startswith("pause ")]
    return outcome


def _remaining(program: Run) -> dict[int, str]:
    """Return the processes of a run that live: of its session, in its folder, or with its environment."""
    found = {}
    mark = str(program.folder).encode()
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == program.process.pid:
            continue
        with suppress(OSError):
            path = Path(entry.path)
            words = (path / "stat").read_text()
            name = words[words.index("(") + 1 : words.rindex(")")]
            fields = words[words.rindex(")") + 2 :].split()
            if fields[0] == "Z":
                continue
            is_ours = int(fields[3]) == program.process.pid or mark in (path / "cmdline").read_bytes()
            if is_ours or mark in (path / "environ").read_bytes() or mark in os.fsencode(os.readlink(path / "cwd")):
                found[int(entry.name)] = name
    return found


def _received(outcome: Outcome, exports: list[Export]) -> None:
    """Judge what the receiver got: nothing twice, no impossible value, no counter that falls."""
    reporters = [pid for pid, _ in groupby(export.pid for export in exports if reports_host(export))]
    # On a busy machine, the host goes to another process and comes back, but never to and fro.
    outcome.hosts = len({*reporters}) if len(reporters) > 3 else min(1, len(reporters))
    counters: dict[Any, float] = {}
    wrong: list[str] = []
    for export in exports:
        outcome.names |= export.names()
        wrong += [f"{series} twice in one export" for series in repeated(export.points)]
        for point in export.points:
            if point.scope != OURS:
                continue
            value = point.value
            if not isinstance(value, (int, float)) or not math.isfinite(value):
                wrong.append(f"{point.name} is {value}")
                continue
            if point.name.endswith("utilization") and not -0.001 <= value <= 1.001:
                wrong.append(f"{point.name} is {value}")
            if point.name in _COUNTERS:
                key = export.pid, point.series, point.start  # a new agent counts from its own start
                if value < counters.get(key, value):
                    wrong.append(
                        f"{point.name} {dict(point.attributes)} of {key[0]} fell from {counters[key]} to {value}"
                    )
                counters[key] = value
    outcome.wrong += sorted(set(wrong))
    outcome.own = sorted({value for export in exports for value in export.values(OWN)})


def compare(case: Case, off: Outcome, on: Outcome, patience: float = 1.0) -> list[str]:
    """Return how the run with the package differs from what the case allows, as sentences."""
    found = []
    if on.status != off.status:
        found.append(f"exit status {on.status} instead of {off.status}" if on.status is not None else "does not end")
    elif on.end > off.end + case.delay * patience:
        found.append(f"ends {on.end - off.end:.1f} s later")
    if on.pause > off.pause + PAUSE * patience:
        found.append(f"stands still for {on.pause:.1f} s")
    before, after = ([_VARYING.sub("#", line) for line in each.output] for each in (off, on))
    if before != after:
        found.append(f"other output: {_first_difference(before, after)}")
    fresh = list((_lines(on.errors) - _lines(off.errors)).elements())
    odd = [line for line in fresh if not line.replace("\t", "").isprintable()]
    if any("Traceback" in line for line in fresh):
        found.append(f"a traceback: {fresh[-1]}")
    elif odd:
        found.append(f"a control character on stderr: {odd[0]!a}")
    elif len(fresh) > case.lines:
        found.append(f"{len(fresh)} new lines on stderr: {fresh[0]}")
    if more := Counter(on.left) - Counter(off.left):
        found.append(f"left processes: {', '.join(sorted(more.elements()))}")
    if others := on.files - off.files:
        found.append(f"left files: {', '.join(sorted(others))}")
    if case.hosts is not None and on.hosts != case.hosts:
        found.append(f"{on.hosts} processes reported the host instead of {case.hosts}")
    if missing := case.reports - on.names:
        found.append(f"missing: {', '.join(sorted(missing))}")
    if on.own != off.own:
        found.append(f"the application's metric is {on.own} instead of {off.own}")
    found += [f"observed: {note}" for note in on.notes if note not in off.notes]
    return [*found, *on.wrong[:3]]


def _lines(errors: list[str]) -> Counter[str]:
    return Counter(_VARYING.sub("#", line) for line in errors if line.strip())


def _first_difference(off: list[str], on: list[str]) -> str:
    for number in range(max(len(off), len(on))):
        before, after = off[number : number + 1], on[number : number + 1]
        if before != after:
            return f"{after} instead of {before}"[:200]
    return ""
