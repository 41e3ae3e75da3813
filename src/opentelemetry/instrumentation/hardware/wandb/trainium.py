"""The runtime of a process at one moment, in neuron-monitor's own numbers, for formulas that are not ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware.model import Point
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources.trainium import Trainium
from opentelemetry.instrumentation.hardware.sources.trainium.report import Runtime
from opentelemetry.instrumentation.hardware.wandb import probe as raw


class Raw(raw.Raw[Trainium, Runtime]):
    """The runtime; none is expected where the tool is switched off."""

    def __init__(self, config: Config, pid: int) -> None:
        super().__init__(Trainium, config, pid)
        self.expected = self.expected and config.neuron_monitor != "off"

    def _said(self, source: Trainium, points: Sequence[Point]) -> Mapping[int, Runtime]:
        """Under 0 the runtime of the process, or of a child of it, with those of its cores that are reported."""
        if not source.runtimes:
            return {}
        runtime = source.runtimes[0]
        percent = {core: runtime.percent[core] for core in source.among(runtime.percent)}
        cores = {core: runtime.cores[core] for core in source.among(runtime.cores)}
        return {0: replace(runtime, percent=percent, cores=cores)}


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
