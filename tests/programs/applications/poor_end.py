"""A program that exits while no file can be opened and our threads are running.

Usage: poor_end.py [ROOT]: without free descriptors, or with a folder as root; status 77 if chroot is not allowed.
"""

from __future__ import annotations

import os
import resource
import sys

from opentelemetry.sdk.metrics import MeterProvider

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

instrumentor = HardwareInstrumentor()
instrumentor.instrument(meter_provider=MeterProvider(), sample_interval=0.001, reporter="always")
assert instrumentor._telemetry.session is not None
instrumentor._telemetry.session.read_now(10)
if sys.argv[1:]:
    try:
        os.chroot(sys.argv[1])
    except PermissionError as error:
        print(error)
        sys.exit(77)
    os.chdir("/")
    print("there are no files")
else:
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    try:
        while True:
            os.open("/dev/null", os.O_RDONLY)
    except OSError:
        print("nothing can be opened")
