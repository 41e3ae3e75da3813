"""The reference documentation, made of the catalog and the settings: ``python .ci/reference.py`` writes it.

A test compares what stands in the repository with what this module makes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Final

from opentelemetry.instrumentation.hardware.catalog import CATALOG, SCHEMA_URL
from opentelemetry.instrumentation.hardware.endpoints import SHARE, TOTAL
from opentelemetry.instrumentation.hardware.model import Kind, Metric, Window
from opentelemetry.instrumentation.hardware.settings import PREFIX, Config
from opentelemetry.instrumentation.hardware.sources.openmetrics.rows import UNITS
from opentelemetry.instrumentation.hardware.wandb import keys as wandb

_NOTE: Final = "<!-- Made by `python .ci/reference.py`; a test keeps it in step. -->"

BEGIN: Final = "<!-- table of metrics: begin -->"
END: Final = "<!-- table of metrics: end -->"

_KINDS = {Kind.COUNTER: "counter", Kind.UPDOWN: "up-down counter", Kind.GAUGE: "gauge"}

_WINDOWS = {
    Window.LAST: "newest reading",
    Window.MEAN: "mean of the window",
    Window.PEAK: "highest of the window",
    Window.RATIO: "exact over the window",
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

_OPENMETRICS: Final = f"""
# Scraped endpoints

{_NOTE}

`pip install 'opentelemetry-instrumentation-hardware[openmetrics]'`, and name the endpoints: DCGM-exporter, vLLM,
Triton, `node_exporter`, your own. Their metrics travel on with ours.

```sh
export {PREFIX}OPENMETRICS=dcgm=http://localhost:9400/metrics,vllm=http://localhost:8000/metrics
export {PREFIX}OPENMETRICS_FILTERS='DCGM_FI_DEV_(GPU_UTIL|POWER_USAGE),vllm:num_requests'
```

or `{PREFIX}OPENMETRICS=/etc/endpoints.yaml` (YAML where PyYAML is installed, else JSON; by code and in declarative
configuration the same mapping):

```yaml
dcgm:
  url: https://node-7:9400/metrics
  filters:                       # instead of OPENMETRICS_FILTERS; a list, or a mapping with expressions for labels
    DCGM_FI_DEV_GPU_UTIL$: {{gpu: "^[01]$"}}
    DCGM_FI_DEV_POWER_USAGE$: {{}}
  headers: {{X-Scope-OrgID: research}}
  bearer_token_file: /run/secrets/token   # read anew for each scrape
  ca_file: /etc/ca.pem           # instead of the system's authorities
  cert_file: /etc/client.pem     # our own certificate; key_file where its key is elsewhere
  interval: 30                   # seconds between two scrapes, at least; default: each collection has one
  timeout: 5                     # seconds for a whole scrape; looking up the host's name comes on top
  max_bytes: 10485760            # of a page, unpacked
  max_series: {SHARE}                # in the life of the process
vllm: http://localhost:8000/metrics
```

**Filters** are W&B's two forms. An expression is looked for anywhere in `endpoint.name`, upper and lower case apart;
`^` and `$` tie it down. The name is the sample's, as the page spells it (`..._total`, `..._count`). With labels, each
expression has to be found in the value of its label; a series that lacks one of the labels is not wanted by that
filter. One filter that wants a series is enough; without filters all are wanted. (W&B's Python client up to 0.18 tied
expressions to the beginning, let the first that matches the name decide, and took a label that is missing for empty;
its later ones do as we do.)

**What becomes of a page.** OpenMetrics 1.0 is asked for, Prometheus's text format 0.0.4 understood as well.

| on the page | instrument |
|---|---|
| counter | counter |
| gauge, unknown, untyped | gauge |
| info, stateset | up-down counter |
| histogram, summary | counters of `_count` and `_sum`; asynchronous instruments have no buckets |
| gaugehistogram | gauges of `_gcount` and `_gsum` |
| `_created`, exemplars | nothing |
| NaN, infinity, a negative counter | nothing |
| a sample whose own time is more than five minutes ago | nothing, and counted |

HELP is the description and UNIT the unit, in UCUM's words where they differ:
{", ".join(f"{word} `{unit}`" for word, unit in UNITS.items())}.
Labels are attributes, less empty ones, beside `openmetrics.endpoint`, `server.address` and `server.port`; a label that
is called so itself becomes `exported_...`. Each endpoint has an instrumentation scope of its own,
`opentelemetry.instrumentation.hardware.openmetrics.NAME`, so that two may mean different things by one name. The time
of a point is that of the collection. A counter never falls: one that starts anew goes on from where it was.

**Names** stay as they are: `DCGM_FI_DEV_GPU_UTIL`, `vllm:num_requests_running`. OpenTelemetry's SDK writes names in
lower case and refuses colons, blanks, a leading `_` and more than 255 letters. So an instrument is made under a name
that it takes (each such letter is `_`, `m` stands before what is no letter), and is given its own before its first
collection. Views have to name it by its own name. Should a version of the SDK not allow that, it is exported under the
other one.

**Limits.** All endpoints together report at most {TOTAL} series in the life of a process, well below the SDK's limit of
2000 for each instrument; an endpoint without `max_series` has an equal share of what the others leave, {SHARE} at most.
Of a page 10,000 lines are parsed, after the filters. What is left out is counted in `openmetrics.scrape.dropped`, and
`otel-hardware doctor` says why. A page that is too long, too late, cut off, or of another kind counts as none:
`openmetrics.up` is 0, and one warning says why until it is well again. What of a page is not in its format costs that
family alone. Redirections are followed on the same server only; no proxy is asked. Each endpoint has a thread of its
own, so that a slow one delays no other. Endpoints are the host's: in a job of several processes one of them scrapes.
"""

_WANDB: Final = f"""
# W&B's system metrics

{_NOTE}

`otel-hardware snapshot --format wandb` prints these keys with W&B's own formula and unit. In OpenTelemetry the same
quantities have the names on the right, in base units, with devices and paths as attributes instead of parts of a key.
Where a formula differs, so does the number: W&B's used memory is all that is not available, its disk percentage leaves
reserved space out (as `df` does), and its totals count loopback, loop devices and the like.
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
    if not row.opt_in:
        return "default" + (f"; named: {row.opt_in_extras}" if row.opt_in_extras else "")
    return f"`DETAIL={row.opt_in}` or named" if row.opt_in != "request" else "named"


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
        f"- source: {row.source}" + _wandb(row),
    ]
    return "\n\n".join(lines)


def _wandb(row: Metric) -> str:
    keys = wandb.keys_by_metric().get(row.name, ())
    return f"\n- W&B: `{', '.join(keys)}`" if keys else ""


def configuration() -> str:
    """docs/configuration.md."""
    facts = [(setting.name, setting.metadata) for setting in fields(Config)]
    rows = [(f"`{PREFIX}{name.upper()}`", each["help"], each["default"], each["form"]) for name, each in facts]
    options = "\n".join(f"      # {name}: {each['form']}" for name, each in facts)
    head = ("environment variable", "meaning", "default", "it takes")
    return (_CONFIGURATION % (table(head, rows), options)).lstrip()


def openmetrics() -> str:
    """docs/openmetrics.md."""
    return _OPENMETRICS.lstrip()


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


def wandb_keys() -> str:
    """docs/wandb.md."""
    parts = [_WANDB.strip()]
    for name, keys in wandb.tables():
        parts.append(f"## {_VENDORS.get(name, name)}")
        rows = [
            (f"`{key.name}`", key.formula, key.unit, ", ".join(f"`{metric.name}`" for metric in key.metrics))
            for key in keys
        ]
        parts.append(table(("W&B key", "formula", "unit", "metric"), rows))
    return "\n\n".join(parts) + "\n"


def summary() -> str:
    """The README's table: one line for each group."""
    rows = []
    for heading, metrics_ in groups():
        default = [_names(row) for row in metrics_ if not row.opt_in]
        asked = [_names(row) for row in metrics_ if row.opt_in]
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
    (folder / "openmetrics.md").write_text(openmetrics())
    (folder / "wandb.md").write_text(wandb_keys())
    page = root / "README.md"
    page.write_text(readme(page.read_text()))


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1])
