"""What NVIDIA's devices do not say, in sentences for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from opentelemetry.instrumentation.hardware.devices import QUANTITIES


def sentences(devices: Sequence[tuple[str, Mapping[str, str]]]) -> Iterable[str]:
    """A sentence for each reason.

    Args:
        devices: their names, each with the driver's reason for every quantity that it does not say.
    """
    reasons: dict[str, dict[str, list[str]]] = {}
    for device, missing in devices:
        for quantity, reason in missing.items():
            names = reasons.setdefault(reason, {}).setdefault(_label(quantity), [])
            if device not in names:
                names.append(device)
    for reason, labels in reasons.items():
        everywhere = [label for label, names in labels.items() if len(names) == len(devices)]
        if everywhere:
            yield f"{', '.join(everywhere)}: {reason}"
        for label, names in labels.items():
            if len(names) < len(devices):
                yield f"{label} of {', '.join(names)}: {reason}"


def _label(quantity: str) -> str:
    """A quantity as the row that lacks it, with what tells it from others of the row."""
    if quantity not in QUANTITIES:
        return quantity
    metric, attributes = QUANTITIES[quantity][0]
    words = ", ".join(str(word) for word in attributes.values())
    return f"{metric.name} ({words})" if words else metric.name
