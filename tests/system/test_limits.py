"""Memory that limits leave, in real processes."""

from __future__ import annotations

import subprocess
import sys
from math import inf

import pytest
from tests.support.children import END, environment

from opentelemetry.instrumentation.hardware.system.limits import memory_left

resource = pytest.importorskip("resource")

_MIB = 1 << 20

# Prints how many MiB are left below a limit, before and after 20 MiB are taken.
_LEFT = """
import mmap, resource, sys
from opentelemetry.instrumentation.hardware.system.limits import memory_left
kind = getattr(resource, sys.argv[1])
resource.setrlimit(kind, (1 << 30, resource.getrlimit(kind)[1]))
before = memory_left()
taken = mmap.mmap(-1, 20 << 20, mmap.MAP_PRIVATE)
print(before, before - memory_left())
"""

# Instruments with a limit that leaves so many MiB, and prints the names of all threads.
_INSTRUMENTED = """
import resource, sys, threading
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.instrumentation.hardware import HardwareInstrumentor
from opentelemetry.instrumentation.hardware.system.limits import memory_left
provider = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, hard))
used = (1 << 30) - int(memory_left())
resource.setrlimit(resource.RLIMIT_DATA, (used + (int(sys.argv[1]) << 20), hard))
HardwareInstrumentor().instrument(meter_provider=provider)
print(*(thread.name for thread in threading.enumerate()))
"""


def _run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", program, *arguments]
    return subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=3 * END, check=True)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")
@pytest.mark.parametrize("kind", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_what_a_limit_leaves(kind: str) -> None:
    before, taken = map(float, _run(_LEFT, kind).stdout.split())
    assert 0 < before < 1 << 30
    assert 20 * _MIB <= taken < 24 * _MIB


def test_without_a_limit() -> None:
    if {resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)} != {resource.RLIM_INFINITY}:
        pytest.skip("this process has a limit")
    assert memory_left() == inf


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")
def test_a_program_at_its_limit_of_memory_is_left_alone() -> None:
    """Otherwise, it hangs in Thread.start(), crashes, or gets MemoryErrors that it would not have without us."""
    found = _run(_INSTRUMENTED, "80")
    assert found.stdout.split() == ["MainThread"]
    (line,) = found.stderr.splitlines()
    assert "could not start: the limits of memory (RLIMIT_AS, RLIMIT_DATA) leave less than 96 MiB" in line
    assert "otel-hardware-process" in _run(_INSTRUMENTED, "200").stdout.split()
