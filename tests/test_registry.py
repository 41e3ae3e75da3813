"""The registry in ``docs/registry``: generated from the catalog, and in the format that Weaver reads.

The format is that of https://github.com/open-telemetry/weaver/blob/main/schemas/semconv-syntax.md. Weaver itself is in
no package registry, so these tests check what that page requires of metrics and attributes.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.test_catalog import COMPLETE, INSTALLED, STANDARD, attribute_names

from opentelemetry.instrumentation.hardware.catalog import CATALOG, EVENTS, SCHEMA_URL, SPAN_ATTRIBUTES
from opentelemetry.instrumentation.hardware.model import Metric

registry = pytest.importorskip("registry", reason="the generator is not part of this source archive")

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "registry"
METRIC = {"id", "type", "metric_name", "stability", "brief", "note", "instrument", "unit"}


def parsed(name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    return content


def attributes() -> list[dict[str, Any]]:
    groups = parsed("attributes")["groups"]
    for group in groups:
        assert group.keys() == {"id", "type", "display_name", "brief", "attributes"}
        assert group["type"] == "attribute_group"
    return [attribute for group in groups for attribute in group["attributes"]]


def test_registry_is_current() -> None:
    assert {path.name: path.read_text() for path in FOLDER.iterdir()} == registry.files(), "run: .ci/reference.py"


def test_manifest_depends_on_the_conventions_that_the_catalog_follows() -> None:
    manifest = parsed("manifest")
    assert re.fullmatch(r"https://\S+/\d+\.\d+\.\d+\w*", manifest["schema_url"])
    (dependency,) = manifest["dependencies"]
    assert dependency["schema_url"] == SCHEMA_URL
    assert f"@v{SCHEMA_URL.rpartition('/')[2]}[model]" in dependency["registry_path"]


def test_attributes_have_the_fields_of_the_format() -> None:
    types = {"string": str, "int": int, "boolean": bool}
    for attribute in attributes():
        if "note" in attribute:  # of a span
            assert re.fullmatch("Unit: (J|s|1|By)[.]", attribute["note"])
            continue
        has_examples = attribute["type"] != "boolean"
        assert attribute.keys() == {"id", "type", "stability", "brief", *["examples"] * has_examples}
        assert bool(attribute.get("examples")) is has_examples
        assert attribute["stability"] == "development"
        assert attribute["brief"].endswith(".")
        known = types[attribute["type"]]
        assert all(type(example) is known for example in attribute.get("examples", ())), attribute["id"]


def test_metrics_have_the_fields_of_the_format() -> None:
    for group in parsed("metrics")["groups"]:
        assert group.keys() - {"attributes"} == METRIC
        assert (group["id"], group["type"]) == (f"metric.{group['metric_name']}", "metric")
        assert group["instrument"] in ("counter", "updowncounter", "gauge", "histogram")
        assert all(reference.keys() == {"ref"} for reference in group.get("attributes", ()))


def test_events_have_the_fields_of_the_format() -> None:
    groups = parsed("events")["groups"]
    assert [group["name"] for group in groups] == [*EVENTS]
    for group in groups:
        assert group.keys() == {"id", "type", "name", "stability", "brief", "attributes"}
        assert (group["id"], group["type"]) == (f"event.{group['name']}", "event")


def test_every_reference_is_defined_once() -> None:
    defined = Counter(attribute["id"] for attribute in attributes())
    assert set(defined.values()) == {1}
    groups = [*parsed("metrics")["groups"], *parsed("events")["groups"]]
    used = {reference["ref"] for group in groups for reference in group.get("attributes", ())}
    of_spans = {each.name for each in SPAN_ATTRIBUTES}
    assert of_spans <= defined.keys()
    assert not (defined.keys() - of_spans) & attribute_names(), "the conventions define them"
    if INSTALLED >= COMPLETE:
        assert used <= defined.keys() | attribute_names()


def test_every_metric_is_defined_or_imported_as_in_the_catalog() -> None:
    metrics = parsed("metrics")
    assert metrics["imports"] == {"metrics": [row.name for row in STANDARD]}

    def facts(row: Metric) -> tuple[object, ...]:
        return row.name, row.kind.value, row.unit, row.help, row.attributes

    defined = [
        (
            *(group[field] for field in ("metric_name", "instrument", "unit", "brief")),
            tuple(reference["ref"] for reference in group.get("attributes", ())),
        )
        for group in metrics["groups"]
    ]
    assert defined == [facts(row) for row in CATALOG if not row.standard]
