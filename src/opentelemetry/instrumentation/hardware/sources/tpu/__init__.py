"""Google TPU, from the metric services of the programs that use it, the profiler of a TPU node, and libtpu's SDK."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.accelerators.fields import Field
from opentelemetry.instrumentation.hardware.accelerators.unsupported import sentences
from opentelemetry.instrumentation.hardware.drivers import DriverError, Drivers
from opentelemetry.instrumentation.hardware.model import Number, Point, Series, Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import Source
from opentelemetry.instrumentation.hardware.sources.tpu import addresses, fields, profiler
from opentelemetry.instrumentation.hardware.sources.tpu.device import Accumulator, Devices
from opentelemetry.instrumentation.hardware.sources.tpu.driver import UNAVAILABLE, Sample, Services
from opentelemetry.instrumentation.hardware.sources.tpu.presence import Presence
from opentelemetry.instrumentation.hardware.sources.tpu.runtime import Runtime, Samples, merged
from opentelemetry.instrumentation.hardware.sources.tpu.sdk import Sdk, tool
from opentelemetry.instrumentation.hardware.system.files import Files, LocalFiles

_ABSENT = "there is no TPU on the PCI bus, and neither TPU_NAME nor TPU_RUNTIME_METRICS_PORTS names one"

_MAX_QUEUE = 1 << 31
_BUFFER_SIZE = r"[0-9a-z.]{1,12}\+?"
_MAX_BUFFER_SIZES = 64
"""Maximum number of buffer sizes, such as ``8mb+``, that are reported separately."""


class Tpu(Source):
    """The TPUs of this host, or of a node that the environment names.

    It is not an AcceleratorSource: the devices are numbered by the programs that use them, not listed by a driver, and
    three services are read together.
    """

    name = "tpu"
    rows = ("hw.", "google.tpu.")

    @classmethod
    def prepare(cls, config: Config) -> bool:
        """Import the clients of the services if this host may have a TPU."""
        files: Files | None = None
        with suppress(Unavailable):
            files = LocalFiles()
        expected = bool(Presence(config, os.environ, files))
        if expected:
            with suppress(ImportError):  # open() reports it
                from opentelemetry.instrumentation.hardware.sources.tpu import messages, rpc  # noqa: F401
        return expected

    def open(self) -> None:
        """Find the services.

        Raises:
            Unavailable: There is no TPU, or a package is not installed.
            OSError: The address of a TPU node cannot be looked up now.
        """
        config, environ, drivers = self.context.config, self.context.environ, self.context.drivers
        presence = Presence(config, environ, _files(drivers))
        if not presence:
            raise Unavailable(_ABSENT)
        self._profiler = addresses.resolved(drivers, presence.profiler, environ)
        if presence.runtime or self._profiler:
            self._services = drivers.custom("tpu", Services)
        self.runtime = Runtime(self._services, presence.runtime) if presence.runtime else None
        self.min_interval = profiler.MIN_INTERVAL if self._profiler else 0.0
        self._missing: dict[str, str] = {}
        self.sdk: Sdk | None = None
        if config.libtpu == "on" and presence.chips:
            self.sdk = Sdk(drivers.stream(tool()), config.interval)
        elif config.libtpu == "on":
            self._missing["sdk"] = "libtpu's SDK is not started: there is no TPU on the PCI bus"
        self.devices = Devices(presence.chips)
        self._accumulator = Accumulator()
        self._buffer_sizes: set[str] = set()
        self._unnumbered: dict[str, int] = {}

    def read(self) -> Iterator[Point]:
        """Read the sampled metrics: five calls to each program, and one to the profiler."""
        samples = merged(self._answers(fields.SAMPLED))
        duty, used, total = (
            {sample.device for sample in samples.get(name, ()) if sample.device is not None}
            for name in (fields.DUTY_CYCLE, fields.MEMORY_USED, fields.MEMORY_TOTAL)
        )
        self.devices.update(duty, used | total)
        for device, values in self._gauges(fields.GAUGES, samples).items():
            if not values.get(fields.GAUGES[fields.MEMORY_TOTAL]):
                values.pop(fields.GAUGES[fields.MEMORY_USED], None)
            yield from device.points(values)
        yield from self._queues(samples.get(fields.QUEUE_SIZE, ()))
        yield from self._profiler_points()
        yield from self._sdk_points()
        self._report()

    def read_slow(self) -> Iterator[Point]:
        """Read the identity of the devices, and eight more metrics of each program."""
        answers = self._answers(fields.SLOW)
        for device in self.devices.listed():
            yield from device.identity_points()
        for device, values in self._gauges(fields.SLOW_GAUGES, merged(answers)).items():
            yield from device.points(values)
        for number, total in self._accumulator.sums(fields.EXECUTION, answers, lambda sample: sample.device).items():
            device = self.devices.core(number)
            yield device.series(Series(c.GOOGLE_TPU_HLO_EXECUTION_COUNT))(total.events)
            yield device.series(Series(c.GOOGLE_TPU_HLO_EXECUTION_TIME))(total.seconds)
        for kind, name in fields.TRANSFERS.items():
            for size, total in self._accumulator.sums(name, answers, self._buffer_size).items():
                attributes = {c.TPU_TRANSFER_KIND: kind} | ({c.TPU_BUFFER_SIZE: size.upper()} if size else {})
                yield Series(c.GOOGLE_TPU_TRANSFER_COUNT, attributes)(total.events)
                yield Series(c.GOOGLE_TPU_TRANSFER_TIME, attributes)(total.seconds)
        self._report()

    def _answers(self, names: tuple[str, ...]) -> Mapping[str, Samples]:
        return self.runtime.read(names) if self.runtime else {}

    def _gauges(
        self, table: Mapping[str, Field], samples: Mapping[str, Sequence[Sample]]
    ) -> dict[Device, dict[Field, object]]:
        """Return the values of each device. The duty cycle belongs to a chip, the other values belong to a core."""
        for device in self.devices.numbered():
            for field in table.values():
                device.unsupported.pop(field.series, None)
        values: dict[Device, dict[Field, object]] = {}
        for name, field in table.items():
            unnumbered = 0
            for sample in samples.get(name, ()):
                number = sample.device
                if number is None:
                    unnumbered += 1
                    continue
                device = self.devices.chip(number) if name == fields.DUTY_CYCLE else self.devices.core(number)
                if values.setdefault(device, {}).get(field) is None:
                    values[device][field] = sample.value
            self._unnumbered[name] = unnumbered
        return values

    def _queues(self, samples: Iterable[Sample]) -> Iterator[Point]:
        sums: dict[Series, Number] = {}
        for sample in samples:
            number, size = sample.device, sample.value
            if number is not None and size is not None and 0 <= size < _MAX_QUEUE:
                attributes = {c.TPU_CORE_TYPE: sample.core_type} if sample.core_type else {}
                series = self.devices.core(number).series(Series(c.GOOGLE_TPU_HLO_QUEUE_SIZE, attributes))
                sums[series] = sums.get(series, 0) + size
        yield from sums.items()

    def _buffer_size(self, sample: Sample) -> str:
        """Return the buffer size of a transfer; "" if it is unknown or beyond the maximum number of sizes."""
        size = sample.label("buffer-size", _BUFFER_SIZE)
        if len(self._buffer_sizes) < _MAX_BUFFER_SIZES:
            self._buffer_sizes.add(size)
        return size if size in self._buffer_sizes else ""

    def _profiler_points(self) -> Iterator[Point]:
        if not self._profiler:
            return
        self._missing["profiler"] = ""
        try:
            page = profiler.parse(self._services.monitor(self._profiler, profiler.DURATION, profiler.LEVEL))
        except DriverError as error:
            if error.code != UNAVAILABLE:
                raise
            self._missing["profiler"] = f"hw.npu.*: no profiler responds at {self._profiler} ({error.text})"
            return
        device = self.devices.whole(page.model)
        if page.matrix is not None:
            yield from device.points({fields.MATRIX: page.matrix})
        else:
            self._missing["profiler"] = (
                f"hw.npu.utilization (matrix): the profiler at {self._profiler} does not report it; is the TPU in use?"
            )
        if page.idle is not None:
            yield from device.points({fields.BUSY: 100 - page.idle})

    def _sdk_points(self) -> Iterator[Point]:
        if self.sdk is None:
            return
        values = self.sdk.read()
        for index, percent in enumerate(values.tensorcore):
            if percent is not None:
                yield from self.devices.local(index, len(values.tensorcore)).points({fields.TENSORCORE: percent})
        for link, health in values.links.items():
            yield Series(c.GOOGLE_TPU_LINK_HEALTH, {c.TPU_LINK: link})(health)
        for index, score in values.throttle.items():
            device = self.devices.local(index, len(values.throttle))
            yield device.series(Series(c.GOOGLE_TPU_THROTTLE_SCORE))(score)
        self._missing["sdk"] = self.sdk.error and (
            f"google.tpu.link.health, google.tpu.throttle.score, hw.npu.utilization (tensorcore): {self.sdk.error}"
        )

    def _report(self) -> None:
        self.errors = self.runtime.errors() if self.runtime else []
        devices = [(device.name, device.unsupported) for device in self.devices.numbered()]
        self.unsupported = [
            *(self.runtime.unsupported() if self.runtime else ()),
            *filter(None, self._missing.values()),
            *sentences(devices),
            *(
                f"{fields.METRICS[name]}: {count} values have no valid device number"
                for name, count in self._unnumbered.items()
                if count
            ),
        ]


def _files(drivers: Drivers) -> Files | None:
    """Return the kernel's files; None if the system is not Linux, where an address may still be configured."""
    with suppress(Unavailable):
        return drivers.files()
    return None
