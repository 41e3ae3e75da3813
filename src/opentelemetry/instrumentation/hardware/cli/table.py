"""A View as a table: a summary, one line per series, and what is missing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.cli import figures, host_figures
from opentelemetry.instrumentation.hardware.cli.figures import total
from opentelemetry.instrumentation.hardware.cli.text import (
    GAP,
    clip,
    columns,
    duration,
    fraction,
    quantity,
    rate_text,
    value_text,
    wrap,
)
from opentelemetry.instrumentation.hardware.model import Attributes, Series
from opentelemetry.instrumentation.hardware.pipeline.view import View
from opentelemetry.instrumentation.hardware.settings.redaction import printable
from opentelemetry.instrumentation.hardware.system.identity import host_name

# Attributes that identify an object. They precede those that identify an aspect of it.
IDENTITY = (
    c.FILESYSTEM_MOUNTPOINT,
    c.INTERFACE,
    c.HW_NAME,
    c.HW_ID,
    c.DEVICE,
    c.CPU_NUMBER,
    c.PRESSURE_RESOURCE,
    c.NETWORK_TRANSPORT,
    c.GC_GENERATION,
    c.OPENMETRICS_ENDPOINT,
    c.SOURCE,
)

_HIDDEN = frozenset({c.FILESYSTEM_TYPE, c.HW_TYPE, c.HW_PARENT, c.SERVER_ADDRESS, c.SERVER_PORT})

# The attributes of ``hw.gpu.info`` and ``hw.npu.info`` that are shown, with words before their values.
_FACTS = ((c.HW_MODEL, ""), (c.GPU_TYPE, ""), (c.HW_DRIVER_VERSION, "driver "), (c.PCI_BDF, "PCI "))

_LEAST = 8  # the least width of a column, if the terminal has 40

_VALUE = 32  # a longer value, a list of facts, does not determine the width of its column


def draw(view: View, width: int, bold: bool = False) -> str:
    """Draw the table for a terminal of this width."""
    start, end = ("\x1b[1m", "\x1b[0m") if bold else ("", "")
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(view.time))
    process = "" if view.pid is None else f"   pid {view.pid}"
    window = f"   means and rates (+) of the last {duration(view.window)}" if view.window else ""
    title = f"{host_name()}   {when}{process}{window}"
    lines = [f"{start}{clip(title, width)}{end}"]
    first = summary(view, width)
    lines += ["", *first] if first else []
    heading, *series = _aligned([("METRIC", "", "VALUE"), *_rows(view)], width)
    lines += ["", f"{start}{heading}{end}", *series]
    missing = [each for each in view.unsupported if each.partition(":")[0] not in view.absent]
    if view.absent:
        missing.append(f"absent: {', '.join(view.absent)} ('otel-hardware doctor --all' shows why)")
    if missing:
        lines += ["", f"{start}missing{end}"]
        for sentence in missing:
            lines += wrap(sentence, max(width, 20), GAP, 2 * GAP)
    return "\n".join(lines) + "\n"


def _rows(view: View) -> Iterator[tuple[str, str, str]]:
    """Yield metric, attributes and value of each series; the name of a metric only once."""
    for metric, points in view.rows():
        name = printable(metric.name)
        labels = [set(attributes.items()) for _, attributes in points] if metric.endpoint else []
        common = {key for key, _ in set.intersection(*labels)} if labels else set()  # the same for all series
        for value, attributes in points:
            shown: Attributes = {key: word for key, word in attributes.items() if key not in common}
            if metric is c.HW_STATUS:
                if not value:  # the states that do not hold
                    continue
                text = str(attributes[c.HW_STATE])
                shown = {key: word for key, word in attributes.items() if key != c.HW_STATE}
            elif metric in (c.HW_GPU_INFO, c.HW_NPU_INFO):
                facts = _FACTS if metric is c.HW_NPU_INFO else _FACTS[1:]  # the summary has the model of a GPU
                text = ", ".join(f"{word}{attributes[key]}" for key, word in facts if key in attributes)
                shown = {key: word for key, word in attributes.items() if key in IDENTITY}
            else:
                rate = view.rates.get(Series(metric, attributes))
                text = value_text(metric, value) + ("" if rate is None else f"  {rate_text(metric, rate)}")
            yield name, _words(shown, view), text
            name = ""


def _words(attributes: Attributes, view: View) -> str:
    """Format the values of the attributes, identifying ones first."""
    hidden = set(_HIDDEN)
    if c.HW_NAME in attributes:
        hidden.add(c.HW_ID)
    if c.FILESYSTEM_MOUNTPOINT in attributes:
        hidden.add(c.DEVICE)
    names = sorted((key for key in attributes if key not in hidden), key=lambda key: key not in IDENTITY)
    return " ".join(_word(key, str(attributes[key]), view) for key in names)


def _word(key: str, value: str, view: View) -> str:
    if key == c.HW_ID:
        value = view.names.get(value, value)
    return f"cpu {value}" if key == c.CPU_NUMBER else printable(value)


def _aligned(rows: Sequence[tuple[str, str, str]], width: int) -> Iterator[str]:
    """Align the rows in columns. A name that is longer than half the width has a separate line."""
    left = max(len(metric) for metric, _, _ in rows if len(metric) <= width // 2) + len(GAP)
    longest = max(len(value) for *_, value in rows if len(value) <= _VALUE)
    least = max(1, min(_LEAST, width // 4 - len(GAP)))
    middle = min(max(len(words) for _, words, _ in rows), max(width - left - len(GAP) - longest, least))
    for metric, words, value in rows:
        name = metric
        if len(metric) > left - len(GAP):
            yield clip(metric, width)
            name = ""
        start = f"{name:{left}}{clip(words, middle):{middle}}{GAP}"
        yield (start + clip(value, max(width - len(start), least))).rstrip()


# -- the summary


def summary(view: View, width: int) -> list[str]:
    """Return a line for each accelerator, and the lines of the host."""
    devices = _device_lines(view, width)
    host: list[str] = []
    for item in _host(view):  # in as few lines as possible
        if host and len(host[-1]) + 3 + len(item) <= width:
            host[-1] += f"   {item}"
        else:
            host.append(clip(item, width))
    return [*devices, *([""] if devices and host else []), *host]


def _device_lines(view: View, width: int) -> list[str]:
    heading = "device" if view.points(c.HW_NPU_INFO) else "GPU"
    rows = [
        {
            heading: device.name,
            "state": device.state,
            "busy": fraction(device.busy, None, "%"),
            "memory": fraction(device.used, device.total, "By"),
            "power": fraction(device.power, device.power_limit, "W"),
            "temp": fraction(device.temperature, None, "Cel"),
            "throttled": f"{device.reason} {quantity(device.throttled, '%')}" if device.reason else "",
            "model": device.model,
        }
        for device in figures.devices(view)
    ]
    if not rows:
        return []
    titles = [title for title in rows[0] if any(row[title] for row in rows)]
    return columns([titles, *([row[title] or "-" for title in titles] for row in rows)], width)


def _host(view: View) -> Iterator[str]:
    busy = host_figures.cpu_busy(view)
    if busy is not None:
        count = total(view, c.SYSTEM_CPU_LOGICAL_COUNT)
        yield f"CPU {quantity(busy, '%')} of {count}" if count else f"CPU {quantity(busy, '%')}"
    used = host_figures.used_memory(view)
    if used is not None:
        yield f"memory {fraction(used, total(view, c.SYSTEM_MEMORY_LIMIT), 'By')}"
    limit = total(view, c.CONTAINER_MEMORY_LIMIT)
    if limit is not None:
        yield f"container {fraction(total(view, c.CONTAINER_MEMORY_USAGE), limit, 'By')}"
    for name, metric, key in (
        ("disk", c.SYSTEM_DISK_IO, c.DISK_DIRECTION),
        ("network", c.SYSTEM_NETWORK_IO, c.NETWORK_DIRECTION),
    ):
        rates: dict[str, float] = {}
        for _, each in view.points(metric):
            rates[str(each[key])] = rates.get(str(each[key]), 0.0) + figures.rate(view, metric, each)
        if rates:
            yield " ".join((name, *(f"{way} {quantity(rate, 'By')}/s" for way, rate in sorted(rates.items()))))
    if view.pid is not None:
        yield from _process(view)


def _process(view: View) -> Iterator[str]:
    found = (
        ("CPU", total(view, c.PROCESS_TREE_CPU_UTILIZATION, c.PROCESS_CPU_UTILIZATION), "%"),
        ("memory", total(view, c.PROCESS_TREE_MEMORY_USAGE, c.PROCESS_MEMORY_USAGE), "By"),
        ("GPU memory", total(view, c.PROCESS_GPU_MEMORY_USAGE), "By"),
    )
    parts = [f"{name} {quantity(value, unit)}" for name, value, unit in found if value is not None]
    if parts:
        yield f"pid {view.pid} {', '.join(parts)}"
