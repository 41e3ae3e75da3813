"""Which GPUs a View shows: a table has a block for each, and a line at a glance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.cli.view import View
from opentelemetry.instrumentation.hardware.model import NONE, Attributes, Metric, Number


class Gpu(NamedTuple):
    """A GPU, or a part of one that is a device of its own.

    Attributes:
        name: its short name.
        whole: the GPU that it is a part of.
        facts: what is known of it, by the attributes of ``hw.gpu.info``.
    """

    name: str
    whole: Gpu | None
    facts: Attributes

    @property
    def model(self) -> str:
        """Vendor and model, the vendor said once."""
        vendor, model = (str(self.facts.get(key, "")) for key in (c.HW_VENDOR, c.HW_MODEL))
        return model if model.lower().startswith(vendor.lower()) else f"{vendor} {model}".strip()

    @property
    def short(self) -> str:
        """The model without its vendor, of a part without the whole's."""
        of = self.whole.model if self.whole else str(self.facts.get(c.HW_VENDOR, ""))
        return self.model.removeprefix(of).strip()


def gpus(view: View) -> dict[str, Gpu]:
    """All of them by ``hw.id``, parts behind their whole; one that has failed may have no facts."""
    values = view.snapshot.values
    found: dict[str, Gpu] = {}
    for metric in (c.HW_GPU_INFO, c.HW_STATUS, c.HW_GPU_UTILIZATION, c.HW_GPU_MEMORY_USAGE):
        for _, attributes in values.get(metric, ()):
            if attributes.get(c.HW_TYPE, "gpu") == "gpu" and attributes[c.HW_ID] not in found:
                whole = found.get(str(attributes.get(c.HW_PARENT, "")))
                facts = attributes if metric is c.HW_GPU_INFO else NONE
                found[str(attributes[c.HW_ID])] = Gpu(str(attributes[c.HW_NAME]), whole, facts)
    return found


def place(attributes: Attributes, known: Mapping[str, Gpu]) -> str:
    """The ``hw.id`` of the GPU that a number is of, or of which it is a part such as a fan; "" for other numbers."""
    for key in (c.HW_ID, c.HW_PARENT):
        if attributes.get(key) in known and c.HW_NAME in attributes:
            return str(attributes[key])
    return ""


def said_of(view: View, metric: Metric, gpu: str, key: str = "", word: str = "") -> Number | None:
    """One number of a GPU, by its ``hw.id`` and one more attribute; None where it is not known."""
    points = view.snapshot.values.get(metric, ())
    return next(
        (value for value, known in points if known.get(c.HW_ID) == gpu and (not key or known.get(key) == word)),
        None,
    )
