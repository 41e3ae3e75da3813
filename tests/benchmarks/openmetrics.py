"""A page with many series of which a filter wants few, beside parsing them all; and the memory that is kept."""

from __future__ import annotations

import tracemalloc

from tests.benchmarks.figure import Figure
from tests.benchmarks.steady import in_turn, milliseconds

from opentelemetry.instrumentation.hardware.endpoints import Words
from opentelemetry.instrumentation.hardware.sources.openmetrics.filters import Filters
from opentelemetry.instrumentation.hardware.sources.openmetrics.page import Parser

_NAMES, _EACH = 200, 50

_KIND = "text/plain; version=0.0.4"


def figures(quick: bool) -> list[Figure]:
    page = _page().encode()

    def scrape(words: Words | None) -> float:
        parser = Parser(Filters("node", words))
        parser.parse(_KIND, page, 0.0)  # the names are known from the second scrape on
        return milliseconds(lambda: parser.parse(_KIND, page, 0.0))

    cost = in_turn(
        {
            "all": lambda: scrape(None),
            "name": lambda: scrape([r"\.metric_007_total$"]),
            "label": lambda: scrape({r"\.metric_": {"cpu": "^7$"}}),
        },
        rounds=2 if quick else 11,
    )
    bound = cost["all"] / 10
    beside = "parsing all of them"
    return [
        Figure("10,000 series, 50 wanted by name", cost["name"], "ms CPU", beside, cost["all"], bound, "a tenth"),
        Figure("10,000 series, 200 wanted by a label", cost["label"], "ms CPU", beside, cost["all"]),
        Figure("  memory that 20 more scrapes keep", _kept(page), "KiB", bound=64),
    ]


def _page() -> str:
    lines = []
    for number in range(_NAMES):
        name = f"metric_{number:03}_total"
        lines += [f"# HELP {name} Something that is counted.", f"# TYPE {name} counter"]
        lines += [f'{name}{{cpu="{each}",mode="user",device="eth0"}} {each * 1000.5}' for each in range(_EACH)]
    return "\n".join([*lines, ""])


def _kept(page: bytes) -> float:
    parser = Parser(Filters("node", [r"\.metric_007_total$"]))
    parser.parse(_KIND, page, 0.0)
    tracemalloc.start()
    try:
        parser.parse(_KIND, page, 0.0)
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(20):
            parser.parse(_KIND, page, 0.0)
        return max(0.0, (tracemalloc.get_traced_memory()[0] - before) / 1024)
    finally:
        tracemalloc.stop()
