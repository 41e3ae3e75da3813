"""What the view shows: the values of a session, its processes, and what holds its GPUs back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.bottlenecks.judge import Judge, Verdict
from opentelemetry.instrumentation.hardware.cli import figures
from opentelemetry.instrumentation.hardware.cli.figures import Device
from opentelemetry.instrumentation.hardware.cli.top.processes import Process, ProcessReader, holders, others, users
from opentelemetry.instrumentation.hardware.cli.why import observe
from opentelemetry.instrumentation.hardware.pipeline.runner import State
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.pipeline.view import View, Viewer


class Readout(NamedTuple):
    """What is shown at one moment.

    Attributes:
        view: The values.
        devices: The accelerators.
        processes: The processes, those that use a device first.
        verdicts: By ``hw.id``, what holds a GPU back.
        energy: By ``hw.id``, the joules since the first reading.
    """

    view: View
    devices: list[Device]
    processes: list[Process]
    verdicts: Mapping[str, Verdict]
    energy: Mapping[str, float]


class Feed:
    """Reads a started session, and processes if it is one of this machine.

    All methods but :meth:`waiting` wait for the sources, so they are called in a thread.
    """

    def __init__(self, session: Session, processes: ProcessReader | None) -> None:
        self._session = session
        self._viewer: Viewer | None = None
        self._processes = processes
        self._judge = Judge()
        self._read: float | None = None
        self._first_energy: dict[str, float] = {}

    def waiting(self) -> list[str]:
        """Return the sources without a first reading."""
        return [runner.name for runner in self._session.runners if runner.state is State.STARTING]

    def open(self) -> Viewer:
        viewer = self._viewer = Viewer(self._session)
        return viewer

    def collect(self, is_expected: bool = False) -> Readout:
        """Read the sources and return what is shown; see :meth:`Viewer.collect`."""
        view = (self._viewer or self.open()).collect(is_expected)
        devices = figures.devices(view)
        found = holders(self._session)
        pids = {holder.pid for _, holder in found if holder.owner is not None}
        every = self._processes.everything(pids) if self._processes else {}
        used = users(found, {device.id: device.name for device in devices}, every)
        if devices:
            now = self._session.clock()
            observe(self._judge, self._session, view, now, view.window if self._read is None else now - self._read)
            self._read = now
        joules = {str(each[c.HW_ID]): float(value) for value, each in view.points(c.HW_ENERGY)}
        self._first_energy = {device: self._first_energy.get(device, value) for device, value in joules.items()}
        energy = {device: value - self._first_energy[device] for device, value in joules.items()}
        verdicts = self._judge.verdicts() if devices else {}
        return Readout(view, devices, [*used, *others(every.values(), used)], verdicts, energy)
