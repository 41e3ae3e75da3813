"""Which of AMD's GPUs are meant: by DEVICES, by the variables of ROCm and HIP, by the program's use of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.machines import STRANGER
from tests.sources.radeons import DENIED, HOST, Equipped, alone, by_amd_smi, rocm
from tests.sources.reading import all_of
from tests.sources.tree import Tree
from tests.stage import PATIENT, warnings
from tests.tools import amdsysfs
from tests.tools.amdsysfs import KFD, Files, Gpu, number_of

from opentelemetry.instrumentation.hardware.choice import Found
from opentelemetry.instrumentation.hardware.config import Config
from opentelemetry.instrumentation.hardware.sources import Site
from opentelemetry.instrumentation.hardware.sources.amd import Amd
from opentelemetry.instrumentation.hardware.sources.amd.raw import Raw
from opentelemetry.instrumentation.hardware.sources.amd.topology import HIP, ROCR, Topology

A, B, C = "43cc8cc8af246700", "43cc9999af246701", "719d230578348e8c"
"""The cards in the order of the bus, by ``hw.id``; ROCm counts the second one first."""

CARDS = (
    Gpu(0, "0000:63:00.0", unique=B),
    Gpu(1, "0000:05:00.0", unique=A),
    Gpu(2, "0001:c9:00.0", unique=C),
)
DIVIDED = (Gpu(0, "0000:05:00.0", unique=A, parts=8), Gpu(1, "0000:63:00.0", unique=B, parts=8))
ALL = {A, B, C}


def machine(gpus: Sequence[Gpu] = CARDS, **more: Any) -> Files:
    return amdsysfs.machine(gpus) | more


@contextmanager
def opened(files: Files | Equipped, devices: str | None, environ: Mapping[str, str], **more: str) -> Iterator[Amd]:
    drivers = files if isinstance(files, Equipped) else Equipped(files)
    source = Amd(Site(Config.read({"devices": devices, **more}, {}), drivers, STRANGER, environ=environ))
    source.open()
    try:
        yield source
    finally:
        source.close()


def reported(source: Amd) -> set[str]:
    return {str(series.attributes["hw.id"]).partition("/fan")[0] for series in all_of(source)}


# -- DEVICES


@pytest.mark.parametrize(
    ("devices", "ids"),
    [
        (None, ALL),
        ("all", ALL),
        ("0", {A}),
        ("0,2", {A, C}),
        (A, {A}),
        (f"GPU-{A}", {A}),
        (f"GPU-{A.upper()},{C}", {A, C}),
        ("GPU-43cc", {A, B}),
        ("GPU-719d", {C}),
        ("0000:63:00.0", {B}),
        ("63:00.0", {B}),
        ("0001:C9:00.0", {C}),
        ("visible", ALL),
        ("process", set()),
    ],
)
def test_the_cards_that_are_meant_are_reported(devices: str | None, ids: set[str]) -> None:
    with opened(machine(), devices, {}) as source:
        assert reported(source) == ids
        assert bool(ids) or source.missing == [
            "hw.gpu.*: the program has used no AMD GPU so far (OTEL_PYTHON_HARDWARE_DEVICES=process)"
        ]


def test_cards_that_are_not_meant_are_left_alone() -> None:
    drivers = Equipped(machine((*CARDS[:2], replace(CARDS[2], asleep=True))))
    with opened(drivers, "1", {}) as source:
        reported(source)
        assert drivers.tree is not None
        cards = [path for path in drivers.tree.asked if path.startswith((CARDS[1].folder, CARDS[2].folder))]
        assert {path.rpartition("/")[2] for path in cards} <= {"uevent"}
        assert source.missing == []


def test_a_word_that_means_no_card_costs_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    with opened(machine(), "0,7", {}) as source:
        assert reported(source) == {A}
        assert reported(source) == {A}
    assert warnings(caplog) == [
        "OTEL_PYTHON_HARDWARE_DEVICES: there is no AMD GPU 7, left out; there are "
        f"0 (0000:05:00.0, GPU-{A}), 1 (0000:63:00.0, GPU-{B}), 2 (0001:c9:00.0, GPU-{C})"
    ]


BUS = "\n".join(
    f"{place:04x}\t{device}\t20\t0\t0\t0\t0\t0\t0\t0\t0\t0\t0\t0\t0\t0\t0\t{driver}"
    for place, (device, driver) in enumerate(
        [("10221480", ""), ("10de2330", "nvidia"), ("10de2330", "nvidia"), ("1002740f", "amdgpu"), ("8086a000", "nvme")]
    )
)
"""Two GPUs of NVIDIA's beside those of AMD."""


@pytest.mark.parametrize(
    ("devices", "told"), [("0,1", False), ("GPU-8f6a1111-aaaa", False), ("0000:1a:00.0", False), ("0,2", True)]
)
def test_a_word_that_may_mean_another_vendors_gpu_is_not_warned_of(
    caplog: pytest.LogCaptureFixture, devices: str, told: bool
) -> None:
    with opened(machine(CARDS[:1], **{"/proc/bus/pci/devices": BUS}), devices, {}) as source:
        assert reported(source) == ({B} if "0," in devices else set())
    assert bool(warnings(caplog)) == told


def test_a_card_that_sleeps_is_known_by_its_name_and_not_woken_for_it(caplog: pytest.LogCaptureFixture) -> None:
    drivers = Equipped(machine((CARDS[0], replace(CARDS[1], asleep=True), CARDS[2])))
    with opened(drivers, f"GPU-{A}", {}) as source:
        assert reported(source) == set()
        assert [each for each in source.missing if "is suspended, and is not woken" in each]
        drivers.become(Equipped(machine()))
        assert reported(source) == {A}
    assert not warnings(caplog)


def test_a_card_whose_name_nobody_knows_while_it_sleeps_may_be_the_one_that_is_meant() -> None:
    def without_rocm(gpus: Sequence[Gpu]) -> Equipped:
        return Equipped({path: said for path, said in machine(gpus).items() if not path.startswith(KFD)})

    drivers = without_rocm((CARDS[0], replace(CARDS[1], asleep=True), replace(CARDS[2], asleep=True)))
    with opened(drivers, f"GPU-{C}", {}) as source:
        assert reported(source) == set()
        drivers.become(without_rocm(CARDS))
        assert reported(source) == {A, C}, "both are looked at, once they are awake"
        assert reported(source) == {C}


# -- visible


@pytest.mark.parametrize(
    ("environ", "ids"),
    [
        ({ROCR: "0"}, {B}),  # ROCm counts in the order of its own driver
        ({ROCR: "1,0"}, {A, B}),
        ({ROCR: " 2 , 0x1"}, {A, C}),
        ({ROCR: ""}, set()),
        ({ROCR: "-1"}, set()),
        ({ROCR: "GPU-XX"}, set()),
        ({ROCR: "0,7,1"}, {B}),
        ({ROCR: "0,,1"}, {B}),
        ({ROCR: "0,0,1"}, {B}),
        ({ROCR: "08"}, set()),
        ({ROCR: f"GPU-{A}"}, {A}),
        ({ROCR: f"gpu-{A.upper()},0"}, {A, B}),
        ({ROCR: "GPU-719,GPU-43cc"}, {C}),  # two begin so
        ({ROCR: f"GPU-{A}0"}, set()),
        ({HIP[0]: "0"}, {B}),
        ({HIP[0]: "2,2,0"}, {B, C}),
        ({HIP[0]: "1,-1,0"}, {A}),
        ({HIP[0]: "1,"}, {A}),
        ({HIP[0]: "1, 0"}, {A}),
        ({HIP[0]: "01"}, set()),
        ({HIP[0]: " "}, set()),
        ({HIP[0]: ""}, ALL),
        ({HIP[0]: f"GPU-{C},0"}, {B, C}),
        ({HIP[0]: "NoDevFiles"}, set()),
        ({HIP[1]: "1"}, {A}),
        ({HIP[2]: "1"}, {A}),
        ({HIP[0]: "", HIP[1]: "1"}, {A}),
        ({HIP[0]: "2", HIP[1]: "1"}, {C}),
        ({HIP[1]: "0", HIP[2]: "1"}, {B}),
        ({ROCR: "1,2", HIP[0]: "0"}, {A}),  # of those that ROCm leaves
        ({ROCR: "1,2", HIP[1]: "1"}, {C}),
        ({ROCR: "2", HIP[1]: "2"}, set()),
        ({ROCR: "", HIP[0]: "0"}, set()),
        ({"CUDA_VISIBLE_DEVICES": "GPU-8f6a1111-aaaa"}, set()),
    ],
)
def test_what_rocm_and_hip_show_a_program_is_visible(environ: dict[str, str], ids: set[str]) -> None:
    with opened(machine(), "visible", environ) as source:
        assert reported(source) == ids
        said = " and ".join(f"{name}={environ[name]}" for name in (ROCR, *HIP) if name in environ)
        shows = "show" if len(environ) > 1 else "shows"
        assert bool(ids) or source.missing == [f"hw.gpu.*: {said} {shows} the program no AMD GPU"]


@pytest.mark.parametrize(
    ("environ", "ids"),
    [
        ({ROCR: "GPU-XX"}, set()),
        ({ROCR: "GPU-"}, set()),
        ({ROCR: "0"}, {CARDS[0].bdf}),
        ({HIP[0]: "GPU-XX"}, {CARDS[0].bdf}),
        ({HIP[0]: f"GPU-{A}"}, {A}),
    ],
)
def test_a_card_without_a_uuid_is_called_by_its_number(environ: dict[str, str], ids: set[str]) -> None:
    with opened(machine((replace(CARDS[0], unique=None), CARDS[1])), "visible", environ) as source:
        assert reported(source) == ids


@pytest.mark.parametrize(
    ("environ", "ids"),
    [
        ({ROCR: "0"}, ALL),
        ({ROCR: "0", "SLURM_JOB_ID": "7"}, {B}),
        ({HIP[0]: "1", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, {A}),
        ({"SLURM_JOB_ID": "7"}, ALL),
    ],
)
def test_in_the_job_of_a_scheduler_what_is_visible_is_the_default(environ: dict[str, str], ids: set[str]) -> None:
    with opened(machine(), None, environ) as source:
        assert reported(source) == ids


def shown(files: Files, *nodes: int) -> Files:
    """What a container has that was given these only: the driver of ROCm refuses to speak of the others."""
    given = tuple(f"{KFD}/topology/nodes/{node}/" for node in nodes)
    return {
        path: DENIED
        if path.startswith(f"{KFD}/topology/nodes/")
        and not path.startswith(given)
        and path.endswith(("gpu_id", "ties"))
        else said
        for path, said in files.items()
    }


@pytest.mark.parametrize(
    ("devices", "environ", "ids"),
    [
        (None, {}, ALL),
        (None, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, {A, C}),
        ("visible", {}, {A, C}),
        ("visible", {ROCR: "0"}, {A}),  # they are counted anew
        ("visible", {ROCR: "1", HIP[0]: "0"}, {C}),
    ],
)
def test_what_a_container_was_given_is_visible(devices: str | None, environ: dict[str, str], ids: set[str]) -> None:
    with opened(shown(machine(), 0, 2, 3), devices, environ) as source:
        assert reported(source) == ids


def test_a_container_that_was_given_no_card_is_shown_none() -> None:
    with opened(shown(machine(), 0), "visible", {}) as source:
        assert reported(source) == set()
        assert source.missing == ["hw.gpu.*: this container shows the program no AMD GPU"]


def test_without_the_driver_of_rocm_nothing_is_hidden() -> None:
    files = {path: said for path, said in machine().items() if not path.startswith(KFD)}
    with opened(files, "visible", {ROCR: "0", HIP[1]: "0"}) as source:
        assert reported(source) == ALL
        assert source.missing == [
            f"{ROCR}=0 and {HIP[1]}=0: there is no {KFD}, so it is not known how ROCm counts them; all are reported"
        ]


def test_the_environment_may_change_while_the_program_runs() -> None:
    environ = {ROCR: "0"}
    with opened(machine(), "visible", environ) as source:
        assert reported(source) == {B}
        environ[ROCR] = "1"
        all_of(source)
        assert reported(source) == {A}


# -- a card that is divided


@pytest.mark.parametrize(
    ("devices", "environ", "ids"),
    [
        ("1", {}, {B}),
        ("visible", {ROCR: "0"}, {A}),
        ("visible", {ROCR: "7"}, {A}),
        ("visible", {ROCR: "8"}, {B}),
        ("visible", {ROCR: "15"}, {B}),
        ("visible", {ROCR: "16"}, set()),
        ("visible", {ROCR: "3,12"}, {A, B}),
        ("visible", {ROCR: "4,5,6,7,8,9", HIP[0]: "0,1"}, {A}),
        ("visible", {ROCR: f"GPU-{A}"}, set()),  # all parts are called so
    ],
)
def test_a_card_is_meant_by_its_parts(devices: str, environ: dict[str, str], ids: set[str]) -> None:
    with opened(machine(DIVIDED), devices, environ) as source:
        assert reported(source) == ids


def test_older_drivers_say_the_number_of_a_part_elsewhere() -> None:
    files = machine((replace(DIVIDED[0], parts=2), replace(DIVIDED[1], parts=1)))
    place = f"{KFD}/topology/nodes/2/properties"
    said = str(files[place])
    number = DIVIDED[0].place
    assert f"location_id {number + 1}\n" in said
    files[place] = said.replace(f"location_id {number + 1}\n", f"location_id {number | 1 << 28}\n")
    for listed, ids in (("1", {A}), ("2", {B})):
        with opened(files, "visible", {ROCR: listed}) as source:
            assert reported(source) == ids


def test_what_a_program_uses_of_a_part_is_its_cards() -> None:
    used = {
        **HOST,
        **alone(),
        f"{KFD}/proc/{STRANGER}/vram_{number_of(DIVIDED[1], 0)}": "1000\n",
        f"{KFD}/proc/{STRANGER}/vram_{number_of(DIVIDED[1], 5)}": "20000\n",
        f"{KFD}/proc/{STRANGER}/vram_{number_of(DIVIDED[0], 5)}": "0\n",
    }
    with opened(machine(DIVIDED, **used), "process", {}) as source:
        found = all_of(source)
        memory = {
            series.attributes["hw.id"]: value for series, value in found.items() if "process." in series.metric.name
        }
        assert memory == {B: 21_000}
        assert reported(source) == {B}


# -- process


def test_a_card_that_the_program_begins_to_use_begins_to_be_reported() -> None:
    drivers = Equipped(machine())
    with opened(drivers, "process", {}) as source:
        assert reported(source) == set()
        drivers.become(Equipped(machine(**{f"{KFD}/proc/{STRANGER}/vram_{number_of(CARDS[1])}": "4096\n"})))
        assert reported(source) >= {A}
        drivers.become(Equipped(machine()))
        assert reported(source) == {A}, "from its first use on"


def test_what_the_program_uses_of_other_cards_is_not_reported() -> None:
    use = {f"{KFD}/proc/{STRANGER}/vram_{number_of(card)}": "4096\n" for card in CARDS}
    with opened(machine(**use), "0", {}) as source:
        assert {series.attributes["hw.id"] for series in all_of(source)} == {A}


# -- by a tool


def by_tool(tool: str, printed: Mapping[str, object]) -> Equipped:
    said: dict[str, bytes | Exception] = {first: json.dumps(each).encode() for first, each in printed.items()}
    return Equipped(amdsysfs.machine(CARDS[:2]) | {"/sys/class/drm/version": ""}, {tool: said})


def listed() -> Equipped:
    """The same cards, as rocm-smi lists them; it has an order of its own."""
    cards = {f"card{number}": rocm("6.1", 0)["card0"] for number in range(2)}
    for gpu in CARDS[:2]:
        cards[f"card{gpu.number}"] = {
            **cards[f"card{gpu.number}"],
            "Unique ID": f"0x{gpu.unique}",
            "PCI Bus": gpu.bdf.upper(),
        }
    return by_tool("rocm-smi", {"-a": cards})


@pytest.mark.parametrize(
    ("devices", "environ", "ids"),
    [
        (None, {}, {A, B}),
        ("0", {}, {A}),
        (f"GPU-{B}", {}, {B}),
        ("63:00.0", {}, {B}),
        ("visible", {ROCR: "0"}, {B}),
        ("visible", {ROCR: "1", HIP[1]: "0"}, {A}),
        ("process", {}, set()),
    ],
)
def test_of_what_the_tool_lists_the_same_is_reported(
    devices: str | None, environ: dict[str, str], ids: set[str]
) -> None:
    with opened(listed(), devices, environ, amdgpu="off", amd_smi="off") as source:
        assert reported(source) == ids


def test_what_the_program_uses_is_reported_by_the_tool_too() -> None:
    drivers = listed()
    assert drivers.tree is not None
    drivers.tree.files |= {f"{KFD}/proc/{STRANGER}/vram_{number_of(CARDS[0])}": "4096\n"}
    with opened(drivers, "process", {}, amdgpu="off", amd_smi="off") as source:
        all_of(source)
        assert reported(source) == {B}


def test_numbers_are_not_guessed_where_the_tool_says_no_address() -> None:
    story = by_amd_smi(7)(0)
    assert isinstance(story, Equipped)
    story.tools["amd-smi"].said = {**story.tools["amd-smi"].said, "static": b"[]"}
    assert story.tree is not None
    story.tree.files |= amdsysfs.topology(CARDS)
    with opened(story, "visible", {ROCR: "0"}, amdgpu="off", rocm_smi="off") as source:
        assert len(reported(source)) == 2
        assert source.missing[1].startswith(f"{ROCR}=0: the tool does not say the address of a GPU, so")


# -- W&B's keys


@pytest.mark.parametrize(
    ("settings", "environ", "indices"),
    [
        ({}, {}, [0, 1, 2]),
        ({"devices": "2,0"}, {}, [0, 2]),
        ({"devices": "visible"}, {ROCR: "0"}, [1]),
        ({}, {ROCR: "0", "SLURM_JOB_ID": "7"}, [1]),
        ({"devices": "process"}, {}, [2]),
        ({"devices": "1", "amdgpu": "off", "amd_smi": "off"}, {}, [0]),  # rocm-smi's own number of the second card
    ],
)
def test_the_keys_are_of_the_cards_that_are_meant(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], environ: dict[str, str], indices: list[int]
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    drivers = listed() if "amdgpu" in settings else Equipped(machine())
    assert drivers.tree is not None
    drivers.tree.files |= {f"{KFD}/proc/{STRANGER}/vram_{number_of(CARDS[2])}": "4096\n"}
    raw = Raw(Config.read(settings, {}), STRANGER)
    monkeypatch.setattr(raw, "_drivers", drivers)
    assert [*raw.read()] == indices, raw.trouble
    monkeypatch.setenv(ROCR, "2")
    assert [*raw.read()] == ([2] if "visible" in settings.get("devices", "") or environ else indices)
    raw.close()


# -- whatever is said

WORDS = st.sampled_from(["0", "1", "7", "-1", "0x1", "08", "GPU-", f"GPU-{A}", "GPU-XX", "", " ", "²"]) | st.text(
    max_size=8
)


@PATIENT
@given(
    environ=st.dictionaries(st.sampled_from([ROCR, *HIP]), st.lists(WORDS, max_size=4).map(",".join)),
    gpus=st.sampled_from([CARDS, DIVIDED, CARDS[:1]]),
)
def test_whatever_is_said_some_of_the_cards_are_visible(environ: dict[str, str], gpus: Sequence[Gpu]) -> None:
    topology = Topology(Tree(amdsysfs.topology(gpus)))
    found = [Found(number, gpu.bdf, address=gpu.bdf) for number, gpu in enumerate(gpus)]
    seen = topology.visible(environ, found)
    assert seen.ids <= {gpu.bdf for gpu in gpus}
    assert not seen.doubt
    restricted = ROCR in environ or any(map(environ.get, HIP))
    assert restricted or len(seen.ids) == len(gpus)
