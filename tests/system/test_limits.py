"""Limits of memory, in real processes."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.support.children import END, environment

from opentelemetry.instrumentation.hardware.system.limits import shortage

resource = pytest.importorskip("resource")

# Instruments with a limit that leaves so many MiB, and prints the names of all threads.
_INSTRUMENTED = """
import resource, sys, threading
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.instrumentation.hardware import HardwareInstrumentor
provider = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
name, left = sys.argv[1:]
line = {"RLIMIT_AS": "VmSize:", "RLIMIT_DATA": "VmData:"}[name]
used = next(int(each.split()[1]) << 10 for each in open("/proc/self/status") if each.startswith(line))
kind = getattr(resource, name)
resource.setrlimit(kind, (used + (int(left) << 20), resource.getrlimit(kind)[1]))
HardwareInstrumentor().instrument(meter_provider=provider)
print(*(thread.name for thread in threading.enumerate()))
"""


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", _INSTRUMENTED, *arguments]
    return subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=3 * END, check=True)


def test_without_a_limit() -> None:
    if {resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)} != {resource.RLIM_INFINITY}:
        pytest.skip("this process has a limit")
    assert shortage() is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")
@pytest.mark.parametrize(("name", "least"), [("RLIMIT_AS", 700), ("RLIMIT_DATA", 96)])
def test_a_program_at_its_limit_of_memory_is_left_alone(name: str, least: int) -> None:
    """Otherwise, it hangs in Thread.start(), crashes, or gets MemoryErrors that it would not have without us."""
    found = _run(name, str(least - 10))
    assert found.stdout.split() == ["MainThread"]
    (line,) = found.stderr.splitlines()
    assert f"could not start: {name} leaves less than {least} MiB of memory; the program continues" in line
    assert "otel-hardware-process" in _run(name, str(least + 30)).stdout.split()
