"""A machine with hardware sensors: real files in a new mount namespace.

Usage: sensors_machine.py MACHINE COMMAND...

MACHINE is a function of tests.sources.sensors. Ends with status 77, and the reason, if there can be no namespace.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.sources import sensors
from tests.support import namespace

namespace.enter()
namespace.empty("/sys/class")
machine = getattr(sensors, sys.argv[1])(0)
links = {name: str(text) for name, text in machine.tree.files.items() if name.endswith(("/device", "/subsystem"))}
for name, target in links.items():  # in this order: subsystem is below the target of device
    place = Path(name)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)
    (place.parent / target).mkdir(parents=True, exist_ok=True)
for name, text in machine.tree.files.items():
    if name not in links:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(str(text))
os.execvp(sys.argv[2], sys.argv[2:])
