"""What this Python runs: a program or a helper (multiprocessing and Ray start some), as the main interpreter or not."""

from __future__ import annotations

import ctypes
import re
import sys
from typing import Final

# Programs (``python -c``) of multiprocessing, and of loky, which joblib uses.
_CODE: Final = re.compile(
    r"(?:import sys; )?from [\w.]*\b(resource_tracker|semaphore_tracker|forkserver) import main\b"
)

# Services of a Ray node. Its workers are ``_private/workers/default_worker.py``.
_SCRIPT: Final = re.compile(r"/ray/(autoscaler/|dashboard/|_private/(log_monitor\.py|runtime_env/))")


FORK_SERVER: Final = "forkserver"


def helper() -> str:
    """Return what this process serves as: a resource tracker, a fork server or a service of Ray; "" of the program.

    They inherit PYTHONPATH, so ``opentelemetry-instrument`` instruments them like the program. A fork server also
    imports the program's main module. Its children are forks of it, and do the work of the program.
    """
    arguments = iter(sys.orig_argv[1:])
    for option in arguments:
        if option == "-c":
            found = _CODE.match(next(arguments, ""))
            server = sys.modules.get("multiprocessing.forkserver")
            is_child = server is not None and server.get_inherited_fds() is not None
            return "" if found is None or is_child else found[1]
        if option in ("-X", "-W"):  # multiprocessing passes on "-X dev" in two words
            next(arguments, "")
        elif not option.startswith("-") or option == "-m":
            return "ray" if _SCRIPT.search(option) else ""
    return ""


def is_main() -> bool:
    """Whether this is the first interpreter of the process. mod_wsgi and Jep run programs in others.

    Only Python's interface for C says it in all versions.
    """
    get, main = (
        ctypes.PYFUNCTYPE(ctypes.c_void_p)((f"PyInterpreterState_{name}", ctypes.pythonapi)) for name in ("Get", "Main")
    )
    return bool(get() == main())
