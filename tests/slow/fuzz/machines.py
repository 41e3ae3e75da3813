"""Simulated machines, one of whose files has other content: the kernel's files are read by whole sources."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cache

from tests.slow.fuzz import validity
from tests.sources.cards import CARDS
from tests.sources.machines import STORIES, Story
from tests.sources.npus import NPUS
from tests.sources.radeons import RADEONS
from tests.sources.sensors import SENSORS

from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import Source, SourceContext, discover

_SMALL = 40  # files of one folder that are mutated; the others are like them


class Machine:
    """A simulated machine, and the files that may be mutated."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.drivers = story.at(0)
        self.tree = self.drivers.tree
        self.files = dict(self.tree.files)
        self.config = Config.read(dict(story.settings), {})
        self.make: type[Source] = discover()[story.source]()
        self.paths = self._read_paths()

    def _read_paths(self) -> Sequence[str]:
        """The files that the source reads, without those that are there several times, as for each CPU."""
        self.read()
        asked = {each.replace(f"/{os.getpid()}/", "/{pid}/").replace("/self/", "/{pid}/") for each in self.tree.asked}
        kinds: dict[str, str] = {}
        for path in sorted(asked & self.files.keys()):
            kind = "".join("0" if letter.isdigit() else letter for letter in path)
            while "00" in kind:
                kind = kind.replace("00", "0")
            kinds.setdefault(kind, path)
        return [*kinds.values()][:_SMALL]

    def content(self, path: str) -> bytes:
        """The content of a file as it should be."""
        found = self.files[path]
        return b"" if isinstance(found, OSError) else found.encode() if isinstance(found, str) else found

    def read(self, path: str = "", content: bytes = b"") -> None:
        """Read everything, with another content of a file. What a source raises, the runner handles."""
        self.tree.asked.clear()
        self.tree.files = {**self.files, path: content} if path else dict(self.files)
        source = self.make(SourceContext(self.config, self.drivers, self.story.pid or os.getpid()))
        try:
            source.open()
            readings = [[*source.read_all()]]
            self.tree.up += 10
            readings.append([point for each in source.readings()[:2] for point in each.read()])
        except (Unavailable, OSError, DriverError, ValueError, IndexError, OverflowError):
            return
        finally:
            source.close()
        validity.exported(readings)


@cache
def places(*sources: str) -> Sequence[tuple[Machine, str]]:
    """The files of all machines of some sources."""
    return [*_places(sources)]


def _places(sources: Sequence[str]) -> Iterator[tuple[Machine, str]]:
    for story in (*STORIES, *SENSORS, *RADEONS, *NPUS, *CARDS):
        if story.source in sources and story.at(0).linux is not None and story.name != "metal":
            machine = Machine(story)
            for path in machine.paths:
                yield machine, path
