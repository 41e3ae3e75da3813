"""Every capture through the real instrumentor and the real SDK: what comes out is what stands beside it, byte for byte.

``pytest tests/sources --rewrite`` writes the files anew that are made from something else: the captures of made-up
machines and simulated drivers, and all expected output. Look at what changed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from tests.sources.machines import STORIES, Story
from tests.sources.macs import MACS
from tests.sources.npus import NPUS
from tests.sources.pages import CAPTURES as PAGES
from tests.sources.playing import playing
from tests.sources.radeons import RADEONS
from tests.sources.simulated import SIMULATIONS, capture
from tests.sources.tpus import TPUS
from tests.stage import Clock

from opentelemetry.instrumentation.hardware.config import Config
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.replay import Record, Replay
from opentelemetry.instrumentation.hardware.sources import Site, discover
from opentelemetry.instrumentation.hardware.vocabulary import CATALOG

FOLDER = Path(__file__).parent
SIMULATED = {FOLDER / "nvidia" / f"{name}.jsonl": name for name in SIMULATIONS}
MADE = {FOLDER / story.source / f"{story.name}.jsonl": story for story in (*STORIES, *RADEONS, *MACS, *NPUS, *TPUS)}
PAGED = {FOLDER / "openmetrics" / f"{name}.jsonl": text for name, text in PAGES.items()}
CAPTURES = sorted({*FOLDER.glob("*/*.jsonl"), *MADE, *SIMULATED, *PAGED})

NOT_IN_A_CAPTURE = {
    "cpython.gc.collections": "asked of the interpreter, not of a driver; test_process.py",
    "cpython.gc.collected_objects": "asked of the interpreter, not of a driver; test_process.py",
    "cpython.gc.uncollectable_objects": "asked of the interpreter, not of a driver; test_process.py",
    "otel_hardware.source.read.duration": "wall time of the reading itself",
}


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def _compare(found: str, path: Path, rewrite: bool) -> None:
    if rewrite:
        path.write_text(found, encoding="utf-8")
    expected = path.read_text(encoding="utf-8") if path.exists() else ""
    assert found.splitlines() == expected.splitlines(), f"{path.relative_to(FOLDER)} says something else"


@pytest.mark.parametrize("path", CAPTURES, ids=_name)
def test_a_capture_gives_what_is_written_beside_it(path: Path, rewrite: bool) -> None:
    if rewrite and path in MADE:
        path.write_text(_told(MADE[path]), encoding="utf-8")
    elif rewrite and path in SIMULATED:
        path.write_text(capture(SIMULATED[path]), encoding="utf-8")
    elif rewrite and path in PAGED:
        path.write_text(PAGED[path], encoding="utf-8")
    replay = Replay(path.read_text(encoding="utf-8").splitlines())
    source, settings = replay.header["capture"], replay.header.get("settings", {})
    assert source == path.parent.name, "a capture lies in the folder of its source"
    blocks = []
    with playing(lambda name: replay, {"sources": [source], **settings}, replay.header.get("pid")) as stage:
        start = stage.clock.now
        while True:
            stage.clock.now = start + replay.time
            blocks.append("\n".join([f"# tick {replay.time:g}", *stage.tick(), ""]))
            if not replay.next():
                break
    _compare("\n".join(blocks), path.with_suffix(".expected"), rewrite)


@pytest.mark.parametrize("path", PAGED, ids=_name)
def test_a_made_up_page_is_as_it_was_made(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == PAGED[path], f"{_name(path)}: run pytest tests/sources --rewrite"


@pytest.mark.parametrize("path", MADE, ids=_name)
def test_a_made_up_capture_holds_all_that_its_source_asks(path: Path) -> None:
    kept = path.read_text(encoding="utf-8").splitlines()
    assert _ticks(kept) == _ticks(_told(MADE[path]).splitlines()), f"{_name(path)}: run pytest tests/sources --rewrite"
    assert json.loads(kept[0])["machine"] == MADE[path].machine


def _ticks(lines: list[str]) -> dict[str, set[str]]:
    """By tick, what is asked and answered, in whatever order."""
    found: dict[str, set[str]] = {}
    for line in lines[1:]:
        if line.startswith("{"):
            calls = found[line] = set()
        else:
            calls.add(line)
    return found


def _told(story: Story) -> str:
    """The capture of a made-up machine."""
    clock, output = Clock(), StringIO()
    start, drivers = clock.now, story.at(0)
    header: dict[str, Any] = {"nature": "made by hand", "machine": story.machine, "settings": story.settings}
    if story.pid:
        header["pid"] = story.pid
    record = Record(drivers, output, story.source, header, clock=clock)
    site = Site(Config.read({"sources": [story.source], **story.settings}, {}), record, story.pid or os.getpid())
    source = discover()[story.source]()(site)
    try:
        source.open()
        for number, seconds in enumerate(story.ticks):
            if number:
                clock.now = start + seconds
                drivers.become(story.at(number))
                record.next()
            for _ in (*source.read(), *source.read_seldom()):
                pass
    except Unavailable:
        pass  # the capture is of its absence
    return output.getvalue()


def _exported() -> Mapping[str, set[str]]:
    """By metric, the captures whose expected output has it."""
    found: dict[str, set[str]] = {}
    for path in FOLDER.glob("*/*.expected"):
        for line in path.read_text(encoding="utf-8").splitlines():
            own = line.startswith("openmetrics.") or "openmetrics.endpoint=" not in line  # not of a scraped page
            if line and own and not line.startswith("#"):
                found.setdefault(line.partition("{")[0], set()).add(_name(path))
    return found


def test_every_row_of_the_vocabulary_is_in_some_expected_output_or_has_a_reason() -> None:
    known, exported = {row.name for row in CATALOG}, set(_exported())
    assert known - exported - set(NOT_IN_A_CAPTURE) == set(), "rows that no capture shows"
    assert exported & set(NOT_IN_A_CAPTURE) == set(), "rows that a capture shows after all"
    assert set(NOT_IN_A_CAPTURE) - known == set(), "reasons for rows that do not exist"
    assert exported - known == set(), "exported, but in no row of the vocabulary"


def test_every_source_has_captures_and_every_capture_a_source() -> None:
    assert {path.parent.name for path in CAPTURES} == set(discover())


def test_every_capture_has_expected_output_and_the_other_way_round() -> None:
    assert {path.with_suffix("") for path in CAPTURES} == {path.with_suffix("") for path in FOLDER.glob("*/*.expected")}


def test_every_capture_says_whether_it_was_recorded() -> None:
    for path in CAPTURES:
        header = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
        assert header["nature"] == ("made by hand" if path in MADE or path in PAGED else "recorded"), _name(path)
        assert header["machine"], _name(path)
        assert header["date"], _name(path)
