"""What spans cost: reads traces as OTLP JSON and prints a line for each name of a span.

Usage:
    python examples/cost.py traces.jsonl
    curl -s 'http://127.0.0.1:16686/api/v3/traces?...' | python examples/cost.py

The file is what a Collector writes, the address is Jaeger's query API. Numbers are means per span. Spans without
hardware attributes, such as short ones, are left out, and a value that one of the spans lacks is "-". Joules per 1,000
tokens are from the share, if there is one.
"""

import fileinput
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

COLUMNS = {
    "s": "seconds",
    "J": "hw.energy",
    "share J": "hw.share.energy",
    "GPU s": "hw.gpu.time",
    "CPU J": "hw.cpu.energy",
    "CPU s": "process.cpu.time",
    "tokens": "tokens",
}
TOKENS = ("gen_ai.usage.output_tokens", "train.tokens")
ROW = "{:24}{:>6}" + "{:>10}" * len(COLUMNS) + "{:>13}{:>10}"

SHORTEST = 0.1  # seconds of a span for which readings are close enough

Values = dict[str, float]


def spans(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the spans of messages, one on each line."""
    for line in lines:
        message = json.loads(line)
        for resource in message.get("result", message).get("resourceSpans", []):
            for scope in resource["scopeSpans"]:
                yield from scope["spans"]


def values(span: dict[str, Any]) -> Values:
    """Return the numbers of a span."""
    found = {"seconds": (int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])) / 1e9}
    for attribute in span.get("attributes", []):
        for kind, value in attribute["value"].items():
            if kind in ("intValue", "doubleValue"):
                found["tokens" if attribute["key"] in TOKENS else attribute["key"]] = float(value)
    return found


def row(name: str, group: list[Values]) -> str:
    """Return a line of the table."""
    totals = {key: sum(each[key] for each in group) for key in COLUMNS.values() if all(key in each for each in group)}
    means = [f"{totals[key] / len(group):.4g}" if key in totals else "-" for key in COLUMNS.values()]
    energy = next((totals[key] for key in ("hw.share.energy", "hw.energy", "hw.cpu.energy") if key in totals), None)
    tokens = totals.get("tokens")
    per = [f"{1000 * energy / tokens:.3g}", f"{tokens / energy:.3g}"] if energy and tokens else ["-", "-"]
    return ROW.format(name[:23], len(group), *means, *per)


if __name__ == "__main__":
    groups = defaultdict(list)
    with fileinput.input(encoding="utf-8") as lines:
        for each in spans(lines):
            numbers = values(each)
            if "process.cpu.time" in numbers and numbers["seconds"] >= SHORTEST:
                groups[each["name"]].append(numbers)
    print(ROW.format("span", "count", *COLUMNS, "J/1k-tokens", "tokens/J"))
    for name in sorted(groups):
        print(row(name, [each for each in groups[name] if "hw.energy" in each] or groups[name]))
