"""Time each call to NVIDIA's library."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, cast

from opentelemetry.instrumentation.hardware.drivers import Drivers, T
from opentelemetry.instrumentation.hardware.drivers.python_module import PythonModule
from opentelemetry.instrumentation.hardware.drivers.subprocess import Command, Tool
from opentelemetry.instrumentation.hardware.system.files import Files


class Timed(Drivers):
    """Drivers with timed calls to NVIDIA's library.

    Args:
        drivers: The drivers to call.

    Attributes:
        seconds: Duration of each call, by method and function.
    """

    def __init__(self, drivers: Drivers) -> None:
        super().__init__()
        self._drivers = drivers
        self.seconds: defaultdict[str, list[float]] = defaultdict(list)

    def files(self) -> Files:
        return self._drivers.files()

    def python_module(self, name: str) -> PythonModule:
        return self._drivers.python_module(name)

    def command(self, tool: Tool) -> Command:
        return self._drivers.command(tool)

    def custom(self, name: str, make: Callable[[], T]) -> T:
        return cast("T", _Stopped(self._drivers.custom(name, make), self.seconds))

    def close(self) -> None:
        self._drivers.close()

    def table(self) -> dict[str, dict[str, float]]:
        """Return median and maximum in microseconds, and the number of calls."""
        return {
            name: {"median_us": 1e6 * statistics.median(each), "most_us": 1e6 * max(each), "times": len(each)}
            for name, each in sorted(self.seconds.items())
        }


class _Stopped:
    """A driver with timed calls."""

    def __init__(self, driver: object, seconds: dict[str, list[float]]) -> None:
        self._driver = driver
        self._seconds = seconds

    def __getattr__(self, method: str) -> Callable[..., Any]:
        call: Callable[..., Any] = getattr(self._driver, method)

        def timed(*arguments: Any) -> Any:
            words = [method, *(each for each in arguments[1:2] if isinstance(each, str))]
            begun = time.perf_counter()
            try:
                return call(*arguments)
            finally:
                self._seconds[" ".join(words)].append(time.perf_counter() - begun)

        return timed
