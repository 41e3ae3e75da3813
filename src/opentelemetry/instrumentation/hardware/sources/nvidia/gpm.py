"""Samples of NVML's GPU performance monitoring (GPM), each compared with the previous one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

_INTERVAL = 0.1  # minimum seconds between two samples; the library cannot compare closer ones


class GpmSamples:
    """The two newest samples of a device, and the structure that compares them.

    Args:
        binding: The module ``pynvml``.
        ids: ``NVML_GPM_METRIC_*``.
    """

    def __init__(self, binding: Any, ids: Sequence[int]) -> None:
        self._binding = binding
        self._metrics = binding.c_nvmlGpmMetricsGet_t()
        self._metrics.version = binding.NVML_GPM_METRICS_GET_VERSION
        self._metrics.numMetrics = len(ids)
        for at, number in enumerate(ids):
            self._metrics.metrics[at].metricId = number
        self._older, self._newer = binding.nvmlGpmSampleAlloc(), binding.nvmlGpmSampleAlloc()
        self._taken: float | None = None
        self._values: list[tuple[int, float]] | None = None

    def compare(self, gpu: Any, instance: int | None) -> list[tuple[int, float]] | None:
        """Take a sample of a GPU, or of a GPU instance, and compare it with the previous one.

        The answer has NVML's code and the value for each metric.

        Returns:
            None at the first call; within a tenth of a second the previous answer.

        Raises:
            pynvml.NVMLError: A call fails.
        """
        now = time.monotonic()
        if self._taken is not None and now - self._taken < _INTERVAL:
            return self._values
        if instance is None:
            self._binding.nvmlGpmSampleGet(gpu, self._older)
        else:
            self._binding.nvmlGpmMigSampleGet(gpu, instance, self._older)
        self._older, self._newer = self._newer, self._older
        is_first, self._taken, self._values = self._taken is None, now, None
        if not is_first:
            self._metrics.sample1, self._metrics.sample2 = self._older, self._newer
            self._binding.nvmlGpmMetricsGet(self._metrics)
            metrics = self._metrics.metrics[: self._metrics.numMetrics]
            self._values = [(metric.nvmlReturn, metric.value) for metric in metrics]
        return self._values

    def free(self) -> None:
        for sample in (self._older, self._newer):
            with suppress(self._binding.NVMLError):
                self._binding.nvmlGpmSampleFree(sample)
