"""Reads neuron-monitor in a thread, like an instrumented program, until it is killed."""

from __future__ import annotations

import os
import sys
import threading

from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import SourceContext
from opentelemetry.instrumentation.hardware.sources.trainium import Trainium


def read() -> None:
    source = Trainium(SourceContext(Config.read({"neuron_monitor": sys.argv[1]}, {}), Drivers(), os.getpid()))
    source.open()
    while not list(source.read()):
        pass
    print("read", flush=True)
    threading.Event().wait()


threading.Thread(target=read).start()
