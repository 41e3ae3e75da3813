"""The page of a device: what holds it back, all of its values, their history, its parts and its processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.bottlenecks.judge import LEAST, Verdict
from opentelemetry.instrumentation.hardware.bottlenecks.signals import SIGNALS
from opentelemetry.instrumentation.hardware.cli import figures
from opentelemetry.instrumentation.hardware.cli.figures import Device
from opentelemetry.instrumentation.hardware.cli.text import duration, fraction, quantity, rate_text, value_text, wrap
from opentelemetry.instrumentation.hardware.cli.top.devices import device_graphs
from opentelemetry.instrumentation.hardware.cli.top.feed import Readout
from opentelemetry.instrumentation.hardware.cli.top.history import History
from opentelemetry.instrumentation.hardware.cli.top.process_panels import command
from opentelemetry.instrumentation.hardware.cli.top.shapes import (
    BAD,
    DIM,
    GOOD,
    LABEL,
    STRONG,
    WARNING,
    Line,
    fitted,
    item,
    labelled,
    percent,
    size,
    whole,
    width_of,
)
from opentelemetry.instrumentation.hardware.cli.top.widgets import Drawn
from opentelemetry.instrumentation.hardware.cli.why import compared, sentence
from opentelemetry.instrumentation.hardware.model import Attributes, Metric, Number, Series
from opentelemetry.instrumentation.hardware.pipeline.view import View

# The limit that is shown behind a value: of the same domain, and for power the one that is enforced.
_LIMITS: Mapping[Metric, Metric] = {
    c.HW_GPU_MEMORY_USAGE: c.HW_GPU_MEMORY_LIMIT,
    c.HW_NPU_MEMORY_USAGE: c.HW_NPU_MEMORY_LIMIT,
    c.HW_GPU_BAR1_USAGE: c.HW_GPU_BAR1_LIMIT,
    c.HW_POWER: c.HW_POWER_LIMIT,
    c.HW_GPU_FREQUENCY: c.HW_GPU_FREQUENCY_LIMIT,
    c.HW_GPU_PCIE_GENERATION: c.HW_GPU_PCIE_GENERATION_LIMIT,
    c.HW_GPU_PCIE_WIDTH: c.HW_GPU_PCIE_WIDTH_LIMIT,
}

# The rows of the page, each with its metrics and the word before their values.
_ROWS: Sequence[tuple[str, Mapping[Metric, str]]] = (
    ("busy", {c.HW_GPU_UTILIZATION: "", c.HW_NPU_UTILIZATION: "", c.HW_GPU_SM_OCCUPANCY: "occupancy"}),
    (
        "memory",
        {
            c.HW_GPU_MEMORY_USAGE: "",
            c.HW_NPU_MEMORY_USAGE: "",
            c.HW_GPU_MEMORY_UTILIZATION: "",
            c.HW_NPU_MEMORY_UTILIZATION: "",
            c.HW_GPU_MEMORY_PEAK: "peak",
            c.HW_GPU_BAR1_USAGE: "BAR1",
        },
    ),
    ("power", {c.HW_POWER: "", c.HW_POWER_PEAK: "peak", c.HW_POWER_INSTANT: "now", c.HW_VOLTAGE: ""}),
    ("heat", {c.HW_TEMPERATURE: "", c.HW_TEMPERATURE_PEAK: "peak", c.HW_FAN_SPEED: "fan", c.HW_FAN_SPEED_RATIO: "fan"}),
    ("heat limits", {c.HW_TEMPERATURE_LIMIT: ""}),
    ("clocks", {c.HW_GPU_FREQUENCY: "", c.HW_NPU_FREQUENCY: "", c.HW_GPU_PERFORMANCE_STATE: "P-state"}),
    (
        "links",
        {c.HW_GPU_PCIE_GENERATION: "PCIe generation", c.HW_GPU_PCIE_WIDTH: "lanes", c.HW_GPU_NVLINK_UP: "NVLinks"},
    ),
    (
        "program",
        {c.PROCESS_GPU_MEMORY_USAGE: "memory", c.PROCESS_GPU_UTILIZATION: "", c.PROCESS_NPU_UTILIZATION: ""},
    ),
)

_SHOWN_OTHERWISE = frozenset(
    {
        *_LIMITS.values(),
        c.HW_GPU_INFO,
        c.HW_NPU_INFO,
        c.HW_STATUS,
        c.HW_ENERGY,
        c.HW_ERRORS,
        c.HW_GPU_IO,
        c.HW_GPU_NVLINK_IO,
        c.HW_GPU_THROTTLE_TIME,
        c.HW_GPU_BOTTLENECK_TIME,
        c.HW_GPU_TIME,
        c.HW_POWER_UTILIZATION,
        c.HW_GPU_UTILIZATION_PEAK,
    }
)

_HIDDEN = frozenset({c.HW_ID, c.HW_NAME, c.HW_TYPE, c.HW_PARENT})

Point = tuple[Number, Attributes]
Points = Mapping[Metric, Sequence[Point]]


def device_page(readout: Readout, history: History, device: Device, width: int, height: int) -> Drawn:
    """Return the page. Graphs fill what is left of the screen."""
    view = readout.view
    points = {
        metric: own
        for metric, points in view.rows()
        if (own := [point for point in points if point[1].get(c.HW_ID) == device.id])
    }
    lines = [*_verdict(readout.verdicts.get(device.id), width)]
    style = {"failed": BAD, "degraded": WARNING}.get(device.state, GOOD)
    lines += labelled("state", [[(device.state or "ok", style)]], width)
    for name, metrics in _ROWS:
        lines += labelled(name, [*_values(view, points, metrics)], width)
    joules = readout.energy.get(device.id)
    if joules is not None:
        since = [("since the start of this view", DIM)]
        lines += labelled("energy", [item("", quantity(joules, "J")), since], width)
    lines += labelled("throttled", [*_throttling(view, points)], width)
    lines += labelled("traffic", [*_traffic(view, device)], width)
    lines += labelled("errors", [*_errors(view, points)], width)
    lines += labelled("others", [*_others(view, points)], width)
    cards = [attributes for metric in (c.HW_GPU_INFO, c.HW_NPU_INFO) for _, attributes in points.get(metric, ())]
    facts = [item(name, str(card[key]), "") for card in cards for key, name in _FACTS.items() if key in card]
    lines += labelled("card", facts, width)
    parts = [each for each in readout.devices if each.parent == device.id]
    texts = [[each.model, percent(each.busy), fraction(each.used, each.total, "By")] for each in parts]
    items = [item(each.name, " ".join(filter(None, words))) for each, words in zip(parts, texts)]
    lines += labelled("parts", items, width)
    lines += _holders(readout, device, width)
    lines += device_graphs(history, device, width, height - len(lines))
    return Drawn(
        lines, f"{device.name} · {device.model}" if device.model else device.name, "esc back · ← → other device"
    )


def _aspect(attributes: Attributes) -> str:
    """Return the attributes of a value, without those of the device."""
    return " ".join(str(value).replace("_", " ") for key, value in sorted(attributes.items()) if key not in _HIDDEN)


# -- the verdict


def _verdict(verdict: Verdict | None, width: int) -> Iterator[Line]:
    if verdict is None:
        return
    style = WARNING if verdict.is_bottleneck else GOOD if verdict.name == "none" else ""
    text = sentence(verdict)
    if verdict.name == "unknown" and not verdict.evidence:
        text = f"{text}; a verdict needs {LEAST:g} s"  # of a program that has loaded
    for line in wrap(text, max(width, 20), "", "  "):
        yield [(line, style)]
    for condition, value in verdict.evidence:
        words, source = compared(condition, value), SIGNALS[condition.signal].source
        for line in wrap(words, max(width, 20), "  ", "    "):
            yield whole([[(line, "")], [(source, DIM)]], width) if line.endswith(words) else [(line, "")]
    if verdict.advice:
        for line in wrap(verdict.advice, max(width, 20), "→ ", "  "):
            yield [(line, STRONG)]
    if verdict.runner_up:
        yield [(f"  nearly: {verdict.runner_up}", DIM)]
    yield []


# -- values


def _values(view: View, points: Points, metrics: Mapping[Metric, str]) -> Iterator[Line]:
    for metric, name in metrics.items():
        limits = points.get(_LIMITS[metric], ()) if metric in _LIMITS else ()
        for value, attributes in points.get(metric, ()):
            words = " ".join(filter(None, (_aspect(attributes), name)))
            yield item(words, _text(view, metric, value, attributes, limits))


def _text(view: View, metric: Metric, value: Number, attributes: Attributes, limits: Sequence[Point] = ()) -> str:
    domain = attributes.get(c.FREQUENCY_DOMAIN)
    for limit, each in limits:
        if each.get(c.FREQUENCY_DOMAIN) == domain and each.get(c.HW_LIMIT_TYPE, "enforced") == "enforced":
            return fraction(value, limit, metric.unit)
    rate = view.rates.get(Series(metric, attributes))
    return value_text(metric, value) + ("" if rate is None else f" {rate_text(metric, rate)}")


def _throttling(view: View, points: Points) -> Iterator[Line]:
    quiet: list[Line] = []
    for value, attributes in points.get(c.HW_GPU_THROTTLE_TIME, ()):
        reason = str(attributes[c.THROTTLE_REASON]).replace("_", " ")
        share = figures.rate(view, c.HW_GPU_THROTTLE_TIME, attributes)
        if share >= figures.THROTTLED:
            yield [(f"{reason} ", DIM), (percent(share), WARNING)]
            yield [(f"{duration(value)} in all", DIM)]
        elif value:
            quiet.append([(f"{reason} 0%", DIM)])
            quiet.append([(f"{duration(value)} in all", DIM)])
    yield from quiet


def _traffic(view: View, device: Device) -> Iterator[Line]:
    for (owner, link), rates in figures.links(view).items():
        if owner == device.id:
            name = {"pcie": "PCIe", "nvlink": "NVLink", "xgmi": "XGMI"}.get(link, link)
            for way, rate in sorted(rates.items()):
                yield item(f"{name} {way}", f"{size(rate)}/s")


def _errors(view: View, points: Points) -> Iterator[Line]:
    errors = points.get(c.HW_ERRORS, ())
    for value, attributes in errors:
        if value:
            rate = figures.rate(view, c.HW_ERRORS, attributes)
            more = f" {rate_text(c.HW_ERRORS, rate)}" if rate else ""
            name = f"Xid {attributes[c.GPU_XID]}" if c.GPU_XID in attributes else _aspect(attributes)
            yield item(name, f"{value}{more}", BAD if rate else WARNING)
    clean = sorted({str(each[c.ERROR_TYPE]).replace("_", " ") for value, each in errors if not value})
    for at, name in enumerate(clean):
        yield [(f"none: {name}" if not at else name, DIM)]


def _others(view: View, points: Points) -> Iterator[Line]:
    shown = {metric for _, metrics in _ROWS for metric in metrics} | _SHOWN_OTHERWISE
    for metric, own in points.items():
        if metric not in shown and not metric.name.startswith("hw.holder."):
            name = metric.name.removeprefix("hw.gpu.").removeprefix("hw.").replace("_", " ")
            for value, attributes in own:
                yield item(f"{name} {_aspect(attributes)}".rstrip(), _text(view, metric, value, attributes))


_FACTS = {
    c.GPU_TYPE: "",
    c.PCI_BDF: "PCI",
    c.HW_DRIVER_VERSION: "driver",
    c.GPU_CUDA_VERSION: "CUDA",
    c.HW_FIRMWARE_VERSION: "firmware",
    c.HW_SERIAL_NUMBER: "serial",
    c.GPU_ECC_MODE: "ECC",
    c.GPU_PERSISTENCE_MODE: "persistence",
    c.HW_ID: "",
}


# -- holders


def _holders(readout: Readout, device: Device, width: int) -> list[Line]:
    lines: list[Line] = []
    for each in readout.processes:
        if each.device == device.name:
            start = whole(
                [
                    [(f"{'' if lines else 'held by':<{LABEL - 2}}", DIM)],
                    [(str(each.pid), "")],
                    [(size(each.device_memory), STRONG)],
                    [(each.user, DIM)],
                ],
                width,
            )
            rest = width - width_of(start) - 2
            lines.append([*start, ("  ", ""), *fitted(command(each, rest), rest)] if rest > LABEL else start)
    return lines
