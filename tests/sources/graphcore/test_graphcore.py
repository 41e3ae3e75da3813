"""Graphcore IPUs: parsing of the library's texts, and the library in a real child process."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.sources.machines import STRANGER
from tests.sources.npus import CHILD, HOST, IPU_DEVICES, c2, lines, npu_host, program
from tests.sources.playing import Ahead, beside_the_host
from tests.sources.reading import all_of, by_id, often, opened, series_of, value
from tests.sources.tree import Speaking
from tests.support.children import PROGRAMS, command, lives, run
from tests.support.samples import samples
from tests.support.waiting import wait_for
from tests.support.wandb import row

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import SourceContext
from opentelemetry.instrumentation.hardware.sources.graphcore import Graphcore
from opentelemetry.instrumentation.hardware.sources.graphcore.device import Ipu
from opentelemetry.instrumentation.hardware.sources.graphcore.driver import ModuleFolder, parse
from opentelemetry.instrumentation.hardware.sources.graphcore.fields import FIELDS, SESSION, SESSION_UTILIZATION

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="IPUs are used on Linux"),
    pytest.mark.usefixtures("no_child_is_left"),
]

IPU = {c.HW_ID: "ipu0", c.HW_NAME: "IPU 0"}
TYPED = {**IPU, c.HW_TYPE: "npu"}
BOARD = {**TYPED, c.HW_SENSOR_LOCATION: "board"}
LONG = 60.0


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait long enough for the first line of a child on a busy machine."""
    monkeypatch.setattr("opentelemetry.instrumentation.hardware.sources.graphcore.driver._FIRST_LINE", LONG)
    monkeypatch.setattr("opentelemetry.instrumentation.hardware.drivers.streaming._FIRST_LINE", LONG)


class Library:
    """A fake library in a folder."""

    def __init__(self, folder: Path, *devices: Mapping[str, str], **how: object) -> None:
        self.folder = folder
        shutil.copy(PROGRAMS / "tools/graphcore_gcipuinfo.py", folder / "gcipuinfo.py")
        self.settings: dict[str, Any] = {"gcipuinfo": str(folder), "sample_interval": 1}
        self.report(*devices, **how)

    def report(self, *devices: Mapping[str, str], **how: object) -> None:
        (self.folder / "new").write_text(json.dumps({"devices": devices, **how}))
        os.replace(self.folder / "new", self.folder / "how")

    @property
    def arguments(self) -> list[str]:
        """Its PID, the mode that it was created with, and its environment."""
        return (self.folder / "asked").read_text().split()

    @property
    def pid(self) -> int:
        return int(self.arguments[0])


def ipus_of(line: bytes) -> list[Ipu]:
    """Return the IPUs of a line of the child, each on its own board."""
    ipus = []
    for number, words in parse(line).items():
        ipu = Ipu(number)
        ipu.update(words)
        ipu.board = Device("board-1", "Board 1", "board")
        ipus.append(ipu)
    return ipus


def reported(*devices: Mapping[str, Any]) -> list[Ipu]:
    """The IPUs that the library reports."""
    return ipus_of(json.dumps(devices).encode())


def values(ipu: Ipu) -> dict[str, Any]:
    """What is read of an IPU, by the last word of its series; derived values and identity are left out."""
    found = {}
    for series, number in ipu.read():
        metric = series.metric.name
        if metric.endswith(".peak") or metric == "hw.energy":
            continue
        sensor = series.attributes.get(c.HW_SENSOR_LOCATION, "")
        board = "board." if series.attributes[c.HW_ID] != ipu.id else ""
        found[f"{board}{metric.removeprefix('hw.').removeprefix('npu.')}{sensor and '.'}{sensor}"] = number
    if SESSION in ipu.words:
        found.update(("session", number) for _, number in ipu.points({SESSION_UTILIZATION: ipu.words[SESSION]}))
    return found


# -- texts


@pytest.mark.parametrize(
    ("name", "text", "quantity", "expected"),
    [
        ("average board temp", "36.2 C", "temperature.board", 36.2),
        ("average board temp", "20C", "temperature.board", 20.0),
        ("average die temp", "33.4 C", "temperature.die", 33.4),
        ("clock", "1300MHz", "frequency", 1_300_000_000),
        ("clock", "20 MHz", "frequency", 20_000_000),
        ("ipu power", "120W", "power", 120),
        ("ipu power", "99.5 W", "power", 99.5),
        ("total board power", "12.6 W", "board.power", 12.6),
        ("ipu utilisation", "99.96%", "utilization", 0.9996),
        ("ipu utilisation", "0.00%", "utilization", 0.0),
        ("ipu utilisation (session)", "15.65 %", "session", 0.1565),
        ("link speed", "8 GT/s", "link.speed", 8_000_000_000),
        ("speed", "16.0 GT/s", "link.speed", 16_000_000_000),
        ("link correctable error count", "12", "errors", 12),
    ],
)
def test_ipu_text_with_unit_is_parsed(name: str, text: str, quantity: str, expected: float) -> None:
    (ipu,) = reported({"id": "0", name: text})
    assert values(ipu) == {quantity: pytest.approx(expected)}
    assert ipu.unsupported == {}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ipu power", "N/A"),
        ("ipu power", "0.0 W"),
        ("ipu power", "-5 W"),
        ("ipu power", "120 kW"),
        ("ipu power", "120 W W"),
        ("average die temp", "0C"),
        ("average die temp", "97 F"),
        ("average die temp", "nan C"),
        ("average die temp", "1e3 C"),
        ("clock", "0MHz"),
        ("clock", ""),
        ("ipu utilisation", "101%"),
        ("ipu utilisation", "inf%"),
        ("link correctable error count", "1.5"),
        ("link correctable error count", "-1"),
    ],
)
def test_implausible_ipu_text_is_dropped_with_a_reason(name: str, text: str) -> None:
    (ipu,) = reported({"id": "3", name: text})
    assert values(ipu) == {}
    (reason,) = ipu.unsupported.values()
    assert ipu.unsupported == {FIELDS[name].series: reason}
    assert text in reason


def test_duplicate_ipu_id_is_read_once() -> None:
    assert [*map(values, reported({"id": "0", "ipu power": "1W"}, {"id": "0", "ipu power": "2W"}))] == [{"power": 1}]


# -- recorded output


@pytest.mark.parametrize("path", samples("graphcore/gcipuinfo_getDevices_c2_mock.json"))
def test_recorded_gcipuinfo_output_is_parsed(path: Path) -> None:
    ipus = ipus_of(path.read_bytes())
    common = {"frequency": 1_300_000_000, "power": 120, "utilization": 0.2125, "session": 0.1565}
    assert [(ipu.index, ipu.pid, values(ipu)) for ipu in ipus] == [
        (0, 456, {"temperature.board": 20, "temperature.die": 25, **common}),
        (1, 123, {"temperature.board": 30, "temperature.die": 39, **common}),
        (2, None, {"temperature.board": 20, "temperature.die": 39, **common}),
    ]


@pytest.mark.parametrize("path", samples("graphcore/gc-info_device-info.txt"))
def test_recorded_gc_info_output_is_parsed(path: Path) -> None:
    console = path.read_text()
    blocks = [
        dict(re.findall(r"^  ([^:]+(?: \([a-z]+\))?): (.*)$", part, re.M)) for part in console.split("Device Info")
    ]
    early, late = reported(*(block | {"id": str(number)} for number, block in enumerate(blocks[1:])))
    assert values(early) == {
        "temperature.board": 36.2,
        "temperature.die": 33.4,
        "frequency": 1_300_000_000,
        "utilization": pytest.approx(0.9996),
        "link.speed": 8_000_000_000,
        "errors": 0,
        "session": pytest.approx(0.9998),
        "board.power": 99.5,
    }
    assert (early.pid, early.facts[c.HW_SERIAL_NUMBER], late.state) == (38641, "0340.0004.919062", "ok")
    assert values(late)["frequency"] == 20_000_000
    assert late.unsupported == {FIELDS["ipu power"].series: "the driver reports 'N/A'"}


def _wandb_keys(*devices: Mapping[str, Any]) -> dict[str, float]:
    """The keys of a program that uses these IPUs where they name its process."""
    drivers = npu_host(HOST | {"/dev/ipu0": ""} | program(), lines([*devices]))
    return row("graphcore", STRANGER, drivers)


def test_wandb_keys_without_a_number_are_dropped() -> None:
    unknown = {"ipu power": "N/A", "clock": "nanMHz", "average die temp": "infC"}
    known = {"link speed": "16.0 GT/s", "ipu utilisation (session)": "15 %"}
    assert _wandb_keys({"id": "0", "user process id": str(STRANGER), **unknown, **known}) == {
        "ipu.0.speed (GT/s)": 16,
        "ipu.0.ipu utilisation (session) (%)": 15,
    }


@pytest.mark.parametrize("session", [{}, {"ipu utilisation (session)": "N/A"}], ids=["missing", "unavailable"])
def test_wandb_keys_of_a_used_ipu_do_not_depend_on_the_session(session: dict[str, str]) -> None:
    assert _wandb_keys({"id": "0", "user process id": str(STRANGER), "ipu power": "120W", **session}) == {
        "ipu.0.ipu power (W)": 120
    }


# -- the library in a child


def test_gcipuinfo_is_read_repeatedly_in_a_child_process(tmp_path: Path) -> None:
    library = Library(tmp_path, c2(0, 1), noise=True)
    with opened("graphcore", **library.settings) as source:
        found = all_of(source)
        assert source.errors == []
        assert value(found, c.HW_POWER, TYPED) == 120
        assert value(found, c.HW_TEMPERATURE, BOARD) == 32
        assert value(found, c.HW_NPU_UTILIZATION, {**IPU, c.NPU_TASK: "general"}) == 0.4125
        assert value(found, c.HW_NPU_FREQUENCY, IPU) == 1.3e9
        assert value(found, c.HW_NPU_LINK_SPEED, IPU) == 8e9
        assert library.pid != os.getpid()
        assert "gcipuinfo" not in sys.modules
        library.report(c2(0, 2))
        wait_for(lambda: value(often(source), c.HW_POWER, TYPED) == 122, LONG, "second reading")
    wait_for(lambda: not lives(library.pid), LONG, "end of the child")


def test_environment_of_the_gcipuinfo_child_is_scrubbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setenv("SECRET", "secret")
    monkeypatch.setenv("IPUOF_VIPU_API_HOST", "10.1.2.3")
    library = Library(tmp_path, c2(0, 0))
    with opened("graphcore", **library.settings):
        arguments = " ".join(library.arguments)
    assert "IPUOF_VIPU_API_HOST" in arguments
    assert "PYTHONPATH" not in arguments
    assert "SECRET" not in arguments
    assert arguments.endswith(" 1"), "isolated"


@pytest.mark.parametrize(("devices", "mode", "seen"), [("all", "1", {"ipu0", "ipu1"}), ("visible", "0", {"ipu1"})])
def test_devices_all_discovers_all_partitions(tmp_path: Path, devices: str, mode: str, seen: set[str]) -> None:
    library = Library(tmp_path, c2(0, 0), c2(1, 0), active=[c2(1, 0)])
    with opened("graphcore", devices=devices, **library.settings) as source:
        assert library.arguments[1] == mode
        assert by_id(all_of(source), c.HW_NPU_INFO).keys() == seen


def test_reused_ipu_pid_is_not_attributed_to_the_program() -> None:
    files = HOST | {"/dev/ipu0": ""}
    drivers = npu_host(files | program(CHILD), lines([c2(0, 1, CHILD)]))
    with opened("graphcore", drivers, STRANGER) as source:
        assert series_of(often(source), c.PROCESS_NPU_UTILIZATION)
        for pid in (None, CHILD):
            drivers.become(npu_host(files | program(), lines([c2(0, 1, pid)])))
            assert not series_of(often(source), c.PROCESS_NPU_UTILIZATION)


def test_job_member_without_an_ipu_starts_no_child() -> None:
    output = lines([c2(0, 1, STRANGER)])
    for opens, opened_ in (("/dev/null", 0), ("/dev/ipu0", 1)):
        drivers = npu_host(HOST | {"/dev/ipu0": ""} | program(CHILD, opens=opens), output)
        source = Graphcore(SourceContext(Config.read({}, {}), drivers, STRANGER, is_reporter=False))
        source.open()
        all_of(source)
        assert len(output.opened) == opened_
        assert len(all_of(source)) == opened_


# -- failures


def played(library: Library) -> list[str]:
    with beside_the_host("graphcore", Drivers(), library.settings) as stage:
        return stage.tick()


def test_hanging_gcipuinfo_times_out_and_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opentelemetry.instrumentation.hardware.sources.graphcore.driver._FIRST_LINE", 0.1)
    library, drivers = Library(tmp_path, hang=True), Ahead()
    with opened("graphcore", drivers, **library.settings) as source:
        assert all_of(source) == {}
        assert source.errors == ["gcipuinfo has not reported yet"]
        wait_for((tmp_path / "asked").exists, LONG, "child")
        drivers.seconds += LONG + 1  # until when the first look is waited for
        with pytest.raises(TimeoutError, match="printed nothing for 3 periods"):
            often(source)
        wait_for(lambda: not lives(library.pid), LONG, "end of the child")


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"raise": "no server at 10.1.2.3"}, "gcipuinfo: RuntimeError: no server at 10.1.2.3"),
        ({"die": True}, "gcipuinfo exited"),
    ],
)
def test_failing_gcipuinfo_costs_only_its_own_metrics(tmp_path: Path, how: dict[str, Any], reason: str) -> None:
    exported = played(Library(tmp_path, **how))
    assert any(reason in line for line in exported if line.startswith("# failed")), exported
    assert any(line.startswith("system.cpu.time") for line in exported), "other sources are not affected"
    assert not [line for line in exported if line.startswith("hw.npu")]


def test_crashed_gcipuinfo_child_is_restarted(tmp_path: Path) -> None:
    library, drivers = Library(tmp_path, c2(0, 1)), Ahead()
    with beside_the_host("graphcore", drivers, library.settings) as stage:
        assert any(line.startswith("hw.power{") for line in stage.tick())
        first = library.pid
        library.report(die=True)
        wait_for(
            lambda: any("# failed" in line for line in [*stage.tick(), *stage.remarks()]), LONG, "end of the child"
        )
        library.report(c2(0, 2))
        drivers.seconds += 2  # the pause before the second child is one second
        wait_for(lambda: any(line.startswith("hw.power{") for line in stage.tick()), LONG, "another child")
        assert library.pid != first


def test_empty_partition_is_reported_and_a_new_ipu_is_found(tmp_path: Path) -> None:
    library = Library(tmp_path)
    with beside_the_host("graphcore", Drivers(), library.settings) as stage:
        exported = stage.tick()
        assert any(line.startswith("# missing: hw.npu.*: gcipuinfo lists no IPU") for line in exported)
        assert not [line for line in exported if line.startswith(("# failed", "hw.npu"))]
        library.report(c2(0, 1))
        wait_for(lambda: any(line.startswith("hw.power{") for line in stage.tick()), LONG, "an IPU")
        assert not [line for line in stage.remarks() if "lists no IPU" in line]


def test_modules_beside_gcipuinfo_do_not_shadow_the_standard_library(tmp_path: Path) -> None:
    library = Library(tmp_path, c2(0, 1))
    (tmp_path / "random.py").write_text("raise ImportError('not this one')\n")
    module = tmp_path / "gcipuinfo.py"
    module.write_text(module.read_text().replace("import json\n", "import json\nimport random\n"))
    with opened("graphcore", **library.settings) as source:
        assert series_of(all_of(source), c.HW_POWER)


def test_folder_without_gcipuinfo_makes_the_source_absent(tmp_path: Path) -> None:
    with (
        pytest.raises(Unavailable, match="the Python module gcipuinfo is not found in"),
        opened("graphcore", gcipuinfo=str(tmp_path)),
    ):
        pass


def test_gcipuinfo_is_not_found_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Library(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    with pytest.raises(Unavailable, match="the Python module gcipuinfo is not found"):
        ModuleFolder("").folder()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert ModuleFolder("").folder() == str(tmp_path)


def test_gcipuinfo_is_not_imported_without_an_ipu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Library(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in os.environ if name.startswith("IPUOF_")]:
        monkeypatch.delenv(name)
    if any(name.startswith("ipu") for name in os.listdir("/dev")):
        pytest.skip("this machine has an IPU")
    with pytest.raises(Unavailable, match="there is no IPU"), opened("graphcore"):
        pass
    assert not (tmp_path / "asked").exists()


@pytest.mark.whole
def test_absent_npu_sources_import_no_library_and_leave_no_thread() -> None:
    """Holds for the sources of IPUs, TPUs and Neuron devices."""
    found = json.loads(run(command("machines/npu_absent")).stdout)
    if set(found["states"].values()) != {"absent"}:
        pytest.skip(f"this machine has one: {found['states']}")
    assert found == {
        "states": dict.fromkeys(("graphcore", "tpu", "trainium"), "absent"),
        "threads": [],
        "imported": [],
    }


def test_gcipuinfo_off_starts_no_child() -> None:
    output = lines([c2(0, 1)])
    with (
        pytest.raises(Unavailable, match="gcipuinfo is switched off"),
        opened("graphcore", npu_host(HOST | IPU_DEVICES | program(), output), gcipuinfo="off"),
    ):
        pass
    assert not output.opened


def test_ipuof_environment_variable_makes_the_source_present(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Library(tmp_path, c2(0, 0))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("IPUOF_VIPU_API_PARTITION_ID", "p0")
    with opened("graphcore") as source:
        assert series_of(all_of(source), c.HW_NPU_INFO)


def test_line_that_is_not_json_is_skipped() -> None:
    speaking = Speaking([b"loading", json.dumps([c2(0, 1)]).encode(), b"[{"])
    with opened("graphcore", npu_host(HOST | {"/dev/ipu0": ""}, speaking), STRANGER) as source:
        assert often(source)
        assert source.errors == []


def test_stale_ipu_values_are_dropped_after_a_pause() -> None:
    drivers = npu_host(HOST | {"/dev/ipu0": ""} | program(), lines([c2(0, 1)]))
    with opened("graphcore", drivers, STRANGER, sample_interval=2) as source:
        assert often(source)
        drivers.become(npu_host(HOST | {"/dev/ipu0": ""} | program(), Speaking([]), up=1005.0))
        assert often(source)
        drivers.become(npu_host(HOST | {"/dev/ipu0": ""} | program(), Speaking([]), up=1060.0))
        assert not often(source)


# -- W&B's keys


def test_wandb_keys_are_of_the_ipus_of_the_process(tmp_path: Path) -> None:
    library = Library(tmp_path, c2(0, 1, os.getpid()), c2(1, 1, 1))
    assert row("graphcore", os.getpid(), **library.settings) == {
        "ipu.0.average board temp (C)": 32,
        "ipu.0.average die temp (C)": 38.5,
        "ipu.0.clock (MHz)": 1300,
        "ipu.0.ipu power (W)": 120,
        "ipu.0.ipu utilisation (%)": 41.25,
        "ipu.0.ipu utilisation (session) (%)": 40.5,
        "ipu.0.speed (GT/s)": 8,
    }


def test_error_of_any_length_degrades_an_ipu() -> None:
    ipu = Ipu(0)
    ipu.update({"ipu error state": "parity error in " + ", ".join(f"tile {number}" for number in range(100))})
    assert ipu.condition() == "degraded"
