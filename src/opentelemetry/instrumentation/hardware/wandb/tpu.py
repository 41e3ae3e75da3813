"""A TPU as it stands at one moment, in W&B's keys and by W&B's formulas."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.drivers import DriverError, Drivers
from opentelemetry.instrumentation.hardware.model import Number, Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources.tpu import kernel_of, profiler, sdk
from opentelemetry.instrumentation.hardware.sources.tpu import runtime as r
from opentelemetry.instrumentation.hardware.sources.tpu.driver import Sample
from opentelemetry.instrumentation.hardware.sources.tpu.presence import Ways
from opentelemetry.instrumentation.hardware.sources.tpu.reading import Reader
from opentelemetry.instrumentation.hardware.wandb.probe import Key
from opentelemetry.instrumentation.hardware.wandb.probe import Probe as BaseProbe

_ALL: Final = (*r.OFTEN, *r.SELDOM, r.ROUND_TRIP, r.DELIVERY)

Pairs: TypeAlias = "Iterator[tuple[str, Number]]"


class Moment(NamedTuple):
    """What is said of the TPUs at one moment, in all ways that they are asked."""

    runtime: Mapping[str, Sequence[Sample]]
    profiler: profiler.Said
    driver: sdk.Said

    def gauges(self, name: str) -> dict[int, Number]:
        """One metric of the runtime's, by device."""
        return r.by_device(self.runtime.get(name, ()))


class Probe(BaseProbe[Moment]):
    """The TPUs of this host."""

    def __init__(self, config: Config, pid: int, environ: Mapping[str, str] = os.environ) -> None:
        super().__init__(config, pid)
        self._environ = environ
        self._drivers = Drivers()
        self._ways = Ways(config, environ, kernel_of(self._drivers))
        self.expected = bool(self._ways)
        self._reader: Reader | None = None

    def read(self) -> Moment | None:
        """Return what all interfaces report; None if they cannot be reached."""
        try:
            if self._reader is None:
                self._reader = Reader(self._ways, self.config, self._environ, self._drivers)
            said = Moment(r.merged(self._reader.ask(_ALL)), self._reader.look(), self._reader.driver())
        except (Unavailable, DriverError, OSError, ValueError) as error:
            self.error = str(error)
            return None
        self.error = "" if any(said.runtime.values()) or said.profiler.matrix is not None else self._why()
        return said

    def _why(self) -> str:
        return "; ".join([*self._reader.errors(), *self._reader.unsupported()] if self._reader else ())

    def close(self) -> None:
        """Let go of everything."""
        self._drivers.close()


def _plain(key: str, metric: str) -> Callable[[Moment], Pairs]:
    return lambda moment: ((key.format(i=number), value) for number, value in moment.gauges(metric).items())


def _duty(moment: Moment) -> Pairs:
    """Once for each core, also where two of them have one duty cycle."""
    duty, cores = moment.gauges(r.DUTY), sorted({*moment.gauges(r.USED), *moment.gauges(r.TOTAL)})
    listed = list(duty.items())
    if cores and len(cores) == 2 * len(duty):
        listed = [(core, listed[place // 2][1]) for place, core in enumerate(cores)]
    for number, percent in listed:
        yield f"tpu.{number}.dutyCycle", percent


def _share(key: str) -> Callable[[Moment], Pairs]:
    def values(moment: Moment) -> Pairs:
        total = moment.gauges(r.TOTAL)
        for number, used in moment.gauges(r.USED).items():
            if total.get(number):
                yield key.format(i=number), used / total[number] * 100

    return values


def _matrix(moment: Moment) -> Pairs:
    if moment.profiler.matrix is not None:
        yield "tpu", moment.profiler.matrix


def _queue(moment: Moment) -> Pairs:
    for series in moment.runtime.get(r.QUEUE, ()):
        if series.value is not None and series.value >= 0:
            yield f"tpu.hloQueueSize.{_core(series)}", series.value


def _core(series: Sample) -> str:
    """A core as libtpu's SDK calls it, ``0-tensorcore``, in W&B's letters."""
    return _word(f"{r.device(series)}-{r.core_type(series) or 'unknown'}")


def _word(label: object) -> str:
    """A label as W&B puts it into a key."""
    return re.sub("[^a-z0-9]", "_", str(label).lower().replace("+", "plus").replace("%", "pct"))


def _size(series: Sample) -> str:
    return _word(series.labels["buffer-size"]) if "buffer-size" in series.labels else ""


def _whole(series: Sample) -> str:
    return ""


def _statistics(key: str, unit: str, metric: str, label: Callable[[Sample], str] = _size) -> Callable[[Moment], Pairs]:
    def values(moment: Moment) -> Pairs:
        listed: dict[str, list[Mapping[str, Any]]] = {}
        for series in moment.runtime.get(metric, ()):
            if series.distribution and series.distribution.get("count", 0) > 0:
                listed.setdefault(label(series), []).append(series.distribution)
        for name, distributions in listed.items():
            for statistic, value in _five(distributions):
                yield f"{key}{name and '.'}{name}.{statistic}{unit}", value

    return values


def _five(distributions: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, float]]:
    """The mean and four quantiles of distributions taken together."""
    means = [(each["count"], each["mean"]) for each in distributions if "mean" in each]
    sums = [(each["count"], each["sum"] / each["count"]) for each in distributions if "sum" in each]
    if means or sums:
        yield "mean", sum(count * mean for count, mean in means + sums) / sum(count for count, _ in means + sums)
    first = distributions[0]
    for word, part in (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p999", 0.999)):
        if "quantiles" in first:
            found = [value for share, value in first["quantiles"] if share in (part, part * 100)]
        else:
            alike = [each["buckets"] for each in distributions if each.get("bounds") == first.get("bounds")]
            found = (
                _quantile(part, [sum(column) for column in zip(*alike)], first["bounds"]) if "bounds" in first else []
            )
        for value in found[:1]:
            yield word, value


def _quantile(part: float, buckets: Sequence[int], bounds: Sequence[float]) -> list[float]:
    """Where a share of the counts lies below, evenly spread within its bucket; the last bucket has no end."""
    rank, below = part * sum(buckets), 0
    for place, count in enumerate(buckets):
        if count > 0 and below + count >= rank:
            low = bounds[place - 1] if place else 0.0
            high = bounds[place] if place < len(bounds) else low
            return [low + (rank - below) / count * (high - low)]
        below += count
    return []


def _tensorcore(moment: Moment) -> Pairs:
    for number, percent in enumerate(moment.driver.tensorcore):
        if percent is not None:
            yield f"tpu.{number}.tensorcoreUtilization", percent


def _links(moment: Moment) -> Pairs:
    return ((f"tpu.{place}.iciLinkHealth", health) for place, health in enumerate(moment.driver.links.values()))


def _throttle(moment: Moment) -> Pairs:
    return ((f"tpu.{number}.throttleScore", score) for number, score in moment.driver.throttle.items())


def _latencies() -> Iterator[Key[Moment]]:
    for name, kind in (
        ("bufferTransferLatency", "dcn"),
        ("inboundBufferTransferLatency", "dcn_inbound"),
        ("hostToDeviceTransferLatency", "host_to_device"),
        ("deviceToHostTransferLatency", "device_to_host"),
        ("collectiveE2ELatency", "collective"),
        ("hostComputeLatency", "compute"),
    ):
        words = f"mean, p50, p90, p95, p999 of `{r.TRANSFERS[kind]}`, by size of buffer"
        key = f"tpu.{name}"
        yield Key(
            f"{key}.{{label}}.{{stat}}Us",
            "us",
            words,
            _statistics(key, "Us", r.TRANSFERS[kind]),
            (c.GOOGLE_TPU_TRANSFER_COUNT, c.GOOGLE_TPU_TRANSFER_TIME),
        )


KEYS: Final[tuple[Key[Moment], ...]] = (
    Key("tpu", "%", "the profiler's utilization of matrix units", _matrix, (c.HW_NPU_UTILIZATION,)),
    Key(
        "tpu.{i}.memoryUsage",
        "%",
        "HBM in use / HBM of the device",
        _share("tpu.{i}.memoryUsage"),
        (c.HW_NPU_MEMORY_UTILIZATION,),
    ),
    Key(
        "tpu.{i}.memoryUsageBytes",
        "bytes",
        "HBM in use",
        _plain("tpu.{i}.memoryUsageBytes", r.USED),
        (c.HW_NPU_MEMORY_USAGE,),
    ),
    Key(
        "tpu.{i}.dutyCycle",
        "%",
        "duty cycle of the device's chip: on v2 and v3 twice, for each core",
        _duty,
        (c.HW_NPU_UTILIZATION,),
    ),
    Key(
        "tpu.{i}.hbmCapacityTotal",
        "bytes",
        "HBM of the device",
        _plain("tpu.{i}.hbmCapacityTotal", r.TOTAL),
        (c.HW_NPU_MEMORY_LIMIT,),
    ),
    Key(
        "tpu.{i}.hbmCapacityUsage",
        "bytes",
        "HBM in use",
        _plain("tpu.{i}.hbmCapacityUsage", r.USED),
        (c.HW_NPU_MEMORY_USAGE,),
    ),
    Key(
        "tpu.{i}.hbmMemoryUsage",
        "%",
        "HBM in use / HBM of the device",
        _share("tpu.{i}.hbmMemoryUsage"),
        (c.HW_NPU_MEMORY_UTILIZATION,),
    ),
    Key(
        "tpu.{i}.runtimeHbmUtilization",
        "%",
        "utilization of the HBM's bandwidth",
        _plain("tpu.{i}.runtimeHbmUtilization", r.BANDWIDTH),
        (c.HW_NPU_UTILIZATION,),
    ),
    Key(
        "tpu.{i}.tensorcoreIdleDuration",
        "s",
        "time since a program last ran on the device",
        _plain("tpu.{i}.tensorcoreIdleDuration", r.IDLE),
        (c.GOOGLE_TPU_IDLE_DURATION,),
    ),
    Key(
        "tpu.{i}.tensorcoreUtilization",
        "%",
        "libtpu's SDK (`LIBTPU=on`), by the core's place in its list",
        _tensorcore,
        (c.HW_NPU_UTILIZATION,),
    ),
    Key(
        "tpu.{i}.iciLinkHealth",
        "score",
        "libtpu's SDK, by the link's place in its list",
        _links,
        (c.GOOGLE_TPU_LINK_HEALTH,),
    ),
    Key("tpu.{i}.throttleScore", "score", "libtpu's SDK", _throttle, (c.GOOGLE_TPU_THROTTLE_SCORE,)),
    Key("tpu.hloQueueSize.{core}", "programs", "programs that wait for a core", _queue, (c.GOOGLE_TPU_HLO_QUEUE_SIZE,)),
    Key(
        "tpu.hloExecTiming.{core}.{stat}Us",
        "us",
        f"mean, p50, p90, p95, p999 of `{r.EXECUTION}`",
        _statistics("tpu.hloExecTiming", "Us", r.EXECUTION, _core),
        (c.GOOGLE_TPU_HLO_EXECUTION_COUNT, c.GOOGLE_TPU_HLO_EXECUTION_TIME),
    ),
    *_latencies(),
    Key(
        "tpu.grpcTcpMinRtt.{stat}Us",
        "us",
        f"mean, p50, p90, p95, p999 of `{r.ROUND_TRIP}`",
        _statistics("tpu.grpcTcpMinRtt", "Us", r.ROUND_TRIP, _whole),
    ),
    Key(
        "tpu.grpcTcpDeliveryRate.{stat}Mbps",
        "Mbit/s",
        f"mean, p50, p90, p95, p999 of `{r.DELIVERY}`",
        _statistics("tpu.grpcTcpDeliveryRate", "Mbps", r.DELIVERY, _whole),
    ),
)
"""What W&B says of TPUs, now or once."""
