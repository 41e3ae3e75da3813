"""Which GPUs are meant: by the words of DEVICES, by the variables that restrict a program, by its use of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.children import run
from tests.sources.reading import all_of
from tests.stage import PATIENT, warnings
from tests.tools import fake_nvml, need
from tests.tools.nvml import FakeNvml, Value, geforce, h100, listed, mig, refused

from opentelemetry.instrumentation.hardware.choice import JOBS, Choice, Found, Part, choose, rule
from opentelemetry.instrumentation.hardware.config import Config
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.sources import Site
from opentelemetry.instrumentation.hardware.sources.nvidia import Nvidia, visible
from opentelemetry.instrumentation.hardware.sources.nvidia.visible import WAY

A, B, C = "GPU-8f6a1111-aaaa", "GPU-8f6a2222-bbbb", "GPU-12345678-cccc"
X, Y, Z = "MIG-5ee7aaaa-0000", "MIG-5ee7bbbb-1111", "MIG-0123cccc-2222"

ALIKE = (
    visible.gpu(0, A, "H100", "0000:1a:00.0"),
    visible.gpu(1, B, "H100", "0000:1b:00.0"),
    visible.gpu(2, C, "H100", "0001:c1:00.0"),
)
MIXED = (ALIKE[0], ALIKE[1]._replace(model="T4"), ALIKE[2])
DIVIDED = (
    ALIKE[0],
    ALIKE[1]._replace(
        divided=True, parts=tuple(visible.instance(B, *each) for each in ((X, 0, 7, 0), (Y, 2, 9, 0), (Z, 3, 9, 1)))
    ),
)
LOST = (ALIKE[0], visible.gpu(1, "gpu1"), ALIKE[2])
NONE: tuple[Found, ...] = ()

DOCUMENTS = Path(__file__).parent / "sources" / "nvidia" / "smi"

ALL = {A, B, C}
PARTS = {X, Y, Z}


# -- DEVICES


@pytest.mark.parametrize(
    ("words", "found", "ids"),
    [
        ("all", ALIKE, ALL),
        ("all", DIVIDED, {A, B, *PARTS}),
        ("all", NONE, set()),
        ("0", ALIKE, {A}),
        ("2,0", ALIKE, {A, C}),
        ("0,0", ALIKE, {A}),
        (A, ALIKE, {A}),
        (A.lower(), ALIKE, {A}),
        ("GPU-12", ALIKE, {C}),
        ("GPU-8f6a", ALIKE, {A, B}),
        ("0000:1a:00.0", ALIKE, {A}),
        ("0000:1A:00.0", ALIKE, {A}),
        ("00000000:1A:00.0", ALIKE, {A}),
        ("1b:00.0", ALIKE, {B}),
        ("0001:c1:00.0", ALIKE, {C}),
        ("1", DIVIDED, {B, *PARTS}),
        (B, DIVIDED, {B, *PARTS}),
        ("1b:00.0", DIVIDED, {B, *PARTS}),
        (X, DIVIDED, {X}),
        ("MIG-5ee7", DIVIDED, {X, Y}),
        ("1:2", DIVIDED, {Y}),
        (f"MIG-{B}/9/1", DIVIDED, {Z}),
        (f"MIG-{B}/7/0,0", DIVIDED, {A, X}),
        ("1", LOST, {"gpu1"}),
        (A, LOST, {A}),
        ("GPU-99999999", LOST, {"gpu1"}),
        ("1b:00.0", LOST, {"gpu1"}),
    ],
)
def test_a_list_names_devices(words: str, found: Sequence[Found], ids: set[str]) -> None:
    assert choose(words.split(","), {}, found, WAY) == (ids, "", ())


@pytest.mark.parametrize(
    ("words", "found", "ids", "strange"),
    [
        ("7", ALIKE, set(), ("7",)),
        ("0,7,GPU-9", ALIKE, {A}, ("7", "GPU-9")),
        ("1a:00.1", ALIKE, set(), ("1a:00.1",)),
        ("0001:1a:00.0", ALIKE, set(), ("0001:1a:00.0",)),
        ("1:1", DIVIDED, set(), ("1:1",)),
        ("1:2", ALIKE, set(), ("1:2",)),
        (f"MIG-{B}/9/7", DIVIDED, set(), (f"MIG-{B}/9/7",)),
        ("8f6a", ALIKE, set(), ("8f6a",)),
        ("-1", ALIKE, set(), ("-1",)),
        ("first", ALIKE, set(), ("first",)),
        ("7", LOST, set(), ("7",)),
        ("first", LOST, set(), ("first",)),
        ("0", NONE, set(), ("0",)),
    ],
)
def test_a_word_that_means_nothing_is_told(
    words: str, found: Sequence[Found], ids: set[str], strange: tuple[str, ...]
) -> None:
    assert choose(words.split(","), {}, found, WAY) == (ids, "", strange)


def test_the_warning_comes_once_and_names_the_words_that_there_are(caplog: pytest.LogCaptureFixture) -> None:
    choice = Choice(["0", "7"], {}, WAY)
    for _ in range(3):
        choice.look(DIVIDED)
    (said,) = warnings(caplog)
    assert said.startswith("OTEL_PYTHON_HARDWARE_DEVICES: there is no NVIDIA GPU 7, left out; there are 0 (")
    for word in (A, B, X, Y, Z, "0000:1a:00.0", "0000:1b:00.0"):
        assert word in said
    assert A in choice
    assert B not in choice


# -- visible


CUDA: list[tuple[str, Sequence[Found], set[str]]] = [
    ("0", ALIKE, {A}),
    ("2,0", ALIKE, {A, C}),
    (" 1 , 2 ", ALIKE, {B, C}),
    ("", ALIKE, set()),
    (" ", ALIKE, set()),
    ("-1", ALIKE, set()),
    ("NoDevFiles", ALIKE, set()),
    ("none", ALIKE, set()),
    ("all", ALIKE, set()),
    ("void", ALIKE, set()),
    ("0,-1,2", ALIKE, {A}),
    ("0,3,2", ALIKE, {A}),
    ("0,,2", ALIKE, {A}),
    ("0,", ALIKE, {A}),
    ("99", ALIKE, set()),
    ("1,1", ALIKE, set()),
    (f"{A},{A}", ALIKE, set()),
    (A, ALIKE, {A}),
    ("GPU-12", ALIKE, {C}),
    ("GPU-8F6A1", ALIKE, {A}),
    ("GPU-8f6a", ALIKE, set()),
    (f"{C},GPU-8f6a,{A}", ALIKE, {C}),
    (f"{C},GPU-0000,{A}", ALIKE, {C}),
    ("8f6a1111", ALIKE, set()),
    (A, MIXED, {A}),
    ("-1", MIXED, set()),
    (A, DIVIDED, {A}),
    (B, DIVIDED, {B, *PARTS}),
    (X, DIVIDED, {X}),
    (f"{X},{Z}", DIVIDED, {X, Z}),
    ("MIG-5ee7", DIVIDED, set()),
    (f"MIG-{B}/9/0", DIVIDED, {Y}),
    (f"MIG-{B}/9/5,{A}", DIVIDED, set()),
    (A, LOST, {A}),
    (f"{A},GPU-9999", LOST, {A, "gpu1"}),
    ("0", NONE, set()),
]


@pytest.mark.parametrize(("said", "found", "ids"), CUDA)
def test_what_cuda_shows_a_program_is_visible(said: str, found: Sequence[Found], ids: set[str]) -> None:
    assert choose(["visible"], {"CUDA_VISIBLE_DEVICES": said}, found, WAY) == (ids, "", ())


def test_what_nothing_restricts_is_visible() -> None:
    assert choose(["visible"], {}, ALIKE, WAY).ids == ALL


@pytest.mark.parametrize(
    ("found", "more", "word"),
    [
        (MIXED, {}, "different models"),
        (MIXED, {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, "CUDA_DEVICE_ORDER=PCI_BUS_ID"),
        (DIVIDED, {}, "MIG"),
        (DIVIDED, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, "MIG"),
        (LOST, {}, "does not answer"),
        ((ALIKE[0], ALIKE[1]._replace(model="")), {}, "does not answer"),
        (LOST, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, "does not answer"),
    ],
)
def test_a_number_that_may_mean_any_device_hides_none(
    found: Sequence[Found], more: Mapping[str, str], word: str
) -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "0,1", **more}
    chosen = choose(["visible"], environ, found, WAY)
    assert chosen.ids == choose(["all"], {}, found, WAY).ids
    assert chosen.doubt.startswith("CUDA_VISIBLE_DEVICES=0,1: ")
    assert word in chosen.doubt
    choice = Choice(["visible"], environ, WAY)
    choice.look(found)
    assert choice.missing() == [f"{chosen.doubt}; all are reported"]


def test_a_number_is_known_where_cuda_counts_as_the_bus_does() -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert choose(["visible"], environ, MIXED, WAY) == ({B}, "", ())


@pytest.mark.parametrize(
    ("said", "found", "ids"),
    [
        ("all", ALIKE, ALL),
        ("none", ALIKE, set()),
        ("void", ALIKE, ALL),  # devices come by another way
        ("", ALIKE, ALL),
        ("/var/run/nvidia-container-devices", ALIKE, ALL),
        (A, ALIKE, {A}),
        (f"{A},{C}", ALIKE, {A, C}),
        ("GPU-8f6a1,GPU-12", ALIKE, {A, C}),
        ("1", ALIKE, {B}),  # a privileged container sees them all
        ("5,6,7", ALIKE, ALL),  # they were given, and are counted anew inside
        ("5,6", ALIKE[:2], {A, B}),
        ("5,6", ALIKE[:1], {A}),
        (f"{A},{C}", ALIKE[:1], {A}),
        ("GPU-0000", ALIKE, ALL),  # no runtime obeyed it
        ("nvidia.com/gpu=0", ALIKE, {A}),
        (f"nvidia.com/gpu={C}", ALIKE, {C}),
        ("nvidia.com/gpu=all", ALIKE, ALL),
        ("1", DIVIDED, {B, *PARTS}),
        (X, DIVIDED, {X}),
        ("1:0", DIVIDED, {X}),
        ("1:0,1:3", DIVIDED, {X, Z}),
        ("0,1:2", DIVIDED, {A, B, *PARTS}),
        (X, (DIVIDED[1]._replace(parts=(Part(X, 0),)),), {B, X}),
        ("3:1", (DIVIDED[1]._replace(parts=(Part(X, 0),)),), {B, X}),
        ("1:0,1:2", DIVIDED[1:], {X, Y}),
    ],
)
def test_what_a_container_was_given_is_visible(said: str, found: Sequence[Found], ids: set[str]) -> None:
    assert choose(["visible"], {"NVIDIA_VISIBLE_DEVICES": said}, found, WAY) == (ids, "", ())


def test_what_both_show_is_visible() -> None:
    environ = {"NVIDIA_VISIBLE_DEVICES": f"{A},{B}", "CUDA_VISIBLE_DEVICES": "1,2"}
    assert choose(["visible"], environ, ALIKE, WAY).ids == {B}


@pytest.mark.parametrize("job", JOBS)
def test_in_the_job_of_a_scheduler_what_is_visible_is_the_default(job: str) -> None:
    assert rule(None, {job: "4242"}) == ["visible"]
    assert rule(["all"], {job: "4242"}) == ["all"]


@pytest.mark.parametrize("environ", [{}, {"CUDA_VISIBLE_DEVICES": "0"}, {"SLURM_JOB_ID": ""}])
def test_elsewhere_all_is_the_default(environ: Mapping[str, str]) -> None:
    assert rule(None, environ) == ["all"]


# -- process


def test_what_the_program_uses_is_chosen_from_its_first_use_on() -> None:
    choice = Choice(["process"], {}, WAY)
    choice.look(DIVIDED)
    assert not [each for each in (A, B, X) if each in choice]
    (why,) = choice.missing()
    assert "has used no NVIDIA GPU so far" in why
    choice.use(A)
    assert A in choice
    choice.use(X)
    choice.look(DIVIDED)
    assert [each for each in (A, B, X, Y) if each in choice] == [A, X]
    assert not choice.missing()


# -- whatever is said

WORDS = st.sampled_from(
    [
        *("0", "1", "7", "-1", "+1", "1x", "0:0", "1:2", "0" * 30, "99999999999", "²"),
        *(A, X, "GPU-", "MIG-", "GPU-8f6a", f"MIG-{B}/9/0", "1a:00.0", "nvidia.com/gpu=0"),
        *("all", "none", "void", "", " ", "process", "visible"),
    ]
) | st.text(max_size=20)
FOUND = st.sampled_from([ALIKE, MIXED, DIVIDED, LOST, NONE, ALIKE[:1], DIVIDED[1:]])


@PATIENT
@given(
    words=st.lists(WORDS, min_size=1, max_size=4),
    environ=st.dictionaries(
        st.sampled_from(["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", *JOBS]),
        st.lists(WORDS, max_size=4).map(",".join),
    ),
    found=FOUND,
    used=st.sets(st.sampled_from([A, X, "gpu1", "nobody"])),
)
def test_whatever_is_said_some_of_the_devices_are_chosen(
    words: list[str], environ: dict[str, str], found: Sequence[Found], used: set[str]
) -> None:
    everything = choose(["all"], {}, found, WAY).ids
    for asked in (words, ["visible"], ["process"], rule(None, environ)):
        chosen = choose(asked, environ, found, WAY, used)
        assert chosen.ids <= everything
        assert set(chosen.strange) <= set(asked)
        if chosen.doubt:
            assert chosen.doubt.isprintable()
            assert "NVIDIA_VISIBLE_DEVICES" in environ or chosen.ids == everything


# -- the source


def opened(fake: FakeNvml, devices: str | None, environ: Mapping[str, str]) -> AbstractContextManager[Nvidia]:
    return _opened({"devices": devices, "nvml": str(fake.path), "nvidia_smi": "off"}, environ)


@contextmanager
def _opened(settings: Mapping[str, object], environ: Mapping[str, str]) -> Iterator[Nvidia]:
    source = Nvidia(Site(Config.read(settings, {}), Drivers(), os.getpid(), environ=environ))
    source.open()
    try:
        yield source
    finally:
        source.close()


def reported(source: Nvidia) -> set[str]:
    """The devices that one reading is about; a fan stands for its GPU."""
    found = {str(series.attributes["hw.id"]) for series in all_of(source)}
    return {each.partition("/fan")[0] for each in found}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNvml]:
    """Three GPUs, of which the second one is divided."""
    need(fake_nvml)
    fake = FakeNvml(tmp_path, h100(0), mig(h100(1), 1, {0: (7, 0), 2: (9, 0)}), h100(2))
    for name, value in fake.environment.items():
        monkeypatch.setenv(name, value)
    return fake


def uuid(gpu: Mapping[str, Value]) -> str:
    return str(gpu["UUID"])


FIRST, SECOND, THIRD = (uuid(h100(index)) for index in range(3))
ONE, TWO = (f"MIG-00000000-0000-5000-8000-000001{slot:06x}" for slot in (0, 2))


@pytest.mark.parametrize(
    ("devices", "environ", "ids"),
    [
        (None, {}, {FIRST, SECOND, THIRD, ONE, TWO}),
        (None, {"CUDA_VISIBLE_DEVICES": FIRST}, {FIRST, SECOND, THIRD, ONE, TWO}),
        (None, {"CUDA_VISIBLE_DEVICES": FIRST, "SLURM_JOB_ID": "7"}, {FIRST}),
        ("visible", {"CUDA_VISIBLE_DEVICES": f"{THIRD},{TWO}"}, {THIRD, TWO}),
        ("visible", {"CUDA_VISIBLE_DEVICES": f"MIG-{SECOND}/7/0"}, {ONE}),
        ("visible", {"CUDA_VISIBLE_DEVICES": ""}, set()),
        ("2,1:2", {}, {THIRD, TWO}),
        ("0000:1A:00.0", {}, {FIRST}),
        ("1", {}, {SECOND, ONE, TWO}),
        ("process", {}, set()),
    ],
)
def test_the_devices_that_are_meant_are_reported(
    machine: FakeNvml, devices: str | None, environ: Mapping[str, str], ids: set[str]
) -> None:
    with opened(machine, devices, environ) as source:
        assert reported(source) == ids
        assert bool(ids) or any("hw.gpu.*: " in sentence for sentence in source.missing)


def test_devices_that_are_not_meant_are_left_alone(machine: FakeNvml) -> None:
    with opened(machine, TWO, {}) as source:
        reported(source)
        machine.forget_calls()
        reported(source)
        assert machine.calls()["nvmlDeviceGetUtilizationRates"] == 0
        assert machine.calls()["nvmlDeviceGetPowerUsage"] == 0
        assert not [sentence for sentence in source.missing if "GPU 0" in sentence or "GPU 1" in sentence]


def test_a_device_that_the_program_begins_to_use_begins_to_be_reported(machine: FakeNvml) -> None:
    with opened(machine, "process", {}) as source:
        assert reported(source) == set()
        machine.say({"gpu2.ComputeRunningProcesses": listed((os.getpid(), 1 << 30))})
        assert reported(source) >= {THIRD}
        machine.say({"gpu1.mig2.ComputeRunningProcesses": listed((os.getpid(), 1 << 30))})
        assert reported(source) == {THIRD, TWO}
        machine.say({"gpu1.mig2.ComputeRunningProcesses": "", "gpu0.ComputeRunningProcesses": listed((1, 5))})
        assert reported(source) == {THIRD, TWO}


def test_what_the_program_uses_of_other_devices_is_not_reported(machine: FakeNvml) -> None:
    used = listed((os.getpid(), 1 << 30))
    machine.say({"gpu0.ComputeRunningProcesses": used, "gpu2.ComputeRunningProcesses": used})
    with opened(machine, "0", {}) as source:
        found = {series.attributes["hw.id"] for series in all_of(source) if series.metric.name.startswith("process.")}
        assert found == {FIRST}


def test_the_environment_may_change_while_the_program_runs(machine: FakeNvml) -> None:
    environ = {"CUDA_VISIBLE_DEVICES": FIRST}
    with opened(machine, "visible", environ) as source:
        assert reported(source) == {FIRST}
        environ["CUDA_VISIBLE_DEVICES"] = THIRD
        all_of(source)
        assert reported(source) == {THIRD}


def test_an_instance_that_is_made_later_is_found_by_its_name(machine: FakeNvml) -> None:
    machine.say({f"gpu1.mig2.{call}": None for call in ("UUID", "GpuInstanceId", "ComputeInstanceId")})
    with opened(machine, "1:2,0", {}) as source:
        assert reported(source) == {FIRST}
        again = mig(h100(1), 1, {2: (9, 0)})
        machine.say({f"gpu1.{call}": value for call, value in again.items() if call.startswith("mig2.")})
        all_of(source)
        assert reported(source) == {FIRST, TWO}


def test_a_device_that_is_lost_at_first_is_not_hidden(machine: FakeNvml) -> None:
    machine.say({"gpu0.UUID": refused(15)})
    with opened(machine, FIRST, {}) as source:
        assert reported(source) == {"gpu0"}
        machine.say({"gpu0.UUID": FIRST})
        for _ in range(8):
            found = reported(source)
        assert found == {FIRST}


def test_a_device_that_is_lost_at_first_is_reported_once_it_is_used(machine: FakeNvml) -> None:
    machine.say({"gpu0.UUID": refused(15)})
    with opened(machine, "process", {}) as source:
        assert reported(source) == set()
        machine.say({"gpu0.UUID": FIRST, "gpu0.ComputeRunningProcesses": listed((os.getpid(), 1 << 30))})
        for _ in range(8):
            found = reported(source)
        assert found == {FIRST}


def test_what_ails_other_devices_is_not_told(machine: FakeNvml) -> None:
    machine.say({"gpu2.UUID": refused(15)})
    with opened(machine, "0", {}) as source:
        assert reported(source) == {FIRST}
        assert not [sentence for sentence in source.missing if "does not answer" in sentence]


IN_A_JOB = {"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": THIRD, "OTEL_METRICS_EXPORTER": "console"}


def test_a_snapshot_is_of_what_is_visible(machine: FakeNvml) -> None:
    line = ["otel-hardware", "snapshot", "--sources", "nvidia", "--window", "0.1", "--format", "json"]
    answer = run(line, {**machine.environment, **IN_A_JOB})
    assert answer.returncode == 0
    assert THIRD in answer.stdout
    assert not [each for each in (FIRST, SECOND, ONE, TWO) if each in answer.stdout]


def test_the_doctor_looks_at_what_is_visible(machine: FakeNvml) -> None:
    answer = run(["otel-hardware", "doctor", "--sources", "nvidia", "--json"], {**machine.environment, **IN_A_JOB})
    (found, *_) = [each["text"] for each in json.loads(answer.stdout)["findings"] if each["subject"] == "nvidia"]
    assert "; NVIDIA H100 80GB HBM3" in found  # and not three of them


def test_numbers_of_unlike_devices_are_not_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need(fake_nvml)
    fake = FakeNvml(tmp_path, h100(0), geforce(1))
    for name, value in fake.environment.items():
        monkeypatch.setenv(name, value)
    both = {uuid(h100(0)), uuid(geforce(1))}
    with opened(fake, "visible", {"CUDA_VISIBLE_DEVICES": "1"}) as source:
        assert reported(source) == both
        assert [sentence for sentence in source.missing if sentence.startswith("CUDA_VISIBLE_DEVICES=1: ")]
    with opened(fake, "visible", {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}) as source:
        assert reported(source) == {uuid(geforce(1))}


WHOLE = "GPU-11111111-2222-3333-4444-555555555555"
"""The GPU of the document."""


@pytest.mark.parametrize(
    ("devices", "environ", "ids"),
    [
        (None, {}, {WHOLE, f"{WHOLE}/1/0", f"{WHOLE}/5/0", f"{WHOLE}/13/1"}),
        ("0:1", {}, {f"{WHOLE}/5/0"}),
        (
            None,
            {"CUDA_VISIBLE_DEVICES": f"MIG-{WHOLE}/5/0,MIG-{WHOLE}/1/0", "PBS_JOBID": "7"},
            {f"{WHOLE}/{each}/0" for each in (1, 5)},
        ),
        ("visible", {"CUDA_VISIBLE_DEVICES": "-1"}, set()),
        ("process", {}, set()),
    ],
)
def test_of_what_the_tool_lists_the_same_is_reported(
    tmp_path: Path, devices: str | None, environ: Mapping[str, str], ids: set[str]
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\nexec cat {DOCUMENTS / 'v11-a100-mig.xml'}\n")
    tool.chmod(0o755)
    with _opened({"devices": devices, "nvml": "off", "nvidia_smi": str(tool)}, environ) as source:
        assert reported(source) == ids
