"""Every capture through the real instrumentor and the real SDK, compared with the file of expected output.

A capture is what drivers answered at each tick (format: see `drivers.capture`). There are
three kinds, named in the first line of a capture (``nature``):

- ``recorded``: from the drivers of a real machine, by ``otel-hardware record``. A file ``<source>/<name>.jsonl``.
- ``simulated``: from a simulated driver library. A file as well, because recording it takes a child process.
- ``made by hand``: from data in this folder. A file where an NVIDIA tool printed a handwritten document; all others are
  made in memory: from a `Story` (in machines.py, cards.py and the like) or from pages.py.

Expected output, ``<source>/<name>.expected``, is a block of lines for each tick::

    # tick 0
    # missing: system.disk.io: no whole disk in /proc/diskstats        a metric that the source reports as missing
    # absent: there is no /sys/class/drm (...)                         or why the whole source is absent, or ill
    hw.power{hw.id=0,hw.type=gpu} 250.0 W gauge                        series, value, unit, kind

    # tick 10
    - hw.power{hw.id=0,hw.type=gpu}                                    gone since the tick before
    - # missing: system.disk.io: ...                                   no longer missing
    hw.power{hw.id=1,hw.type=gpu} 251.0 W gauge                        new, or with another value

The first block is everything that the SDK collects, each further block only what changed since the one before it.

``pytest tests/sources/test_captures.py --rewrite`` writes expected output and simulated captures. Read the diff.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from io import StringIO
from pathlib import Path

import pytest
from tests.sources.cards import CARDS
from tests.sources.machines import STORIES, Story
from tests.sources.macs import MACS
from tests.sources.npus import NPUS
from tests.sources.pages import CAPTURES as PAGES
from tests.sources.playing import playing
from tests.sources.radeons import RADEONS
from tests.sources.reading import class_of
from tests.sources.sensors import SENSORS
from tests.sources.simulated import SIMULATIONS, captures
from tests.sources.tpus import TPUS
from tests.support.stage import Clock
from tests.tools import fake_nvml

from opentelemetry.instrumentation.hardware.accelerators.source import AcceleratorSource
from opentelemetry.instrumentation.hardware.catalog import CATALOG, ERROR_TYPES
from opentelemetry.instrumentation.hardware.drivers.capture import Record, Replay
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import SourceContext, discover

FOLDER = Path(__file__).parent

NOT_IN_A_CAPTURE = {
    "cpython.gc.collections": "asked of the interpreter, not of a driver; test_process.py",
    "cpython.gc.collected_objects": "asked of the interpreter, not of a driver; test_process.py",
    "cpython.gc.uncollectable_objects": "asked of the interpreter, not of a driver; test_process.py",
    "otel_hardware.source.read.duration": "wall time of the reading itself",
    "otel_hardware.spans.energy.unattributed": "only while spans are recorded; test_shares.py",
    "google.tpu.hlo.execution.latency": "opt-in; wandb/test_captures.py",
    "google.tpu.transfer.latency": "opt-in; wandb/test_captures.py",
    "google.tpu.tcp.delivery.rate": "opt-in; wandb/test_tpu.py",
    "google.tpu.tcp.round_trip.time": "opt-in; wandb/test_tpu.py",
    "hw.gpu.memory.allocated": "opt-in; wandb/test_captures.py",
    "hw.gpu.memory.errors": "opt-in; wandb/test_keys.py",
    "hw.gpu.memory.overdrive_ratio": "opt-in; wandb/test_amd.py",
    "hw.gpu.bottleneck.time": "from what other sources read; bottlenecks/test_counter.py",
    "hw.holder.info": "from what other sources list; test_holders.py",
    "hw.holder.memory.usage": "from what other sources list; test_holders.py",
    "hw.holder.utilization": "from what other sources list; test_holders.py",
    "hw.span.energy": "recorded when spans end; test_spans.py",
}


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def _recorded(story: Story) -> str:
    """The capture of a made-up machine: what its source asks of it at each tick."""
    clock, output = Clock(), StringIO()
    start, drivers = clock.now, story.at(0)
    header: dict[str, object] = {"nature": "made by hand", "machine": story.machine, "settings": story.settings}
    if story.pid:
        header["pid"] = story.pid
    record = Record(drivers, output, story.source, header, clock=clock)
    site = SourceContext(
        Config.read({"sources": [story.source], **story.settings}, {}), record, story.pid or os.getpid()
    )
    source = class_of(story.source)(site)
    try:
        source.open()
        for number, seconds in enumerate(story.ticks):
            if number:
                clock.now = start + seconds
                drivers.become(story.at(number))
                record.next()
            for _ in source.read_all():
                pass
    except Unavailable:
        pass  # the capture is of its absence
    return output.getvalue()


FILES = {_name(path): path for path in FOLDER.glob("*/*.jsonl")}
SIMULATED = {f"nvidia/{name}": simulation for name, simulation in SIMULATIONS.items()}
STORIES_BY_NAME = {
    f"{story.source}/{story.name}": story for story in (*STORIES, *RADEONS, *MACS, *NPUS, *TPUS, *SENSORS, *CARDS)
}
PAGES_BY_NAME = {f"openmetrics/{name}": text for name, text in PAGES.items()}
CAPTURES = sorted({*FILES, *SIMULATED, *STORIES_BY_NAME, *PAGES_BY_NAME})


@cache
def _text(name: str) -> str:
    """A capture, read from its file or made in memory."""
    if name in STORIES_BY_NAME:
        return _recorded(STORIES_BY_NAME[name])
    if name in PAGES_BY_NAME:
        return PAGES_BY_NAME[name]
    return (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8")


def _series(line: str) -> str:
    """A line of output without the value, unit and kind of a point."""
    return line if line.startswith("#") else line.rsplit(" ", 3)[0]


def _changes(before: Sequence[str], now: Sequence[str]) -> list[str]:
    """What changed between the output of two ticks, as the docstring of this file describes it."""
    old, new = ({_series(line): line for line in lines} for lines in (before, now))
    assert len(new) == len(now), "a series was collected twice"
    gone = [f"- {series}" for series in old if series not in new]
    return gone + [line for series, line in new.items() if old.get(series) != line]


def _output(replay: Replay) -> str:
    """The output of a capture."""
    source, settings = replay.header["capture"], replay.header.get("settings", {})
    blocks: list[str] = []
    before: list[str] = []
    with playing(lambda name: replay, {"sources": [source], **settings}, replay.header.get("pid")) as stage:
        start = stage.clock.now
        while True:
            stage.clock.now = start + replay.time
            stage.read()
            now = [*stage.remarks(), *stage.collect()]
            blocks.append("\n".join([f"# tick {replay.time:g}", *_changes(before, now), ""]))
            before = now
            if not replay.next():
                return "\n".join(blocks)


@pytest.mark.parametrize("name", CAPTURES)
def test_capture_is_exported_as_expected(name: str, rewrite: bool) -> None:
    if rewrite and name in SIMULATED:
        simulation = name.partition("/")[2]
        (FOLDER / f"{name}.jsonl").write_text(captures(simulation)[simulation], encoding="utf-8")
    replay = Replay(_text(name).splitlines())
    assert replay.header["capture"] == name.partition("/")[0], "a capture has to be in the folder of its source"
    found, path = _output(replay), FOLDER / f"{name}.expected"
    if rewrite:
        path.write_text(found, encoding="utf-8")
    expected = path.read_text(encoding="utf-8") if path.exists() else ""
    assert found.splitlines() == expected.splitlines(), f"{path.relative_to(FOLDER)} differs"


def _sees_host_pids() -> bool:
    try:
        return os.readlink("/proc/self/ns/pid") == "pid:[4026531836]"  # of the kernel's first namespace
    except OSError:
        return False


@pytest.mark.whole
@pytest.mark.skipif(not _sees_host_pids(), reason="the source makes other calls in a pid namespace")
def test_simulated_captures_are_up_to_date() -> None:
    def calls(text: str) -> list[str]:
        return [line for line in text.splitlines()[1:] if not line.startswith('["files"')]

    fake_nvml()
    for name, text in captures(*SIMULATIONS).items():
        assert calls(text) == calls(_text(f"nvidia/{name}")), "run pytest tests/sources/test_captures.py --rewrite"


@pytest.mark.parametrize(
    ("before", "now", "changes"),
    [
        pytest.param([], ["# missing: b", "a{} 1 W gauge"], ["# missing: b", "a{} 1 W gauge"], id="first tick"),
        pytest.param(["# missing: b", "a{} 1 W gauge"], ["# missing: b", "a{} 1 W gauge"], [], id="nothing"),
        pytest.param(["a{} 1 W gauge"], ["a{} 2 W gauge"], ["a{} 2 W gauge"], id="value"),
        pytest.param(["a{} 1 W gauge"], ["a{} 1 W counter"], ["a{} 1 W counter"], id="kind"),
        pytest.param(["a{} 1  gauge", "b{c=d e} 1 W gauge"], ["a{} 1  gauge"], ["- b{c=d e}"], id="series gone"),
        pytest.param(["# missing: b"], [], ["- # missing: b"], id="remark gone"),
        pytest.param(["a{c=1} 1 W gauge"], ["a{c=2} 1 W gauge"], ["- a{c=1}", "a{c=2} 1 W gauge"], id="another series"),
    ],
)
def test_expected_output_holds_the_changes_of_a_tick(before: list[str], now: list[str], changes: list[str]) -> None:
    assert _changes(before, now) == changes


def _exported() -> Mapping[str, set[str]]:
    """By metric, the captures whose expected output has it."""
    found: dict[str, set[str]] = {}
    for path in FOLDER.glob("*/*.expected"):
        for line in path.read_text(encoding="utf-8").splitlines():
            own = line.startswith("openmetrics.") or "openmetrics.endpoint=" not in line  # not of a scraped page
            if line and own and not line.startswith(("#", "- ")):
                found.setdefault(line.partition("{")[0], set()).add(_name(path))
    return found


def test_every_catalog_row_is_in_some_expected_output_or_has_a_reason() -> None:
    known, exported = {row.name for row in CATALOG}, set(_exported())
    assert known - exported - set(NOT_IN_A_CAPTURE) == set(), "rows that no capture shows"
    assert exported & set(NOT_IN_A_CAPTURE) == set(), "rows that a capture shows after all"
    assert set(NOT_IN_A_CAPTURE) - known == set(), "reasons for rows that do not exist"
    assert exported - known == set(), "exported, but in no row of the vocabulary"


def test_values_of_a_metric_have_one_type_for_every_vendor() -> None:
    """Google Cloud Monitoring refuses the values of the other type: its metrics have one."""
    types: dict[str, set[bool]] = {}
    for path in FOLDER.glob("*/*.expected"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line and not line.startswith(("#", "- ")):
                series, value, _, _ = line.rsplit(" ", 3)
                types.setdefault(series.partition("{")[0], set()).add(value.isdigit())
    assert types["hw.temperature.limit"] == {False}
    assert [name for name, found in types.items() if len(found) > 1] == []


def test_types_of_errors_are_the_same_words_for_every_vendor() -> None:
    found: dict[str, set[str]] = {}
    for path in FOLDER.glob("*/*.expected"):
        words = re.findall(r"^hw\.errors{error\.type=(\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        found.setdefault(path.parent.name, set()).update(words)
    assert set().union(*found.values()) <= ERROR_TYPES.keys()
    for vendor in ("nvidia", "amd", "trainium"):
        assert {"corrected", "uncorrected", "sram_corrected", "sram_uncorrected"} <= found[vendor], vendor


def test_captures_are_read_in_the_way_that_the_documentation_names() -> None:
    """`docs/dev/coverage.md` tells the ways of a source apart by the names of its captures."""
    ways = pytest.importorskip("ways", reason="the generator is not part of this source archive")
    vendors = {name for name, load in discover().items() if issubclass(load(), AcceleratorSource)}
    assert vendors == ways.WAYS.keys()
    with_values = set().union(*(names for row, names in _exported().items() if row.startswith("hw.")))
    wrong = {}
    for name in with_values:
        source, _, capture = name.partition("/")
        if source not in vendors:
            continue
        calls = [call for call in map(json.loads, _text(name).splitlines()) if isinstance(call, list)]
        answered = {driver for driver, _, _, answer in calls if not (isinstance(answer, dict) and "error" in answer)}
        driver = ways.way(source, capture).driver
        tools = {each.driver for each in ways.WAYS[source]} - {""}
        if (driver not in answered) if driver else answered & tools:
            wrong[name] = answered
    assert wrong == {}, "add a line for these to WAYS in .ci/ways.py"


def test_every_source_has_a_capture() -> None:
    assert {name.partition("/")[0] for name in CAPTURES} == set(discover()) - {"holders"}, (
        "holders only has what others list"
    )


def test_every_capture_has_expected_output_and_vice_versa() -> None:
    assert set(CAPTURES) == {_name(path) for path in FOLDER.glob("*/*.expected")}


@pytest.mark.parametrize("name", CAPTURES)
def test_nature_of_a_capture_is_true(name: str) -> None:
    header = json.loads(_text(name).partition("\n")[0])
    if name in SIMULATED:
        nature = "made by hand" if SIMULATED[name].prints else "simulated"
    else:
        nature = "recorded" if name in FILES else "made by hand"
    assert header["nature"] == nature
    assert header["date"]
    # Reported by `otel-hardware record` only.
    assert bool(re.match(r"(Linux|Darwin|Windows) \d", header["machine"])) == (nature == "recorded"), header["machine"]


def test_no_capture_is_kept_in_a_file_and_made_in_memory() -> None:
    assert FILES.keys() & {*STORIES_BY_NAME, *PAGES_BY_NAME} == set()
    assert len(STORIES_BY_NAME) == len((*STORIES, *RADEONS, *MACS, *NPUS, *TPUS, *SENSORS, *CARDS)), (
        "two stories have one name"
    )
