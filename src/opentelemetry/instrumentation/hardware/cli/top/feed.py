"""What the view shows: the values of a session, its cores, and the processes that use its devices."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.cli import figures
from opentelemetry.instrumentation.hardware.cli.figures import Device
from opentelemetry.instrumentation.hardware.cli.top.holders import Process, ProcessReader, holders
from opentelemetry.instrumentation.hardware.cli.view import View, Viewer
from opentelemetry.instrumentation.hardware.pipeline import session as pipeline

_NOT_CORES = ["hw.*", "system.[!c]*", "system.cpu.[!u]*"]
"""Metrics that the session of the cores leaves out."""


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
        self._cores: Viewer | None = None
        self._processes = ProcessReader() if processes is None else processes
        self._cores_session: pipeline.Session | None = None

    def open(self) -> None:
        """Make the first reading."""
        self._viewer = Viewer(self._session)
        wanted = self._session.config
        if wanted.selects("host") and "cpu" not in (wanted.detail or ()):  # what is exported stays as it is configured
            config = replace(wanted, sources=["host"], detail=["cpu"], exclude_metrics=_NOT_CORES)
            self._cores_session = pipeline.Session(config, environ={})
            self._cores_session.start()
            self._cores = Viewer(self._cores_session)

    def collect(self) -> Readout:
        """Read all sources and return what is shown."""
        if self._viewer is None:
            self.open()
        assert self._viewer is not None
        view = self._viewer.collect()
        if self._cores is not None:
            values = self._cores.collect().snapshot.values
            cores = {metric: points for metric, points in values.items() if metric is c.SYSTEM_CPU_UTILIZATION}
            view = view._replace(snapshot=view.snapshot._replace(values={**view.snapshot.values, **cores}))
        devices = figures.devices(view)
        names = {device.id: device.name for device in devices}
        return Readout(view, devices, holders(self._session, names, self._processes.read))

    def close(self) -> None:
        """End the session of the cores."""
        with suppress(Exception):
            if self._cores_session is not None:
                self._cores_session.close()
