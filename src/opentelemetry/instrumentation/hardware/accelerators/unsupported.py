"""What devices do not say, in sentences for people: one for each reason, whoever made them; and who does not answer."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

from opentelemetry.instrumentation.hardware.accelerators.quantities import QUANTITIES

_LOG = logging.getLogger(__name__)


def note(device: str, id: str, before: str, now: str) -> None:  # noqa: A002
    """Tell the log once that a device does not answer, and once that it does again.

    Args:
        device: its name.
        id: what tells it from others of the name.
        before: why it did not answer the last time; empty where it did.
        now: why it does not this time.
    """
    if now and not before:
        _LOG.warning("%s (%s): %s; its numbers are missing until it answers", device, id, now)
    elif before and not now:
        _LOG.info("%s (%s) answers again", device, id)


def sentences(devices: Sequence[tuple[str, Mapping[str, str]]]) -> Iterator[str]:
    """A sentence for each reason and the devices that it holds for.

    Args:
        devices: their names, each with the reason for every quantity that it does not say.
    """
    lacking: dict[tuple[str, str], list[str]] = {}
    for device, missing in devices:
        for quantity, reason in missing.items():
            lacking.setdefault((quantity, reason), []).append(device)
    alike: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (quantity, reason), found in lacking.items():
        alike.setdefault((reason, tuple(found)), []).append(quantity)
    for (reason, names), quantities in alike.items():
        where = "" if len(names) == len(devices) else f" of {', '.join(names)}"
        yield f"{_rows(quantities)}{where}: {reason}"


def _rows(quantities: Sequence[str]) -> str:
    """Quantities as the rows that lack them, with what tells them apart; other words as they are."""
    rows: dict[str, list[str]] = {}
    for quantity in quantities:
        for metric, attributes in QUANTITIES.get(quantity, ())[:1]:
            rows.setdefault(metric.name, []).append(" ".join(str(word) for word in attributes.values()))
        if quantity not in QUANTITIES:
            rows.setdefault(quantity, [])
    return ", ".join(f"{name} ({', '.join(words)})" if any(words) else name for name, words in rows.items())
