"""W&B's keys of TPUs, from the source's points, and from distributions of the runtime and values of libtpu's SDK."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Metric, Number, Point
from opentelemetry.instrumentation.hardware.sources.tpu import Tpu
from opentelemetry.instrumentation.hardware.sources.tpu.fields import EXECUTION, TRANSFERS
from opentelemetry.instrumentation.hardware.sources.tpu.protocol import Sample
from opentelemetry.instrumentation.hardware.sources.tpu.runtime import merged
from opentelemetry.instrumentation.hardware.sources.tpu.sdk import Values
from opentelemetry.instrumentation.hardware.wandb.probe import Key, SourceProbe

ROUND_TRIP: Final = "megascale.grpc_tcp_min_rtt.microsecond.cumulative.distribution"
DELIVERY_RATE: Final = "megascale.grpc_tcp_delivery_rate.Mbps.cumulative.distribution"
"""Distributions that are not used for any metric."""

_DISTRIBUTIONS: Final = (EXECUTION, *TRANSFERS.values(), ROUND_TRIP, DELIVERY_RATE)

_SHARES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p999": 0.999}
_STATISTICS: Final = {"mean": "mean", **{name: f"{share * 100:g}th percentile" for name, share in _SHARES.items()}}


class Reading(NamedTuple):
    """The values that the keys are computed from.

    Attributes:
        points: The points of the source.
        distributions: Samples of the runtime, by its own name of the metric.
        sdk: The values of libtpu's SDK.
    """

    points: Sequence[Point] = ()
    distributions: Mapping[str, Sequence[Sample]] = {}
    sdk: Values = Values()

    def values(self, metric: Metric, task: str = "") -> Iterator[tuple[str, Mapping[str, str | int], Number]]:
        """``hw.id``, attributes and value of each point of a metric, and of a task if one is given."""
        for series, value in self.points:
            attributes = series.attributes
            if series.metric is metric and isinstance(value, (int, float)) and attributes.get(c.NPU_TASK, "") == task:
                yield str(attributes[c.HW_ID]), attributes, value


class Probe(SourceProbe[Tpu, Reading]):
    """The TPUs of this host, or of a TPU node."""

    source_class = Tpu

    def convert(self, source: Tpu, points: list[Point]) -> Reading:
        """Read the distributions as well."""
        driver = source.driver
        distributions = merged(driver.runtime.read(_DISTRIBUTIONS)) if driver and driver.runtime else {}
        return Reading(points, distributions, driver.sdk.values if driver and driver.sdk else Values())

    def read(self) -> Reading | None:
        """Return the current reading; None if nothing can be read."""
        reading = super().read()
        if self._source is not None and reading is not None and not any(any(key.values(reading)) for key in KEYS):
            self.error = "; ".join([*self._source.errors, *self._source.unsupported])
        return reading


def _number(device: str) -> int | None:
    """The number of a device by its ``hw.id``; None for a whole TPU node."""
    found = re.fullmatch("tpu(?:core)?([0-9]+)", device)
    return int(found[1]) if found else None


def _device_key(name: str, unit: str, formula: str, metric: Metric, task: str = "", factor: float = 1) -> Key[Reading]:
    """A key that each device has once: the value of a metric, times a factor."""

    def values(reading: Reading) -> dict[int, Number | None]:
        numbers = {_number(device): value * factor for device, _, value in reading.values(metric, task)}
        return {number: value for number, value in numbers.items() if number is not None}

    return Key(f"tpu.{{i}}.{name}", unit, formula, values, (metric,))


def _duty_cycle(reading: Reading) -> dict[int, Number | None]:
    """Once for each core, also where the two cores of a chip share one."""
    duty = {device: value * 100 for device, _, value in reading.values(c.HW_NPU_UTILIZATION, "general")}
    cores = [
        (device, attributes.get(c.HW_PARENT))
        for device, attributes, _ in reading.values(c.HW_NPU_MEMORY_LIMIT)
        if c.HW_PARENT in attributes
    ]
    numbers = {_number(device): duty.get(str(chip)) for device, chip in cores or zip(duty, duty)}
    return {number: value for number, value in numbers.items() if number is not None}


def _matrix(reading: Reading) -> Number | None:
    return next((value * 100 for _, _, value in reading.values(c.HW_NPU_UTILIZATION, "matrix")), None)


def _queue_size(reading: Reading) -> dict[str, Number | None]:
    return {
        _core(_number(device), attributes.get(c.TPU_CORE_TYPE)): value
        for device, attributes, value in reading.values(c.GOOGLE_TPU_HLO_QUEUE_SIZE)
    }


def _core(number: int | None, core_type: object) -> str:
    """Return the name of a core in libtpu's SDK, ``0-tensorcore``, spelled like W&B."""
    return _word(f"{number}-{core_type or 'unknown'}")


def _word(label: object) -> str:
    """Return a label as W&B spells it in a key."""
    return re.sub("[^a-z0-9]", "_", str(label).lower().replace("+", "plus").replace("%", "pct"))


def _by_core(sample: Sample) -> str:
    return _core(sample.device, sample.core_type)


def _by_size(sample: Sample) -> str:
    return _word(sample.labels.get("buffer-size", ""))


def _distribution_keys(
    name: str, distribution: str, label: Callable[[Sample], str] | None = None, *metrics: Metric, unit: str = "us"
) -> Iterator[Key[Reading]]:
    """A key for each statistic of a distribution.

    Args:
        name: The beginning of the keys, with ``{core}`` or ``{size}`` where the label stands.
        distribution: The runtime's name.
        label: Returns the label of a sample. Samples of one label are taken together.
        metrics: The metrics of this package that measure the same.
        unit: W&B's unit.
    """
    suffix = unit.replace("Mbit/s", "Mbps").capitalize()
    for statistic, words in _STATISTICS.items():

        def values(reading: Reading, share: float | None = _SHARES.get(statistic)) -> dict[str, Number | None]:
            groups: dict[str, list[Mapping[str, Any]]] = {}
            for sample in reading.distributions.get(distribution, ()):
                if sample.distribution and sample.distribution.get("count", 0) > 0:
                    groups.setdefault(label(sample) if label else "", []).append(sample.distribution)
            return {
                group: _mean(distributions) if share is None else _quantile(share, distributions)
                for group, distributions in groups.items()
            }

        yield Key(f"{name}.{statistic}{suffix}", unit, f"{words} of `{distribution}`", values, metrics)


def _mean(distributions: Sequence[Mapping[str, Any]]) -> float | None:
    means = [(each["count"], each["mean"]) for each in distributions if "mean" in each]
    return sum(count * mean for count, mean in means) / sum(count for count, _ in means) if means else None


def _quantile(share: float, distributions: Sequence[Mapping[str, Any]]) -> float | None:
    """A quantile of the distributions with the same buckets as the first one.

    Counts are spread evenly within their buckets; the last bucket has no upper end.
    """
    bounds = distributions[0].get("bounds", ())
    counts = [
        sum(column) for column in zip(*(each["buckets"] for each in distributions if each.get("bounds") == bounds))
    ]
    rank, below = share * sum(counts), 0
    for place, count in enumerate(counts):
        if count > 0 and below + count >= rank:
            low = bounds[place - 1] if place else 0.0
            high = bounds[place] if place < len(bounds) else low
            return float(low + (rank - below) / count * (high - low))
        below += count
    return None


KEYS: Final[tuple[Key[Reading], ...]] = (
    Key("tpu", "%", "the profiler's utilization of matrix units", _matrix, (c.HW_NPU_UTILIZATION,)),
    _device_key(
        "memoryUsage", "%", "HBM in use / HBM of the device", c.HW_NPU_MEMORY_UTILIZATION, factor=100
    ),
    _device_key("memoryUsageBytes", "bytes", "HBM in use", c.HW_NPU_MEMORY_USAGE),
    Key(
        "tpu.{i}.dutyCycle", "%", "duty cycle of the device's chip: on v2 and v3 twice, for each core",
        _duty_cycle, (c.HW_NPU_UTILIZATION,),
    ),
    _device_key("hbmCapacityTotal", "bytes", "HBM of the device", c.HW_NPU_MEMORY_LIMIT),
    _device_key("hbmCapacityUsage", "bytes", "HBM in use", c.HW_NPU_MEMORY_USAGE),
    _device_key(
        "hbmMemoryUsage", "%", "HBM in use / HBM of the device", c.HW_NPU_MEMORY_UTILIZATION, factor=100
    ),
    _device_key(
        "runtimeHbmUtilization", "%", "utilization of the HBM's bandwidth", c.HW_NPU_UTILIZATION, "hbm", 100
    ),
    _device_key(
        "tensorcoreIdleDuration", "s", "time since a program last ran on the device", c.GOOGLE_TPU_IDLE_DURATION
    ),
    Key(
        "tpu.{i}.tensorcoreUtilization", "%", "libtpu's SDK (`LIBTPU=on`), by the core's place in its list",
        lambda reading: dict(enumerate(reading.sdk.tensorcore)), (c.HW_NPU_UTILIZATION,),
    ),
    Key(
        "tpu.{i}.iciLinkHealth", "score", "libtpu's SDK, by the link's place in its list",
        lambda reading: dict(enumerate(reading.sdk.links.values())), (c.GOOGLE_TPU_LINK_HEALTH,),
    ),
    Key(
        "tpu.{i}.throttleScore", "score", "libtpu's SDK", lambda reading: reading.sdk.throttle,
        (c.GOOGLE_TPU_THROTTLE_SCORE,),
    ),
    Key(
        "tpu.hloQueueSize.{core}", "programs", "programs that wait for a core",
        _queue_size, (c.GOOGLE_TPU_HLO_QUEUE_SIZE,),
    ),
    *_distribution_keys(
        "tpu.hloExecTiming.{core}", EXECUTION, _by_core,
        c.GOOGLE_TPU_HLO_EXECUTION_COUNT, c.GOOGLE_TPU_HLO_EXECUTION_TIME,
    ),
    *(
        key
        for name, kind in (
            ("bufferTransferLatency", "dcn"),
            ("inboundBufferTransferLatency", "dcn_inbound"),
            ("hostToDeviceTransferLatency", "host_to_device"),
            ("deviceToHostTransferLatency", "device_to_host"),
            ("collectiveE2ELatency", "collective"),
            ("hostComputeLatency", "compute"),
        )
        for key in _distribution_keys(
            f"tpu.{name}.{{size}}", TRANSFERS[kind], _by_size, c.GOOGLE_TPU_TRANSFER_COUNT, c.GOOGLE_TPU_TRANSFER_TIME
        )
    ),
    *_distribution_keys("tpu.grpcTcpMinRtt", ROUND_TRIP),
    *_distribution_keys("tpu.grpcTcpDeliveryRate", DELIVERY_RATE, unit="Mbit/s"),
)  # fmt: skip
"""The keys that W&B reports for TPUs, now or in an earlier version."""
