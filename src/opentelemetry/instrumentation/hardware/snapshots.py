"""snapshot(): all values of this machine as plain objects, without any set-up of OpenTelemetry."""

from __future__ import annotations

import time
from collections.abc import Mapping
from math import inf
from numbers import Real
from typing import Any, NamedTuple

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Number, Series
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.pipeline.view import View, Viewer
from opentelemetry.instrumentation.hardware.settings import Config


class Value(NamedTuple):
    """The value of one series.

    Attributes:
        name: The metric; docs/metrics.md describes each.
        value: Its value. A counter has its total since boot, or since the driver was loaded.
        unit: The unit in UCUM, such as ``By``, ``W`` or ``1`` for a ratio.
        attributes: What tells it from other series of the metric.
        rate: The increase of a counter per second; None for other metrics.
    """

    name: str
    value: Number
    unit: str
    attributes: Mapping[str, str | int]
    rate: float | None = None


class Device(NamedTuple):
    """A GPU, another accelerator, or another part of the machine with an identity, such as a sensor.

    Attributes:
        id: Its ``hw.id``, which is unique on the host.
        name: Its name, such as ``GPU 0``.
        type: Its ``hw.type``, such as ``gpu``.
        facts: Model, driver version, serial number and the like, as far as they are known.
        values: Its values.
    """

    id: str
    name: str
    type: str
    facts: Mapping[str, str | int]
    values: list[Value]

    def __repr__(self) -> str:
        return f"Device(name={self.name!r}, type={self.type!r}, values={len(self.values)})"

    @property
    def model(self) -> str:
        """Its model; "" if it is not known."""
        return str(self.facts.get(c.HW_MODEL, ""))

    def value(self, name: str, **attributes: str) -> Number | None:
        """Return a value by the name of its metric; None if it is not known.

        Args:
            name: The metric.
            attributes: The last words of attributes and their values, such as ``task="general"`` for ``hw.gpu.task``.
                Without them, the first series counts.
        """
        wanted = attributes.items()
        for each in self.values:
            words = {key.rpartition(".")[2]: value for key, value in each.attributes.items()}
            if each.name == name and wanted <= words.items():
                return each.value
        return None


class HardwareSnapshot(NamedTuple):
    """All values of this machine at one moment. A value that is not known is absent.

    Attributes:
        time: Unix seconds.
        window: Seconds that means, ratios and rates cover.
        devices: What has an identity of its own, accelerators first.
        values: All values, those of devices included.
        missing: A sentence for each source or metric that is missing, with the reason and what to do.
    """

    time: float
    window: float
    devices: list[Device]
    values: list[Value]
    missing: list[str]

    def __repr__(self) -> str:  # all values are 150 kB, which a notebook would show for a bare snapshot()
        counts = (f"{name}={len(getattr(self, name))}" for name in ("devices", "values", "missing"))
        return f"HardwareSnapshot({', '.join(counts)})"

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each value, such as for ``pandas.DataFrame(snapshot().rows())``.

        A row has ``time``, ``name``, ``value``, ``unit``, ``rate``, and a column for each attribute.
        """
        return [
            {
                "time": self.time,
                "name": each.name,
                "value": each.value,
                "unit": each.unit,
                "rate": each.rate,
                **each.attributes,
            }
            for each in self.values
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as dicts, lists, text and numbers, such as for JSON."""
        devices = [
            {**each._asdict(), "facts": dict(each.facts), "values": [*map(_as_dict, each.values)]}
            for each in self.devices
        ]
        return {**self._asdict(), "devices": devices, "values": [*map(_as_dict, self.values)]}


def snapshot(window: float = 1.0, **settings: Any) -> HardwareSnapshot:
    """Read all sources of this machine twice, and return their values.

    Args:
        window: Seconds between the two readings, which means and rates cover.
        settings: Settings by name, as of ``HardwareInstrumentor().instrument()``, such as ``sources=["nvidia"]``. Those
            of the environment count, too. The preset is ``all`` unless it is given.

    Raises:
        ValueError: The window is not a number of seconds, 0 or more.
        RuntimeError: The process may have no more threads.
    """
    if not isinstance(window, Real) or not 0.0 <= window < inf:
        raise ValueError(f"window: {window!r} is not a number of seconds, 0 or more")
    session = Session(Config.read({"preset": "all", **settings}), interval=window)
    try:
        session.start()
        viewer = Viewer(session)
        time.sleep(window)
        return _of_view(viewer.collect())
    finally:
        session.close()


def _of_view(view: View) -> HardwareSnapshot:
    values = [
        Value(metric.name, value, metric.unit, dict(attributes), view.rates.get(Series(metric, attributes)))
        for metric, points in view.rows()
        for value, attributes in points
    ]
    devices: dict[str, Device] = {}
    for each in values:
        key = str(each.attributes.get(c.HW_ID, ""))
        if not key:
            continue
        attributes = each.attributes
        device = devices.setdefault(
            key, Device(key, str(attributes.get(c.HW_NAME, key)), str(attributes.get(c.HW_TYPE, "")), {}, [])
        )
        if each.name.endswith(".info"):
            device = devices[key] = device._replace(facts={**device.facts, **attributes})
        if not device.type and c.HW_TYPE in attributes:
            devices[key] = device._replace(type=str(attributes[c.HW_TYPE]))
        device.values.append(each)
    accelerators_first = sorted(devices.values(), key=lambda device: c.HW_MODEL not in device.facts)
    return HardwareSnapshot(view.time, view.window, accelerators_first, values, [*view.unsupported])


def _as_dict(value: Value) -> dict[str, Any]:
    return {**value._asdict(), "attributes": dict(value.attributes)}
