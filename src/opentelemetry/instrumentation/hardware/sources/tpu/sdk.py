"""What libtpu's own SDK says of the TPU, beside what the runtime does: it reads the driver.

It is never loaded into the program: a call of it holds the interpreter lock while it waits, for 20 seconds if need be.
A child loads it, on request only, and says a line of JSON every so often.
https://cloud.google.com/tpu/docs/tpu-monitoring-library
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from opentelemetry.instrumentation.hardware.drivers.streaming import StreamingCommand
from opentelemetry.instrumentation.hardware.drivers.subprocess import Tool, python_executable

PERIOD: Final = 10.0
"""Seconds between two lines, at least."""

PROGRAM: Final = """\
import json, sys, time
try:
    from libtpu.sdk import tpumonitoring as tpu
except Exception as error:
    print(json.dumps({"missing": str(error)}), flush=True)
    time.sleep(1e6)
while True:
    began = time.monotonic()
    said = {}
    for name in sys.argv[2:]:
        try:
            said[name] = [str(each) for each in tpu.get_metric(name).data()]
        except Exception:
            pass
    print(json.dumps(said), flush=True)
    time.sleep(max(0.0, began + float(sys.argv[1]) - time.monotonic()))
"""

NAMES: Final = ("tensorcore_util", "ici_link_health", "tpu_throttle_score")


def tool() -> Tool:
    """The child: a Python like this one."""
    return Tool("libtpu", python_executable(), environment=("TPU_", "LIBTPU_", "CLOUD_TPU_"))


class Said(NamedTuple):
    """What a line says.

    Attributes:
        tensorcore: percent of each core, in the driver's order; None for one that is not said.
        links: how ill each link is: 0 healthy to 10 not usable.
        throttle: by device, 0 not throttled to 10.
    """

    tensorcore: tuple[float | None, ...]
    links: Mapping[str, int]
    throttle: Mapping[int, int]


NOTHING: Final = Said((), MappingProxyType({}), MappingProxyType({}))


def parse(line: bytes) -> Said:
    """A line of the child.

    Raises:
        ValueError: it is none; or the SDK is missing, and the text says so.
    """
    said = json.loads(line)
    if not isinstance(said, dict):
        raise ValueError("the child of libtpu says no object")
    if "missing" in said:
        raise ValueError(f"libtpu's SDK cannot be imported: {str(said['missing'])[:200]}")
    links: dict[str, int] = {}
    throttle: dict[int, int] = {}
    for each in _list(said, "ici_link_health"):
        found = re.fullmatch(r"([a-z0-9_.]{1,64}): *([0-9]{1,2})", each)
        if found and int(found[2]) <= 10:
            links[found[1]] = int(found[2])
    for each in _list(said, "tpu_throttle_score"):
        found = re.fullmatch(r"([0-9]{1,6})-([0-9]{1,2})", each)
        if found and int(found[2]) <= 10:
            throttle[int(found[1])] = int(found[2])
    return Said(tuple(map(_percent, _list(said, "tensorcore_util"))), links, throttle)


def _list(said: Mapping[str, Any], name: str) -> list[str]:
    listed = said.get(name)
    return [each for each in listed[:1024] if isinstance(each, str)] if isinstance(listed, list) else []


def _percent(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and 0 <= number <= 100 else None


class Sdk:
    """The SDK in its child.

    Args:
        stream: runs the child.
        interval: seconds between two samples.
    """

    def __init__(self, stream: StreamingCommand, interval: float) -> None:
        self._stream = stream
        self._period = max(PERIOD, interval)
        self._running = False
        self._gone = False
        self._trouble = ""
        self._said = NOTHING

    def read(self) -> Said:
        """The newest of what it said; nothing where it fails, which costs nothing else."""
        if self._gone:
            return NOTHING
        try:
            if not self._running:
                self._said = NOTHING
                self._stream.open(["-I", "-c", PROGRAM, f"{self._period:g}", *NAMES], self._period)
                self._running = True
            lines = self._stream.read()
        except OSError as error:
            self._running = False
            self._trouble = str(error)
            self._said = NOTHING
            return self._said
        if lines:
            self._trouble = ""
            try:
                self._said = parse(lines[-1])
            except ValueError as error:
                self._trouble = str(error)
                self._said = NOTHING
                if b'"missing"' in lines[-1]:
                    self._gone = True
                    self._stream.close()
        return self._said

    def unsupported(self) -> Iterator[str]:
        """What is not said, and why."""
        if self._trouble:
            yield f"google.tpu.link.health, google.tpu.throttle.score, hw.npu.utilization (tensorcore): {self._trouble}"
