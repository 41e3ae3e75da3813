"""What neuron-monitor says at one moment, and which of it is believed.

https://awsdocs-neuron.readthedocs-hosted.com/en/latest/tools/neuron-sys-tools/neuron-monitor-user-guide.html

A report has groups, and each group an error of its own; what a group with an error says is not believed. Older tools
leave groups and fields out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from opentelemetry.instrumentation.hardware.drivers.json import DECODER, number
from opentelemetry.instrumentation.hardware.model import Number

RESULTS: Final = (
    "completed",
    "completed_with_err",
    "completed_with_num_err",
    "timed_out",
    "incorrect_input",
    "failed_to_queue",
)
"""How an execution can end."""

ERRORS: Final = ("generic", "numerical", "transient", "model", "runtime", "hardware")

QUANTILES: Final = ("p0", "p1", "p25", "p50", "p75", "p99", "p100")

LATENCIES: Final = {"total": "total_latency", "device": "device_latency"}

HOST_MEMORY: Final = ("application_memory", "constants", "dma_buffers", "tensors")

CORE_MEMORY: Final = ("constants", "model_code", "model_shared_scratchpad", "runtime_memory", "tensors")

ECC: Final = ("mem_ecc_corrected", "mem_ecc_uncorrected", "sram_ecc_corrected", "sram_ecc_uncorrected")

_MOST: Final = 4096
"""Cores, devices or runtimes that an instance may have; more is none of a machine's."""


@dataclass(frozen=True)
class Runtime:
    """One application that uses NeuronCores.

    Attributes:
        pid: its process, by the number that the runtime knows.
        tag: what NEURON_PROCESS_TAG says there, by default the number.
        used: bytes by ``host`` and ``device``.
        host: bytes of host memory by category.
        cores: by core, bytes of device memory by category.
        percent: by core, its utilization.
        results: executions that ended so in the period.
        errors: errors by type.
        latency: by kind and quantile, seconds; of the executions of the period.
        cpu: percent of the instance's CPUs by mode.
    """

    pid: int
    tag: str
    used: Mapping[str, int] = field(default_factory=dict)
    host: Mapping[str, int] = field(default_factory=dict)
    cores: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    percent: Mapping[int, Number] = field(default_factory=dict)
    results: Mapping[str, int] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)
    latency: Mapping[tuple[str, str], Number] = field(default_factory=dict)
    cpu: Mapping[str, Number] = field(default_factory=dict)

    @property
    def named(self) -> set[int]:
        """The cores that it uses."""
        return {*self.percent, *self.cores}


@dataclass(frozen=True)
class Hardware:
    """What the instance has.

    Attributes:
        model: what kind of device, ``trainium``.
        memory: bytes of each device.
        cores: cores of each device.
        logical: how many of them make one that programs see; None where the tool is older than that.
    """

    model: str = ""
    memory: int | None = None
    cores: int | None = None
    logical: int | None = None


@dataclass(frozen=True)
class Report:
    """What is said at one moment.

    Attributes:
        runtimes: the applications.
        ecc: by device, memory errors since the driver was loaded, by :data:`ECC`.
        hardware: what the instance has.
        errors: the errors that groups speak of, a sentence each.
    """

    runtimes: tuple[Runtime, ...] = ()
    ecc: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    hardware: Hardware = field(default_factory=Hardware)
    errors: tuple[str, ...] = ()


def parse(line: bytes) -> Report:
    """What one line says.

    Raises:
        ValueError: it is no report.
    """
    words = _document(line)
    wrong: list[str] = []
    runtimes = tuple(_runtimes(words.get("neuron_runtime_data"), wrong))
    counters = _group(_table(words.get("system_data")), "neuron_hw_counters", "", wrong)
    return Report(runtimes, dict(_errors(counters)), _hardware(words.get("neuron_hardware_info"), wrong), tuple(wrong))


def _runtimes(entries: object, wrong: list[str]) -> Iterator[Runtime]:
    for each in (entries if isinstance(entries, list) else [])[:_MOST]:
        words = _table(each)
        pid = count(words.get("pid"))
        tag = _text(words.get("neuron_runtime_tag"))
        if pid is None:
            continue
        whose = f" of {tag or pid}"
        _complain(words.get("error"), f"the runtime{whose}", wrong)
        report = _table(words.get("report"))
        memory = _table(_group(report, "memory_used", whose, wrong).get("neuron_runtime_used_bytes"))
        parts = _table(memory.get("usage_breakdown"))
        stats = _group(report, "execution_stats", whose, wrong)
        counters = _group(report, "neuroncore_counters", whose, wrong)
        usage = _table(_group(report, "neuron_runtime_vcpu_usage", whose, wrong).get("vcpu_usage"))
        yield Runtime(
            pid,
            tag,
            _known({"host": count(memory.get("host")), "device": count(memory.get("neuron_device"))}),
            _counts(parts.get("host"), HOST_MEMORY),
            {core: _counts(each, CORE_MEMORY) for core, each in _indexed(parts.get("neuroncore_memory_usage"))},
            dict(_percents(counters.get("neuroncores_in_use"))),
            _counts(stats.get("execution_summary"), RESULTS),
            _counts(stats.get("error_summary"), ERRORS),
            dict(_latencies(stats.get("latency_stats"))),
            _known({mode: number(usage.get(mode), 0, 100) for mode in ("user", "system")}),
        )


def _percents(cores: object) -> Iterator[tuple[int, Number]]:
    for core, each in _indexed(cores):
        percent = number(each.get("neuroncore_utilization"), 0, 101)
        if percent is not None:
            yield core, min(percent, 100)


def _latencies(words: object) -> Iterator[tuple[tuple[str, str], Number]]:
    for kind, name in LATENCIES.items():
        quantiles = _table(_table(words).get(name))
        for quantile in QUANTILES:
            seconds = number(quantiles.get(quantile), 0, 1e6)
            if seconds is not None:
                yield (kind, quantile), seconds


def _errors(counters: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, int]]]:
    devices = counters.get("neuron_devices")
    for each in (devices if isinstance(devices, list) else [])[:_MOST]:
        device = count(_table(each).get("neuron_device_index"))
        found = _counts(each, ECC)
        if device is not None and device < _MOST and found:
            yield device, found


def _hardware(words: object, wrong: list[str]) -> Hardware:
    said = _table(words)
    _complain(said.get("error"), "neuron_hardware_info", wrong)
    if said.get("error"):
        return Hardware()
    return Hardware(
        _text(said.get("neuron_device_type")),
        count(said.get("neuron_device_memory_size")) or None,
        count(said.get("neuroncore_per_device_count")) or None,
        count(said.get("logical_neuroncore_config")) or None,
    )


def _group(report: Mapping[str, Any], name: str, whose: str, wrong: list[str]) -> Mapping[str, Any]:
    """A group that has no error."""
    found = _table(report.get(name))
    if found.get("error"):
        _complain(found["error"], name + whose, wrong)
        return {}
    return found


def _complain(error: object, who: str, wrong: list[str]) -> None:
    if error:
        wrong.append(f"{who}: {_text(error) or 'an error without words'}")


# -- numbers


def count(value: object) -> int | None:
    """A number of times, or of bytes; some versions write whole numbers as others."""
    found = number(value, 0, 1 << 53)
    return int(found) if found is not None and found == int(found) else None


def _counts(words: object, names: tuple[str, ...]) -> dict[str, int]:
    table = _table(words)
    return _known({name: count(table.get(name)) for name in names})


def _known(said: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in said.items() if value is not None}


def _indexed(words: object) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """What is said of each core, by its number in the instance."""
    for name, each in _table(words).items():
        if name.isascii() and name.isdigit() and len(name) < 5 and int(name) < _MOST:
            yield int(name), _table(each)


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value.strip()[:255] if isinstance(value, str) and value.strip().isprintable() else ""


# -- documents


def _document(line: bytes) -> Mapping[str, Any]:
    try:
        found = DECODER.decode(line.decode(errors="replace"))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not ({"neuron_runtime_data", "system_data"} & {*found}):
        raise ValueError(f"it says {line[:80].decode(errors='replace')!r}, which is no report")
    return found
