"""Tenstorrent accelerators: counters of 32 bits, the heartbeat of the firmware, and the choice of devices."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.sources.cards import TT, workstation
from tests.sources.machines import STRANGER
from tests.sources.reading import all_of, opened, series_of

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.pipeline.reporter import Reporter
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import Source
from opentelemetry.instrumentation.hardware.sources.tenstorrent import RULE

FIRST = {c.HW_ID: "0000:01:00.0", c.HW_NAME: "NPU 0"}
COUNTER = f"{TT}/tenstorrent!0/pcie_perf_counters/mst_posted_wr_data_word_sent0"
HEARTBEAT = f"{TT}/tenstorrent!0/tt_heartbeat"


def received(source: Source) -> float | None:
    found = series_of(all_of(source), c.HW_NPU_IO)
    wanted = {**FIRST, c.NETWORK_DIRECTION: "receive"}
    number = next((total for series, total in found.items() if dict(series.attributes) == wanted), None)
    assert number is None or isinstance(number, int)
    return number


def state(source: Source, address: str) -> str:
    found = series_of(all_of(source), c.HW_STATUS)
    current = [series.attributes for series, one in found.items() if one and series.attributes[c.HW_ID] == address]
    return str(current[0][c.HW_STATE])


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ([5, 9], 4),
        ([(1 << 32) - 2, 3], 5),
        ([9, 9], 0),
        ([0, (1 << 32) - 2, 1], (1 << 32) + 1),
        ([5, "", 9], 0),  # it could not be read: what came meanwhile is unknown
        ([5, "x", 9, 11], 2),
        ([5, 1 << 32, 9], 0),
        ([5, (1 << 32) - 1, 0, 3], 3),  # a device that does not answer reads as all ones
    ],
)
def test_counters_of_32_bits_are_continued_over_wraps(counts: list[int | str], words: int) -> None:
    drivers = workstation(0)
    tree = drivers.tree
    last = 0.0
    with opened("tenstorrent", drivers, STRANGER) as source:
        for beat, count in enumerate(counts):
            tree.files[COUNTER] = f"{count}\n"
            tree.files[HEARTBEAT] = f"{beat}\n"
            total = received(source)
            assert total is not None
            assert total >= last, "a counter never falls"
            last = total
            tree.up += 2
    assert last == 32 * words


def test_reset_is_no_wrap() -> None:
    drivers = workstation(0)
    tree = drivers.tree
    with opened("tenstorrent", drivers, STRANGER) as source:
        for beat, count in ((70, 900), (90, 1000), (5, 10), (25, 30)):
            tree.files |= {COUNTER: f"{count}\n", HEARTBEAT: f"{beat}\n"}
            total = received(source)
            tree.up += 2
    assert total == 32 * (100 + 20)


def test_counters_that_may_wrap_unseen_are_absent() -> None:
    drivers = workstation(0)
    tree = drivers.tree
    with opened("tenstorrent", drivers, STRANGER) as source:
        assert received(source) == 0
        for beat in (1, 2):
            tree.up += 10
            tree.files[HEARTBEAT] = f"{beat}\n"
            assert received(source) is None
        assert any("the counters may wrap in 5 s, and are read every 10 s" in each for each in source.unsupported)
        tree.up += 2
        tree.files[HEARTBEAT] = "3\n"
        tree.files[COUNTER] = "10\n"
        assert received(source) == 320


def test_firmware_without_heartbeat_fails_and_comes_back() -> None:
    drivers = workstation(0)
    tree = drivers.tree
    with opened("tenstorrent", drivers, STRANGER) as source:
        states = []
        for beat in (5, 5, 5, 6, 7, 8, (1 << 32) - 1, 0):
            tree.files[HEARTBEAT] = f"{beat}\n"
            states.append(state(source, "0000:01:00.0"))
            tree.up += 3
        assert states[:3] == ["ok", "ok", "failed"]
        assert states[-2:] == ["ok", "ok"], "it is read again after a while"


@pytest.mark.parametrize(
    ("text", "ids"),
    [("", ["a", "b"]), ("1", ["b"]), ("0000:01:00.0", ["a"]), (" 0 , 1", ["a", "b"]), ("7", [])],
)
def test_variable_selects_by_number_and_address(text: str, ids: list[str]) -> None:
    devices = [Device(name, name, index=at, address=f"0000:0{at + 1}:00.0") for at, name in enumerate("ab")]
    assert sorted(RULE.select({"TT_VISIBLE_DEVICES": text}, devices).ids) == ids


def test_rank_reports_the_accelerator_that_only_it_may_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another rank reports the host."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("TT_VISIBLE_DEVICES", "1")
    reporter = Reporter({"SLURM_JOB_ID": "1", "XDG_RUNTIME_DIR": str(tmp_path)})
    config = Config.read({"sources": "tenstorrent", "devices": "visible"}, {})
    session = Session(config, STRANGER, drivers=lambda name: workstation(0), reporter=reporter)
    assert not session.is_reporter
    try:
        for runner in session.runners:
            runner.read()
        points = [series.attributes for runner in session.runners for series, _ in runner.points(session.clock())]
    finally:
        session.close()
    assert {each[c.HW_ID] for each in points if c.HW_ID in each} == {"0000:02:00.0"}


def test_power_of_kilowatts_is_unknown() -> None:
    """tt-kmd 2.7.0-rc1 reports some kW, kV and millions of revolutions for a Blackhole card."""
    drivers = workstation(0)
    folder = f"{TT}/tenstorrent!0/device/hwmon/hwmon4"
    drivers.tree.files |= {
        f"{folder}/power1_input": "4063297000\n",
        f"{folder}/in0_input": "3211313\n",
        f"{folder}/fan1_input": "2744786\n",
    }
    with opened("tenstorrent", drivers, STRANGER) as source:
        found = all_of(source)
    for metric in (c.HW_POWER, c.HW_VOLTAGE, c.HW_FAN_SPEED):
        ids = {str(series.attributes[c.HW_ID]).partition("/")[0] for series in series_of(found, metric)}
        assert FIRST[c.HW_ID] not in ids, metric.name
    assert any(series.attributes[c.HW_ID] == FIRST[c.HW_ID] for series in series_of(found, c.HW_TEMPERATURE))
