"""A machine with two InfiniBand adapters: real files in a new mount namespace.

Usage: rdma_machine.py COMMAND...

Runs the command there; status 77, with the reason, if namespaces are not allowed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.sources.machines import infiniband
from tests.support import namespace

namespace.enter()
namespace.empty("/sys/class")
for name, text in infiniband(0).items():
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(str(text))
os.execvp(sys.argv[1], sys.argv[1:])
