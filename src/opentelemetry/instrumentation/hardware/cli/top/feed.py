"""What the view shows: the values of a session, and the processes that use its devices."""

from __future__ import annotations

from typing import NamedTuple

from opentelemetry.instrumentation.hardware.cli import figures
from opentelemetry.instrumentation.hardware.cli.figures import Device
from opentelemetry.instrumentation.hardware.cli.top.holders import Process, ProcessReader, holders
from opentelemetry.instrumentation.hardware.pipeline import session as pipeline
from opentelemetry.instrumentation.hardware.pipeline.view import View, Viewer


class Readout(NamedTuple):
    """What is shown at one moment."""

    view: View
    devices: list[Device]
    processes: list[Process]


class Feed:
    """Reads a session. All methods wait for the sources, so they are called in a thread of their own.

    Args:
        session: A started session.
        processes: Reads the processes.
    """

    def __init__(self, session: pipeline.Session, processes: ProcessReader | None = None) -> None:
        self._session = session
        self._viewer: Viewer | None = None
        self._processes = ProcessReader() if processes is None else processes

    def open(self) -> None:
        """Make the first reading."""
        self._viewer = Viewer(self._session)

    def collect(self) -> Readout:
        """Read all sources and return what is shown."""
        if self._viewer is None:
            self.open()
        assert self._viewer is not None
        view = self._viewer.collect()
        devices = figures.devices(view)
        names = {device.id: device.name for device in devices}
        return Readout(view, devices, holders(self._session, names, self._processes.read))
