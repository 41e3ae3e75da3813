"""Failures of NVML: lost GPUs, failing calls, impossible values, exchanged drivers, and recovery from each."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.sources.nvidia_gpus import START, SimulatedGpus, simulated_gpus
from tests.support.stage import PATIENT, infos, warnings
from tests.tools.nvml import (
    ALL_LINKS,
    MIB,
    NOT_AVAILABLE,
    Gpu,
    Value,
    a100,
    geforce,
    h100,
    listed,
    mig,
    refused,
    still,
    wsl,
)

from opentelemetry.instrumentation.hardware.pipeline.runner import State
from opentelemetry.instrumentation.hardware.sources.nvidia.calls import FATAL

LOST, RESET, MISMATCH, UNKNOWN = 15, 16, 18, 999
UUID = "GPU-00002330-0000-4000-8000-00000000000"


@pytest.fixture(autouse=True)
def _hear(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "opentelemetry.instrumentation.hardware")


def states(machine: SimulatedGpus, **changes: Value | None) -> dict[str, str]:
    """The `hw.state` of each GPU and instance, two seconds after these changes of the driver."""
    exported = machine.tick(2, changes)
    pairs = [dict(pairs) for pairs, value in exported.of("hw.status", hw_type="gpu").items() if value == 1]
    return {about["hw.name"]: about["hw.state"] for about in pairs}


def until_ok(machine: SimulatedGpus, name: str, most: int = 40) -> int:
    """The number of readings until a device responds."""
    for count in range(1, most):
        if states(machine).get(name) == "ok":
            return count
    raise AssertionError(f"{name} did not respond within {most} readings")


# -- One GPU of several is lost.


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (LOST, "GPU is lost; the kernel log has the cause; restart the machine"),
        (RESET, "GPU requires restart; run nvidia-smi --gpu-reset when no process uses it, or restart the machine"),
        (UNKNOWN, "Unknown Error"),
    ],
)
def test_lost_gpu_has_status_failed_and_other_gpus_are_not_affected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, code: int, words: str
) -> None:
    with simulated_gpus(tmp_path, h100(0), h100(1)) as machine:
        machine.tick(0)
        energy = machine.tick(2).one("hw.energy", hw_name="GPU 1")
        assert states(machine, gpu1=refused(code)) == {"GPU 0": "ok", "GPU 1": "failed"}
        for _ in range(5):
            now = machine.tick(2)
        assert {name for name in now.names() if now.of(name, hw_name="GPU 1")} == {
            "hw.gpu.info",
            "hw.status",
            "hw.errors",
        }
        of_gpu, of_events = ({"hw_name": "GPU 1"}, {"hw_name": "GPU 1", "error_type": "xid"})
        assert now.of("hw.errors", **of_gpu) == now.of("hw.errors", **of_events), "the events, which may be the cause"
        assert now.one("hw.energy", hw_name="GPU 0") > energy
        assert machine.unsupported("does not respond") == [f"GPU 1 does not respond: {words}"]
        assert machine.up(), "one device is not the source"
        assert [each for each in warnings(caplog) if "GPU 1" in each] == warnings(caplog)
        assert len(warnings(caplog)) == 1
        machine.fake.set_lines({"gpu1": None})
        until_ok(machine, "GPU 1")
        now = machine.tick(2)
        assert now.one("hw.energy", hw_name="GPU 1") > energy, "its counter went on"
        assert now.one("hw.gpu.utilization", hw_name="GPU 1", hw_gpu_task="general") == 0.88
        assert not machine.unsupported("does not respond")
        machine.tick(2, {"gpu1": refused(code)})
        assert len(warnings(caplog)) == 2, "another time is another sentence"
    back = [text for text in infos(caplog) if "GPU 1" in text]
    assert back == [f"GPU 1 ({UUID}1) responds again"]


def test_missing_rows_of_a_lost_gpu_are_not_listed(tmp_path: Path) -> None:
    with simulated_gpus(tmp_path, h100(0)) as machine:
        machine.tick(0)
        assert machine.unsupported("Not Supported")
        machine.tick(2, {"gpu0": refused(LOST)})
        assert [sentence.partition(":")[0] for sentence in machine.unsupported()] == ["GPU 0 does not respond"]


def test_lost_gpu_is_retried_with_backoff(tmp_path: Path) -> None:
    with simulated_gpus(tmp_path, h100(0)) as machine:
        machine.tick(0)
        machine.tick(2, {"gpu0": refused(LOST)})
        machine.fake.forget_calls()
        for _ in range(100):
            machine.tick(2)
        calls = sum(count for call, count in machine.fake.calls().items() if call.startswith("gpu0."))
        assert calls < 20
        assert calls > 3, "but it is read"
        machine.fake.set_lines({"gpu0": None})
        until_ok(machine, "GPU 0")
        states(machine, gpu0=refused(LOST))
        machine.fake.set_lines({"gpu0": None})
        assert until_ok(machine, "GPU 0") <= 2, "that was long ago"


def test_gpu_with_another_uuid_does_not_replace_a_lost_gpu(tmp_path: Path) -> None:
    with simulated_gpus(tmp_path, h100(0), h100(1)) as machine:
        machine.tick(0)
        machine.tick(2, {"gpu0": refused(LOST)})
        machine.tick(2, {"gpu0": None, "gpu0.UUID": f"{UUID}1"})
        for _ in range(10):
            now = machine.tick(2)
        assert len(now.of("hw.power")) == 1
        assert machine.unsupported("does not respond") == [f"GPU 0 does not respond: {UUID}1 responds in its place"]
        assert machine.up()


def test_gpu_that_comes_back_with_another_uuid_is_a_new_device(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with simulated_gpus(tmp_path, h100(0), h100(1)) as machine:
        machine.tick(0)
        energy = machine.tick(2).one("hw.energy", hw_id=f"{UUID}0")
        machine.tick(2, {"gpu0": refused(LOST)})
        machine.fake.set_lines({"gpu0": None, "gpu0.UUID": f"{UUID}7"})
        until_ok(machine, "GPU 0")
        machine.fake.event(0, 94)
        machine.sample(2)
        now = machine.tick(2)
        assert {dict(pairs)["hw.id"] for pairs in now.of("hw.power")} == {f"{UUID}1", f"{UUID}7"}
        assert now.of("hw.status", hw_id=f"{UUID}0") == {}
        assert now.one("hw.energy", hw_id=f"{UUID}7") > energy
        assert sum(now.values("hw.errors", error_type="xid", hw_id=f"{UUID}7")) == 1, "its events are received"
        assert now.one("hw.gpu.utilization", hw_gpu_task="sm", hw_id=f"{UUID}7") == pytest.approx(0.76)
        assert not machine.unsupported("does not respond")
        assert machine.up()
    assert f"GPU 0 ({UUID}0) has been replaced by {UUID}7" in infos(caplog)
    assert len(warnings(caplog)) == 2  # that it was lost, and the event


def test_gpu_lost_before_start_has_status_failed_until_it_responds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with simulated_gpus(tmp_path, h100(0), h100(1), lines={"gpu0": refused(LOST)}) as machine:
        assert states(machine) == {"GPU 0": "failed", "GPU 1": "ok"}
        assert len(warnings(caplog)) == 1
        machine.fake.set_lines({"gpu0": None})
        until_ok(machine, "GPU 0")
        assert machine.tick(2).one("hw.power", hw_id=f"{UUID}0") == pytest.approx(512.6)
        machine.fake.event(0, 94)
        machine.fake.event(1, 13)
        machine.tick(2)
        now = machine.tick(2)
        found = [now.total("hw.errors", error_type="xid", hw_name=name) for name in ("GPU 0", "GPU 1")]
        assert found == [1, 1], "its events are received from then on"
        assert machine.up()
        calls = machine.fake.calls()
    assert (calls["EventSetCreate"], calls["gpu1.RegisterEvents"], calls["gpu0.RegisterEvents"]) == (1, 1, 1)


@pytest.mark.parametrize("code", [LOST, RESET])
def test_xid_events_are_registered_anew_after_a_gpu_comes_back(tmp_path: Path, code: int) -> None:
    with simulated_gpus(tmp_path, h100(0), h100(1)) as machine:
        machine.tick(0)
        machine.fake.event(1, 63)
        machine.tick(2, {"gpu1": refused(code)})
        machine.fake.set_lines({"gpu1": None})
        until_ok(machine, "GPU 1")
        for gpu in (0, 1):
            machine.fake.event(gpu, 13)
        machine.tick(10)
        for gpu in (0, 1):
            machine.fake.event(gpu, 31)
        machine.tick(10)
        now = machine.tick(10)
        assert now.total("hw.errors", error_type="xid", hw_name="GPU 0") == 2
        assert now.total("hw.errors", error_type="xid", hw_name="GPU 1") == 3
        calls = machine.fake.calls()
        assert (calls["EventSetCreate"], calls["EventSetFree"]) == (2, 1), "what a reset left of the first is not known"
        assert (calls["gpu0.RegisterEvents"], calls["gpu1.RegisterEvents"]) == (2, 2)
        assert machine.up()


def test_limit_that_fails_at_first_is_read_again(tmp_path: Path) -> None:
    quiet: Gpu = {
        "gpu0.TemperatureThreshold.0": refused(10),
        "gpu0.MaxClockInfo.1": refused(3),
        "gpu0.MaxClockInfo.2": 0,
    }
    with simulated_gpus(tmp_path, a100(0), lines=quiet) as machine:
        now = machine.tick(0)
        assert now.of("hw.temperature.limit", hw_limit_type="high.critical") == {}
        assert machine.unsupported("hw.temperature.limit (gpu high.critical)")
        machine.fake.set_lines({"gpu0.TemperatureThreshold.0": 92})
        for _ in range(4):
            now = machine.tick(10)
        assert now.one("hw.temperature.limit", hw_limit_type="high.critical") == 92
        assert not machine.unsupported("hw.temperature.limit")
        assert machine.unsupported("hw.gpu.frequency.limit (sm)")[0].endswith("Not Supported")
        assert machine.unsupported("hw.gpu.frequency.limit (memory): the driver reports 0, which is not plausible")
        calls = machine.fake.calls()
        assert [calls[f"gpu0.MaxClockInfo.{domain}"] for domain in range(4)] == [1, 1, 1, 1], "it never changes"


def test_mig_instances_of_a_lost_gpu_are_failed_without_warnings_of_their_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with simulated_gpus(tmp_path, mig(h100(), 0, {0: (1, 0), 3: (5, 0)})) as machine:
        machine.tick(0)
        assert set(states(machine).values()) == {"ok"}
        assert states(machine, gpu0=refused(LOST)) == {"GPU 0": "failed", "MIG 0/0": "failed", "MIG 0/3": "failed"}
        now = machine.tick(2)
        assert now.of("hw.gpu.memory.usage") == {}
        assert len(warnings(caplog)) == 1
        machine.fake.set_lines({"gpu0": None})
        until_ok(machine, "GPU 0")
        machine.tick(2)
        assert set(states(machine).values()) == {"ok"}
        assert machine.tick(2).values("hw.gpu.memory.usage") == [1024 * MIB, 4096 * MIB, 50_000 * MIB]


def test_wsl_unknown_errors_lose_only_their_own_rows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with simulated_gpus(tmp_path, wsl()) as machine:
        for _ in range(20):
            assert states(machine) == {"GPU 0": "ok"}
        now = machine.tick(2)
        assert now.one("hw.gpu.memory.usage") == 10_000 * MIB
        assert now.one("hw.power") == pytest.approx(287.45)
        assert now.of("hw.gpu.utilization") == {}
        calls = machine.fake.calls()
        assert 2 <= calls["gpu0.UtilizationRates"] <= 6, "it is tried again, ever more seldom"
        now = machine.tick(2, {"gpu0.UtilizationRates": (50, 10)})
        for _ in range(32):
            now = machine.tick(2)
        assert now.one("hw.gpu.utilization", hw_gpu_task="general") == 0.5
        assert not machine.unsupported("hw.gpu.utilization (general")
    assert warnings(caplog) == []


# -- One call fails.

# By call, a metric that it fills, and its name in the list of missing metrics.
CALLS: dict[str, tuple[str, str]] = {
    "UtilizationRates": ("hw.gpu.utilization{memory}", "hw.gpu.utilization (memory"),
    "MemoryInfo": ("hw.gpu.memory.usage", "hw.gpu.memory.usage, hw.gpu.memory.limit"),
    "Temperature.0": ("hw.temperature{gpu}", "hw.temperature (gpu)"),
    "TemperatureV.0": ("hw.temperature{gpu}", "hw.temperature (gpu)"),  # the call instead, if that is gone
    "PowerUsage": ("hw.power", "hw.power"),
    "ClockInfo.1": ("hw.gpu.frequency{sm}", "hw.gpu.frequency (sm)"),
    "ClockInfo.0": ("hw.gpu.frequency{graphics}", "hw.gpu.frequency (graphics)"),
    "FieldValues.82": ("hw.temperature{memory}", "hw.temperature (memory)"),
    "FieldValues.83": ("hw.energy", "hw.energy"),
    f"FieldValues.138.{ALL_LINKS}": ("hw.gpu.io{nvlink transmit}", "hw.gpu.io (nvlink transmit)"),
    "FieldValues.94": ("hw.errors{pcie_replay}", "hw.errors (pcie_replay"),
    "EncoderUtilization": ("hw.gpu.utilization{encoder}", "hw.gpu.utilization (encoder)"),
    "PerformanceState": ("hw.gpu.performance_state", "hw.gpu.performance_state"),
    "EnforcedPowerLimit": ("hw.power.limit{enforced}", "hw.power.limit (enforced)"),
}


def shown(machine: SimulatedGpus) -> set[str]:
    """The exported metrics with their distinguishing attributes."""
    exported = machine.collect()
    found = set()
    for name, pairs in exported.points:
        about = dict(pairs)
        words = [about[key] for key in sorted(about) if key not in ("hw.id", "hw.name", "hw.type", "hw.parent")]
        found.add(f"{name}{{{' '.join(words)}}}" if words else name)
    return found


# Counters whose metric is integrated from power or GPM where they are not supported.
INTEGRATED = ("FieldValues.83", "FieldValues.138")

NEVER = (2, 3, 4, 13, 25, 26)


@pytest.mark.parametrize("code", NEVER)
def test_unsupported_call_is_made_once_and_its_row_is_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    quiet = {f"gpu0.{call}": refused(code) for call in CALLS if not call.startswith(INTEGRATED)}
    others = {row for row, _ in CALLS.values()}
    rates = {row for call, (row, _) in CALLS.items() if call.startswith(INTEGRATED)}
    with simulated_gpus(tmp_path, h100(), lines=quiet) as machine:
        machine.tick(0)
        machine.tick(2)
        of_the_host = {"hw.gpu.memory.usage"} if code == 3 else set()  # that of a GPU without memory of its own
        assert shown(machine) & others == rates | of_the_host
        sentences = " ".join(machine.unsupported())
        for call, (_, words) in CALLS.items():
            if f"gpu0.{call}" in quiet and words.partition(",")[0] not in of_the_host:
                row, _, word = words.partition(" (")
                assert re.search(rf"{re.escape(row)}.*{word.rstrip(')')}", sentences), (words, sentences)
        machine.fake.forget_calls()
        for _ in range(40):
            machine.tick(2)
        calls = machine.fake.calls()
        again = [call for call in CALLS if not call.startswith("FieldValues") and calls[f"gpu0.{call}"]]
        assert again == [], "an unsupported call is not made again"
        assert machine.up()
    assert warnings(caplog) == [], "a call that is not known is no trouble"


@pytest.mark.parametrize("code", [10, 11, 19, 20, 23, 27, 29])
def test_failing_call_is_retried_with_backoff(tmp_path: Path, caplog: pytest.LogCaptureFixture, code: int) -> None:
    with simulated_gpus(tmp_path, h100()) as machine:
        machine.tick(0)
        machine.tick(2, {f"gpu0.{call}": refused(code) for call in CALLS})
        assert shown(machine) & {row for row, _ in CALLS.values()} == set()
        machine.fake.forget_calls()
        for _ in range(40):
            machine.tick(2)
        calls = machine.fake.calls()["gpu0.PowerUsage"]
        assert 3 <= calls <= 6
        assert machine.unsupported("hw.power")
        assert machine.up()
        for call, value in still(h100(), START).items():
            if call in CALLS:
                machine.fake.set_lines({f"gpu0.{call}": value})
        for _ in range(33):
            machine.tick(2)
        assert {row for row, _ in CALLS.values()} <= shown(machine)
        assert not machine.unsupported("hw.power")
    assert warnings(caplog) == []


def test_memory_info_falls_back_to_version_1(tmp_path: Path) -> None:
    for code in (25, 2, 13, UNKNOWN):
        with simulated_gpus(tmp_path, h100(), lines={"gpu0.MemoryInfo_v2": refused(code)}) as machine:
            now = machine.tick(0)
            assert now.one("hw.gpu.memory.usage") == (50_000 + 557) * MIB, "the first form counts what is reserved"
            assert now.one("hw.gpu.memory.limit") == 81_559 * MIB
            assert not machine.unsupported("hw.gpu.memory")


# -- Impossible values.


def test_impossible_values_are_not_exported(tmp_path: Path) -> None:
    nonsense: dict[str, Value] = {
        "gpu0.UtilizationRates": (101, 255),
        "gpu0.EncoderUtilization": (1000, 1),
        "gpu0.MemoryInfo": (100 * MIB, 0, 0, 101 * MIB),
        "gpu0.PerformanceState": 32,
        "gpu0.GpmCounter.2": "0+101@0",
        "gpu0.GpmCounter.3": "0+-1@0",
        "gpu0.FieldValues.82": "int -40",
        "gpu0.TemperatureThreshold.0": 4_294_967_294,
        "gpu0.PowerUsage": 4_294_967_294,
        "gpu0.ClockInfo.1": 4_294_967_294,
        "gpu1.MemoryInfo": (0, 0, 0, 0),
    }
    with simulated_gpus(tmp_path, h100(0), h100(1), lines=nonsense) as machine:
        machine.tick(0)
        now = machine.tick(2)
        tasks = {"sm", "encoder", "general", "memory"}
        found = {dict(pairs)["hw.gpu.task"] for pairs in now.of("hw.gpu.utilization", hw_name="GPU 0")}
        assert found & tasks == set()
        assert {"tensor", "decoder"} <= found
        for name in ("hw.gpu.memory.usage", "hw.gpu.memory.limit", "hw.gpu.memory.utilization", "hw.gpu.memory.peak"):
            assert now.of(name) == {}, name
        for name in ("hw.gpu.performance_state", "hw.gpu.sm.occupancy"):
            assert now.of(name, hw_name="GPU 0") == {}, name
        assert now.of("hw.temperature", hw_name="GPU 0", hw_sensor_location="memory") == {}
        for name in ("hw.temperature.limit", "hw.power"):
            assert now.of(name, hw_name="GPU 0") == {}, name
        assert now.of("hw.gpu.frequency", hw_name="GPU 0", hw_frequency_domain="sm") == {}
        (sentence,) = machine.unsupported("of GPU 0: the driver reports 4294967294, which is not plausible")
        assert "hw.power" in sentence
        assert machine.unsupported("hw.gpu.memory.usage")
        assert machine.up()


def filled(gpu: Gpu, bits: int) -> Gpu:
    """The GPU with all bits of every number set."""
    lines = dict(gpu)
    for call, value in gpu.items():
        words = value.split() if isinstance(value, str) else None
        if call.startswith(("Name", "UUID", "Serial", "Vbios", "PciInfo", "GpmCounter", "GpmQuery", "NumFans")):
            continue
        if call.startswith("FieldValues"):
            assert words is not None
            lines[call] = f"{words[0]} {(1 << bits) - 1 if words[0] != 'double' else 'nan'}"
        elif not isinstance(value, str):
            lines[call] = NOT_AVAILABLE if isinstance(value, (int, float)) else tuple(NOT_AVAILABLE for _ in value)
    return lines


@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.parametrize("make", [h100, a100, geforce])
def test_not_available_values_are_not_exported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, make: Callable[[], Gpu], bits: int
) -> None:
    gpu = make()
    if bits == 16:
        gpu |= {call: f"ushort {(1 << bits) - 1}" for call in gpu if call.startswith("FieldValues")}
    else:
        gpu = filled(gpu, bits)
        kinds = {32: "uint", 64: "ullong"}
        gpu |= {call: f"{kinds[bits]} {(1 << bits) - 1}" for call in gpu if call.startswith("FieldValues")}
    with simulated_gpus(tmp_path, gpu) as machine:
        machine.tick(0)
        now = machine.tick(2)
        huge = {key: value for key, value in now.points.items() if value >= 0xFFFF and key[0] not in LARGE}
        assert huge == {} or bits == 16
        for name in ("hw.temperature", "hw.energy", "hw.gpu.io"):
            found = {value for value in now.of(name).values() if value in (0xFFFF, 0xFFFFFFFF, 2**64 - 1, 65.535)}
            assert found == set(), name
        assert machine.up(), machine.runner.problem
    assert warnings(caplog) == []


LARGE = ("hw.gpu.info",)


# Lines about a single NVLink: the source reads the sum of all links only.
_LINK = re.compile(r"NvLink|FieldValues\.\d+\.\d{1,2}$")

GPU: Gpu = {
    line: value
    for card in (h100(), geforce(), mig(h100(), 0, {0: (1, 0)}))
    for line, value in card.items()
    if not _LINK.match(line)
}
GPU |= {f"Samples.{kind}": "uint 5:7" for kind in (0, 1)}
KEYS = sorted(GPU)
WORDS = st.one_of(
    st.just(str(NOT_AVAILABLE)),
    st.sampled_from([f"!{code}" for code in (*range(1, 31), 999)]),
    st.integers(-(2**63), 2**64 - 1).map(str),
    st.integers(-(2**63), 2**64 - 1).map(lambda number: f"{number} {number} {number} {number}"),
    st.tuples(
        st.sampled_from(["double", "uint", "ulong", "ullong", "llong", "int", "ushort"]),
        st.one_of(st.integers(-(2**63), 2**64 - 1).map(str), st.sampled_from(["nan", "inf", "-inf", "1e300", "-1"])),
    ).map(" ".join),
    st.just(listed((1, 2**64 - 1), (2**32 - 1, 0), (7, 7, 7, 7))),
    st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), max_size=20),
)


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("machines")


@PATIENT
@given(
    answers=st.dictionaries(st.sampled_from(KEYS), WORDS, max_size=12),
    later=st.dictionaries(st.sampled_from(KEYS), WORDS),
)
@example(answers={}, later={"ClockInfo.0": refused(FATAL[0])})
@example(answers={"FieldValues.91": "double 2"}, later={})  # the number of links
@example(answers={}, later={"FieldValues.138.4294967295": f"double {2**53 + 2**10}"})  # KiB: more than 2**63 bytes
def test_arbitrary_driver_answers_export_only_finite_values_in_range(
    room: Path, answers: dict[str, str], later: dict[str, str]
) -> None:
    with simulated_gpus(room, GPU, lines={f"gpu0.{call}": value for call, value in answers.items()}) as machine:
        machine.tick(0)
        for changes in ({}, later, {}):
            now = machine.tick(2, {f"gpu0.{call}": value for call, value in changes.items()})
            for (name, pairs), value in now.points.items():
                assert math.isfinite(value), name
                # OTLP has 64-bit integers; a larger number is exported as a float.
                assert isinstance(value, float) or -(2**63) <= value < 2**63, name
                about = dict(pairs)
                if name.startswith("hw.gpu.utilization") or name in ("hw.gpu.memory.utilization",):
                    assert 0 <= value <= 1, (name, about)
        problem = machine.runner.problem
        out_of_order = "|".join(map(str, FATAL))  # a wrong answer, too, in the driver's own words and with its code
        assert problem is None or re.search(rf"\(({out_of_order})\)$|no backend takes|NVML", problem.reason), problem
        assert now.points, "the export goes on"


# -- The driver fails for all GPUs.


@pytest.mark.parametrize(("code", "words"), [(MISMATCH, "version mismatch"), (1, "Uninitialized"), (9, "Not Loaded")])
def test_exchanged_driver_takes_the_source_down_until_init_works_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, code: int, words: str
) -> None:
    with simulated_gpus(tmp_path, h100(0), h100(1)) as machine:
        machine.tick(0)
        energy = machine.tick(2).one("hw.energy", hw_name="GPU 0")
        now = machine.tick(2, {"gpu": refused(code), "Init": refused(code)})
        assert now.names() == set()
        assert machine.runner.state is State.FAILED
        assert not machine.up()
        problem = machine.runner.problem
        assert problem is not None
        assert re.search(words, problem.reason, re.IGNORECASE)
        for _ in range(5):
            machine.tick(60)
        assert len(warnings(caplog)) == 1, warnings(caplog)
        now = machine.tick(60, {"gpu": None, "Init": None})
        now = machine.tick(2)
        assert machine.up()
        assert now.one("hw.energy", hw_name="GPU 0") >= energy
        calls = machine.fake.calls()
        assert (calls["Init"] - 5, calls["Shutdown"]) == (2, 1), "what is not there any more is let go of"
    assert len(warnings(caplog)) == 1
    assert [text for text in infos(caplog) if "recovered" in text] == ["Source nvidia has recovered"]


@pytest.mark.parametrize(
    ("code", "fix"),
    [(4, "/dev/nvidiactl"), (9, "modprobe nvidia"), (12, ""), (18, "restart the machine")],
)
def test_init_failure_makes_the_source_absent_with_reason_and_remedy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, code: int, fix: str
) -> None:
    with simulated_gpus(tmp_path, h100(), lines={"Init": refused(code)}) as machine:
        assert machine.tick(0).names() == set()
        assert machine.runner.state is State.ABSENT
        problem = machine.runner.problem
        assert problem is not None
        assert problem.reason.startswith("NVML")
        assert fix in problem.fix
        assert machine.runner.source is None
    assert warnings(caplog) == []
    assert len([text for text in infos(caplog) if "nvidia" in text]) == 1


@pytest.mark.parametrize("code", [10, 15, 999])
def test_temporary_init_failure_is_retried(tmp_path: Path, caplog: pytest.LogCaptureFixture, code: int) -> None:
    with simulated_gpus(tmp_path, h100(), lines={"Init": refused(code)}) as machine:
        assert machine.tick(0).of("hw.power") == {}
        assert not machine.up()
        now = machine.tick(10, {"Init": None})
        assert now.of("hw.power")
        assert machine.up()
    assert len(warnings(caplog)) == 1
    assert [text for text in infos(caplog) if "recovered" in text] == ["Source nvidia has recovered"]


def test_reloaded_driver_with_other_gpus_exports_those(tmp_path: Path) -> None:
    with simulated_gpus(tmp_path, h100(0)) as machine:
        machine.tick(0)
        machine.tick(2, {"gpu": refused(9), "Init": refused(9)})
        assert not machine.up()
        other = {f"gpu0.{call}": None for call in h100()} | {f"gpu0.{call}": value for call, value in a100().items()}
        machine.tick(60, {"gpu": None, "Init": None, **other})
        now = machine.tick(2)
        assert {dict(pairs)["hw.id"] for pairs in now.of("hw.power")} == {"GPU-000020b2-0000-4000-8000-000000000000"}


def test_driver_without_gpus_is_healthy(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with simulated_gpus(tmp_path) as machine:
        assert machine.tick(0).names() == set()
        assert machine.up()
    assert warnings(caplog) == []


# -- Events fail.


def test_failing_event_wait_loses_only_the_xid_count(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with simulated_gpus(tmp_path, h100(0), h100(1)) as machine:
        machine.tick(0)
        for code in (LOST, UNKNOWN, 27):
            now = machine.tick(2, {"EventSetWait": refused(code)})
            assert now.values("hw.power") == pytest.approx([512.6, 512.6]), code
        machine.fake.set_lines({"EventSetWait": None})
        machine.fake.event(1, 48)
        assert machine.tick(2).total("hw.errors", error_type="xid", hw_name="GPU 1") == 1
        assert machine.up()


@pytest.mark.parametrize("call", ["EventSetCreate", "gpu0.RegisterEvents", "gpu0.SupportedEventTypes"])
def test_driver_without_events_has_xid_missing(tmp_path: Path, caplog: pytest.LogCaptureFixture, call: str) -> None:
    with simulated_gpus(tmp_path, h100(0), lines={call: refused(3)}) as machine:
        now = machine.tick(0)
        assert now.of("hw.errors", error_type="xid") == {}
        assert now.one("hw.errors", error_type="corrected") == 30
        assert machine.unsupported("xid")
        assert machine.up()


# -- Process lists fail.


def test_endless_insufficient_size_of_process_list_is_given_up(tmp_path: Path) -> None:
    with simulated_gpus(tmp_path, h100(0), lines={"gpu0.ComputeRunningProcesses": refused(7)}) as machine:
        assert machine.tick(0).one("hw.power") == pytest.approx(512.6)
        assert machine.unsupported("process.gpu.memory.usage")
        assert machine.fake.calls()["gpu0.ComputeRunningProcesses_v3"] < 10


def test_unknown_driver_version_is_left_out(tmp_path: Path) -> None:
    with simulated_gpus(tmp_path, h100(0), lines={"DriverVersion": refused(999)}) as machine:
        now = machine.tick(0)
        assert now.one("hw.power") == pytest.approx(512.6)
        (about,) = now.of("hw.gpu.info")
        assert "hw.driver_version" not in dict(about)
