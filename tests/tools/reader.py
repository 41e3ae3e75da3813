"""A program that asks the simulated NVML library through the real binding."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.children import PATIENCE, started
from tests.tools.nvml import FakeNvml

# Answers each line, an expression over the names of the real binding, with its value or with NVML's code.
PROGRAM = """
import ctypes, json, os, sys
library = ctypes.CDLL(os.environ["OTEL_PYTHON_HARDWARE_NVML"])
import pynvml

def plain(value):
    if isinstance(value, ctypes.Structure):
        return {name: getattr(value, name) for name, *_ in value._fields_}
    return getattr(value, "__dict__", None) or str(value)

def samples(kind, after):
    type_, buffer = pynvml.nvmlDeviceGetSamples(pynvml.gpu, kind, after)
    return type_, [(sample.timeStamp, sample.sampleValue.uiVal) for sample in buffer]

def event(events, milliseconds):
    found = pynvml.nvmlEventSetWait_v2(events, milliseconds)
    return pynvml.nvmlDeviceGetIndex(found.device), found.eventType, found.eventData

def filled(name, structure):
    vars(pynvml)["nvmlDeviceGet" + name](pynvml.gpu, ctypes.byref(structure))
    return [getattr(structure, name) for name, *_ in structure._fields_ if name not in ("version", "clusterUuid")]

def processes(version):
    room, count = (ctypes.c_uint * 6)(), ctypes.c_uint(1)
    ask = getattr(library, "nvmlDeviceGetComputeRunningProcesses" + version)
    return ask(pynvml.gpu, ctypes.byref(count), room), count.value, list(room)

names = vars(pynvml)
names.update(samples=samples, event=event, processes=processes, plain=plain, filled=filled)
for line in sys.stdin:
    try:
        answer = eval(line, names)
    except pynvml.NVMLError as error:
        answer = {"refused": error.value}
    except NameError:
        answer = {"unknown": line}
    print(json.dumps(answer, default=plain), flush=True)
"""


class Reader:
    """A program that has loaded the driver by its path, as this package does, and the first GPU in `gpu`."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self._child = child

    def ask(self, question: str) -> Any:
        self.begin(question)
        return self.answer()

    def begin(self, question: str) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(question + "\n")
        self._child.stdin.flush()

    def answered(self) -> bool:
        return self._ready(0)

    def _ready(self, seconds: float) -> bool:
        assert self._child.stdout is not None
        return bool(select.select([self._child.stdout], [], [], seconds)[0])

    def answer(self) -> Any:
        assert self._child.stdout is not None
        line = self._child.stdout.readline() if self._ready(PATIENCE) else ""
        if not line:
            self._child.kill()
            raise AssertionError(f"no answer; {self._child.communicate()[1]}")
        return json.loads(line)


Start = Callable[..., "tuple[FakeNvml, Reader]"]


@contextmanager
def reading(fake: FakeNvml) -> Iterator[Reader]:
    """Start a program on this machine that has called `nvmlInit`."""
    environment = {name: value for name, value in fake.environment.items() if name != "LD_LIBRARY_PATH"}
    with started([sys.executable, "-c", PROGRAM], environment) as child:
        reader = Reader(child)
        reader.ask("nvmlInit()")
        reader.ask("(gpu := nvmlDeviceGetHandleByIndex(0)) and None")
        yield reader
