"""W&B's keys of the captures of `tests/sources`, compared with a file for each source.

Each block has the keys that are new or changed since the tick before, and those that are gone. A made-up machine also
answers what only these keys need. ``pytest tests/wandb/test_captures.py --rewrite`` writes the files. Read the diff.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from tests.sources.machines import BARE, Story, docker, kubernetes, metal
from tests.sources.test_captures import CAPTURES, FILES, STORIES_BY_NAME
from tests.support.stage import Clock
from tests.support.stepped import Stepped

from opentelemetry.instrumentation.hardware import wandb
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.drivers.capture import Replay
from opentelemetry.instrumentation.hardware.pipeline import session
from opentelemetry.instrumentation.hardware.pipeline.view import Viewer
from opentelemetry.instrumentation.hardware.settings import Config

# W&B's keys of the host are of several sources.
HOSTS = {
    f"host/{at.__name__}": Story("host,process,filesystem,container", at.__name__, BARE, at)
    for at in (metal, docker, kubernetes)
}


def captures(source: str) -> Iterator[str]:
    """The keys of each capture of a source at each tick."""
    for name in HOSTS if source == "host" else CAPTURES:
        if name.partition("/")[0] == source:
            yield f"## {name}"
            yield from _of_file(name) if name in FILES else _of_story((STORIES_BY_NAME | HOSTS)[name])


def _of_file(name: str) -> Iterator[str]:
    replay = Replay(FILES[name].read_text(encoding="utf-8").splitlines())
    return _rows(name.partition("/")[0], replay, replay.header, replay.ticks, lambda tick: replay.next())


def _of_story(story: Story) -> Iterator[str]:
    machine, header = story.at(0), {"settings": story.settings, "pid": story.pid}
    return _rows(story.source, machine, header, story.ticks, lambda tick: machine.become(story.at(tick)))


def _rows(
    sources: str, drivers: Drivers, header: Mapping[str, Any], ticks: Sequence[float], turn: Callable[[int], object]
) -> Iterator[str]:
    clock, pid = Clock(), header.get("pid") or os.getpid()
    begin = clock.now
    config = Config.read({"sources": sources, **header["settings"]}, {})
    config = config if isinstance(drivers, Replay) else wandb.needs(config)
    made = Stepped(config, pid, 1.0, lambda source: drivers, clock)
    with patch.object(session, "_PAUSE", 0.0):
        viewer = Viewer(made)
    points = wandb.Points(viewer.first, 0.0, made.config, pid)
    before: dict[str, float] = {}
    for tick, seconds in enumerate(ticks):
        clock.now = begin + seconds
        if tick:
            turn(tick)
        now = {key: value for key, value in points.row(viewer.collect()).items() if key[0] != "_"}
        yield f"# tick {seconds:g}"
        yield from (f"- {key}" for key in before if key not in now)
        yield from (f"{key} {value}" for key, value in now.items() if before.get(key) != value)
        before = now
    made.close()


@pytest.mark.parametrize("source", [source for source in wandb.KEYS if source != "openmetrics"])
def test_keys_of_the_captures_of_a_source(source: str, rewrite: bool) -> None:
    with patch("os.path.exists", lambda path: path == "/"):  # the members of bridges of this machine are others
        found = [*captures(source)]
    path = Path(__file__).with_name(f"{source}.expected")
    if rewrite:
        path.write_text("\n".join([*found, ""]), encoding="utf-8")
    assert found == path.read_text(encoding="utf-8").splitlines()
