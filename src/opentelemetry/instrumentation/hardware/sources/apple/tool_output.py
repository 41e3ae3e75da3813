"""Parse the output of ``apple_gpu_stats``, ``macmon`` and ``ioreg``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from opentelemetry.instrumentation.hardware.accelerators.fields import Field
from opentelemetry.instrumentation.hardware.drivers.json import DECODER, table
from opentelemetry.instrumentation.hardware.model import Number, Unavailable
from opentelemetry.instrumentation.hardware.sources.apple import fields as f

# Prefix of the class names of Apple GPUs. Intel and AMD GPUs report other values under the same keys.
_AGX = "AGXAccelerator"

# The kinds of cores. The faster ones of an M5 Pro are S (super) cores, and its P cores are the others.
_CORES = ("E", "P", "S")

_MAX_FANS = 16

_MAX_LIST = 1 << 20  # bytes of a property list. The parser takes seconds for a much longer one.


class Output(NamedTuple):
    """The output of a tool.

    Attributes:
        values: The plausible values by part of the Mac, in the units of the tool.
        model: The name of the chip; "" if unknown.
        names: The names of parts that are called otherwise on this chip.
    """

    values: Mapping[str, Mapping[Field, Number]]
    model: str = ""
    names: Mapping[str, str] = MappingProxyType({})


def parse_stats(text: bytes) -> Output:
    """Parse the output of ``apple_gpu_stats``, of either generation.

    Raises:
        Unavailable: There is no GPU of Apple.
        ValueError: There is no document, or it has no plausible number.
    """
    document = _json_object(text)
    if not document:
        raise Unavailable("apple_gpu_stats reports no GPU")
    vendor = document.get("vendor")
    if isinstance(vendor, str) and vendor and "apple" not in vendor.lower():
        raise Unavailable(f"apple_gpu_stats reports a GPU of another vendor: {vendor.strip()[:40]!r}")
    is_second = "inUseSystemMemory" in document
    values = _select(document, f.STATS_2 if is_second else f.STATS_1)
    gpu = values.setdefault(f.GPU, {})
    sensors = [_plausible(f.TEMPERATURE, document.get(name)) for name in f.STATS_2_TEMPERATURES if is_second]
    celsius = [each for each in sensors if each is not None]
    if celsius:
        gpu[f.TEMPERATURE] = sum(celsius) / len(celsius)
    # A utilization of 0 is plausible if another value shows that it was measured.
    measured = {f.MEMORY_USED, f.MEMORY_ALLOCATED} & gpu.keys() if is_second else gpu.keys() - {f.UTILIZATION}
    if not measured:
        gpu.pop(f.RECOVERIES, None)
        if gpu.get(f.UTILIZATION) == 0:
            del gpu[f.UTILIZATION]
    return _output(values, document.get("name"))


def parse_ioreg(text: bytes) -> Output:
    """Parse the output of ``ioreg -a``, a property list.

    Raises:
        Unavailable: There is no GPU of Apple.
        ValueError: There is no property list, or it has no plausible number.
    """
    import plistlib  # few programs need it

    if len(text) > _MAX_LIST:
        raise ValueError(f"ioreg printed more than {_MAX_LIST >> 20} MiB")
    if not text.strip():
        raise Unavailable("ioreg reports no GPU")
    try:
        document = plistlib.loads(text, fmt=plistlib.FMT_XML)
    except Exception as error:  # plistlib raises many kinds of errors for an invalid document
        raise ValueError(f"ioreg printed no property list: {error}") from None
    entries = [entry for entry in (document if isinstance(document, list) else [document]) if isinstance(entry, dict)]
    classes = [str(entry.get("IOObjectClass") or entry.get("IOClass") or "")[:40] for entry in entries]
    gpu = next((entry for entry, name in zip(entries, classes) if name.startswith(_AGX)), None)
    if gpu is None:
        raise Unavailable(f"ioreg reports no Apple GPU, only {', '.join(map(repr, classes)) or 'an empty list'}")
    statistics = gpu.get("PerformanceStatistics")
    if not isinstance(statistics, dict):
        raise ValueError("ioreg reports no PerformanceStatistics of the GPU")
    return _output(_select(statistics, f.IOREG), gpu.get("model"))


def parse_macmon(line: bytes) -> Output:
    """Parse a line of ``macmon pipe``, of any version.

    Raises:
        ValueError: There is no document, or it has no plausible number.
    """
    document = dict(_json_object(line))
    for unit in ("gpu", "ecpu", "pcpu"):
        pair = document.get(f"{unit}_usage")
        if isinstance(pair, list) and len(pair) == 2:
            document = {f"{unit}_freq_mhz": pair[0], f"{unit}_scaled_ratio": pair[1], **document}
    document |= {f"temp/{name}": celsius for name, celsius in table(document.get("temp")).items()}
    values = _select(document, f.MACMON)
    gpu = values.setdefault(f.GPU, {})
    # The power of a CPU is never 0: it is unknown since macOS 27, or because this macmon does not know the chip. In the
    # latter case the clocks of the CPU are unknown too, and 0 MHz does not stand for a GPU that has been off.
    if f.POWER not in values.get(f.CPU, {}):
        is_off = f.FREQUENCY not in gpu and not values.keys().isdisjoint((f.E_CORES, f.P_CORES))
        if f.FREQUENCY not in gpu and not is_off:
            gpu.pop(f.ACTIVE, None)
            gpu.pop(f.SCALED, None)
        for part in (f.ANE,) if is_off else (f.GPU, f.ANE):
            if values.get(part, {}).get(f.IDLE_POWER) == 0:
                del values[part][f.IDLE_POWER]
    fans = document.get("fans")
    for index, each in enumerate(map(table, fans[:_MAX_FANS] if isinstance(fans, list) else ())):
        name = each.get("name", "")  # macmon leaves out a fan that it cannot read
        fan = name if isinstance(name, str) and re.fullmatch("fan[0-9]{1,2}", name) else f"fan{index}"
        speed, top = (_plausible(f.FAN_SPEED, each.get(key)) for key in ("rpm", "max_rpm"))
        if speed is not None and top and speed <= 2 * top:
            values[fan] = {f.FAN_SPEED: speed, f.FAN_SPEED_RATIO: speed / top}
        elif speed and not top:
            values[fan] = {f.FAN_SPEED: speed}
    soc = table(document.get("soc"))
    labels = {part: soc.get(f"{part}_label") for part in (f.E_CORES, f.P_CORES)}
    names = {part: f"{label} cores" for part, label in labels.items() if label in _CORES}
    return _output(values, soc.get("chip_name"))._replace(names=names)


def mean(outputs: Sequence[Output]) -> Output:
    """Return the mean of several outputs, with equal weights."""
    lists: dict[str, dict[Field, list[Number]]] = {}
    for output in outputs:
        for part, values in output.values.items():
            for field, value in values.items():
                lists.setdefault(part, {}).setdefault(field, []).append(value)
    means = {part: {field: sum(each) / len(each) for field, each in values.items()} for part, values in lists.items()}
    return outputs[-1]._replace(values=means) if len(outputs) > 1 else outputs[0]


def _output(values: Mapping[str, Mapping[Field, Number]], model: object) -> Output:
    known = {part: of_part for part, of_part in values.items() if of_part}
    if not known:
        raise ValueError("the tool reports no plausible number")
    name = model.strip()[:100] if isinstance(model, str) and model.isprintable() else ""
    return Output(known, name)


def _select(document: Mapping[str, Any], table: Mapping[str, tuple[str, Field]]) -> dict[str, dict[Field, Number]]:
    """The plausible values of a document, by part of the Mac."""
    values: dict[str, dict[Field, Number]] = {}
    for key, (part, field) in table.items():
        number = _plausible(field, document.get(key))
        if number is not None:
            values.setdefault(part, {})[field] = number
    return values


def _plausible(field: Field, value: object) -> Number | None:
    """Return the value if it is a plausible number, and an integer if its unit is bytes; else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if field.series.metric.unit == "By" and not isinstance(value, int):
        return None
    return value if field.is_plausible(value) else None


def _json_object(text: bytes) -> Mapping[str, Any]:
    """Return the first JSON object in a text, which may be surrounded by other output."""
    printed = text.decode(errors="replace")
    begin = printed.find("{")
    if begin < 0:
        raise ValueError(
            f"the tool printed {printed.strip()[:80]!r}" if printed.strip() else "the tool printed nothing"
        )
    try:
        document, _ = DECODER.raw_decode(printed, begin)
    except (ValueError, RecursionError):
        raise ValueError(f"the tool printed {printed[begin : begin + 80]!r}, which is not JSON") from None
    assert isinstance(document, dict)
    return document
