"""The first lines of a table: one line per GPU, then CPU, memory, disks, network and the observed process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.cli.layout import clip, columns
from opentelemetry.instrumentation.hardware.cli.quantity import fraction, quantity
from opentelemetry.instrumentation.hardware.cli.view import View
from opentelemetry.instrumentation.hardware.model import Attributes, Metric, Number, Series

_SENSORS = ("gpu", "junction", "edge")
"""The sensors of a GPU's temperature, in the order of preference. AMD Instinct GPUs have only the second."""

_THROTTLED = 0.005
"""The share of time from which throttling is shown."""

_IDLE = ("idle", "iowait")


def summary(view: View, width: int) -> list[str]:
    """Return a line for each GPU, and the lines of the host."""
    gpus, host = _gpu_lines(view, width), _flow(_host(view), width)
    return [*gpus, *([""] if gpus and host else []), *host]


# -- GPUs


def _gpu_lines(view: View, width: int) -> list[str]:
    rows = [_gpu_row(view, *gpu) for gpu in _gpus(view).items()]
    if not rows:
        return []
    titles = [title for title in rows[0] if any(row[title] for row in rows)]
    return columns([titles, *([row[title] or "-" for title in titles] for row in rows)], width)


def _gpus(view: View) -> dict[str, Attributes]:
    """GPUs and their partitions by ``hw.id``, with the attributes of the first point. A failed GPU has no info."""
    found: dict[str, Attributes] = {}
    for metric in (c.HW_GPU_INFO, c.HW_STATUS, c.HW_GPU_UTILIZATION, c.HW_GPU_MEMORY_USAGE):
        for _, attributes in view.points(metric):
            if attributes.get(c.HW_TYPE, "gpu") == "gpu":
                found.setdefault(str(attributes[c.HW_ID]), attributes)
    return found


def _gpu_row(view: View, gpu: str, known: Attributes) -> dict[str, str]:
    """The cells of a GPU by column title; "" for what is unknown."""

    def number(metric: Metric, key: str = "", *words: str) -> Number | None:
        points = [(value, each) for value, each in view.points(metric) if each.get(c.HW_ID) == gpu]
        found = {str(each.get(key, "")): value for value, each in reversed(points)}
        return next((found[word] for word in words or ("",) if word in found), None)

    states = [state for state in ("degraded", "failed") if number(c.HW_STATUS, c.HW_STATE, state)]
    busy = number(c.HW_GPU_UTILIZATION, c.GPU_TASK, "general", "sm")
    temperature = number(c.HW_TEMPERATURE, c.HW_SENSOR_LOCATION, *_SENSORS)
    return {
        "GPU": str(known.get(c.HW_NAME, gpu)),
        "state": "".join(states),
        "busy": fraction(busy, None, "%"),
        "memory": fraction(number(c.HW_GPU_MEMORY_USAGE), number(c.HW_GPU_MEMORY_LIMIT), "By"),
        "power": fraction(number(c.HW_POWER), number(c.HW_POWER_LIMIT, c.HW_LIMIT_TYPE, "enforced"), "W"),
        "temp": fraction(temperature, None, "Cel"),
        "throttled": _throttled(view, gpu),
        "model": str(known.get(c.HW_MODEL, "")).removeprefix(f"{known.get(c.HW_VENDOR)} "),
    }


def _throttled(view: View, gpu: str) -> str:
    """Return the most frequent throttle reason of the window, and its share of the time."""
    shares = {
        str(attributes[c.THROTTLE_REASON]): view.rates.get(Series(c.HW_GPU_THROTTLE_TIME, attributes), 0.0)
        for _, attributes in view.points(c.HW_GPU_THROTTLE_TIME)
        if attributes[c.HW_ID] == gpu
    }
    reason = max(shares, key=shares.__getitem__, default="")
    return f"{reason} {quantity(shares[reason], '%')}" if reason and shares[reason] >= _THROTTLED else ""


# -- the host


def _host(view: View) -> Iterator[str]:
    busy = [(value, each) for value, each in view.points(c.SYSTEM_CPU_UTILIZATION) if each[c.CPU_MODE] not in _IDLE]
    if busy:
        cpus = len({each.get(c.CPU_NUMBER) for _, each in busy})
        count = _sum(view, c.SYSTEM_CPU_LOGICAL_COUNT)
        share = quantity(sum(value for value, _ in busy) / cpus, "%")
        yield f"CPU {share} of {count}" if count else f"CPU {share}"
    used = _used_memory(view)
    if used is not None:
        yield f"memory {fraction(used, _sum(view, c.SYSTEM_MEMORY_LIMIT), 'By')}"
    limit = _sum(view, c.CONTAINER_MEMORY_LIMIT)
    if limit is not None:
        yield f"container {fraction(_sum(view, c.CONTAINER_MEMORY_USAGE), limit, 'By')}"
    for name, metric, directions in (
        ("disk", c.SYSTEM_DISK_IO, ("read", "write")),
        ("network", c.SYSTEM_NETWORK_IO, ("receive", "transmit")),
    ):
        if view.points(metric):
            yield " ".join((name, *(f"{each} {quantity(_rate(view, metric, each), 'By')}/s" for each in directions)))
    if view.pid is not None:
        yield from _process(view)


def _used_memory(view: View) -> Number | None:
    """Return total minus available memory, like ``free`` and psutil."""
    available = _sum(view, c.SYSTEM_MEMORY_LINUX_AVAILABLE, c.SYSTEM_MEMORY_AVAILABLE)
    limit = _sum(view, c.SYSTEM_MEMORY_LIMIT)
    return None if available is None or limit is None else limit - available


def _process(view: View) -> Iterator[str]:
    cpu = _sum(view, c.PROCESS_TREE_CPU_UTILIZATION, c.PROCESS_CPU_UTILIZATION)
    memory = _sum(view, c.PROCESS_TREE_MEMORY_USAGE, c.PROCESS_MEMORY_USAGE)
    gpu_memory = _sum(view, c.PROCESS_GPU_MEMORY_USAGE)
    parts = [f"CPU {quantity(cpu, '%')}"] if cpu is not None else []
    parts += [f"memory {quantity(memory, 'By')}"] if memory is not None else []
    parts += [f"GPU memory {quantity(gpu_memory, 'By')}"] if gpu_memory is not None else []
    if parts:
        yield f"pid {view.pid} {', '.join(parts)}"


def _sum(view: View, *metrics: Metric) -> Number | None:
    """Return the sum over all series of the first of these metrics that has any."""
    for metric in metrics:
        points = view.points(metric)
        if points:
            return sum(value for value, _ in points)
    return None


def _rate(view: View, metric: Metric, direction: str) -> float:
    """Return the increase per second of all series of a direction."""
    chosen = [attributes for _, attributes in view.points(metric) if direction in attributes.values()]
    return sum(view.rates.get(Series(metric, attributes), 0.0) for attributes in chosen)


def _flow(items: Iterator[str], width: int) -> Sequence[str]:
    """Join items into as few lines as possible."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + 3 + len(item) <= width:
            lines[-1] += f"   {item}"
        else:
            lines.append(clip(item, width))
    return lines
