"""Generates the dashboards for Grafana and vmui from the catalog and the recording rules: ``python .ci/dashboards.py``.

It needs ``grafana-foundation-sdk``. A test compares the files in ``collector-config/dashboards`` with what this makes,
and runs every query on stored data.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from grafana_foundation_sdk.builders import dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.builders.dashboard import DashboardLink
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DashboardLinkType, DataSourceRef
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from prometheus_names import label, selector, series

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Metric

FOLDER: Final = Path(__file__).resolve().parents[1] / "collector-config" / "dashboards"
VMUI: Final = FOLDER / "vmui"

_SOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")

HOST, ID, NAME = label("host.name"), label(c.HW_ID), label(c.HW_NAME)
_ON_HOST: Final = f'{HOST}=~"$host"'
_ON_DEVICE: Final = f'{HOST}=~"$host", {NAME}=~"$device"'
_JOB: Final = label(c.SLURM_JOB_ID)
_HOLDER: Final = (_JOB, label(c.K8S_NAMESPACE), label(c.K8S_POD_NAME), label(c.USER_NAME))
_HOLDERS: Final = ", ".join(_HOLDER)
_SPAN: Final = "otel_hardware_spans_energy_joules_total"  # of collector-config/joules.yaml


class Panel(NamedTuple):
    """A panel.

    Attributes:
        title: Its title.
        query: PromQL.
        unit: Grafana's unit.
        legend: The name of a series.
        kind: ``lines``, ``number`` or ``table``.
    """

    title: str
    query: str
    unit: str
    legend: str = ""
    kind: str = "lines"


def _by(labels: str, query: str) -> str:
    return f"max by ({labels}) ({query})"


def _rate(metric: Metric, labels: str, selector: str) -> str:
    return f"max by ({labels}) (rate({series(metric)}{{{selector}}}[$__rate_interval]))"


FLEET: Final = (
    Panel("Accelerators", "count(accelerator:utilization:ratio)", "short", kind="number"),
    Panel("Utilization", "avg(accelerator:utilization:ratio)", "percentunit", kind="number"),
    Panel("Power", "sum(accelerator:power:watts)", "watt", kind="number"),
    Panel("Failed", "sum(accelerator:failed:bool) or vector(0)", "short", kind="number"),
    Panel("Utilization by host", f"avg by ({HOST}) (accelerator:utilization:ratio)", "percentunit", f"{{{{{HOST}}}}}"),
    Panel("Power by host", f"sum by ({HOST}) (accelerator:power:watts)", "watt", f"{{{{{HOST}}}}}"),
    Panel(
        "Energy of the last hour", f"sum by ({HOST}) (increase(accelerator:energy:joules_total[1h]))", "joule",
        f"{{{{{HOST}}}}}",
    ),
    Panel("Hottest", "topk(10, accelerator:temperature:celsius)", "celsius", f"{{{{{HOST}}}}} {{{{{NAME}}}}}"),
    Panel(
        "Clocks lowered, share of the time",
        "accelerator:throttle:ratio > 0.01",
        "percentunit",
        f"{{{{{HOST}}}}} {{{{{NAME}}}}} {{{{{label(c.THROTTLE_REASON)}}}}}",
    ),
    Panel("Errors of the last 10 minutes", "accelerator:errors:increase10m > 0", "short", kind="table"),
    Panel(
        "Held without computing for 15 minutes",
        f"{_by(f'{HOST}, {NAME}, {ID}, {_HOLDERS}', series(c.HW_HOLDER_INFO))} and on ({HOST}, {ID}) "
        "max_over_time(accelerator:utilization:ratio[15m]) < 0.02",
        "short",
        kind="table",
    ),
)  # fmt: skip

NODE: Final = (
    Panel("Utilization", f"accelerator:utilization:ratio{{{_ON_HOST}}}", "percentunit", f"{{{{{NAME}}}}}"),
    Panel("Memory", f"accelerator:memory_utilization:ratio{{{_ON_HOST}}}", "percentunit", f"{{{{{NAME}}}}}"),
    Panel("Power", f"accelerator:power:watts{{{_ON_HOST}}}", "watt", f"{{{{{NAME}}}}}"),
    Panel("Temperature", f"accelerator:temperature:celsius{{{_ON_HOST}}}", "celsius", f"{{{{{NAME}}}}}"),
    Panel(
        "CPU", _by(f"{HOST}, cpu_mode", f"{series(c.SYSTEM_CPU_UTILIZATION)}{{{_ON_HOST}}}"), "percentunit",
        f"{{{{{label(c.CPU_MODE)}}}}}",
    ),
    Panel(
        "Memory of the host", _by(HOST, f"{series(c.SYSTEM_MEMORY_UTILIZATION)}{{{_ON_HOST}}}"), "percentunit",
        f"{{{{{HOST}}}}}",
    ),
    Panel(
        "Pressure", _rate(c.SYSTEM_PRESSURE_TIME, f"{HOST}, {label(c.PRESSURE_RESOURCE)}",
                          f'{_ON_HOST}, {label(c.PRESSURE_KIND)}="some"'),
        "percentunit", f"{{{{{label(c.PRESSURE_RESOURCE)}}}}}",
    ),
    Panel(
        "Disks", _rate(c.SYSTEM_DISK_IO, f"{HOST}, {label(c.DEVICE)}, {label(c.DISK_DIRECTION)}", _ON_HOST), "Bps",
        f"{{{{{label(c.DEVICE)}}}}} {{{{{label(c.DISK_DIRECTION)}}}}}",
    ),
    Panel(
        "Network", _rate(c.SYSTEM_NETWORK_IO, f"{HOST}, {label(c.INTERFACE)}, {label(c.NETWORK_DIRECTION)}", _ON_HOST),
        "Bps", f"{{{{{label(c.INTERFACE)}}}}} {{{{{label(c.NETWORK_DIRECTION)}}}}}",
    ),
    Panel(
        "File systems",
        _by(f"{HOST}, system_filesystem_mountpoint", f"{series(c.SYSTEM_FILESYSTEM_UTILIZATION)}{{{_ON_HOST}}}"),
        "percentunit", "{{system_filesystem_mountpoint}}",
    ),
    Panel(
        "Sources", _by(f"{HOST}, {label(c.SOURCE)}", f"{series(c.SOURCE_UP)}{{{_ON_HOST}}}"), "short",
        f"{{{{{label(c.SOURCE)}}}}}",
    ),
)  # fmt: skip

JOB: Final = (
    Panel("Accelerators", f'job:accelerators:count{{{_JOB}=~"$job"}}', "short", f"{{{{{_JOB}}}}}"),
    Panel("Power", f'job:power:watts{{{_JOB}=~"$job"}}', "watt", f"{{{{{_JOB}}}}}"),
    Panel(
        "Energy", f'sum by ({_HOLDERS}) (sum_over_time(job:energy_joules{{{_JOB}=~"$job"}}[$__range]))', "joule",
        kind="table",
    ),
    Panel(
        "Utilization by host",
        f"avg by ({HOST}) (accelerator:utilization:ratio and on ({HOST}, {ID}) "
        f'{series(c.HW_HOLDER_INFO)}{{{_JOB}=~"$job"}})',
        "percentunit", f"{{{{{HOST}}}}}",
    ),
    Panel(
        "SM clock by rank", f'max by (dl_rank, {NAME}) ({series(c.HW_GPU_FREQUENCY)}{{hw_frequency_domain="sm", '
        'dl_rank!="", training_job_id=~"$job"})', "hertz", f"{{{{dl_rank}}}} {{{{{NAME}}}}}",
    ),
    Panel("Seconds of a step by rank", 'rank:step:seconds{training_job_id=~"$job"}', "s", "{{dl_rank}}"),
    Panel("Step over the median", 'rank:step_over_median:ratio{training_job_id=~"$job"}', "short", "{{dl_rank}}"),
)  # fmt: skip


def _device() -> Iterator[Panel]:
    """Yield a panel for each metric of a GPU in the preset ``standard``, with those of the same kind."""
    gauges = {
        c.HW_GPU_UTILIZATION: ("percentunit", c.GPU_TASK),
        c.HW_GPU_MEMORY_USAGE: ("bytes", ""),
        c.HW_POWER: ("watt", ""),
        c.HW_TEMPERATURE: ("celsius", c.HW_SENSOR_LOCATION),
        c.HW_GPU_FREQUENCY: ("hertz", c.FREQUENCY_DOMAIN),
        c.HW_GPU_PCIE_WIDTH: ("short", ""),
        c.HW_GPU_NVLINK_UP: ("short", ""),
        c.HW_STATUS: ("short", c.HW_STATE),
    }
    counters = {
        c.HW_ENERGY: ("watt", ""),
        c.HW_GPU_THROTTLE_TIME: ("percentunit", c.THROTTLE_REASON),
        c.HW_GPU_IO: ("Bps", c.GPU_LINK),
        c.HW_ERRORS: ("short", c.ERROR_TYPE),
    }
    for metric, (unit, attribute) in (gauges | counters).items():
        labels = ", ".join(filter(None, (HOST, NAME, label(attribute))))
        title = metric.help.partition(".")[0]
        query = _by(labels, selector(metric, _ON_DEVICE)) if metric in gauges else _rate(metric, labels, _ON_DEVICE)
        yield Panel(title, query, unit, " ".join(f"{{{{{each}}}}}" for each in labels.split(", ")[1:]))


SPANS: Final = (
    Panel("Watts of spans by route", f"sum by (http_route) (rate({_SPAN}[5m]))", "watt", "{{http_route}}"),
    Panel(
        "Watts of spans by model", f"sum by (gen_ai_request_model) (rate({_SPAN}[5m]))", "watt",
        "{{gen_ai_request_model}}",
    ),
    Panel("Joules by name of the span", f"topk(20, sum by (span_name) (increase({_SPAN}[$__range])))", "joule",
          kind="table"),
    Panel("Of all power, by span", f"sum(rate({_SPAN}[5m])) / sum(accelerator:power:watts)", "percentunit"),
)  # fmt: skip

_VARIABLES: Final = {
    "host": f"label_values({series(c.SOURCE_UP)}, {HOST})",
    "device": f'label_values(accelerator:utilization:ratio{{{HOST}=~"$host"}}, {NAME})',
    "job": f"label_values({series(c.HW_HOLDER_INFO)}, {_JOB})",
}

BOARDS: Final = {
    "fleet": ("Accelerators: fleet", FLEET, ()),
    "node": ("Accelerators: node", NODE, ("host",)),
    "job": ("Accelerators: job and rank", JOB, ("job",)),
    "device": ("Accelerators: device", tuple(_device()), ("host", "device")),
    "spans": ("Accelerators: spans and joules", SPANS, ()),
}


def _built(panel: Panel) -> Any:
    make: Any = {"lines": timeseries.Panel, "number": stat.Panel, "table": table.Panel}[panel.kind]
    query = prometheus.Dataquery().expr(panel.query).ref_id("A")
    query = (
        query.instant().format(PromQueryFormat.TABLE) if panel.kind == "table" else query.legend_format(panel.legend)
    )
    made = make().title(panel.title).unit(panel.unit).datasource(_SOURCE).with_target(query)
    return made.height(4 if panel.kind == "number" else 8).span(6 if panel.kind == "number" else 12)


def board(name: str) -> str:
    """Return a dashboard as JSON."""
    title, panels, variables = BOARDS[name]
    made = (
        dashboard.Dashboard(title)
        .uid(f"otel-hardware-{name}")
        .tags(["otel-hardware"])
        .refresh("30s")
        .time("now-1h", "now")
    )
    made = made.link(
        DashboardLink("Accelerators").type(DashboardLinkType.DASHBOARDS).tags(["otel-hardware"]).as_dropdown(True)
    )
    made = made.with_variable(dashboard.DatasourceVariable("datasource").type("prometheus").label("Data source"))
    for each in variables:
        made = made.with_variable(
            dashboard.QueryVariable(each).label(each.capitalize()).query(_VARIABLES[each]).datasource(_SOURCE)
            .multi(True).include_all(True)
        )  # fmt: skip
    for panel in panels:
        made = made.with_panel(_built(panel))
    return json.dumps(made.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


# Grafana's units, as vmui writes them at an axis. It has no percents: a ratio is 0 to 1.
_UNITS: Final = {
    "percentunit": "",
    "short": "",
    "watt": "W",
    "joule": "J",
    "celsius": "°C",
    "bytes": "B",
    "Bps": "B/s",
    "hertz": "Hz",
    "s": "s",
}


def vmui(name: str) -> str:
    """Return a dashboard for vmui as JSON. It has no variables, so each panel shows all hosts, devices and jobs.

    All panels are in one row, because vmui opens only the first one. A legend of many devices would be longer than the
    panel; a tooltip has their names.
    """
    title, panels, _ = BOARDS[name]
    made: list[dict[str, Any]] = []
    for panel in panels:
        query = re.sub(r"\$(host|device|job)\b", ".*", panel.query)
        query = query.replace("$__rate_interval", "5m").replace("$__range", "1h")
        legend = (
            f"{{{{{HOST}}}}} {panel.legend}" if "$host" in panel.query and HOST not in panel.legend else panel.legend
        )
        shown = HOST not in legend and NAME not in legend
        one = {"title": panel.title, "unit": _UNITS[panel.unit], "expr": [query], "showLegend": shown, "width": 6}
        made.append(one | ({"alias": [legend]} if legend else {}))
    return json.dumps({"title": title, "rows": [{"panels": made}]}, indent=2) + "\n"


if __name__ == "__main__":
    VMUI.mkdir(parents=True, exist_ok=True)
    for each in BOARDS:
        (FOLDER / f"{each}.json").write_text(board(each), encoding="utf-8")
        (VMUI / f"{each}.json").write_text(vmui(each), encoding="utf-8")
    sys.exit()
