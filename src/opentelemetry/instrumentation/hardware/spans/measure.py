"""measure(): the energy, GPU time and CPU time of a block of code, without any set-up of OpenTelemetry."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.settings.log import logger
from opentelemetry.instrumentation.hardware.spans.attributes import measured
from opentelemetry.instrumentation.hardware.spans.demand import Demand
from opentelemetry.instrumentation.hardware.spans.readings import SessionReadings
from opentelemetry.instrumentation.hardware.system.interpreter import is_main

_LOG = logger(__name__)

_OPENING = 10.0  # seconds for which the first block waits until the drivers are open

_READING = 1.0  # seconds for which the ends of a block wait for a reading


class Measurement:
    """What the hardware did while a block ran. All values are None inside the block; unknown ones stay None.

    They mean the same as the attributes of spans in docs/spans.md.

    Attributes:
        seconds: Duration of the block.
        energy: Joules of the accelerators that the process and its descendants use, ``hw.energy``.
        uncertainty: Bound of the error of ``energy`` in joules, ``hw.uncertainty.energy``.
        gpu_time: Seconds in which these GPUs were busy, summed over them, ``hw.gpu.time``.
        gpu_memory_peak: Highest bytes in use on one of them, ``hw.gpu.memory.peak``.
        cpu_energy: Joules of the CPU packages, ``hw.cpu.energy``.
        cpu_time: CPU seconds of the process, ``process.cpu.time``.
    """

    def __init__(self) -> None:
        self.seconds: float | None = None
        self.energy: float | None = None
        self.uncertainty: float | None = None
        self.gpu_time: float | None = None
        self.gpu_memory_peak: int | None = None
        self.cpu_energy: float | None = None
        self.cpu_time: float | None = None

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={round(value, 6)}" for name, value in vars(self).items() if value is not None)
        return f"Measurement({values})"


@contextmanager
def measure() -> Iterator[Measurement]:
    """Measure a block of code.

    Usage::

        with measure() as m:
            train_one_epoch()
        print(m.energy, "J", m.gpu_time, "s", m.cpu_time, "s")

    Devices are read at both ends of the block, by threads of this package, and ten times per second inside. Both ends
    wait for the reading, which takes milliseconds; the first block also waits until the drivers are open. Blocks may be
    nested and may overlap in several threads; then each has the energy of its whole time. The settings are those of the
    environment, ``OTEL_PYTHON_HARDWARE_*``. CUDA is asynchronous: synchronize before the end of the block.

    Yields:
        The measurement, which has its values after the block.
    """
    found = Measurement()
    with _Shared.lock:
        readings = _Shared.begun(id(found))
    if readings is not None:
        readings.session.read_now(_READING)
    begin, cpu_time = time.time(), time.process_time()
    try:
        yield found
    finally:
        cpu_time, end = time.process_time() - cpu_time, time.time()
        if readings is not None:
            readings.session.read_now(_READING)
            with _Shared.lock:
                readings.demand.end(id(found))
                readings.demand.is_tracing = readings.demand.is_open
        values = measured(() if readings is None else readings.span_rows, begin, end, cpu_time)
        found.seconds = end - begin
        for name, attribute in _ATTRIBUTES.items():
            setattr(found, name, values.get(attribute.name))


_ATTRIBUTES = {
    "energy": c.SPAN_ENERGY,
    "uncertainty": c.SPAN_UNCERTAINTY,
    "gpu_time": c.SPAN_GPU_TIME,
    "gpu_memory_peak": c.SPAN_GPU_MEMORY_PEAK,
    "cpu_energy": c.SPAN_CPU_ENERGY,
    "cpu_time": c.SPAN_CPU_TIME,
}


class _Shared:
    """The session of all blocks of this process. Between blocks, it reads nothing."""

    lock: ClassVar[threading.Lock] = threading.Lock()
    readings: ClassVar[SessionReadings | None] = None

    @classmethod
    def begun(cls, block: int) -> SessionReadings | None:
        """Return the readings for another block; None, with a message, if the process may have no threads."""
        readings = cls.readings
        if readings is None or readings.session.pid != os.getpid():  # the first block, or in a forked child
            session = Session(Config.read({}), demand=Demand(), only_spans=True)
            readings = SessionReadings(session)
            session.on_reading = readings.advance
            readings.expect_spans()
            try:
                session.start()
            except RuntimeError as error:
                session.close()
                _LOG.error("measure() reads no devices: %s", error)
                return None
            cls.readings = readings
            if not is_main():  # Python aborts the process at the end of another interpreter that has threads
                atexit.register(session.close)
            session.read_now(_OPENING)
        readings.expect_spans()
        readings.demand.begin(block, readings.session.clock())
        return readings
