"""The reference documentation, made of the vocabulary and the settings: ``python -m ...render FOLDER`` writes it.

A test compares what stands in the repository with what this module makes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Final

from opentelemetry.instrumentation.hardware import wandb
from opentelemetry.instrumentation.hardware.config import PREFIX, Config
from opentelemetry.instrumentation.hardware.model import Kind, Metric, Window
from opentelemetry.instrumentation.hardware.vocabulary import CATALOG, SCHEMA_URL

_NOTE: Final = "<!-- Made by `python -m opentelemetry.instrumentation.hardware.render .`; a test keeps it in step. -->"

BEGIN: Final = "<!-- table of metrics: begin -->"
END: Final = "<!-- table of metrics: end -->"

_KINDS = {Kind.COUNTER: "counter", Kind.UPDOWN: "up-down counter", Kind.GAUGE: "gauge"}

_WINDOWS = {
    Window.LAST: "newest reading",
    Window.MEAN: "mean of the window",
    Window.PEAK: "highest of the window",
    Window.SHARE: "exact over the window",
}

_GROUPS: Final = (
    ("Processor", ("system.cpu.",)),
    ("Memory and paging", ("system.memory.", "system.paging.")),
    ("Disks and file systems", ("system.disk.", "system.filesystem.")),
    ("Network", ("system.network.",)),
    ("GPU", ("hw.gpu.", "hw.status", "hw.power", "hw.temperature", "hw.fan.", "hw.voltage", "process.gpu.")),
    ("Other accelerators", ("hw.npu.", "process.npu.", "aws.neuron.", "google.tpu.")),
    ("Host and all devices", ("system.", "hw.")),
    ("Container", ("container.",)),
    ("Process", ("process.", "cpython.")),
    ("Scraped endpoints", ("openmetrics.",)),
    ("This package", ("otel_hardware.",)),
)


_METRICS: Final = f"""
# Metrics

{_NOTE}

Names, kinds and units follow the semantic conventions (schema {SCHEMA_URL.rpartition("/")[2]}); rows marked *ours* are
named by this package because the conventions have none. A row is *default*, or *named*: reported, in full, when
`{PREFIX}INCLUDE_METRICS` names it. Rows of scope *process* are reported by every process, rows of scope *host* once per
job. A gauge is a value over the window since the same reader's collection before.
"""

_CONFIGURATION: Final = f"""
# Configuration

{_NOTE}

%s

The same words in lower case, without the prefix, are arguments of `HardwareInstrumentor().instrument(...)`, flags of
`opentelemetry-instrument` (`--hardware_sample_interval 1`) and options of declarative configuration. An argument wins
over the environment. A value that makes no sense costs one warning, and the default is used.

Declarative configuration (`OTEL_CONFIG_FILE`) needs `pip install 'opentelemetry-sdk[file-configuration]'`:

```yaml
instrumentation/development:
  python:
    hardware:
      enabled: true
%s
```

The standard variables of OpenTelemetry decide where the numbers go and how often: `OTEL_EXPORTER_OTLP_ENDPOINT`,
`OTEL_EXPORTER_OTLP_PROTOCOL`, `OTEL_METRIC_EXPORT_INTERVAL` (milliseconds, 60000), `OTEL_SERVICE_NAME`,
`OTEL_EXPERIMENTAL_RESOURCE_DETECTORS`. `OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=hardware` switches this package off.
"""

_WANDB: Final = f"""
# W&B's system metrics

{_NOTE}

`otel-hardware snapshot --format wandb` prints these keys with W&B's own formula and unit. In OpenTelemetry the same
quantities have the names on the right, in base units, with devices and paths as attributes instead of parts of a key.
Where a formula differs, so does the number: W&B's used memory is all that is not available, its disk percentage leaves
reserved space out (as `df` does), and its totals count loopback, loop devices and the like.

%s
"""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A markdown table; a bar in a cell is escaped."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def groups() -> list[tuple[str, list[Metric]]]:
    """The rows of the vocabulary under headings, each row once."""
    left = list(CATALOG)
    found = []
    for heading, prefixes in _GROUPS:
        rows = [row for row in left if row.name.startswith(prefixes)]
        left = [row for row in left if row not in rows]
        found.append((heading, rows))
    return found


def _names(row: Metric) -> str:
    return f"`{row.name}`"


def _asked(row: Metric) -> str:
    if not row.detail:
        return "default" + (f"; named: {row.more}" if row.more else "")
    return f"`DETAIL={row.detail}` or named" if row.detail != "request" else "named"


def metrics() -> str:
    """docs/metrics.md."""
    parts = [_METRICS.strip()]
    for heading, rows in groups():
        parts.append(f"## {heading}")
        parts += [_row(row) for row in rows]
    return "\n\n".join(parts) + "\n"


def _row(row: Metric) -> str:
    facts = (
        f"{_KINDS[row.kind]}, `{row.unit}`, {_WINDOWS[row.window]}",
        f"scope {row.scope.value}",
        _asked(row),
        "semantic conventions" if row.standard else "ours",
    )
    lines = [
        f"### `{row.name}`",
        row.help,
        f"- {'; '.join(facts)}\n- attributes: {', '.join(f'`{name}`' for name in row.attributes) or 'none'}\n"
        f"- source: {row.source}" + (f"\n- W&B: `{row.wandb}`" if row.wandb else ""),
    ]
    return "\n\n".join(lines)


def configuration() -> str:
    """docs/configuration.md."""
    facts = [(setting.name, setting.metadata) for setting in fields(Config)]
    rows = [(f"`{PREFIX}{name.upper()}`", each["help"], each["default"], each["form"]) for name, each in facts]
    options = "\n".join(f"      # {name}: {each['form']}" for name, each in facts)
    head = ("environment variable", "meaning", "default", "it takes")
    return (_CONFIGURATION % (table(head, rows), options)).lstrip()


def wandb_keys() -> str:
    """docs/wandb.md."""
    return (_WANDB % table(("W&B key", "formula", "unit", "metric"), wandb.reference())).lstrip()


def summary() -> str:
    """The README's table: one line for each group."""
    rows = []
    for heading, metrics_ in groups():
        default = [_names(row) for row in metrics_ if not row.detail]
        asked = [_names(row) for row in metrics_ if row.detail]
        rows.append((heading, " ".join(default), " ".join(asked)))
    return table(("", "by default", "on request"), rows)


def readme(text: str) -> str:
    """The README with its table made anew."""
    head, _, rest = text.partition(BEGIN)
    return head + BEGIN + "\n" + summary() + "\n" + END + rest.partition(END)[2]


def write(root: Path) -> None:
    """Write all of it below the root of the repository."""
    folder = root / "docs"
    folder.mkdir(exist_ok=True)
    (folder / "metrics.md").write_text(metrics())
    (folder / "configuration.md").write_text(configuration())
    (folder / "wandb.md").write_text(wandb_keys())
    page = root / "README.md"
    page.write_text(readme(page.read_text()))


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
