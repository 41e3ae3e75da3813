"""Bind mount a file over another one, in a new mount namespace.

Usage: bound.py SOURCE TARGET COMMAND...

Runs the command there; status 77, with the reason, if no namespace can be made.
"""

from __future__ import annotations

import os
import sys

from tests.support import namespace

namespace.enter()
namespace.bind(sys.argv[1], sys.argv[2])
os.execvp(sys.argv[3], sys.argv[3:])
