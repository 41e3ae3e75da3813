"""The samples of metrics that the services of a TPU answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from opentelemetry.instrumentation.hardware.model import Number


class Sample(NamedTuple):
    """One value or distribution of a runtime metric.

    Attributes:
        labels: The attributes of the runtime, such as ``device-id``.
        value: The value of a gauge; None for a distribution, and for a gauge without a finite number.
        distribution: ``count``, ``mean``, ``buckets`` and ``bounds`` (their upper ends, one fewer), where valid.
    """

    labels: Mapping[str, str | int]
    value: Number | None = None
    distribution: Mapping[str, Any] | None = None

    @property
    def device(self) -> int | None:
        """The number of the device, unique over all hosts of a slice; None if there is no plausible number."""
        labels = self.labels
        number = labels.get("device-id", labels.get("device_ordinal"))
        if number is None:
            number = next((value for value in labels.values() if isinstance(value, int)), None)
        if isinstance(number, str):
            number = int(number) if re.fullmatch("[0-9]{1,8}", number) else None
        return number if number is not None and 0 <= number < 1 << 24 else None

    def label(self, name: str, pattern: str) -> str:
        """A label in lower case; "" if it does not match the pattern."""
        text = str(self.labels.get(name, "")).lower()
        return text if re.fullmatch(pattern, text) else ""

    @property
    def core_type(self) -> str:
        """``tensorcore`` or ``sparsecore``; "" if it is not reported."""
        return self.label("core_type", "[a-z][a-z0-9_]{0,31}")
