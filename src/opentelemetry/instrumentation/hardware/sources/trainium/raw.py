"""The runtime of a process at one moment, in neuron-monitor's own numbers, for formulas that are not ours."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware.config import Config
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.sources import Site
from opentelemetry.instrumentation.hardware.sources.trainium import Trainium
from opentelemetry.instrumentation.hardware.sources.trainium.files import PRESENT
from opentelemetry.instrumentation.hardware.sources.trainium.report import Runtime


class Raw:
    """The runtime, by the source :class:`~..trainium.Trainium`.

    Args:
        config: the settings.
        pid: the observed process.

    Attributes:
        expected: whether there is a driver, or the settings say where the tool is; if not, there is nothing to read.
        trouble: why there was nothing to read the last time.
    """

    def __init__(self, config: Config, pid: int) -> None:
        self.trouble = ""
        named = config.neuron_monitor not in (None, "auto", "off")
        self.expected = config.neuron_monitor != "off" and (named or any(map(os.path.exists, PRESENT)))
        self._config = config
        self._pid = pid
        self._source: Trainium | None = None

    def read(self) -> Mapping[int, Runtime]:
        """Under 0 the runtime of the process, or of a child of it; nothing where the tool says none."""
        try:
            source = self._source or self._open()
            for _ in source.read():
                pass
        except Exception as error:
            self.close()
            self.trouble = str(error)
            return {}
        self.trouble = "; ".join(source.wrong)
        return {0: source.runtimes[0]} if source.runtimes else {}

    def _open(self) -> Trainium:
        self._source = source = Trainium(Site(self._config, Drivers(), self._pid))
        source.open()
        return source

    def close(self) -> None:
        """Let go of the tool."""
        source, self._source = self._source, None
        if source is not None:
            source.close()


class TrnKey(NamedTuple):
    """One of W&B's keys.

    Attributes:
        key: ``{i}`` stands for a core, ``{category}`` for what memory is used for.
        unit: W&B's own.
        formula: W&B's, in words.
        values: the key filled in, with its value.
        like: the key that stands for the same, if there is another.
    """

    key: str
    unit: str
    formula: str
    values: Callable[[Runtime], Iterator[tuple[str, float]]]
    like: str = ""


def _percent(runtime: Runtime) -> Iterator[tuple[str, float]]:
    return ((f"trn.{core}.neuroncore_utilization", share) for core, share in runtime.percent.items())


def _used(key: str, where: str) -> Callable[[Runtime], Iterator[tuple[str, float]]]:
    return lambda runtime: iter([(key, runtime.used[where])] if where in runtime.used else [])


def _host(prefix: str) -> Callable[[Runtime], Iterator[tuple[str, float]]]:
    return lambda runtime: ((f"{prefix}.{category}", size) for category, size in runtime.host.items())


def _cores(runtime: Runtime) -> Iterator[tuple[str, float]]:
    for core, sizes in runtime.cores.items():
        for category, size in sizes.items():
            yield f"trn.{core}.neuroncore_memory_usage.{category}", size


_HOST: Final = "trn.host_total_memory_usage"
_DEVICE: Final = "trn.neuron_device_total_memory_usage"

KEYS: Final = (
    TrnKey("trn.{i}.neuroncore_utilization", "%", "utilization of a core by the runtime of the process", _percent),
    TrnKey(_HOST, "bytes", "memory of the host that the runtime uses", _used(_HOST, "host")),
    TrnKey(_DEVICE, "bytes", "memory of the devices that the runtime uses", _used(_DEVICE, "device")),
    TrnKey(f"{_HOST}.{{category}}", "bytes", "the runtime's memory of the host, by category", _host(_HOST)),
    TrnKey(
        "trn.host_memory_usage.{category}",
        "bytes",
        "the same; W&B's pages spell it as above, its program so",
        _host("trn.host_memory_usage"),
    ),
    TrnKey("trn.{i}.neuroncore_memory_usage.{category}", "bytes", "the runtime's memory of a core's device", _cores),
)
"""What W&B says of Trainium."""
