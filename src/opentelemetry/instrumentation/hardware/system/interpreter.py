"""Python processes that only serve others: those that multiprocessing and Ray start for themselves."""

from __future__ import annotations

import re
import sys
from typing import Final

# Programs (``python -c``) of multiprocessing, and of loky, which joblib uses.
_CODE: Final = re.compile(
    r"(?:import sys; )?from [\w.]*\b(resource_tracker|semaphore_tracker|forkserver) import main\b"
)

# Services of a Ray node. Its workers are ``_private/workers/default_worker.py``.
_SCRIPT: Final = re.compile(r"/ray/(autoscaler/|dashboard/|_private/(log_monitor\.py|runtime_env/))")


def is_helper() -> bool:
    """Whether this process is a resource tracker or a fork server of multiprocessing, or a service of a Ray node.

    They inherit PYTHONPATH, so ``opentelemetry-instrument`` instruments them like the program. The children of a fork
    server are forks of it and do the work of the program; they have loaded its module.
    """
    for option, value in zip(sys.orig_argv[1:], [*sys.orig_argv[2:], ""]):
        if option == "-c":
            found = _CODE.match(value)
            return found is not None and not (found[1] == "forkserver" and "multiprocessing.forkserver" in sys.modules)
        if not option.startswith("-") or option == "-m":
            return _SCRIPT.search(option) is not None
    return False
