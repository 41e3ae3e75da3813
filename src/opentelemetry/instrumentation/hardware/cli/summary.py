"""The first lines of a table: one line per accelerator, then CPU, memory, disks, network and the observed process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.cli import figures, host_figures
from opentelemetry.instrumentation.hardware.cli.figures import total
from opentelemetry.instrumentation.hardware.cli.layout import clip, columns
from opentelemetry.instrumentation.hardware.cli.quantity import fraction, quantity
from opentelemetry.instrumentation.hardware.pipeline.view import View


def summary(view: View, width: int) -> list[str]:
    """Return a line for each accelerator, and the lines of the host."""
    devices, host = _device_lines(view, width), _flow(_host(view), width)
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
    for name, metric in (("disk", c.SYSTEM_DISK_IO), ("network", c.SYSTEM_NETWORK_IO)):
        if view.points(metric):
            rates = dict(sorted(figures.directions(view, metric).items()))
            yield " ".join((name, *(f"{each} {quantity(rate, 'By')}/s" for each, rate in rates.items())))
    if view.pid is not None:
        yield from _process(view)


def _process(view: View) -> Iterator[str]:
    cpu = total(view, c.PROCESS_TREE_CPU_UTILIZATION, c.PROCESS_CPU_UTILIZATION)
    memory = total(view, c.PROCESS_TREE_MEMORY_USAGE, c.PROCESS_MEMORY_USAGE)
    gpu_memory = total(view, c.PROCESS_GPU_MEMORY_USAGE)
    parts = [f"CPU {quantity(cpu, '%')}"] if cpu is not None else []
    parts += [f"memory {quantity(memory, 'By')}"] if memory is not None else []
    parts += [f"GPU memory {quantity(gpu_memory, 'By')}"] if gpu_memory is not None else []
    if parts:
        yield f"pid {view.pid} {', '.join(parts)}"


def _flow(items: Iterator[str], width: int) -> Sequence[str]:
    """Join items into as few lines as possible."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + 3 + len(item) <= width:
            lines[-1] += f"   {item}"
        else:
            lines.append(clip(item, width))
    return lines
