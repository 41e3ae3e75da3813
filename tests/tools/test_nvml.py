"""The simulated NVML library: the real binding reads its state, and its cards support only what devices support."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pynvml
import pytest
from tests.support.children import PATIENCE, run
from tests.support.waiting import wait_for
from tests.tools.nvml import (
    ALL_LINKS,
    ASSUMED,
    BOARDS,
    CALLS,
    HEADER,
    MIB,
    MOCK,
    NOT_AVAILABLE,
    OTHERS,
    RECORDED,
    FakeNvml,
    Gpu,
    a100,
    geforce,
    h100,
    known,
    listed,
    mig,
    orin,
    p100,
    refused,
    refuted,
    t4,
    unfold,
    unified,
    vgpu,
)
from tests.tools.reader import Reader, Start, reading

from opentelemetry.instrumentation.hardware.sources.nvidia import fields

CLOCK = int(time.monotonic()) + 1000


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a machine of these GPUs and a program on it that has called `nvmlInit`."""
    with ExitStack() as stack:

        def begin(*gpus: Gpu, without: tuple[str, ...] = ()) -> tuple[FakeNvml, Reader]:
            fake = FakeNvml(tmp_path, *gpus, without=without)
            fake.set_lines({"Clock": CLOCK})
            return fake, stack.enter_context(reading(fake))

        yield begin


def _refused(code: int) -> dict[str, int]:
    return {"refused": code}


def _numbers(answer: Any) -> list[Any]:
    """The numbers in an answer, in their order."""
    if isinstance(answer, dict):
        answer = answer.values()
    return [part for each in answer for part in _numbers(each)] if not isinstance(answer, (int, str)) else [answer]


# Calls to which the binding passes a structure.
STRUCTURES = {"SramEccErrorStatus": "c_nvmlEccSramErrorStatus_v1_t", "GpuFabricInfoV": "c_nvmlGpuFabricInfoV_t"}


def _question(call: str) -> str:
    """The expression by which the binding reads a line of a GPU."""
    name, *selected = call.split(".")
    if name == "FanSpeed" and selected:
        name = "FanSpeed_v2"
    if name == "MemoryInfo":
        selected = ["nvmlMemory_v2"]
    if name == "FieldValues":
        return f"nvmlDeviceGetFieldValues(gpu, [({selected[0]}, {(*selected, '0')[1]})])[0]"
    if name == "FanSpeedRPM":
        selected = []
    if name in STRUCTURES:
        return f"filled({name!r}, {STRUCTURES[name]}())"
    if name == "GpmQueryDeviceSupport":
        return "nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice"
    return f"nvmlDeviceGet{name}({', '.join(['gpu', *selected])})"


def _expected(value: Any) -> list[Any]:
    words = value if isinstance(value, tuple) else (str(value).split() if isinstance(value, str) else [value])
    return [unfold(word, CLOCK) if isinstance(word, str) and "@" in word else word for word in words]


MEMBERS = {"ullong": "ullVal", "uint": "uiVal", "int": "siVal"}  # by type, the member of `nvmlValue_t`

BITS = {"uint": 32, "int": 32, "ullong": 64}

# Calls that the oldest binding does not have.
NEW = {
    *("TemperatureV", "MarginTemperature", "JpgUtilization", "OfaUtilization", "FanSpeedRPM"),
    *("RepairStatus", "UnrepairableMemoryFlag_v1"),
}


def _wrapped(number: int, kind: str) -> int:
    """The number in as many bits as its type has."""
    number %= 1 << BITS[kind]
    return number - (1 << 32) if kind == "int" and number >> 31 else number


# -- The table of calls: which generation supports what, in which type.


@pytest.mark.parametrize("card", BOARDS, ids=lambda card: card.__name__)
def test_card_supports_only_calls_of_its_generation(card: Callable[[], Gpu]) -> None:
    gpu, board = card(), BOARDS[card]
    assert refuted(gpu, board) == []
    assert gpu.get("Architecture", board.generation) == board.generation


@pytest.mark.parametrize("card", [a100, h100], ids=lambda card: card.__name__)
def test_card_with_mig_supports_only_calls_of_mig(card: Callable[[], Gpu]) -> None:
    whole = card()
    parts = mig(whole, 0, {0: (1, 0), 3: (5, 0)})
    assert refuted(parts, BOARDS[card]._replace(divided=True)) == []
    assert {line.partition(".")[0] for line in whole.keys() - parts.keys()} >= {"UtilizationRates", "RemappedRows"}


@pytest.mark.parametrize(
    ("card", "lines", "problem"),
    [
        pytest.param(p100, {"TotalEnergyConsumption": 1}, "not PASCAL", id="energy on Pascal"),
        pytest.param(p100, {"FieldValues.83": "ullong 1"}, "not PASCAL", id="energy field on Pascal"),
        pytest.param(t4, {"GpmQueryDeviceSupport": 1}, "HOPPER to BLACKWELL answer it, not TURING", id="GPM on Turing"),
        pytest.param(a100, {"GpmCounter.2": "0+1@0"}, "not AMPERE", id="GPM on Ampere"),
        pytest.param(t4, {"RemappedRows": (0, 0, 0, 0)}, "not TURING", id="row remapping on Turing"),
        pytest.param(a100, {"FieldValues.29": "ullong 0"}, "not AMPERE", id="page retirement on Ampere"),
        pytest.param(h100, {"TemperatureThreshold.0": 90}, "not HOPPER", id="thresholds on Hopper"),
        pytest.param(a100, {"FieldValues.193": "int -8"}, "not AMPERE", id="T.Limit on Ampere"),
        pytest.param(a100, {"FieldValues.197": "uint 1"}, "not AMPERE", id="PCIe bytes on Ampere"),
        pytest.param(a100, {"FieldValues.185": "uint 1"}, "needs average", id="average power on GA100"),
        pytest.param(h100, {"NumFans": 2}, "needs fan", id="fan on SXM"),
        pytest.param(geforce, {"EccMode": (1, 1)}, "needs ecc", id="ECC on a GeForce"),
        pytest.param(geforce, {"Serial": "1"}, "needs inforom", id="serial number of a GeForce"),
        pytest.param(t4, {"FieldValues.82": "uint 60"}, "needs hbm", id="memory temperature of a T4"),
        pytest.param(unified, {"MemoryInfo": (1, 0, 1, 0)}, "needs memory", id="memory of GB10"),
        pytest.param(vgpu, {"PowerUsage": 1}, "needs sensors", id="power of a vGPU"),
        pytest.param(h100, {"FieldValues.197": "ullong 1"}, "ullong 1 is no uint", id="64 bits of PCIe bytes"),
        pytest.param(h100, {"FieldValues.197": f"uint {2**32}"}, "is no uint", id="PCIe bytes beyond 32 bits"),
        pytest.param(h100, {"PowerUsage": 2**32}, "is no uint", id="power beyond 32 bits"),
        pytest.param(h100, {"UtilizationRates": (1, 2, 3)}, "is no uint uint", id="one number too many"),
        pytest.param(h100, {"Nonsense": 1}, "nothing is known", id="unknown call"),
        pytest.param(h100, {"FieldValues.199": "uint 1"}, "nothing is known", id="unknown field"),
        pytest.param(h100, {"mig0.PowerUsage": 1}, "MIG instances do not answer it", id="power of a MIG instance"),
    ],
)
def test_answer_that_the_device_does_not_support_is_refuted(card: Callable[[], Gpu], lines: Gpu, problem: str) -> None:
    found = refuted({**card(), **lines}, BOARDS[card])
    assert found
    assert all(each.startswith(f"{next(iter(lines))}: ") for each in found)
    assert problem in found[0]


def test_utilization_of_a_divided_gpu_is_refuted() -> None:
    problems = refuted(h100(), BOARDS[h100]._replace(divided=True))
    lines = {problem.partition(":")[0].partition(".")[0] for problem in problems}
    assert {"UtilizationRates", "EncoderUtilization", "RemappedRows", "GpmCounter"} <= lines


def test_every_call_states_its_source() -> None:
    sources = (HEADER, MOCK, RECORDED, OTHERS, ASSUMED)
    assert [line for line, call in CALLS.items() if not any(source in call.source for source in sources)] == []


def test_field_numbers_are_those_of_the_binding() -> None:
    named = {f"FieldValues.{getattr(pynvml, f'NVML_FI_DEV_{call.name}')}" for call in CALLS.values() if call.name}
    assert named == {line for line in CALLS if line.startswith("FieldValues.")}


def test_every_field_that_the_source_asks_for_is_in_the_table() -> None:
    kinds = {**fields.ERRORS, **fields.MORE_ERRORS}.values()
    known_fields = {field for alternatives in kinds for ids in alternatives for field, _ in ids}
    known_fields |= {field for field, _ in (*fields.SAMPLED, *fields.DEGRADED, *fields.LINK_COUNTS.values())}
    known_fields |= {field for ids in fields.SRAM_ERRORS.values() for field, _ in ids}
    known_fields |= {fields.NVLINK_STATE, *fields.NVLINK_BYTES}
    assert [field for field in known_fields if known(f"FieldValues.{field}") is None] == []


def test_numbers_are_as_wide_as_in_the_table(start: Start) -> None:
    """The driver returns all bits set. The binding, which has NVIDIA's types, reads as many bits as the table lists."""
    cards = {line: value for card in (t4, geforce, h100) for line, value in card().items()}
    calls = {line: call for line in cards if (call := known(line)) is not None and call.form not in ("text", "list")}
    del calls["CudaComputeCapability"], calls["GpmQueryDeviceSupport"]  # a pair of digits, and a flag
    for line in [line for line in calls if line.startswith("GpmCounter") or line == "FanSpeedRPM.1"]:
        del calls[line]  # a metric is no number of its own, and the binding asks for the first fan only
    fake, reader = start(cards)
    numbers = {line: call.form.split() for line, call in calls.items()}
    fake.set_lines(
        {
            f"gpu0.{line}": f"{forms[0]} -1" if line.startswith("FieldValues") else [NOT_AVAILABLE] * len(forms)
            for line, forms in numbers.items()
        }
    )
    for line, forms in numbers.items():
        question = _question(line)
        if line.startswith("FieldValues"):
            question += f".value.{MEMBERS[forms[0]]}"
        answer = reader.ask(question)
        if isinstance(answer, dict) and "unknown" in answer:
            assert line.partition(".")[0] in NEW
            continue
        skipped = 1 if line == "MemoryInfo" else 0  # its first number is the structure's version
        assert _numbers(answer)[skipped:] == [_wrapped(-1, form) for form in forms], line


def test_counter_of_32_bits_wraps(start: Start) -> None:
    fake, reader = start({**h100(), "FieldValues.197": f"uint 4000000000+300000000@{CLOCK}"})
    read = "(lambda field: (field.valueType, field.value.ullVal))(nvmlDeviceGetFieldValues(gpu, [197])[0])"
    assert reader.ask(read) == [pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, 4_000_000_000]
    fake.set_lines({"Clock": CLOCK + 1})
    assert reader.ask(read) == [pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, 4_300_000_000 - 2**32]


# -- What the binding reads from the library.


@pytest.mark.parametrize("profile", [p100, t4, geforce, a100, h100, unified, orin, vgpu])
def test_binding_reads_every_line_of_the_state(start: Start, profile: Callable[[], Gpu]) -> None:
    gpu = profile()
    _, reader = start(gpu)
    texts = {"Name", "UUID", "Serial", "VbiosVersion"}
    unknown = []
    for call, value in gpu.items():
        if call.startswith("GpmCounter") or call == "FanSpeedRPM.1":
            continue  # the binding asks for the first fan only; GPM has a test of its own
        answer = reader.ask(_question(call))
        if isinstance(answer, dict) and "unknown" in answer:
            unknown.append(call)
        elif call == "PciInfo":
            assert f"{answer['busId'][4:].lower()} {answer['pciDeviceId']:#010x}" in str(value)
        elif call in texts:
            assert answer == value
        elif call.startswith("FieldValues"):
            assert (answer["nvmlReturn"], answer["timestamp"]) == (0, CLOCK * 1e6), call
            kind, number = _expected(value)
            assert reader.ask(f"{_question(call)}.value.{MEMBERS[kind]}") == _wrapped(int(number), kind), call
        else:
            skipped = 1 if call == "MemoryInfo" else 0  # its first number is the structure's version
            assert _numbers(answer)[skipped:] == [int(str(n), 0) for n in _expected(value)], call
    assert {call.partition(".")[0] for call in unknown} <= NEW


def test_call_without_line_is_not_supported(start: Start) -> None:
    fake, reader = start(t4())
    for call in ("FanSpeed", "RemappedRows", "MigMode", "NvLinkState.0", "Samples.0.0", "ProcessUtilization.0"):
        assert reader.ask(_question(call)) == _refused(3), call
    several = "[f.nvmlReturn for f in nvmlDeviceGetFieldValues(gpu, [83, 82, (140, 1), 31])]"
    assert reader.ask(several) == [0, 3, 3, 0]
    fake.set_lines(
        {"gpu0.FieldValues.31": refused(4), "gpu0.FieldValues.140.1": "ullong 8", "gpu0.FieldValues.82": "uint 70"}
    )
    assert reader.ask(several) == [0, 0, 0, 4]


def test_init_refusal_codes_and_calls_after_shutdown(start: Start) -> None:
    fake, reader = start(h100())
    reader.ask("nvmlShutdown()")
    assert reader.ask("nvmlDeviceGetPowerUsage(gpu)") == _refused(1)
    for code in (9, 12, 18):
        fake.set_lines({"Init": refused(code)})
        assert reader.ask("nvmlInit()") == _refused(code)
    fake.set_lines({"Init": None})
    assert reader.ask("nvmlInit()") is None
    assert reader.ask("nvmlSystemGetDriverVersion()") == "570.86.15"
    assert reader.ask("str(NVMLError(15))") == "GPU is lost"


def test_missing_state_file_is_driver_not_loaded(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path)
    start = "import pynvml; pynvml.nvmlInit(); print(pynvml.nvmlDeviceGetCount())"
    # By its name this time, as programs look for it that know nothing of this simulation.
    result = run([sys.executable, "-c", start], fake.environment)
    assert result.stdout == "0\n", result.stderr
    result = run([sys.executable, "-c", start], fake.environment | {"FAKE_NVML_STATE": str(tmp_path / "nowhere")})
    assert "NVMLError_DriverNotLoaded" in result.stderr


def test_old_library_lacks_functions_and_struct_versions(start: Start) -> None:
    gone = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetCurrentClocksEventReasons")
    fake, reader = start(a100(), without=gone)
    fake.set_lines({"gpu0.ComputeRunningProcesses": listed((4711, 2 * MIB)), "gpu0.MemoryInfo_v2": refused(25)})
    assert reader.ask("nvmlDeviceGetComputeRunningProcesses_v3(gpu)") == _refused(13)
    # By hand, because some bindings have only the newest: a process is 24 bytes, and 16 in the first version.
    assert reader.ask("processes('_v2')") == [0, 1, [4711, 0, 2 * MIB, 0, 2**32 - 1, 2**32 - 1]]
    assert reader.ask("processes('')") == [0, 1, [4711, 0, 2 * MIB, 0, 0, 0]]
    assert reader.ask("nvmlDeviceGetMemoryInfo(gpu, nvmlMemory_v2)") == _refused(25)
    # The old structure counts what the driver keeps for itself as used.
    assert reader.ask("nvmlDeviceGetMemoryInfo(gpu)") == {
        "total": 81_920 * MIB,
        "free": 41_227 * MIB,
        "used": 40_693 * MIB,
    }
    assert reader.ask("nvmlDeviceGetCurrentClocksThrottleReasons(gpu)") == 0


def test_process_lists_and_process_utilization(start: Start) -> None:
    fake, reader = start(h100())
    assert reader.ask("nvmlDeviceGetComputeRunningProcesses(gpu)") == []
    # One with its memory known, one of a part, one without, and a number that no process can have.
    fake.set_lines(
        {
            "gpu0.ComputeRunningProcesses": listed((100, 5 * MIB), (101, 6 * MIB, 3, 0), (102,), (2**32 - 7, 1)),
            "gpu0.ProcessUtilization": listed((100, 1_000, 40, 30, 0, 1), (101, 2_000, 50, 20, 0, 0)),
        }
    )
    found = reader.ask("nvmlDeviceGetComputeRunningProcesses(gpu)")
    nowhere = 2**32 - 1
    assert [tuple(process.values()) for process in found] == [
        (100, 5 * MIB, nowhere, nowhere),
        (101, 6 * MIB, 3, 0),
        (102, None, nowhere, nowhere),
        (2**32 - 7, 1, nowhere, nowhere),
    ]
    shares = "[list(plain(share).values()) for share in nvmlDeviceGetProcessUtilization(gpu, {})]"
    assert reader.ask(shares.format(0)) == [[100, 1_000, 40, 30, 0, 1], [101, 2_000, 50, 20, 0, 0]]
    assert reader.ask(shares.format(1_000)) == [[101, 2_000, 50, 20, 0, 0]]
    assert reader.ask(shares.format(2_000)) == _refused(6)


def test_samples_newer_than_a_timestamp(start: Start) -> None:
    fake, reader = start(h100())
    fake.set_lines({"gpu0.Samples.1": "uint " + listed((1_000, 55), (2_000, 60), (3_000, 0)), "gpu0.Samples.0": "uint"})
    assert reader.ask("samples(1, 0)") == [1, [[1_000, 55], [2_000, 60], [3_000, 0]]]
    assert reader.ask("samples(1, 2_000)") == [1, [[3_000, 0]]]
    assert reader.ask("samples(1, 3_000)") == _refused(6)
    assert reader.ask("samples(0, 0)") == _refused(6)


def test_mig_devices_with_an_empty_slot_between_them(start: Start) -> None:
    fake, reader = start(mig(h100(), 0, {0: (1, 0), 2: (3, 0)}), h100(1))
    assert reader.ask("nvmlDeviceGetMigMode(gpu)") == [1, 1]
    assert reader.ask("nvmlDeviceGetMaxMigDeviceCount(gpu)") == 7
    slots = [reader.ask(f"nvmlDeviceGetMigDeviceHandleByIndex(gpu, {slot}) and 0") for slot in range(4)]
    assert slots == [0, _refused(6), 0, _refused(6)]
    reader.ask("(part := nvmlDeviceGetMigDeviceHandleByIndex(gpu, 2)) and None")
    assert reader.ask("nvmlDeviceGetUUID(part)") == "MIG-00000000-0000-5000-8000-000000000002"
    assert reader.ask("nvmlDeviceGetMemoryInfo(part, nvmlMemory_v2).used") == 3 * 1024 * MIB
    assert reader.ask("(nvmlDeviceGetGpuInstanceId(part), nvmlDeviceGetComputeInstanceId(part))") == [3, 0]
    assert reader.ask("nvmlDeviceGetAttributes(part).memorySizeMB") == 9984
    assert reader.ask("nvmlDeviceGetUUID(nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part))") == h100()["UUID"]
    assert reader.ask("nvmlDeviceGetName(nvmlDeviceGetHandleByUUID(nvmlDeviceGetUUID(part)))").endswith("1g.10gb")
    for alone in ("PowerUsage(part)", "Temperature(part, 0)", "UtilizationRates(part)", "UtilizationRates(gpu)"):
        assert reader.ask(f"nvmlDeviceGet{alone}") == _refused(3), alone
    fake.set_lines({"gpu0": refused(15)})
    assert reader.ask("nvmlDeviceGetUUID(part)") == _refused(15)


def test_event_is_delivered_once_to_each_registered_set(start: Start) -> None:
    fake, reader = start(h100(0), h100(1))
    fake.event(0, 13)
    for name in ("one", "two"):
        reader.ask(f"({name} := nvmlEventSetCreate()) and None")
    reader.ask("nvmlDeviceRegisterEvents(gpu, 8, one)")
    reader.ask("[nvmlDeviceRegisterEvents(nvmlDeviceGetHandleByIndex(i), 9, two) for i in (0, 1)] and None")
    assert reader.ask("event(one, 0)") == _refused(10)
    fake.event(1, 79)
    fake.event(0, 48)
    fake.event(0, 1, kind=1)
    assert reader.ask("event(one, 0)") == [0, 8, 48]
    assert reader.ask("event(one, 1)") == _refused(10)
    assert [reader.ask("event(two, 0)") for _ in range(3)] == [[1, 8, 79], [0, 8, 48], [0, 1, 1]]
    # A waiting set gets new events at once.
    before = fake.calls()["EventSetWait"]
    reader.begin(f"event(two, {PATIENCE * 1000:.0f})")
    wait_for(lambda: fake.calls()["EventSetWait"] > before, PATIENCE, "wait")
    assert not reader.answered()
    fake.event(1, 94)
    assert reader.answer() == [1, 8, 94]


def test_calls_are_counted_by_device_and_name(start: Start) -> None:
    fake, reader = start(mig(h100(), 0, {0: (1, 0)}))
    fake.forget_calls()
    reader.ask("[nvmlDeviceGetPowerUsage(gpu) for _ in range(3)]")
    reader.ask(f"nvmlDeviceGetFieldValues(gpu, [83, 82, (140, {ALL_LINKS})]) and None")
    reader.ask("nvmlDeviceGetUUID(nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0))")
    assert fake.calls() == {
        "gpu0.PowerUsage": 3,
        "gpu0.FieldValues": 1,
        "gpu0.MigDeviceHandleByIndex": 1,
        "gpu0.mig0.UUID": 1,
    }
