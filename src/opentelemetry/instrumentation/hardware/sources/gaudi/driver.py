"""Gaudi's tool hl-smi, which prints a table with a line for each accelerator every few seconds, as CSV."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from opentelemetry.instrumentation.hardware.accelerators.driver import AcceleratorDriver, Usage
from opentelemetry.instrumentation.hardware.accelerators.sysfs import ACCEL, find_cards
from opentelemetry.instrumentation.hardware.drivers.streaming import PERIODS, Reports, period_for
from opentelemetry.instrumentation.hardware.drivers.subprocess import Tool
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.sources import SourceContext
from opentelemetry.instrumentation.hardware.sources.gaudi import fields as f
from opentelemetry.instrumentation.hardware.sources.gaudi.device import Hpu
from opentelemetry.instrumentation.hardware.system.files import Files, open_files
from opentelemetry.instrumentation.hardware.system.tree import ProcessTree

NAME: Final = "hl-smi"

TOOL: Final = Tool(
    NAME,
    folders=("/usr/bin", "/usr/local/bin", "/opt/habanalabs/bin"),
    environment=("HABANA_LOGS",),
    fix="it is part of Intel's package habanalabs-firmware-tools",
)

# Seconds in which the tool prints which columns it knows.
_HELP_TIMEOUT: Final = 10.0

# Seconds to wait for the first table when the source is opened.
_FIRST_LINE: Final = 5.0

_DRIVER: Final = "habanalabs"


class Table:
    """The columns of the tool's newest heading, by which its lines are read."""

    def __init__(self) -> None:
        self._columns: list[str] = []

    def parse(self, line: bytes) -> dict[str, str]:
        """Return the cells of a line by column; empty for a heading, such as ``index, power.draw [W]``.

        Raises:
            ValueError: The line is neither.
        """
        cells = [cell.strip() for cell in line.decode(errors="replace").split(",")]
        names = [cell.partition(" [")[0] for cell in cells]
        if f.INDEX in names:
            self._columns = names
            return {}
        row = dict(zip(self._columns, cells))
        if len(cells) != len(self._columns) or not re.fullmatch("[0-9]{1,3}", row.get(f.INDEX, "")):
            raise ValueError("it printed a line that is no table of accelerators")
        return row


class HlSmi(AcceleratorDriver):
    """The accelerators that the tool lists.

    Raises:
        Unavailable: The tool is missing, or lists nothing.
        OSError: It does not start, or fails.
    """

    def __init__(self, context: SourceContext, files: Files) -> None:
        self._files = files
        self._period = period_for(context.config.interval)
        self._devices: dict[str, Hpu] = {}
        command = context.drivers.command(TOOL.with_setting(context.config.hl_smi))
        known = command.run(["-h"], _HELP_TIMEOUT).stdout.decode(errors="replace")
        columns = ",".join(name for name in f.COLUMNS if name not in f.NEWER or name in known)
        arguments = ["-Q", columns, "-f", "csv", "-l", f"{self._period:g}"]
        stream = context.drivers.stream(TOOL.with_setting(context.config.hl_smi))
        self._reports = Reports(stream, NAME, Table().parse, arguments, self._period, clock=files.uptime)
        self._read(_FIRST_LINE)
        if not self._devices:
            self._read(_FIRST_LINE)  # the heading came alone
        if not self._devices:
            raise Unavailable(f"{NAME} lists no accelerator")

    def _read(self, seconds: float = 0.0) -> None:
        """Take the lines since the previous call."""
        now = self._files.uptime()
        for cells in self._reports.read(seconds):
            if cells:
                listed = Hpu(int(cells[f.INDEX]), cells)  # the number changes if an accelerator before it is gone
                device = self._devices.setdefault(listed.address or listed.id, listed)
                device.cells = cells
                device.seen = now
        for device in self._devices.values():
            if now - device.seen > PERIODS * self._period:
                device.cells = {}
        self.errors = [self._reports.error] if self._reports.error else []

    def devices(self) -> Sequence[Hpu]:
        return sorted(self._devices.values(), key=lambda device: device.index)

    def sample(self) -> bool:
        before = len(self._devices)
        self._read()
        return len(self._devices) != before

    def usage(self, program: ProcessTree) -> Iterable[Usage]:
        """Yield the utilization of each accelerator that the program has open: only one program at a time can."""
        nodes = {f"/dev/accel/{card.name}": card.address for card in find_cards(self._files, ACCEL, (_DRIVER,))}
        paths = (path for process in program.folders for path in open_files(self._files, process))
        used = {nodes[path] for path in paths if path in nodes}
        for device in self._devices.values():
            if device.address in used and not device.trouble:
                cells = device.cells
                yield device, {f.PROCESS_UTILIZATION: cells[f.UTILIZATION]} if f.UTILIZATION in cells else {}
