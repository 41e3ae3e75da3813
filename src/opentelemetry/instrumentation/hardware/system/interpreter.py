"""Child interpreters that Python's standard library starts for itself."""

from __future__ import annotations

import re
import sys
from typing import Final

_HELPERS: Final = re.compile(r"from [\w.]*\b(resource_tracker|semaphore_tracker|forkserver) import main\b")
"""Programs (``python -c``) of multiprocessing, and of loky, which joblib uses."""


def is_helper() -> bool:
    """Whether this process only serves multiprocessing: its resource tracker, or its fork server.

    They inherit PYTHONPATH, so ``opentelemetry-instrument`` instruments them like the program. The children of a fork
    server are forks of it and do the work of the program; they have loaded its module.
    """
    code = next((text for option, text in zip(sys.orig_argv, sys.orig_argv[1:]) if option == "-c"), "")
    found = _HELPERS.match(code)
    return found is not None and not (found[1] == "forkserver" and "multiprocessing.forkserver" in sys.modules)
