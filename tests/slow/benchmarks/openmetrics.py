"""Scraping a page with many series of which a filter wants few, beside parsing as many lines as the limit allows."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

from tests.slow.benchmarks.figure import Figure
from tests.slow.benchmarks.steady import in_turn, milliseconds

from opentelemetry.instrumentation.hardware.settings.endpoints import Words
from opentelemetry.instrumentation.hardware.sources.openmetrics.filters import Filters
from opentelemetry.instrumentation.hardware.sources.openmetrics.page import Parser

_NAMES, _EACH = 200, 50

_KIND = "text/plain; version=0.0.4"


def figures(seconds: float) -> list[Figure]:
    page = _page().encode()

    def scrape(words: Words | None) -> Callable[[], float]:
        parser = Parser(Filters("node", words))
        parser.parse(_KIND, page, 0.0)  # the names are known from the second scrape on
        return lambda: milliseconds(lambda: parser.parse(_KIND, page, 0.0))

    cost = in_turn(
        {
            "all": scrape(None),
            "name": scrape([r"\.metric_007_total$"]),
            "label": scrape({r"\.metric_": {"cpu": "^7$"}}),
        },
        seconds,
    )
    return [
        cost.figure("50 wanted by name", "name", "ms of CPU", "all of them", "all", bound=0.25, relative=True),
        cost.figure("200 wanted by a label", "label", "ms of CPU", "all of them", "all"),
        Figure("memory kept by 10 scrapes", _kept(page), "KiB", bound=64),
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
        for _ in range(10):
            parser.parse(_KIND, page, 0.0)
        return max(0.0, (tracemalloc.get_traced_memory()[0] - before) / 1024)
    finally:
        tracemalloc.stop()
