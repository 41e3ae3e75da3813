"""Which Neuron devices and cores, and which IPUs, are meant by DEVICES, by variables, by the program's use of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.machines import STRANGER
from tests.sources.npus import (
    CHILD,
    HOST,
    IPU_DEVICES,
    TRN1,
    TRN2,
    Npus,
    c2,
    c600,
    lines,
    moved_files,
    old_files,
    program,
    report,
    runtime,
)
from tests.sources.reading import all_of, often
from tests.stage import PATIENT, warnings

from opentelemetry.instrumentation.hardware.config import Config
from opentelemetry.instrumentation.hardware.sources import Site, Source
from opentelemetry.instrumentation.hardware.sources.graphcore import Graphcore
from opentelemetry.instrumentation.hardware.sources.graphcore.raw import Raw
from opentelemetry.instrumentation.hardware.sources.trainium import Trainium
from opentelemetry.instrumentation.hardware.sources.trainium.raw import Raw as NeuronRaw
from opentelemetry.instrumentation.hardware.sources.trainium.visible import CORES, COUNT, device, visible

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Neuron's driver and IPUs are of Linux")


@contextmanager
def opened(
    kind: type[Source], drivers: Npus, devices: str | None, environ: Mapping[str, str], **more: str
) -> Iterator[Any]:
    source = kind(Site(Config.read({"devices": devices, **more}, {}), drivers, STRANGER, environ=environ))
    source.open()
    try:
        yield source
    finally:
        source.close()


def reported(source: Source) -> set[str]:
    ids = (str(series.attributes.get("hw.id", "")) for series in all_of(source))
    return {name.replace("neuroncore", "core").replace("neuron", "device") for name in ids if name}


# -- Trainium: two devices of four cores each; the program uses 0 and 1, a child of it 4, somebody else 6 and 7

DEVICES = {"device0", "device1"}
EVERYTHING = {*DEVICES, "core0", "core1", "core4", "core6", "core7"}


def trn2(*, files: bool = True, nodes: Sequence[int] = (), own: bool = True, **hardware: Any) -> Npus:
    ranks = [runtime(STRANGER, (0, 1), 1), runtime(CHILD, (4,), 1, "rank-1")] if own else []
    said = report([*ranks, runtime(4242, (6, 7), 1)], 2, 1, {**TRN2, **hardware})
    known = moved_files(2, 8, 1) if files else {"/sys/module/neuron/initstate": "live\n"}
    given = {f"/dev/neuron{number}": "" for number in nodes}
    return Npus(HOST | known | given | program(CHILD), lines(said))


@pytest.mark.parametrize("files", [True, False])
@pytest.mark.parametrize(
    ("devices", "environ", "ids"),
    [
        (None, {}, EVERYTHING),
        ("0", {}, {"device0", "core0", "core1"}),
        ("1", {}, {"device1", "core4", "core6", "core7"}),
        ("1,0", {}, EVERYTHING),
        ("neuron1", {}, {"device1", "core4", "core6", "core7"}),
        ("neuroncore6", {}, {"core6"}),
        ("0:1,1:3", {}, {"core1", "core7"}),
        ("visible", {}, EVERYTHING),
        ("visible", {CORES: "4-6"}, {"device1", "core4", "core6"}),
        ("visible", {CORES: "0"}, {"device0", "core0"}),
        ("visible", {CORES: " 1, 3-4 "}, {*DEVICES, "core1", "core4"}),
        ("visible", {CORES: "7", COUNT: "1"}, {"device1", "core7"}),
        ("visible", {CORES: ""}, EVERYTHING),
        ("visible", {COUNT: "8"}, EVERYTHING),
        ("visible", {COUNT: "0"}, EVERYTHING),
        (None, {CORES: "0"}, EVERYTHING),
        (None, {CORES: "0", "SLURM_JOB_ID": "7"}, {"device0", "core0"}),
        ("process", {}, {*DEVICES, "core0", "core1", "core4"}),
    ],
)
def test_the_cores_that_are_meant_are_reported(
    files: bool, devices: str | None, environ: dict[str, str], ids: set[str]
) -> None:
    # without the driver's files the tool alone says how many cores are on a device
    hardware = {} if files else {"logical_neuroncore_config": 1}
    with opened(Trainium, trn2(files=files, **hardware), devices, environ) as source:
        assert reported(source) == ids
        assert source.missing == []


@pytest.mark.parametrize(
    ("environ", "nodes", "ids", "word"),
    [
        ({COUNT: "2"}, (), EVERYTHING, f"{COUNT}=2: the runtime takes cores that are free"),
        ({CORES: "all"}, (), EVERYTHING, f"{CORES}=all: this is no core"),
        ({CORES: "0-"}, (), EVERYTHING, f"{CORES}=0-: this is no core"),
        ({CORES: "0"}, (1,), {"device1", "core4", "core6", "core7"}, f"{CORES}=0: of the devices"),
    ],
)
def test_what_cannot_be_known_hides_nothing(
    environ: dict[str, str], nodes: Sequence[int], ids: set[str], word: str
) -> None:
    with opened(Trainium, trn2(nodes=nodes), "visible", environ) as source:
        assert reported(source) == ids
        (why,) = source.missing
        assert why.startswith(word)
        assert why.endswith("; all are reported")


@pytest.mark.parametrize(
    ("nodes", "ids"),
    [((0, 1), EVERYTHING), ((0,), {"device0", "core0", "core1"}), ((), EVERYTHING)],
)
def test_a_container_is_shown_the_devices_whose_files_it_has(nodes: Sequence[int], ids: set[str]) -> None:
    with opened(Trainium, trn2(nodes=nodes), None, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}) as source:
        assert reported(source) == ids


def test_cores_of_which_the_device_is_not_known_may_be_on_any() -> None:
    drivers = trn2(files=False)  # it says two physical ones to a core, and not what it counts
    for devices, environ, ids in (
        ("0", {}, EVERYTHING - {"device1"}),
        ("visible", {}, EVERYTHING),
        ("visible", {CORES: "6"}, {*DEVICES, "core6"}),
        ("neuroncore4", {}, {"core4"}),
    ):
        with opened(Trainium, drivers, devices, environ) as source:
            assert reported(source) == ids


def test_a_tool_that_names_no_device_hides_no_core() -> None:
    said = report([runtime(STRANGER, (0, 3), 1)], 0, 1, TRN1)
    drivers = Npus(HOST | {"/sys/module/neuron/initstate": "live\n"} | program(), lines(said))
    with opened(Trainium, drivers, "visible", {}) as source:
        assert reported(source) == {"core0", "core3"}


def test_of_what_the_files_say_the_same_is_reported() -> None:
    drivers = Npus(HOST | old_files(2, 2, 1) | program(), None)
    with opened(Trainium, drivers, "1", {}) as source:
        assert reported(source) == {"device1", "core2", "core3"}
        everything = all_of(source)
    with opened(Trainium, drivers, "all", {}) as source:
        of_all = {series: value for series, value in all_of(source).items() if series in everything}
    assert everything == of_all


def test_a_program_that_uses_no_core_sees_none(caplog: pytest.LogCaptureFixture) -> None:
    with opened(Trainium, trn2(own=False), "process", {}) as source:
        assert reported(source) == set()
        assert source.missing == [
            "hw.npu.*: the program has used no Neuron device so far (OTEL_PYTHON_HARDWARE_DEVICES=process)"
        ]
    assert not warnings(caplog)


def test_a_word_that_means_no_device_costs_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    drivers = trn2(files=False)
    assert drivers.said is not None
    said, drivers.said.lines = drivers.said.lines, []
    with opened(Trainium, drivers, "0,5", {}) as source:
        often(source)
        assert not warnings(caplog), "nobody has said yet what there is"
        drivers.said.lines = said
        for _ in range(2):
            often(source)
    (told,) = warnings(caplog)
    assert told.startswith(
        "OTEL_PYTHON_HARDWARE_DEVICES: there is no Neuron device 5, left out; there are 0 (neuron0, "
    )


@PATIENT
@given(
    st.dictionaries(st.sampled_from([CORES, COUNT]), st.text("0123456789-, x", max_size=8) | st.text(max_size=8)),
    st.sets(st.sampled_from(["/dev/neuron0", "/dev/neuron1"])),
)
def test_whatever_is_said_some_of_the_cores_are_visible(environ: dict[str, str], nodes: set[str]) -> None:
    found = [device(0, range(4)), device(1, range(4, 8))]
    seen = visible(nodes.__contains__, environ, found)
    assert seen.ids <= found[0].ids | found[1].ids
    assert seen.doubt.isprintable()


@pytest.mark.parametrize(("devices", "cores"), [("all", [0, 1]), ("neuroncore1", [1]), ("1", []), ("process", [0, 1])])
def test_the_keys_are_of_the_cores_that_are_meant(
    monkeypatch: pytest.MonkeyPatch, devices: str, cores: list[int]
) -> None:
    raw = NeuronRaw(Config.read({"devices": devices}, {}), STRANGER)
    monkeypatch.setattr(raw, "_site", Site(Config.read({"devices": devices}, {}), trn2(), STRANGER))
    (said,) = raw.read().values()
    assert ([*said.percent], [*said.cores]) == (cores, cores), raw.trouble
    assert said.used, "which is not of cores"
    raw.close()


# -- Graphcore: four IPUs; the program uses the first one, a child of it the second one, somebody else the third one


def cards() -> Npus:
    said = [c2(number, 1, pid) for number, pid in enumerate((STRANGER, CHILD, 4242, None))]
    return Npus(HOST | IPU_DEVICES | program(CHILD), lines(said), folder="/opt/poplar/python")


@pytest.mark.parametrize(
    ("devices", "ids"),
    [
        (None, {0, 1, 2, 3}),
        ("all", {0, 1, 2, 3}),
        ("visible", {0, 1, 2, 3}),
        ("0,3", {0, 3}),
        ("ipu2", {2}),
        ("0000:27:00.0", {1}),
        ("process", {0, 1}),
    ],
)
def test_the_ipus_that_are_meant_are_reported(devices: str | None, ids: set[int]) -> None:
    with opened(Graphcore, cards(), devices, {}) as source:
        found = all_of(source)
        assert {series.attributes["hw.id"] for series in found} == {f"ipu{number}" for number in ids}
        used = {series.attributes["hw.id"] for series in found if series.metric.name.startswith("process.")}
        assert used == {f"ipu{number}" for number in ids & {0, 1}}


def test_a_board_is_reported_with_one_of_its_ipus() -> None:
    said = [c600(number, 1) for number in range(2)]
    drivers = Npus(HOST | IPU_DEVICES | program(), lines(said), folder="/opt/poplar/python")
    with opened(Graphcore, drivers, "1", {}) as source:
        boards = [each for each in reported(source) if each.startswith("board-")]
        assert boards == ["board-0063.0063.822391"]


def test_a_word_that_means_no_ipu_costs_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    drivers = cards()
    assert drivers.said is not None
    said, drivers.said.lines = drivers.said.lines, []
    with opened(Graphcore, drivers, "7", {}) as source:
        assert reported(source) == set()
        assert not warnings(caplog), "nobody has said yet what there is"
        drivers.said.lines = said
        for _ in range(2):
            assert reported(source) == set()
        assert source.missing == ["hw.npu.*: no IPU is one of those in OTEL_PYTHON_HARDWARE_DEVICES"]
    (told,) = warnings(caplog)
    assert told.startswith(
        "OTEL_PYTHON_HARDWARE_DEVICES: there is no IPU 7, left out; there are 0 (ipu0, 0000:26:00.0)"
    )


def test_the_keys_are_of_the_ipus_that_are_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    for devices, numbers in (("all", [0]), ("0", [0]), ("1", [])):
        raw = Raw(Config.read({"devices": devices}, {}), STRANGER)
        monkeypatch.setattr(raw, "_site", Site(Config.read({"devices": devices}, {}), cards(), STRANGER))
        assert [*raw.read()] == numbers, raw.trouble
        raw.close()
