"""A substitute for Graphcore's Python module ``gcipuinfo``, with its documented interface.

The file ``how`` next to it is a JSON object with ``devices`` (a list of mappings of texts) and its faults: ``hang``,
``raise`` when the object is created, ``die`` at the next reading, ``noise``. The pause between two readings
is a hundredth of the real one, so that tests are fast.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

_sleep = time.sleep


def _nap(seconds: Any) -> None:
    _sleep(seconds / 100)


time.sleep = _nap

DiscoverActivePartitionIPUs = 0
DiscoverAllPartitionIPUs = 1


def _how() -> dict[str, object]:
    return dict(json.loads((Path(__file__).parent / "how").read_text()))


class Attributes:
    """A mapping that is not a dict, as in a binding."""

    def __init__(self, words: dict[str, str]) -> None:
        self._words = words

    def keys(self) -> list[str]:
        return list(self._words)

    def __getitem__(self, key: str) -> str:
        return self._words[key]


class gcipuinfo:  # noqa: N801 - its name
    """The IPUs of a partition, or of all of them."""

    def __init__(self, mode: int = DiscoverActivePartitionIPUs) -> None:
        folder = Path(__file__).parent
        (folder / "asking").write_text(f"{os.getpid()} {mode} {sorted(os.environ)} {sys.flags.isolated}")
        (folder / "asking").rename(folder / "asked")  # atomically: a test waits for it
        how = _how()
        if how.get("noise"):
            os.write(1, b"[gcipuinfo] connecting to the partition server ...\n")
        if how.get("hang"):
            _sleep(3600)
        if how.get("raise"):
            raise RuntimeError(how["raise"])
        self._mode = mode
        self._updates = False

    def setUpdateMode(self, on: bool) -> None:  # noqa: N802
        self._updates = on

    def getDevices(self) -> list[Attributes]:  # noqa: N802
        assert self._updates, "attributes would be those of the beginning"
        how = _how()
        if how.get("die"):
            os.abort()
        devices = how["devices"] if self._mode == DiscoverAllPartitionIPUs else how.get("active", how["devices"])
        assert isinstance(devices, list)
        return [Attributes(each) for each in devices]
