"""Graphcore's library ``gcipuinfo``: where it is, and the child that asks it.

https://docs.graphcore.ai/projects/gcipuinfo/en/latest/ It is part of the Poplar SDK. Making its one object talks to a
server where IPUs are shared, and may hang; so no process but a child of ours imports it.
"""

from __future__ import annotations

import os
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

from opentelemetry.instrumentation.hardware.drivers.subprocess import Tool, interpreter
from opentelemetry.instrumentation.hardware.model import Unavailable

NAME: Final = "gcipuinfo"

_FIX: Final = "source the enable script of Graphcore's SDK, or say in GCIPUINFO which folder has the module"

_KEEP: Final = ("IPUOF_", "GCDA_", "VIPU_", "POPLAR_")


class Place:
    """Where the library is, on this machine.

    Args:
        setting: the folder that has it; "" to look where Python finds modules.
    """

    def __init__(self, setting: str) -> None:
        self._setting = setting

    def folder(self) -> str:
        """The folder that has it.

        Raises:
            Unavailable: none has.
        """
        if self._setting and not os.path.isdir(self._setting):
            raise Unavailable(f"{self._setting} is no folder", _FIX)
        found = PathFinder.find_spec(NAME, [self._setting] if self._setting else None)  # looks, and imports nothing
        if found is None or not found.origin:
            raise Unavailable(f"there is no Python module {NAME}{self._where()}", _FIX if self._setting else "")
        origin = Path(found.origin)
        return str(origin.parent.parent if origin.name.startswith("__init__.") else origin.parent)

    def _where(self) -> str:
        return f" in {self._setting}" if self._setting else ""


def tool() -> Tool:
    """The child: the same Python, without anything of ours."""
    program = str(Path(__file__).with_name("child.py"))
    return Tool(NAME, interpreter(), keep=_KEEP, first=("-I", "-S", program))
