"""uWSGI forks its workers in C, without the interpreter lock and without Python's fork hooks.

A thread that holds the lock during the fork blocks the worker for ever. So none may run before the fork.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any, Final

_NAMES: Final = ("uwsgi", "pyuwsgi")  # scripts of the package pyuwsgi, which runs uWSGI inside ``python``


def forks_later() -> bool:
    """Whether this process is uWSGI before the fork of its workers."""
    module = _module()
    if module is None:
        # uWSGI may be starting Python, and has not added its module yet.
        if sys.orig_argv:
            return "pyuwsgi" in sys.modules or Path(*sys.orig_argv[1:2]).name in _NAMES
        return hasattr(ctypes.pythonapi, "uwsgi_setup")  # embedded; its plugins need its symbols
    master = module.masterpid()  # 0 without --master; then this process becomes worker 1
    return bool(master == os.getpid() if master else module.worker_id() == 0)


def has_threads() -> bool:
    """Whether uWSGI runs the threads of Python programs. 2.0.30 always does: ``--enable-threads`` is a stub there."""
    return bool(getattr(_module(), "has_threads", True))


def call_in_workers(start: Callable[[], None]) -> None:
    """Call a function in each worker, mule and spooler after its fork; see :func:`forks_later`.

    A program that sets ``uwsgi.post_fork_hook`` itself later replaces the call. The application is noticed by its first
    import of a module that was not imported before.
    """
    if _module() is None:  # it is there before the application is imported, but after sitecustomize
        sys.meta_path.insert(0, _Waiting(start))
    else:
        _add_hook(start)


class _Waiting(MetaPathFinder):
    """Finds no module. It waits for the first import of the application."""

    def __init__(self, start: Callable[[], None]) -> None:
        self._start = start

    def find_spec(self, *_: object) -> None:
        if _module() is None or self not in sys.meta_path:
            return
        sys.meta_path.remove(self)
        if forks_later():
            _add_hook(self._start)
        else:  # --lazy-apps
            self._start()


def _add_hook(start: Callable[[], None]) -> None:
    module: Any = _module()
    if not hasattr(module, "post_fork_hook") and module.masterpid():
        # It sets the hook when it is imported, which would replace one of ours. It needs a master.
        spooler = getattr(module, "spooler", None)
        with suppress(Exception):
            import uwsgidecorators  # noqa: F401
        if spooler is not None:
            module.spooler = spooler
    earlier = getattr(module, "post_fork_hook", None)
    decorators = sys.modules.get("uwsgidecorators")
    if decorators is not None and earlier is decorators.postfork_chain_hook:
        decorators.postfork(start)
        return

    def post_fork_hook() -> None:
        try:
            if earlier is not None:
                earlier()
        finally:
            start()

    module.post_fork_hook = post_fork_hook


def _module() -> Any:
    """Return the module that uWSGI adds, once it is complete: before, its functions crash."""
    module = sys.modules.get("uwsgi")
    return module if hasattr(module, "numproc") and hasattr(module, "worker_id") else None
