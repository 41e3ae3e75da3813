"""Print as JSON what the NVIDIA source reports about the processes of a GPU, in the PID namespace that it runs in.

Usage: nvidia_container.py [FILE]; holds the file open meanwhile.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack

from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import SourceContext, discover

with ExitStack() as stack:
    for name in sys.argv[1:]:
        stack.enter_context(open(name))
    kind = discover()["nvidia"]()
    config = Config.read()
    kind.prepare(config)
    source = kind(SourceContext(config, Drivers(), os.getpid()))
    source.open()
    points = [*source.read_all()]
    source.close()
used = {series.metric.name: value for series, value in points if series.metric.name.startswith("process.gpu.")}
print(json.dumps({"pid": os.getpid(), "used": used, "missing": source.unsupported}))
