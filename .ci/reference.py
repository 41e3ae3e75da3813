"""Generates the reference documentation from the catalog and the settings: ``python .ci/reference.py``.

The text is in ``.ci/templates``; :func:`pages` replaces ``{{name}}``. A test fails if a page in the repository is out
of date.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Final

import registry
import ways

sys.path.append(str(Path(__file__).resolve().parents[1]))
from tests.slow.benchmarks import span_errors

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware import wandb
from opentelemetry.instrumentation.hardware.catalog import (
    CATALOG,
    ERROR_TYPE,
    ERROR_TYPES,
    EVENTS,
    HW_ERRORS,
    OWN_ATTRIBUTES,
    SCHEMA_URL,
    SPAN_ATTRIBUTES,
)
from opentelemetry.instrumentation.hardware.catalog.presets import MINIMAL, NOT_STANDARD, SeriesPattern, presets_of
from opentelemetry.instrumentation.hardware.model import Kind, Metric, Window
from opentelemetry.instrumentation.hardware.settings import PREFIX, Config
from opentelemetry.instrumentation.hardware.settings.endpoints import SHARE, TOTAL
from opentelemetry.instrumentation.hardware.sources.nvidia import xids
from opentelemetry.instrumentation.hardware.sources.openmetrics.metrics import UNITS

TEMPLATES: Final = Path(__file__).parent / "templates"

_KINDS = {Kind.COUNTER: "counter", Kind.UPDOWN: "up-down counter", Kind.GAUGE: "gauge", Kind.HISTOGRAM: "histogram"}

_WINDOWS = {
    Window.LAST: "latest reading",
    Window.MEAN: "mean of the window",
    Window.PEAK: "maximum of the window",
    Window.RATIO: "ratio of increases in the window",
}

# Headings with the prefixes of their metrics. A metric is listed under the first heading with a matching prefix.
_GROUPS: Final = (
    ("CPU", ("system.cpu.",)),
    ("Memory and paging", ("system.memory.", "system.paging.")),
    ("Disks and file systems", ("system.disk.", "system.filesystem.")),
    ("Network", ("system.network.", "hw.network.")),
    ("System", ("system.",)),
    ("Container", ("container.",)),
    ("GPU", ("hw.gpu.", "process.gpu.")),
    ("Other accelerators", ("hw.npu.", "process.npu.", "aws.neuron.", "google.tpu.")),
    ("All hardware", ("hw.",)),
    ("Process", ("process.", "cpython.")),
    ("Scraped endpoints", ("openmetrics.",)),
    ("This package", ("otel_hardware.",)),
)

# Headings of the tables of W&B keys.
_VENDORS: Final = {
    "host": "Host and process",
    "nvidia": "NVIDIA",
    "amd": "AMD",
    "apple": "Apple",
    "graphcore": "Graphcore",
    "openmetrics": "Scraped endpoints",
    "tpu": "TPU",
    "trainium": "Trainium",
}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def groups() -> dict[str, list[Metric]]:
    """Return the metrics by heading."""
    by_heading: dict[str, list[Metric]] = {heading: [] for heading, _ in _GROUPS}
    for row in CATALOG:
        by_heading[next(heading for heading, prefixes in _GROUPS if row.name.startswith(prefixes))].append(row)
    return by_heading


def _reported(row: Metric) -> str:
    if row.opt_in == "request":
        return "opt-in"
    if row.opt_in:
        return f"opt-in, or with `DETAIL={row.opt_in}`"
    extras = row.opt_in_extras
    when = "default" if "standard" in presets_of(row) else "with `PRESET=all`"
    return f"{when}, {extras}" if extras.startswith("with ") else f"{when} (opt-in: {extras})" if extras else when


def _metric(row: Metric) -> str:
    facts = (
        f"{_KINDS[row.kind]}, unit `{row.unit}`, {_WINDOWS[row.window]}",
        f"scope {row.scope.value}",
        _reported(row),
        "semantic conventions" if row.standard else "own name",
    )
    lines = [
        f"- {'; '.join(facts)}",
        f"- attributes: {', '.join(f'`{name}`' for name in row.attributes) or 'none'}",
        f"- source: {row.source}",
    ]
    keys = wandb.metrics().get(row)
    lines += [f"- W&B: `{', '.join(keys)}`"] if keys else []
    if row is HW_ERRORS:
        lines += [
            "",
            table((f"`{ERROR_TYPE}`", "meaning"), [(f"`{name}`", text) for name, text in ERROR_TYPES.items()]),
        ]
    return f"### `{row.name}`\n\n{row.help}\n\n" + "\n".join(lines)


def _metrics() -> str:
    return "\n\n".join(f"## {heading}\n\n" + "\n\n".join(map(_metric, rows)) for heading, rows in groups().items())


def _overview() -> str:
    """Return a table with the names of all metrics, one line per heading."""
    rows = []
    for heading, metrics in groups().items():
        links = {row: f"[`{row.name}`](#{_anchor(row.name)})" for row in metrics}
        default = [link for row, link in links.items() if "standard" in presets_of(row)]
        opt_in = [link for row, link in links.items() if row.opt_in]
        others = [link for link in links.values() if link not in (*default, *opt_in)]
        rows.append((heading, " ".join(default), " ".join(others), " ".join(opt_in)))
    return table(("", "by default", "with `PRESET=all`", "opt-in"), rows)


def _preset(patterns: Iterable[SeriesPattern]) -> str:
    """Return the series of a preset, by metric."""
    by_name: dict[str, list[str]] = {}
    for name, attribute, value in patterns:
        by_name.setdefault(name, []).extend([f"{attribute}={value}"] if attribute else [])
    words = (f"`{name}`" + (f" (`{'`, `'.join(which)}`)" if which else "") for name, which in by_name.items())
    return ", ".join(words)


def _anchor(heading: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _attributes() -> str:
    rows = [
        (f"`{name}`", meaning, ", ".join(f"`{example}`" for example in examples))
        for name, (meaning, examples) in OWN_ATTRIBUTES.items()
    ]
    return table(("attribute", "meaning", "examples"), rows)


def _settings() -> str:
    rows = [
        (f"`{PREFIX}{setting.name.upper()}`", *(setting.metadata[fact] for fact in ("help", "default", "form")))
        for setting in fields(Config)
    ]
    return table(("environment variable", "meaning", "default", "accepts"), rows)


def _wandb() -> str:
    parts = []
    for vendor, keys in wandb.KEYS.items():
        rows = [
            (
                f"`{key.name}`",
                key.formula + (f". Close to W&B's: {key.close}" if key.close else ""),
                key.unit,
                ", ".join(f"`{metric.name}`" for metric in key.metrics),
            )
            for key in keys
        ]
        parts.append(f"## {_VENDORS[vendor]}\n\n" + table(("W&B key", "formula", "unit", "metrics"), rows))
    return "\n\n".join(parts)


# The open proposals to the semantic conventions, each with the attributes of spans that could follow it.
_PROPOSALS = {
    "[energy and carbon of software](https://github.com/open-telemetry/community/issues/3539)": (
        c.SPAN_ENERGY,
        c.SPAN_CPU_ENERGY,
        c.SPAN_SHARE_ENERGY,
    ),
    "[energy of inference](https://github.com/aitra-ai/aitra-meter/issues/38)": (c.SPAN_ENERGY, c.SPAN_SHARE_ENERGY),
    "[spans of inference servers](https://github.com/open-telemetry/semantic-conventions-genai/issues/231)": (
        c.SPAN_ENERGY,
        c.SPAN_GPU_TIME,
        c.SPAN_GPU_UTILIZATION,
        c.SPAN_GPU_MEMORY_PEAK,
        c.SPAN_GPU_THROTTLE_TIME,
    ),
}


def _spans() -> str:
    """Return the attributes of spans, each with the metric of the same quantity and the proposals it could follow."""
    metrics = {row.name: row for row in CATALOG}
    rows = []
    for each in SPAN_ATTRIBUTES:
        row = metrics.get(each.name)
        same = f"[{'standard' if row.standard else 'own'}](metrics.md#{_anchor(row.name)})" if row else ""
        proposals = [link for link, attributes in _PROPOSALS.items() if each in attributes]
        rows.append((f"`{each.name}`", each.unit, each.help, same, "<br>".join(proposals)))
    return table(("attribute", "unit", "meaning", "metric of that name", "open proposals"), rows)


def _events() -> str:
    rows = [(f"`{name}`", text, " ".join(f"`{each}`" for each in names)) for name, (text, names) in EVENTS.items()]
    return table(("event", "meaning", "attributes"), rows)


def _xids() -> str:
    """Return a table of the Xids. Numbers of one meaning share a row."""
    numbers: dict[xids.Xid, list[int]] = {}
    for number, each in xids.XIDS.items():
        numbers.setdefault(each, []).append(number)
    return table(
        ("Xid", "meaning", "what to do", "severity"),
        [
            (", ".join(map(str, which)), meaning, remedy, "`INFO`" if is_of_program else "`ERROR`")
            for (meaning, remedy, is_of_program), which in numbers.items()
        ],
    )


def pages() -> dict[str, str]:
    """Return the text of each page in ``docs/``, by its path there."""
    values = {
        "note": "<!-- Generated by `python .ci/reference.py`; a test checks that it is current. -->",
        "prefix": PREFIX,
        "schema": SCHEMA_URL.rpartition("/")[2],
        "overview": _overview(),
        "minimal": _preset(MINIMAL),
        "not_standard": _preset(NOT_STANDARD),
        "metrics": _metrics(),
        "attributes": _attributes(),
        "coverage": "\n\n".join(f"## {heading}\n\n{table(head, rows)}" for heading, head, rows in ways.tables()),
        "settings": _settings(),
        "spans": _spans(),
        "events": _events(),
        "xids": _xids(),
        "xid_catalog": xids.CATALOG,
        "span_errors": span_errors.tables(),
        "options": "\n".join(f"      # {setting.name}: {setting.metadata['form']}" for setting in fields(Config)),
        "series_total": str(TOTAL),
        "series_endpoint": str(SHARE),
        "units": ", ".join(f"{word} `{unit}`" for word, unit in UNITS.items()),
        "wandb": _wandb(),
    }
    return {
        template.relative_to(TEMPLATES).as_posix(): re.sub(
            r"\{\{(\w+)\}\}", lambda match: values[match[1]], template.read_text()
        )
        for template in sorted(TEMPLATES.rglob("*.md"))
    }


def write(root: Path) -> None:
    """Write the pages and the registry.

    Args:
        root: The root of the repository.
    """
    for folder in ("dev", "registry"):
        (root / "docs" / folder).mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (root / "docs" / name).write_text(text)
    for name, text in registry.files().items():
        (root / "docs" / "registry" / name).write_text(text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the reference documentation.")
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parents[1])
    write(parser.parse_args().root)
