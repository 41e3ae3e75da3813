"""The cases, one module per group: each has `cases()`."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from tests.slow.matrix.case import Case

# The groups, and what each is about.
GROUPS: Final = {
    "servers": "web servers, task queues, processes, threads, event loops and signals",
    "processes": "programs that wait for all of their children, exec, or drop their privileges; the agent's end",
    "drivers": "NVIDIA's library, missing, hanging, crashing or lying",
    "tools": "vendors' tools that hang, flood, fork or print garbage",
    "backends": "OTLP receivers that do not answer or refuse, at each way to end",
    "resources": "few descriptors, processes, memory or files",
    "clocks": "clocks that jump, programs that are stopped and continued",
    "settings": "each variable with invalid values",
    "endpoints": "scraped endpoints that hang, flood or answer garbage",
    "environments": "flags of the interpreter, locales, ways to start a program",
}


def cases(groups: Iterable[str]) -> list[Case]:
    found: list[Case] = []
    for group in groups:
        found += [replace(case, group=group) for case in importlib.import_module(f"{__name__}.{group}").cases()]
    assert len({case.title for case in found}) == len(found), "two cases have the same name"
    return found
