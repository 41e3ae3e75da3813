from __future__ import annotations

import importlib
import pkgutil
import re
from functools import cache
from typing import Any

import pytest
from opentelemetry.metrics import NoOpMeter
from opentelemetry.semconv.schemas import Schemas
from packaging.version import Version

from opentelemetry.instrumentation.hardware import vocabulary
from opentelemetry.instrumentation.hardware.config import DETAILS
from opentelemetry.instrumentation.hardware.model import Kind, Metric, Scope, Window
from opentelemetry.instrumentation.hardware.vocabulary import CATALOG, SCHEMA_URL

# The version of the package that all standard rows are taken from; an older one may lack some.
COMPLETE = Version("0.66b0")

# The conventions have no such attribute; ours, until they have.
OWN_ATTRIBUTES = {
    "aws.neuron.execution.latency.type",
    "aws.neuron.execution.quantile",
    "aws.neuron.execution.result",
    "aws.neuron.memory.category",
    "aws.neuron.memory.type",
    "aws.neuron.runtime.tag",
    "system.pressure.resource",
    "system.pressure.kind",
    "google.tpu.buffer.size",
    "google.tpu.core.type",
    "google.tpu.link",
    "google.tpu.transfer.kind",
    "hw.frequency.domain",
    "hw.gpu.index",
    "hw.gpu.link",
    "hw.gpu.throttle.reason",
    "hw.gpu.type",
    "hw.npu.task",
    "openmetrics.endpoint",
    "otel_hardware.source",
    "pci.bdf",
}

KINDS = {
    "create_counter": Kind.COUNTER,
    "create_observable_counter": Kind.COUNTER,
    "create_up_down_counter": Kind.UPDOWN,
    "create_observable_up_down_counter": Kind.UPDOWN,
    "create_gauge": Kind.GAUGE,
    "create_observable_gauge": Kind.GAUGE,
}


class Recorder(NoOpMeter):
    """A meter that says what was made of it: by name, the kind and unit."""

    def __init__(self) -> None:
        super().__init__("recorder")
        self.made: dict[str, tuple[Kind, str]] = {}

    def __getattribute__(self, name: str) -> Any:
        if name not in KINDS:
            return super().__getattribute__(name)
        return lambda **told: self.made.update({told["name"]: (KINDS[name], told["unit"])})


def modules(package: str) -> list[Any]:
    try:
        found = importlib.import_module(package)
    except ModuleNotFoundError:
        return []
    return [importlib.import_module(f"{package}.{module.name}") for module in pkgutil.iter_modules(found.__path__)]


@cache
def conventions() -> dict[str, tuple[Kind, str]]:
    """Every metric that the installed conventions know how to make, apart from histograms."""
    meter = Recorder()
    for module in modules("opentelemetry.semconv._incubating.metrics"):
        for name, create in vars(module).items():
            if name.startswith("create_"):
                arguments = (meter, []) if "callbacks" in create.__annotations__ else (meter,)
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


def installed() -> Version:
    from importlib.metadata import version

    return Version(version("opentelemetry-semantic-conventions"))


def lacking(what: str) -> None:
    """Skip with an older package of conventions; fail with one that should know."""
    if installed() < COMPLETE:
        pytest.skip(f"opentelemetry-semantic-conventions {installed()} has no {what}; {COMPLETE} has")
    pytest.fail(f"the conventions have no {what}")


STANDARD = [row for row in CATALOG if row.standard]
OWN = [row for row in CATALOG if not row.standard]
ATTRIBUTES = sorted({name for row in CATALOG for name in row.attributes})


def test_semantic_conventions_are_read() -> None:
    assert len(conventions()) > 100
    assert {kind for kind, _ in conventions().values()} == set(Kind)
    assert len(attribute_names()) > 300
    assert len(STANDARD) > 30
    assert len(OWN) > 10


@pytest.mark.parametrize("row", STANDARD, ids=lambda row: row.name)
def test_standard_metrics_match_semantic_conventions(row: Metric) -> None:
    told = conventions().get(row.name)
    if told is None:
        lacking(f"metric {row.name}")
    elif told != (row.kind, row.unit) and installed() < COMPLETE:
        pytest.skip(f"opentelemetry-semantic-conventions {installed()} has {row.name} as {told}")
    assert told == (row.kind, row.unit)


@pytest.mark.parametrize("row", OWN, ids=lambda row: row.name)
def test_own_metrics_are_not_in_semantic_conventions(row: Metric) -> None:
    assert row.name not in convention_names(), "the conventions have it now: take kind and unit from there"


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attributes_match_semantic_conventions(name: str) -> None:
    if name in OWN_ATTRIBUTES:
        assert name not in attribute_names(), "the conventions have it now"
    elif name not in attribute_names():
        lacking(f"attribute {name}")


def test_own_attributes_are_used() -> None:
    assert set(ATTRIBUTES) >= OWN_ATTRIBUTES


def test_metric_names_are_unique() -> None:
    names = [row.name for row in CATALOG]
    assert sorted(names) == sorted(set(names))


def test_catalog_has_every_metric_that_is_written() -> None:
    rows = [value for value in vars(vocabulary).values() if isinstance(value, Metric)]
    assert list(CATALOG) == rows
    assert len(rows) == len(set(rows))


def test_schema_url_is_known_to_semantic_conventions() -> None:
    assert re.fullmatch(r"https://opentelemetry\.io/schemas/\d+\.\d+\.\d+", SCHEMA_URL)
    if installed() >= COMPLETE:
        assert SCHEMA_URL in {schema.value for schema in Schemas}


@pytest.mark.parametrize("row", CATALOG, ids=lambda row: row.name)
def test_metrics_are_well_formed(row: Metric) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)+", row.name)
    assert len(row.name) <= 255
    assert re.fullmatch(r"[!-~]{1,63}", row.unit), "a unit is ASCII without spaces"
    assert row.unit == "1" or re.fullmatch(r"By|Hz|Cel|[sJWV]|rpm|\{[a-z_]+\}(/s)?", row.unit)
    assert not row.help[0].islower()
    assert row.help.endswith(".")
    assert row.help.isascii()
    assert len(row.help.split()) >= 3, "a sentence for people"
    assert row.source, "where does the number come from?"
    assert row.detail in ("", "request", *DETAILS)
    assert not (row.detail and row.more), "what a row adds on request is said of rows of the default set"
    assert len(row.attributes) == len(set(row.attributes))
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*", name) for name in row.attributes)


@pytest.mark.parametrize("row", CATALOG, ids=lambda row: row.name)
def test_kind_window_and_scope_are_consistent(row: Metric) -> None:
    if row.kind is not Kind.GAUGE:
        assert row.window is Window.LAST, "counters and up-down counters are the newest reading"
    assert (row.window is Window.PEAK) == row.name.endswith(".peak")
    if row.window is Window.SHARE:
        assert row.unit == "1"
    process = row.name.startswith(
        ("process.", "cpython.", "otel_hardware.", "aws.neuron.runtime.", "aws.neuron.execution.")
    )
    assert (row.scope is Scope.PROCESS) == process
