"""Gaudi accelerators, from lines of hl-smi."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.sources.cards import HL_COLUMNS, HL_HELP, gaudi3, hl_smi, old_gaudi, server
from tests.sources.machines import STRANGER
from tests.sources.npus import HOST, npu_host
from tests.sources.reading import all_of, opened, series_of
from tests.support.children import lives
from tests.support.waiting import wait_for

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.accelerators.selection import select_by_variable
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.sources.gaudi import VARIABLE
from opentelemetry.instrumentation.hardware.sources.gaudi.driver import Table


def test_line_is_read_by_its_heading() -> None:
    table = Table()
    assert table.parse(HL_COLUMNS.encode()) == {}
    assert table.parse(gaudi3(3, 1).encode())["power.draw"] == "426 W"
    assert table.parse(b"power.draw [W], index") == {}
    assert table.parse(b"5 W, 1") == {"power.draw": "5 W", "index": "1"}


@pytest.mark.parametrize(
    "line", [b"", b"WARNING: x", b"0", gaudi3(0, 0).encode() + b", 7", gaudi3(0, 0, index="x").encode()]
)
def test_other_line_is_refused(line: bytes) -> None:
    table = Table()
    table.parse(HL_COLUMNS.encode())
    with pytest.raises(ValueError, match="no table"):
        table.parse(line)


SCRIPT = """#!/bin/sh
if [ "$1" = -h ]; then echo '{help}'; exit 0; fi
[ "$1 $3 $4 $5" = "-Q -f csv -l" ] || exit 64
echo $$ > {pid}
echo '{heading}'
while true; do echo '{first}'; echo '{second}'; sleep 0.05; done
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the driver is Linux's")
def test_real_child_is_read_and_ended(tmp_path: Path) -> None:
    tool = tmp_path / "hl-smi"
    words = {"help": HL_HELP.decode(), "heading": HL_COLUMNS, "first": gaudi3(0, 1), "second": gaudi3(1, 2)}
    tool.write_text(SCRIPT.format(pid=tmp_path / "pid", **words))
    tool.chmod(0o755)
    with opened("gaudi", hl_smi=str(tool)) as source:

        def powers() -> list[Any]:
            return sorted(value for series, value in all_of(source).items() if series.metric is c.HW_POWER)

        wait_for(lambda: powers() == [426, 626], 20, "both lines of hl-smi")  # it writes them one after the other
        pid = int((tmp_path / "pid").read_text())
        assert lives(pid)
    wait_for(lambda: not lives(pid), 20, "end of hl-smi")


def test_only_columns_that_the_tool_knows_are_asked() -> None:
    asked = []
    for drivers in (server(0), old_gaudi(0)):
        with opened("gaudi", drivers, STRANGER):
            ((arguments, period, _),) = drivers.tools["hl-smi"].opened
            assert arguments[2:] == ["-f", "csv", "-l", f"{period:g}"]
            asked.append({*arguments[1].split(",")})
    assert asked[0] - asked[1] == {"power.max", "clocks.current.soc"}


def test_tool_that_lists_nothing_is_unavailable() -> None:
    drivers = npu_host({**HOST, "/sys/module/habanalabs/initstate": "live\n"}, hl_smi(), 1000.0)
    with pytest.raises(Unavailable, match="hl-smi lists no accelerator"), opened("gaudi", drivers, STRANGER):
        pass


@pytest.mark.parametrize("cell", ["N/A", "-1 %", "101 %", "nan", "1e3", "", "62 W"])
def test_implausible_cell_is_absent(cell: str) -> None:
    drivers = server(1)
    drivers.tools["hl-smi"] = hl_smi(gaudi3(0, 1, utilization=cell))
    with opened("gaudi", drivers, STRANGER) as source:
        found = all_of(source)
        assert series_of(found, c.HW_NPU_UTILIZATION) == {}
        assert series_of(found, c.HW_NPU_MEMORY_USAGE) != {}


@pytest.mark.parametrize("cell", ["N/A", "", "0000:43\x00:00.0"])
def test_address_that_is_unknown_or_not_printable_is_absent(cell: str) -> None:
    drivers = server(1)
    drivers.tools["hl-smi"] = hl_smi(gaudi3(0, 1, bus=cell, uuid="N/A"))
    with opened("gaudi", drivers, STRANGER) as source:
        (info,) = series_of(all_of(source), c.HW_NPU_INFO)
    assert c.PCI_BDF not in info.attributes
    assert info.attributes[c.HW_ID] == "hpu0"


def test_accelerator_that_gets_the_number_of_a_lost_one_keeps_its_values() -> None:
    first, second = gaudi3(0, 0), gaudi3(1, 1)
    drivers = server(0)
    drivers.tools["hl-smi"] = hl_smi(first, second)
    with opened("gaudi", drivers, STRANGER) as source:
        before = series_of(all_of(source), c.HW_POWER)
        later = server(1)
        later.tools["hl-smi"] = hl_smi(second.replace("1", "0", 1))
        drivers.become(later)
        after = series_of(all_of(source), c.HW_POWER)
    lost, kept = sorted(before, key=str)
    assert (before[lost], before[kept]) == (226, 426)
    assert after == {kept: 426}


def test_accelerator_whose_uuid_is_unknown_for_a_while_stays_the_same() -> None:
    drivers = server(0)
    drivers.tools["hl-smi"] = hl_smi(gaudi3(0, 0))
    with opened("gaudi", drivers, STRANGER) as source:
        (device,) = series_of(all_of(source), c.HW_POWER)
        later = server(1)
        later.tools["hl-smi"] = hl_smi(gaudi3(0, 1, uuid="N/A"))
        drivers.become(later)
        assert series_of(all_of(source), c.HW_POWER) == {device: 426}


@pytest.mark.parametrize(
    ("text", "ids", "unmatched"), [("", ["a", "b"], ()), ("7", ["a"], ()), ("6, 5", ["b"], ("5",))]
)
def test_variable_selects_modules(text: str, ids: list[str], unmatched: tuple[str, ...]) -> None:
    devices = [Device("a", "a", index=0), Device("b", "b", index=1)]
    devices[0].aliases, devices[1].aliases = ("module7",), ("module6",)
    chosen = select_by_variable(VARIABLE, {VARIABLE: text}, devices, prefix="module")
    assert (sorted(chosen.ids), chosen.unmatched) == (ids, unmatched)
