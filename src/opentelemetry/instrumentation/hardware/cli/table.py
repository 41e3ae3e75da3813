"""A View as a table: a summary, one line per series, and what is missing."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import NamedTuple

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.cli.layout import GAP, clip, wrap
from opentelemetry.instrumentation.hardware.cli.quantity import duration, rate_text, value_text
from opentelemetry.instrumentation.hardware.cli.summary import summary
from opentelemetry.instrumentation.hardware.model import Attributes, Series
from opentelemetry.instrumentation.hardware.pipeline.view import View
from opentelemetry.instrumentation.hardware.redaction import printable

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

_LEAST = 8  # the least width of a column

_VALUE = 32  # a longer value, a list of facts, does not determine the width of its column


class _Row(NamedTuple):
    """One series."""

    metric: str
    attributes: str
    value: str


def draw(view: View, width: int, bold: bool = False) -> str:
    """Draw the table.

    Args:
        view: The values.
        width: Columns of the terminal.
        bold: Whether headings are bold.
    """
    start, end = ("\x1b[1m", "\x1b[0m") if bold else ("", "")
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(view.time))
    process = "" if view.pid is None else f"   pid {view.pid}"
    window = f"   means and rates (+) of the last {duration(view.window)}" if view.window else ""
    title = f"{socket.gethostname()}   {when}{process}{window}"
    lines = [f"{start}{clip(title, width)}{end}"]
    first = summary(view, width)
    lines += ["", *first] if first else []
    rows = [_Row("METRIC", "", "VALUE"), *_rows(view)]
    heading, *series = _aligned(rows, width)
    lines += ["", f"{start}{heading}{end}", *series]
    missing = [each for each in view.unsupported if each.partition(":")[0] not in view.absent]
    if view.absent:
        missing.append(f"absent: {', '.join(view.absent)} ('otel-hardware doctor --all' shows why)")
    if missing:
        lines += ["", f"{start}missing{end}"]
        for sentence in missing:
            lines += wrap(sentence, max(width, 20), GAP, 2 * GAP)
    return "\n".join(lines) + "\n"


def _rows(view: View) -> Iterator[_Row]:
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
            yield _Row(name, _words(shown, view), text)
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


def _aligned(rows: list[_Row], width: int) -> Iterator[str]:
    """Align the rows in columns. A name that is longer than half the width has a separate line."""
    names = [len(row.metric) for row in rows if len(row.metric) <= width // 2]
    left = max(names) + len(GAP)
    longest = max(len(row.value) for row in rows if len(row.value) <= _VALUE)
    middle = min(max(len(row.attributes) for row in rows), max(width - left - len(GAP) - longest, _LEAST))
    for row in rows:
        metric = row.metric
        if len(metric) > left - len(GAP):
            yield clip(metric, width)
            metric = ""
        start = f"{metric:{left}}{clip(row.attributes, middle):{middle}}{GAP}"
        yield (start + clip(row.value, max(width - len(start), _LEAST))).rstrip()
