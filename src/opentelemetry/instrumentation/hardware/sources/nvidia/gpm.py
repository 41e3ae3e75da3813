"""Samples of NVML's GPU performance monitoring (GPM), of which each two neighbours are compared."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

_METRIC = struct.Struct("@IIdPPP")
"""``nvmlGpmMetric_t``: id, code, value, and three pointers."""


class GpmSamples:
    """Two samples, used in turn, and the structure that compares them.

    Args:
        binding: The module ``pynvml``.
        ids: ``NVML_GPM_METRIC_*``.

    Attributes:
        newer: The sample to be filled next.
        metrics: The structure for ``nvmlGpmMetricsGet``.
        taken: When the newest sample was filled.
        values: The newest answer.
    """

    def __init__(self, binding: Any, ids: Sequence[int]) -> None:
        self._binding = binding
        self.metrics = binding.c_nvmlGpmMetricsGet_t()
        self.metrics.version = binding.NVML_GPM_METRICS_GET_VERSION
        self.metrics.numMetrics = len(ids)
        for at, number in enumerate(ids):
            self.metrics.metrics[at].metricId = number
        self._each = (ctypes.c_char * (_METRIC.size * len(ids))).from_buffer(
            self.metrics, type(self.metrics).metrics.offset
        )
        self._older, self.newer = binding.nvmlGpmSampleAlloc(), binding.nvmlGpmSampleAlloc()
        self.taken: float | None = None
        self.values: list[Sequence[Any]] | None = None

    def take(self, now: float) -> bool:
        """Make the newer sample the older one. Returns whether there is a pair to compare."""
        first, self.taken = self.taken is None, now
        self.metrics.sample1, self.metrics.sample2 = self._older, self.newer
        self._older, self.newer = self.newer, self._older
        return not first

    def compared(self) -> list[tuple[int, float]]:
        """For each metric NVML's code and the value."""
        return [(code, value) for _, code, value, *_ in _METRIC.iter_unpack(self._each.raw)]

    def free(self) -> None:
        """Free the samples."""
        for sample in (self._older, self.newer):
            with suppress(self._binding.NVMLError):
                self._binding.nvmlGpmSampleFree(sample)
