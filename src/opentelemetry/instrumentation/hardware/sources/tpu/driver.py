"""The three services of TPUs, read together: the programs that use them, the profiler of a node, and libtpu's SDK.

The devices are numbered by the programs that use them. Each service answers for all devices at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.driver import AcceleratorDriver
from opentelemetry.instrumentation.hardware.accelerators.fields import Field
from opentelemetry.instrumentation.hardware.accelerators.source import AcceleratorSource
from opentelemetry.instrumentation.hardware.drivers.streaming import Reports
from opentelemetry.instrumentation.hardware.model import Number, Unavailable
from opentelemetry.instrumentation.hardware.sources.tpu import addresses, fields
from opentelemetry.instrumentation.hardware.sources.tpu.device import Devices, TpuDevice
from opentelemetry.instrumentation.hardware.sources.tpu.presence import Presence
from opentelemetry.instrumentation.hardware.sources.tpu.profiler import MIN_INTERVAL, Profiler
from opentelemetry.instrumentation.hardware.sources.tpu.runtime import (
    Accumulator,
    Runtime,
    Sample,
    Samples,
    merged,
    statistics,
)
from opentelemetry.instrumentation.hardware.sources.tpu.sdk import Values, open_sdk
from opentelemetry.instrumentation.hardware.sources.tpu.services import Services

_SDK_METRICS: Final = "google.tpu.link.health, google.tpu.throttle.score, hw.npu.utilization (tensorcore)"

_MAX_QUEUE: Final = 1 << 31

# The names of the label with the buffer size, which differ by version and kind of transfer.
_BUFFER_SIZES: Final = ("buffer-size", "buffer_size", "input_size")
_BUFFER_SIZE: Final = r"[0-9a-z.]{1,12}\+?"  # such as ``8mb+``
_MAX_BUFFER_SIZES: Final = 64  # maximum number of those that are reported separately


class TpuDriver(AcceleratorDriver):
    """The services of this host or of a TPU node.

    Raises:
        Unavailable: A package is not installed.
        OSError: The address of a TPU node cannot be looked up now.
    """

    def __init__(self, source: AcceleratorSource) -> None:
        config, drivers, environ = source.context.config, source.context.drivers, source.context.environ
        presence = Presence(config, environ, source.files)
        address = addresses.resolved(drivers, presence.profiler, environ)
        services = drivers.custom("tpu", Services) if presence.runtime or address else None
        self._runtime = Runtime(services, presence.runtime) if services and presence.runtime else None
        self._profiler = Profiler(services, address) if services and address else None
        self._sdk: Reports[Values] | None = None
        self._no_sdk = ""
        if config.libtpu == "on" and presence.chips:
            self._sdk = open_sdk(drivers, config.interval)
        elif config.libtpu == "on":
            self._no_sdk = "libtpu's SDK is not started: there is no TPU on the PCI bus"
        self.min_interval = MIN_INTERVAL if self._profiler else 0.0
        self._devices = Devices(presence.chips)
        self._accumulator = Accumulator()
        self._statistics = [metric for metric in fields.STATISTICS if config.wants(metric)]
        wanted = (name for metric in self._statistics for name in fields.STATISTICS[metric])
        self._slow = (*dict.fromkeys((*fields.SLOW, *wanted)),)
        self._buffer_sizes: set[str] = set()
        self._unnumbered: dict[str, int] = {}

    def devices(self) -> Sequence[TpuDevice]:
        """Return the devices that have been numbered; until then, the chips on the PCI bus."""
        return self._devices.all()

    def sample(self) -> bool:
        """Call five metrics of each program, and the profiler. Take the newest line of the SDK."""
        samples = merged(self._answers(fields.SAMPLED))
        duty, used, total = (
            {sample.device for sample in samples.get(name, ()) if sample.device is not None}
            for name in (fields.DUTY_CYCLE, fields.MEMORY_USED, fields.MEMORY_TOTAL)
        )
        self._devices.update(duty, used | total)
        for device in self._devices.all():
            device.sampled = {}
        for device, values in self._gauges(fields.GAUGES, samples).items():
            if not values.get(fields.GAUGES[fields.MEMORY_TOTAL]):
                values.pop(fields.GAUGES[fields.MEMORY_USED], None)
            device.sampled |= values
        self._take_queues(samples.get(fields.QUEUE_SIZE, ()))
        self._take_profile()
        self._take_sdk()
        return True

    def sample_slow(self) -> None:
        """Call eight more metrics of each program, and two more if they are wanted."""
        answers = self._answers(self._slow)
        for device in self._devices.all():
            device.slow = {}
        for device, values in self._gauges(fields.SLOW_GAUGES, merged(answers)).items():
            device.slow |= values
        for number, total in self._accumulator.sums(fields.EXECUTION, answers, lambda sample: sample.device).items():
            self._devices.core(number).slow |= dict(zip(fields.EXECUTIONS, total))
        for kind, name in fields.TRANSFERS.items():
            for size, total in self._accumulator.sums(name, answers, self._buffer_size).items():
                self._devices.whole.slow |= dict(zip(fields.transfers(kind, size.upper()), total))
        self._take_statistics(merged(answers))

    def _take_statistics(self, samples: Samples) -> None:
        """Take mean and quantiles of the distributions, of all programs together."""
        for metric in self._statistics:
            for name in fields.STATISTICS[metric]:
                groups: dict[tuple[TpuDevice, str], list[Mapping[str, Any]]] = {}
                for sample in samples.get(name, ()):
                    device, label = self._devices.whole, ""
                    if name == fields.EXECUTION and sample.device is not None:
                        device, label = self._devices.core(sample.device), sample.core_type
                    elif name in fields.TRANSFERS.values():
                        label = self._buffer_size(sample).upper()
                    if sample.distribution and sample.distribution.get("count", 0) > 0:
                        groups.setdefault((device, label), []).append(sample.distribution)
                for (device, label), distributions in groups.items():
                    for which, value in statistics(distributions).items():
                        device.slow[fields.statistic(metric, name, label, which)] = value

    def _answers(self, names: tuple[str, ...]) -> Mapping[str, Samples]:
        if self._runtime is None:
            return {}
        answers = self._runtime.read(names)
        self.errors = self._runtime.errors()
        for address in self._runtime.ended():
            self._accumulator.forget(address)
        return answers

    def _gauges(
        self, table: Mapping[str, Field], samples: Mapping[str, Sequence[Sample]]
    ) -> dict[TpuDevice, dict[Field, object]]:
        """Return the values of each device. The duty cycle belongs to a chip, the other values belong to a core."""
        values: dict[TpuDevice, dict[Field, object]] = {}
        for name, field in table.items():
            unnumbered = 0
            for sample in samples.get(name, ()):
                number = sample.device
                if number is None:
                    unnumbered += 1
                    continue
                device = self._devices.chip(number) if name == fields.DUTY_CYCLE else self._devices.core(number)
                if values.setdefault(device, {}).get(field) is None:
                    values[device][field] = sample.value
            self._unnumbered[name] = unnumbered
        return values

    def _take_queues(self, samples: Sequence[Sample]) -> None:
        """Add up the programs that wait for each core."""
        sums: dict[tuple[TpuDevice, str], Number] = {}
        for sample in samples:
            number, size = sample.device, sample.value
            if number is not None and size is not None and 0 <= size < _MAX_QUEUE:
                core = self._devices.core(number), sample.core_type
                sums[core] = sums.get(core, 0) + size
        for (device, core_type), size in sums.items():
            device.sampled[fields.queue_size(core_type)] = size

    def _buffer_size(self, sample: Sample) -> str:
        """Return the buffer size of a transfer; "" if it is unknown or beyond the maximum number of sizes."""
        size = next(filter(None, (sample.label(name, _BUFFER_SIZE) for name in _BUFFER_SIZES)), "")
        if len(self._buffer_sizes) < _MAX_BUFFER_SIZES:
            self._buffer_sizes.add(size)
        return size if size in self._buffer_sizes else ""

    def _take_profile(self) -> None:
        if self._profiler is None:
            return
        model, values = self._profiler.read()
        node = self._devices.whole
        if model:
            node.facts = {c.HW_VENDOR: "Google", c.HW_MODEL: model}
        node.sampled |= values

    def _take_sdk(self) -> None:
        """Take the newest line of the SDK. If it fails, only its own values are missing."""
        if self._sdk is None:
            return
        try:
            self._sdk.read()
        except OSError:
            return  # the child process is started again
        except Unavailable as missing:
            self._sdk.stream.close()
            self._sdk, self._no_sdk = None, f"{_SDK_METRICS}: {missing}"
            return
        values = self._sdk.newest or Values()
        for index, percent in enumerate(values.tensorcore):
            if percent is not None:
                self._devices.local(index, len(values.tensorcore)).sampled[fields.TENSORCORE] = percent
        for index, score in values.throttle.items():
            self._devices.local(index, len(values.throttle)).sampled[fields.THROTTLE] = score
        for link, health in values.links.items():
            self._devices.whole.sampled[fields.link_health(link)] = health

    def unsupported(self) -> Iterator[str]:
        """Yield the metrics of services that do not respond, and values without a device."""
        yield from self._runtime.unsupported() if self._runtime else ()
        if self._profiler and self._profiler.error:
            yield self._profiler.error
        if self._no_sdk:
            yield self._no_sdk
        if self._sdk and self._sdk.error:
            yield f"{_SDK_METRICS}: {self._sdk.error}"
        for name, count in self._unnumbered.items():
            if count:
                yield f"{fields.METRICS[name]}: {count} values have no valid device number"
