"""Run in a mount namespace: mounts a tree at the path of the Neuron driver's files and reads it with the source."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.sources.npus import NEURON, old_files

from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import SourceContext
from opentelemetry.instrumentation.hardware.sources.trainium import Trainium

virtual = str(Path(NEURON).parent)
subprocess.run(["mount", "-t", "tmpfs", "none", virtual], check=True)
for path, report in old_files(2, 2, 1).items():
    if path.startswith(NEURON):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(path).write_text(report)
source = Trainium(SourceContext(Config.read({"neuron_monitor": "off"}, {}), Drivers(), os.getpid()))
source.open()
for series, value in source.read_all():
    print(series, value)
source.close()
