"""Graphcore's library gcipuinfo, read by a child process (:mod:`.child`).

https://docs.graphcore.ai/projects/gcipuinfo/en/latest/ It is part of the Poplar SDK. Its constructor connects to a
server if IPUs are shared, and may hang; therefore it is only imported in a child.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.accelerators.driver import AcceleratorDriver, Holders, Usage
from opentelemetry.instrumentation.hardware.accelerators.source import AcceleratorSource
from opentelemetry.instrumentation.hardware.drivers.json import decoded
from opentelemetry.instrumentation.hardware.drivers.streaming import Reports, period_for
from opentelemetry.instrumentation.hardware.drivers.subprocess import Tool, python_executable, search_path
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.sources.graphcore.device import Ipu
from opentelemetry.instrumentation.hardware.sources.graphcore.fields import SESSION, SESSION_UTILIZATION
from opentelemetry.instrumentation.hardware.system.files import integer
from opentelemetry.instrumentation.hardware.system.tree import ProcessTree

NAME: Final = "gcipuinfo"

_FIX: Final = "source the enable script of the Poplar SDK, or set GCIPUINFO to the folder that has the module"

# The environment variables that the child needs: they select the partition.
_ENVIRONMENT: Final = (
    "IPUOF_CONFIG_PATH",
    "IPUOF_VIPU_API_GCD_ID",
    "IPUOF_VIPU_API_HOST",
    "IPUOF_VIPU_API_PARTITION_ID",
    "IPUOF_VIPU_API_PORT",
    "IPUOF_VIPU_API_TIMEOUT",
)

# Seconds that opening waits for the first line: if IPUs are shared, the library queries a server.
_FIRST_LINE: Final = 4.0

_MAX_IPUS: Final = 4096  # maximum IPUs in a line

_NO_IPU_LISTED: Final = (
    f"hw.npu.*: {NAME} lists no IPU; it lists those of the active partition only, which may be created later, "
    "unless DEVICES=all"
)


class ModuleFolder:
    """The folder with the Python module of the library.

    Args:
        setting: The folder that has it; "" to search ``sys.path``.
    """

    def __init__(self, setting: str) -> None:
        self._setting = setting

    def folder(self) -> str:
        """Return the folder to import it from. Nothing is imported here.

        Raises:
            Unavailable: The module is not found.
        """
        if self._setting and not os.path.isdir(self._setting):
            raise Unavailable(f"{self._setting} is not a folder", _FIX)
        spec = PathFinder.find_spec(NAME, [self._setting] if self._setting else search_path())
        if spec is None or not spec.origin:
            where = f" in {self._setting}" if self._setting else ""
            raise Unavailable(f"the Python module {NAME} is not found{where}", _FIX)
        origin = Path(spec.origin)
        return str(origin.parent.parent if origin.name.startswith("__init__.") else origin.parent)


class Library(AcceleratorDriver):
    """The library in a child, which prints a line with all IPUs every few seconds.

    Args:
        listen: Whether to start the child at once. Otherwise it is started when the observed program uses an IPU.

    Raises:
        Unavailable: The module is not found.
        OSError: The child does not start, or the library fails.
    """

    def __init__(self, source: AcceleratorSource, listen: bool) -> None:
        config, drivers = source.context.config, source.context.drivers
        files = source.linux_files()
        setting = "" if config.gcipuinfo in (None, "auto") else str(config.gcipuinfo)
        folder = drivers.custom(NAME, lambda: ModuleFolder(setting)).folder()
        self._program = source.program
        period = period_for(config.interval)
        discovery = "all" if tuple(config.devices or ()) == ("all",) else "active"
        arguments = [folder, discovery, f"{period:g}"]
        # This interpreter, isolated from the user's environment.
        program = ("-I", "-S", str(Path(__file__).with_name("child.py")))
        child = Tool(NAME, python_executable(), environment=_ENVIRONMENT, arguments=program)
        self._reports = Reports(drivers.stream(child), NAME, parse, arguments, period, clock=files.uptime)
        self._ipus: dict[int, Ipu] = {}
        self._boards: dict[str, Device] = {}
        self._listed: list[Ipu] = []
        self._pids: set[int] = set()
        self._is_listening = False
        if listen:
            self._start()

    def _start(self) -> None:
        self._is_listening = True
        self._read(_FIRST_LINE)

    def _read(self, seconds: float = 0.0) -> None:
        """Take the newest line."""
        if self._reports.read(seconds) or self._reports.newest is None:
            self._update(self._reports.newest or {})
        self.errors = [self._reports.error] if self._reports.error else []

    def _update(self, reported: Mapping[int, Mapping[str, str]]) -> None:
        self._listed = [self._ipus.setdefault(number, Ipu(number)) for number in reported]
        boards: set[str] = set()
        for ipu in self._listed:
            ipu.update(reported[ipu.index])
            serial = str(ipu.facts.get(c.HW_SERIAL_NUMBER, ""))
            ipu.board = None
            if serial and serial not in boards:
                boards.add(serial)
                board = Device(f"board-{serial}", f"Board {serial}", "board")
                ipu.board = self._boards.setdefault(serial, board)

    def devices(self) -> Sequence[Ipu]:
        if not self._is_listening and self._program.computing():
            self._start()
        return self._listed

    def sample(self) -> bool:
        if self._is_listening:
            self._read()
        return self._is_listening

    def usage(self, program: ProcessTree) -> Iterator[Usage]:
        """Yield the session utilization of each IPU that the observed program uses."""
        pids = {ipu.pid for ipu in self._listed if ipu.pid is not None}
        if pids != self._pids:
            program.refresh()
            self._pids = pids
        ours = program.among(pids)
        for ipu in self._listed:
            if ipu.pid in ours:
                yield ipu, {SESSION_UTILIZATION: ipu.words[SESSION]} if SESSION in ipu.words else {}

    def holders(self) -> Iterator[tuple[Device, Holders]]:
        for ipu in self._listed:
            yield ipu, {} if ipu.pid is None else {ipu.pid: None}

    def unsupported(self) -> Iterator[str]:
        if self._reports.newest is not None and not self._listed:
            yield _NO_IPU_LISTED


def parse(line: bytes) -> dict[int, dict[str, str]]:
    """Parse a line of the child. Returns the texts by name for each IPU number.

    Raises:
        OSError: The line is an error of the library.
        ValueError: It is not a line of the child.
    """
    document = decoded(line)
    if isinstance(document, dict) and isinstance(document.get("error"), str):
        raise OSError(document["error"][:300])
    if not isinstance(document, list):
        raise ValueError(f"not a report: {line[:80].decode(errors='replace')!r}")
    found: dict[int, dict[str, str]] = {}
    for place, entry in enumerate(document[:_MAX_IPUS]):
        if isinstance(entry, dict):
            words = {name: text.strip() for name, text in entry.items() if isinstance(text, str)}
            number = integer(words.get("id", str(place)))
            if number is not None:
                found.setdefault(number, words)
    return found
