"""Functions for the tests of the trainium source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.sources.machines import STRANGER
from tests.sources.npus import TRN1, lines, report
from tests.sources.tree import Speaking

from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.model import Series, Value
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import SourceContext
from opentelemetry.instrumentation.hardware.sources.trainium import Trainium


def open_source(drivers: Drivers, pid: int = STRANGER, **more: Any) -> Trainium:
    settings = more.pop("settings", {})
    source = Trainium(SourceContext(Config.read(settings, {}), drivers, pid, **more))
    source.open()
    return source


def count(points: Mapping[Series, Value], series: Series) -> int:
    number = points[series]
    assert isinstance(number, int)
    return number


def reports_of(*runtimes: Mapping[str, Any], devices: int = 1, tick: int = 1) -> Speaking:
    return lines(report(runtimes, devices, tick, TRN1))
