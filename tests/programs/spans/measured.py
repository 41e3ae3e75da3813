"""Blocks of measure(). Prints their values as JSON. Usage: measured.py [NVML-FOLDER]"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

from tests.tools.load import WAVERING, loaded
from tests.tools.nvml import MIB, FakeNvml, h100, listed

from opentelemetry.instrumentation.hardware import Measurement, measure

warnings.simplefilter("ignore", DeprecationWarning)  # it forks beside threads
found: dict[str, Any] = {}


def keep(name: str, block: Measurement) -> None:
    found[name] = {**vars(block), "end": time.time()}


fake = None
if len(sys.argv) > 1:
    gpu = {**loaded(h100(0), WAVERING), "ComputeRunningProcesses": listed((os.getpid(), 700 * MIB))}
    fake = FakeNvml(Path(sys.argv[1]), gpu)
    os.environ.update(fake.environment)
with measure() as first:
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    time.sleep(0.5)
keep("first", first)
with measure() as outer:
    time.sleep(0.3)
    with measure() as inner:
        time.sleep(0.5)
keep("outer", outer)
keep("inner", inner)


def block(number: int) -> None:
    """Measure a block in a thread."""
    with measure() as own:
        time.sleep(0.5 + 0.3 * number)
    keep(f"thread {number}", own)


threads = [threading.Thread(target=block, args=(number,)) for number in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
try:
    with measure() as failed:
        time.sleep(0.5)
        raise ValueError
except ValueError:
    keep("failed", failed)
if fake is not None:
    time.sleep(0.5)
    fake.forget_calls()
    time.sleep(2.5)
    energy = [name for name in fake.calls().elements() if "FieldValues" in name]
    found["calls between blocks"] = len(energy)
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        fake.set_lines({"gpu0.ComputeRunningProcesses": listed((os.getpid(), 700 * MIB))})
        with measure() as child:
            time.sleep(1.0)
        os.write(writing, json.dumps({**vars(child), "end": time.time()}).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    found["child"] = json.loads(os.read(reading, 10_000))
print(json.dumps(found))
