"""``otel-hardware metrics``: the catalog."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from difflib import get_close_matches
from fnmatch import fnmatchcase
from itertools import chain

from opentelemetry.instrumentation.hardware import wandb
from opentelemetry.instrumentation.hardware.catalog import CATALOG
from opentelemetry.instrumentation.hardware.catalog.presets import PRESETS, presets_of
from opentelemetry.instrumentation.hardware.cli.messages import Mistake, say
from opentelemetry.instrumentation.hardware.cli.text import columns, wrap
from opentelemetry.instrumentation.hardware.model import Metric, Scope
from opentelemetry.instrumentation.hardware.pipeline import session as pipeline
from opentelemetry.instrumentation.hardware.pipeline.view import Viewer
from opentelemetry.instrumentation.hardware.settings import PREFIX, Config

HELP = "list all metrics: name, kind, unit, attributes, source, W&B keys"

DESCRIPTION = """\
Lists the catalog: every metric that this package can report on any machine. 'otel-hardware snapshot' shows those of
this machine.

examples:
  otel-hardware metrics                         every metric, one line each
  otel-hardware metrics system.cpu.utilization  everything about one
  otel-hardware metrics '*memory*'              everything about those that match
  otel-hardware metrics gpu.0.temp              those of a key of W&B
  otel-hardware metrics --default               only those reported by default
  otel-hardware metrics --preset minimal        counts the series of a preset
  otel-hardware metrics --format json           for programs

exit status: 0; 2 if nothing matches.
"""


_UNLIMITED = 1000  # columns if the output is no terminal: a line is then not cut

_WIDE = 140  # columns of a terminal that has room for kind and unit, too


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "glob", nargs="?", metavar="NAME", help="a name, a glob, such as 'system.disk.*', or a key of W&B"
    )
    parser.add_argument("--default", action="store_true", help="only metrics that are reported by default")
    parser.add_argument(
        "--preset", choices=[*PRESETS], help="count the series that this preset exports on this machine"
    )
    parser.add_argument("--format", choices=("table", "json"), default="table", help="default: table")


def run(arguments: argparse.Namespace) -> int:
    if arguments.preset:
        if arguments.glob is not None or arguments.default or arguments.format == "json":
            raise Mistake("--preset counts all series, in a table; it cannot be used with NAME, --default or --format")
        return _print_series(arguments.preset)
    rows = [row for row in CATALOG if not arguments.default or "standard" in presets_of(row)]
    found: list[tuple[str, wandb.Key]] = []
    if arguments.glob is not None:
        named = [row for row in rows if fnmatchcase(row.name, arguments.glob.lower())]
        found = [] if named else _keys_of_wandb(arguments.glob)
        rows = [row for row in rows if any(row in key.metrics for _, key in found)] if found else named
    if not rows and not found:
        raise Mistake(f"no metric matches {arguments.glob}; {_suggestion(arguments.glob.lower().strip('*'))}")
    keys = wandb.metrics()
    if arguments.format == "json":
        print(json.dumps([_as_json(row, keys.get(row, [])) for row in rows], indent=2))
        return 0
    width = shutil.get_terminal_size((_UNLIMITED if arguments.glob is None else 100, 24)).columns
    lines: Iterable[str] = _overview(rows, width)
    if arguments.glob is not None:
        lines = chain(_meanings(found, width), _details(rows, keys, width))
    for line in lines:
        print(line)
    if found and any(arguments.glob in row.name for row in CATALOG):
        say(f"this is a key of W&B; '*{arguments.glob}*' finds the metrics with this word in their names")
    return 0


def _print_series(preset: str) -> int:
    """Read this machine, and print how many series a preset exports."""
    with closing(pipeline.Session(Config.read(), all_processes=True)) as session:
        session.start()
        viewer = Viewer(session)
        time.sleep(1)  # a rate needs two readings
        values = viewer.collect().snapshot.values
    totals = []
    for name in PRESETS:
        config = session.config.changed(preset=name)
        found = {}
        for metric, points in values.items():
            is_exported = config.exported(metric) or (lambda _: True)
            found[metric] = [attributes for _, attributes in points if is_exported(attributes)]
        totals.append(f"{name} {sum(map(len, found.values()))}")
        if name == preset:
            rows = [(metric.name, str(len(series))) for metric, series in found.items() if series]
            events = {frozenset(attributes.items()) for series in found.values() for attributes in series}
    for line in columns([("METRIC", "SERIES"), *rows], _UNLIMITED):
        print(line)
    print()
    print(f"Series on this machine by preset: {', '.join(totals)}.")
    print(f"An export with {preset} has {len(events)} sets of attributes, each of which is an event in Honeycomb.")
    return 0


def _keys_of_wandb(word: str) -> list[tuple[str, wandb.Key]]:
    """Return the keys that a name such as ``gpu.0.temp`` stands for, each with its source."""
    name = re.sub(r"\.(\d+|\*)(?=\.)", ".{i}", word.lower().removeprefix("system."))  # as W&B writes it in its history
    return [
        (source, key)
        for source, table in wandb.KEYS.items()
        for key in table
        if fnmatchcase(name, re.sub(r"\{(?!i\})\w+\}", "*", key.name).lower())
    ]


def _meanings(found: Iterable[tuple[str, wandb.Key]], width: int) -> Iterator[str]:
    """Yield what keys of W&B mean, and how they differ from W&B's."""
    for source, key in found:
        close = f". Close to W&B's: {key.close}" if key.close else ""
        yield from wrap(f"W&B's {key.name} ({source}, {key.unit}): {key.formula}{close}", max(width, 40), "", "  ")
    if found:
        yield ""


def _suggestion(word: str) -> str:
    """Return what to try instead."""
    names = [row.name for row in CATALOG]
    if any(word in name for name in names):
        return f"try '*{word}*'"
    alike = get_close_matches(word, names, 3)
    return f"did you mean {' or '.join(alike)}?" if alike else "'otel-hardware metrics' lists them all"


def _as_json(row: Metric, keys: Sequence[str]) -> dict[str, object]:
    return {
        "name": row.name,
        "kind": row.kind.value,
        "unit": row.unit,
        "help": row.help,
        "attributes": list(row.attributes),
        "window": row.window.value,
        "scope": row.scope.value,
        "default": "standard" in presets_of(row),
        "presets": presets_of(row),
        "how": how(row),
        "source": row.source,
        "wandb": keys,
        "standard": row.standard,
    }


def how(row: Metric) -> str:
    """Describe the setting that turns the metric or its extra series on."""
    if row.opt_in == "request":
        return f"opt-in: {PREFIX}INCLUDE_METRICS={row.name}"
    if row.opt_in:
        return f"opt-in: {PREFIX}DETAIL={row.opt_in}"
    presets = presets_of(row)
    when = "by default" if "standard" in presets else f"with {PREFIX}PRESET=all"
    if row.opt_in_extras.startswith("with "):
        return f"{when}; {row.opt_in_extras}"
    if row.opt_in_extras:
        return f"{when}; {PREFIX}INCLUDE_METRICS={row.name} adds {row.opt_in_extras}"
    return when


def _overview(rows: Sequence[Metric], width: int) -> Iterator[str]:
    """Yield a line for each metric: its name, kind and unit if there is room, and its description as far as it fits."""
    table = [("NAME", "KIND", "UNIT", "DESCRIPTION")]
    for row in rows:
        table.append((row.name + " +" * bool(row.opt_in), row.kind.value, row.unit, row.help))
    shown = table if width >= _WIDE else [(name, text) for name, _, _, text in table]
    yield from columns(shown, width)
    yield ""
    yield f"{len(rows)} metrics; + marks those that are opt-in; 'otel-hardware metrics NAME' describes one"


def _details(rows: Sequence[Metric], keys: Mapping[Metric, Sequence[str]], width: int) -> Iterator[str]:
    for number, row in enumerate(rows):
        if number:
            yield ""
        yield row.name
        window = row.window.value
        by = "every process" if row.scope is Scope.PROCESS else "one process per host and job"
        facts = {
            "": row.help,
            "kind": row.kind.value if window == "last" else f"{row.kind.value}; {window} of the window",
            "unit": row.unit,
            "attributes": ", ".join(row.attributes) or "none",
            "reported": f"{how(row)}; by {by}",
            "source": row.source,
            "W&B": ", ".join(keys.get(row, ())),
            "name from": "the semantic conventions" if row.standard else "this package",
        }
        for title, fact in facts.items():
            if fact:
                start, indent = (f"  {title:<10}  ", " " * 14) if title else ("  ", "  ")
                yield from wrap(fact, max(width, 40), start, indent)
