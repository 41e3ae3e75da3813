"""The catalog of metrics against the installed semantic conventions, and the form of its rows.

Each test checks one rule and lists every row that breaks it.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from typing import Any

import pytest
from opentelemetry.metrics import NoOpMeter
from packaging.version import Version

from opentelemetry.instrumentation.hardware import catalog
from opentelemetry.instrumentation.hardware.catalog import CATALOG, DETAILS, EVENTS, OWN_ATTRIBUTES, SCHEMA_URL
from opentelemetry.instrumentation.hardware.model import Kind, Metric, Scope, Window

INSTALLED = Version(version("opentelemetry-semantic-conventions"))

# The semantic conventions that define all standard metrics; an older version lacks some of them.
COMPLETE = Version("0.66b0")

# Attributes of version 1.45, as the package @opentelemetry/semantic-conventions of npm has it.
NEWER = {"system.device.name"}

KINDS = {
    "create_counter": Kind.COUNTER,
    "create_observable_counter": Kind.COUNTER,
    "create_up_down_counter": Kind.UPDOWN,
    "create_observable_up_down_counter": Kind.UPDOWN,
    "create_gauge": Kind.GAUGE,
    "create_observable_gauge": Kind.GAUGE,
}


class Recorder(NoOpMeter):
    """A meter that records the kind and unit of each instrument by its name."""

    def __init__(self) -> None:
        super().__init__("recorder")
        self.made: dict[str, tuple[Kind, str]] = {}

    def __getattribute__(self, name: str) -> Any:
        if name not in KINDS:
            return super().__getattribute__(name)
        return lambda **options: self.made.update({options["name"]: (KINDS[name], options["unit"])})


def modules(package: str) -> list[Any]:
    try:
        found = importlib.import_module(package)
    except ModuleNotFoundError:
        return []
    return [importlib.import_module(f"{package}.{module.name}") for module in pkgutil.iter_modules(found.__path__)]


@cache
def conventions() -> dict[str, tuple[Kind, str]]:
    """Kind and unit of every metric of the installed conventions, apart from histograms."""
    meter = Recorder()
    for module in modules("opentelemetry.semconv._incubating.metrics"):
        for name, create in vars(module).items():
            if name.startswith("create_"):
                arguments: list[object] = [meter, []] if "callbacks" in create.__annotations__ else [meter]
                create(*arguments)
    return meter.made


@cache
def convention_names() -> set[str]:
    """Every metric name of the conventions."""
    found = [
        value
        for module in modules("opentelemetry.semconv._incubating.metrics")
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str)
    ]
    return set(found)


@cache
def attribute_names() -> set[str]:
    """Every attribute of the conventions, stable ones included."""
    return {
        value
        for package in ("opentelemetry.semconv._incubating.attributes", "opentelemetry.semconv.attributes")
        for module in modules(package)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str)
    }


STANDARD = [row for row in CATALOG if row.standard]
OWN = [row for row in CATALOG if not row.standard]
ATTRIBUTES = sorted({name for row in CATALOG for name in row.attributes})


def test_semantic_conventions_are_read() -> None:
    assert len(conventions()) > 100
    assert {kind for kind, _ in conventions().values()} == {*Kind} - {Kind.HISTOGRAM}
    assert len(attribute_names()) > 300
    assert len(STANDARD) > 30
    assert len(OWN) > 10


def test_standard_metrics_match_semantic_conventions() -> None:
    wrong = {
        row.name: f"{row.kind} in {row.unit}; the conventions have {conventions().get(row.name)}"
        for row in STANDARD
        if conventions().get(row.name) != (row.kind, row.unit)
    }
    if INSTALLED >= COMPLETE:
        assert wrong == {}
    else:
        assert len(wrong) < len(STANDARD) / 2, f"an older version lacks some metrics, but not these: {wrong}"


def test_own_metrics_are_not_in_semantic_conventions() -> None:
    standardized = [row.name for row in OWN if row.name in convention_names()]
    assert standardized == [], "take kind and unit from the conventions"


def test_attributes_match_semantic_conventions() -> None:
    assert sorted(OWN_ATTRIBUTES.keys() & attribute_names()) == [], "the conventions have these attributes now"
    if INSTALLED >= COMPLETE:
        assert sorted(set(ATTRIBUTES) - OWN_ATTRIBUTES.keys() - attribute_names() - NEWER) == []


def test_own_attributes_are_used() -> None:
    of_events = {name for _, names in EVENTS.values() for name in names}
    assert sorted(OWN_ATTRIBUTES.keys() - set(ATTRIBUTES) - of_events) == []


def test_metric_names_are_unique() -> None:
    names = [row.name for row in CATALOG]
    assert sorted(names) == sorted(set(names))


def test_catalog_has_every_metric_that_is_written() -> None:
    """The metrics are read from the text of the modules: one that is assigned twice, or in a list, is noticed too."""
    texts = [inspect.getsource(module) for module in modules(catalog.__name__)]
    calls = [node for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    constructors = ("counter", "updown", "gauge", "histogram")
    written = [ast.literal_eval(call.args[0]) for call in calls if ast.unparse(call.func) in constructors]
    assert len(written) > 100
    assert sorted(row.name for row in CATALOG) == sorted(written)


def test_detail_words_turn_something_on() -> None:
    words = {row.opt_in for row in CATALOG} | {
        match for row in CATALOG for match in re.findall(r"DETAIL=([a-z]+)", row.opt_in_extras)
    }
    of_series = {"holders"}  # attributes, not metrics
    assert (words - {"", "request"}) | of_series == set(DETAILS)


def test_schema_url_is_that_of_the_conventions() -> None:
    """Names and values of 1.45, which the Python package does not have yet."""
    assert SCHEMA_URL == "https://opentelemetry.io/schemas/1.45.0"
    assert (catalog.DEVICE, catalog.MEMORY_STATES) == ("system.device.name", ("used", "available"))


def test_no_attribute_is_also_a_namespace() -> None:
    """Attributes of spans and resources have a namespace each, and none of these is an attribute."""
    names = {*ATTRIBUTES, *OWN_ATTRIBUTES, *(each.name for each in catalog.SPAN_ATTRIBUTES)}
    assert [name for name in names if any(other.startswith(f"{name}.") for other in names)] == []


def is_process_metric(row: Metric) -> bool:
    return row.name.startswith(
        ("process.", "cpython.", "otel_hardware.", "hw.span.", "aws.neuron.runtime.", "aws.neuron.execution.")
    )


RULES: dict[str, Callable[[Metric], object]] = {
    "name is dotted lower case": lambda row: re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)+", row.name),
    "name is at most 255 long": lambda row: len(row.name) <= 255,
    "unit is UCUM": lambda row: re.fullmatch(r"1|By(/s)?|Hz|Cel|[sJWV]|rpm|\{[a-z_]{1,59}\}(/s)?", row.unit),
    "help is an ASCII sentence": lambda row: (
        row.help.isascii() and not row.help[:1].islower() and row.help.endswith(".") and len(row.help.split()) >= 3
    ),
    "source is named": lambda row: row.source,
    "opt-in word is known": lambda row: row.opt_in in ("", "request", *DETAILS),
    "only default metrics have opt-in extras": lambda row: not (row.opt_in and row.opt_in_extras),
    "attributes are distinct": lambda row: len(row.attributes) == len(set(row.attributes)),
    "attributes are dotted lower case": lambda row: all(
        re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*", name) for name in row.attributes
    ),
    "counters and up-down counters are the latest reading": lambda row: (
        row.kind is Kind.GAUGE or row.window is Window.LAST
    ),
    "peaks are named .peak": lambda row: (row.window is Window.PEAK) == row.name.endswith(".peak"),
    "gauges in 1 are ratios": lambda row: (
        row.unit != "1"
        or row.kind is not Kind.GAUGE
        or row.name.removesuffix(".peak").endswith((".utilization", "_ratio", ".occupancy"))
    ),
    "ratios have the unit 1": lambda row: row.window is not Window.RATIO or row.unit == "1",
    "scope is that of the name": lambda row: (row.scope is Scope.PROCESS) == is_process_metric(row),
}


@pytest.mark.parametrize("rule", RULES)
def test_every_metric_is_well_formed(rule: str) -> None:
    assert [row.name for row in CATALOG if not RULES[rule](row)] == []


GOOD = Metric(Kind.GAUGE, "acme.power", "W", (), "Power of the widgets.", source="the tests")
BAD: dict[str, dict[str, Any]] = {
    "name is dotted lower case": {"name": "acme"},
    "name is at most 255 long": {"name": "acme." + 251 * "x"},
    "unit is UCUM": {"unit": "kW"},
    "help is an ASCII sentence": {"help": "Power."},
    "source is named": {"source": ""},
    "opt-in word is known": {"opt_in": "all"},
    "only default metrics have opt-in extras": {"opt_in": "cpu", "opt_in_extras": "cpu"},
    "attributes are distinct": {"attributes": ("a", "a")},
    "attributes are dotted lower case": {"attributes": ("A",)},
    "counters and up-down counters are the latest reading": {"kind": Kind.COUNTER, "window": Window.MEAN},
    "peaks are named .peak": {"window": Window.PEAK},
    "gauges in 1 are ratios": {"unit": "1"},
    "ratios have the unit 1": {"window": Window.RATIO},
    "scope is that of the name": {"scope": Scope.PROCESS},
}


@pytest.mark.parametrize("broken", [None, *BAD])
def test_malformed_metric_breaks_its_rule(broken: str | None) -> None:
    row = replace(GOOD, **BAD[broken]) if broken else GOOD
    assert [rule for rule, holds in RULES.items() if not holds(row)] == ([broken] if broken else [])
