"""Parse a report of neuron-monitor.

https://awsdocs-neuron.readthedocs-hosted.com/en/latest/tools/neuron-sys-tools/neuron-monitor-user-guide.html

A report has groups, and each group may have an error; the values of a group with an error are dropped. Older versions
of the tool leave out groups and fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from opentelemetry.instrumentation.hardware.drivers.json import decoded, table
from opentelemetry.instrumentation.hardware.model import Number

# Results of an execution.
RESULTS: Final = (
    "completed",
    "completed_with_err",
    "completed_with_num_err",
    "timed_out",
    "incorrect_input",
    "failed_to_queue",
)

ERRORS: Final = ("generic", "numerical", "transient", "model", "runtime", "hardware")

QUANTILES: Final = ("p0", "p1", "p25", "p50", "p75", "p99", "p100")

LATENCIES: Final = {"total": "total_latency", "device": "device_latency"}

HOST_MEMORY: Final = ("application_memory", "constants", "dma_buffers", "tensors")

CORE_MEMORY: Final = ("constants", "model_code", "model_shared_scratchpad", "runtime_memory", "tensors")

ECC: Final = ("mem_ecc_corrected", "mem_ecc_uncorrected", "sram_ecc_corrected", "sram_ecc_uncorrected")

_MAX_COUNT: Final = 4096  # cores, devices and runtimes of an instance


@dataclass(frozen=True)
class Runtime:
    """One process that uses NeuronCores.

    Attributes:
        pid: The PID, in the PID namespace of the Neuron runtime.
        tag: NEURON_PROCESS_TAG of the process; by default its PID in its own namespace.
        used: Bytes of ``host`` and ``device`` memory.
        host: Bytes of host memory by category.
        cores: By core, bytes of device memory by category.
        percent: By core, utilization in percent.
        results: Executions of the period by result.
        errors: Errors by type.
        latency: Seconds by kind and quantile, of the executions of the period.
        cpu: Percent of the instance's CPUs by mode.
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
    def listed_cores(self) -> set[int]:
        """The numbers of the listed cores. Some versions of the tool also list those that the process does not use."""
        return {*self.percent, *self.cores}

    @property
    def used_cores(self) -> set[int]:
        """The numbers of the cores that the process uses: those that are busy or have memory in use, else all."""
        busy = {core for core, percent in self.percent.items() if percent}
        return busy.union(core for core, sizes in self.cores.items() if any(sizes.values())) or self.listed_cores


@dataclass(frozen=True)
class Hardware:
    """The properties of the instance's devices, which are all of one type.

    Attributes:
        model: ``trainium`` or another type.
        memory: Bytes of each device.
        cores: Cores of each device.
        logical: Physical cores that programs see as one core; None from older tools.
    """

    model: str = ""
    memory: int | None = None
    cores: int | None = None
    logical: int | None = None


@dataclass(frozen=True)
class Report:
    """One report.

    Attributes:
        runtimes: The processes that use NeuronCores.
        ecc: By device, memory errors since the driver was loaded, by :data:`ECC`.
        hardware: The devices.
        errors: The errors of groups.
    """

    runtimes: tuple[Runtime, ...] = ()
    ecc: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    hardware: Hardware = field(default_factory=Hardware)
    errors: tuple[str, ...] = ()


def parse(line: bytes) -> Report:
    """Parse one line of the tool.

    Raises:
        ValueError: The line is not a report.
    """
    document = decoded(line)
    if not isinstance(document, dict) or not ({"neuron_runtime_data", "system_data"} & {*document}):
        raise ValueError(f"not a report: {line[:80].decode(errors='replace')!r}")
    errors: list[str] = []
    runtimes = tuple(_runtimes(document.get("neuron_runtime_data"), errors))
    counters = _group(table(document.get("system_data")), "neuron_hw_counters", "", errors)
    hardware = _hardware(_group(document, "neuron_hardware_info", "", errors))
    return Report(runtimes, dict(_ecc(counters)), hardware, tuple(errors))


def _runtimes(entries: object, errors: list[str]) -> Iterator[Runtime]:
    for entry in map(table, _list(entries)):
        pid = _count(entry.get("pid"))
        tag = _text(entry.get("neuron_runtime_tag"))
        if pid is None:
            continue
        of_runtime = f" of {tag or pid}"
        if entry.get("error"):
            errors.append(f"runtime{of_runtime}: {_error(entry)}")
        report = table(entry.get("report"))
        memory = table(_group(report, "memory_used", of_runtime, errors).get("neuron_runtime_used_bytes"))
        breakdown = table(memory.get("usage_breakdown"))
        stats = _group(report, "execution_stats", of_runtime, errors)
        counters = _group(report, "neuroncore_counters", of_runtime, errors)
        cpu = table(_group(report, "neuron_runtime_vcpu_usage", of_runtime, errors).get("vcpu_usage"))
        percents = {}
        for core, counter in _by_core(counters.get("neuroncores_in_use")):
            percent = _number(counter.get("neuroncore_utilization"), 101)
            if percent is not None:
                percents[core] = min(percent, 100)
        yield Runtime(
            pid,
            tag,
            _known(
                {
                    "host": _count(memory.get("host")),
                    "device": _count(memory.get("neuron_device", memory.get("device"))),
                }
            ),
            _counts(breakdown.get("host"), HOST_MEMORY),
            {core: _counts(each, CORE_MEMORY) for core, each in _by_core(breakdown.get("neuroncore_memory_usage"))},
            percents,
            _counts(stats.get("execution_summary"), RESULTS),
            _counts(stats.get("error_summary"), ERRORS),
            dict(_latencies(stats.get("latency_stats"))),
            _known({mode: _number(cpu.get(mode), 100) for mode in ("user", "system")}),
        )


def _latencies(stats: object) -> Iterator[tuple[tuple[str, str], Number]]:
    for kind, name in LATENCIES.items():
        quantiles = table(table(stats).get(name))
        for quantile in QUANTILES:
            seconds = _number(quantiles.get(quantile), 1e6)
            if seconds is not None:
                yield (kind, quantile), seconds


def _ecc(counters: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, int]]]:
    for entry in map(table, _list(counters.get("neuron_devices"))):
        device = _count(entry.get("neuron_device_index"))
        ecc = _counts(entry, ECC)
        if device is not None and device < _MAX_COUNT and ecc:
            yield device, ecc


def _hardware(info: Mapping[str, Any]) -> Hardware:
    return Hardware(
        _text(info.get("neuron_device_type")),
        _count(info.get("neuron_device_memory_size")) or None,
        _count(info.get("neuroncore_per_device_count")) or None,
        _count(info.get("logical_neuroncore_config")) or None,
    )


def _group(report: Mapping[str, Any], name: str, suffix: str, errors: list[str]) -> Mapping[str, Any]:
    """Return a group; empty if it has an error, which is added to the list."""
    group = table(report.get(name))
    if group.get("error"):
        errors.append(f"{name}{suffix}: {_error(group)}")
        return {}
    return group


def _error(group: Mapping[str, Any]) -> str:
    return _text(group["error"]) or "unknown error"


def _number(value: object, most: float) -> Number | None:
    """Return a number from 0 to an upper bound, else None. Numbers in quotes are refused; the tool prints none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if 0 <= value <= most else None


def _count(value: object) -> int | None:
    """Return an integer from 0 to 2**53, else None. Some versions of the tool print integers as floats."""
    number = _number(value, 1 << 53)
    return int(number) if number is not None and number == int(number) else None


def _counts(group: object, names: tuple[str, ...]) -> dict[str, int]:
    return _known({name: _count(table(group).get(name)) for name in names})


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _by_core(cores: object) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the entries of a table by the number of the core in the instance."""
    for name, entry in table(cores).items():
        if name.isascii() and name.isdigit() and len(name) < 5 and int(name) < _MAX_COUNT:
            yield int(name), table(entry)


def _list(value: object) -> list[Any]:
    return value[:_MAX_COUNT] if isinstance(value, list) else []


def _text(value: object) -> str:
    return value.strip()[:255] if isinstance(value, str) and value.strip().isprintable() else ""
