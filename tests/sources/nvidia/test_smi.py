"""nvidia-smi: every schema of its XML, malformed output, and failures of the tool.

The files in ``nvidia/smi`` are written by hand, in the tool's format; what stands beside each was checked by hand too.
``pytest tests/sources/test_nvidia_smi.py --rewrite`` writes that anew: look at what changed.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.samples import samples
from tests.stage import PATIENT

from opentelemetry.instrumentation.hardware.accelerators.fields import QUANTITIES
from opentelemetry.instrumentation.hardware.drivers.subprocess import Command, Output, Tool
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.sources.nvidia.smi import (
    TOOL,
    Device,
    Document,
    Instance,
    Process,
    Smi,
    parse,
)
from opentelemetry.instrumentation.hardware.sources.nvidia.spellings import FLAGS, NUMBERS

FOLDER = Path(__file__).parent / "smi"
CAPTURES = sorted(FOLDER.glob("*.xml"))
MIB = 1 << 20


# -- Every schema.


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_parsed_document_matches_its_expected_file(path: Path, rewrite: bool) -> None:
    found = "\n".join([*_told(parse(path.read_bytes())), ""])
    beside = path.with_suffix(".expected")
    if rewrite:
        beside.write_text(found, encoding="utf-8")
    assert found.splitlines() == beside.read_text(encoding="utf-8").splitlines(), beside.name


def _told(document: Document) -> Iterator[str]:
    yield f"driver {document.driver_version}, CUDA {document.cuda_version}"
    if document.problem:
        yield f"problem: {document.problem}"
    for device in document.devices:
        yield f"\nGPU {device.index}: {device.name}"
        for fact in ("uuid", "serial", "vbios", "bdf", "minor", "addressing", "recovery", "lost"):
            if getattr(device, fact) is not None:
                yield f"  {fact}: {getattr(device, fact)}"
        for name, value in {**device.numbers, **device.flags}.items():
            yield f"  {name} = {value!r}    ({device.spelled[name]})"
        for name, reason in device.refused.items():
            yield f"  {name}: {reason}"
        for each in device.instances:
            yield f"  MIG {each.index}: {each.uuid}, instances {each.gpu_instance} and {each.compute_instance}"
            yield from (f"    {name} = {value!r}" for name, value in each.numbers.items())
            yield from (f"    {name}: {reason}" for name, reason in each.refused.items())
        for process in device.processes:
            used = "memory unknown" if process.memory is None else f"{process.memory} By"
            yield (
                f"  process {process.pid} ({process.type}): {used}, "
                f"instances {process.gpu_instance} and {process.compute_instance}"
            )


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_xml_document_says_that_it_is_written_by_hand(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    driver = re.search("<driver_version>(.*)</driver_version>", text)
    assert driver is not None
    assert f"<!-- Written by hand, as driver {driver[1]} (schema {path.stem.partition('-')[0]}) prints it." in text


def test_every_quantity_is_in_some_xml_document() -> None:
    devices = [device for path in CAPTURES for device in parse(path.read_bytes()).devices]
    said = {name: where for device in devices for name, where in device.spelled.items()}
    assert set(said) == {*NUMBERS, *FLAGS}


def test_quantities_that_only_nvidia_smi_has() -> None:
    assert set(NUMBERS) - set(QUANTITIES) == {
        *("memory.reserved", "memory.free"),
        *("power.average", "power.instant", "power.module", "power.memory"),
        *("power.limit.requested", "power.limit.min", "power.limit.module"),
        *("sram.corrected", "sram.uncorrected", "retired.single_bit", "retired.double_bit"),
        *("remapped.corrected", "remapped.uncorrected"),
    }


ELSEWHERE = {
    "ecc_errors/aggregate/double_bit/total",
    "ecc_errors/aggregate/single_bit/total",
    "gpu_memory_power_readings/instant_power_draw",
    "module_power_readings/instant_power_draw",
    "module_power_readings/power_draw",
    "retired_pages/pending_blacklist",
}
"""Spellings that are tested below: documents that have them also have one that is preferred."""


def test_every_xml_spelling_is_in_some_document() -> None:
    devices = [device for path in CAPTURES for device in parse(path.read_bytes()).devices]
    said = {where for device in devices for where in device.spelled.values()}
    known = {where for table in (NUMBERS, FLAGS) for _, spellings in table.values() for where in spellings}
    assert known - said == ELSEWHERE


# -- Single elements.


def _of(*elements: str, around: str = "<nvidia_smi_log><gpu>{}</gpu></nvidia_smi_log>") -> Device:
    """The device of a document with these elements, each written as ``a/b=text``."""
    parts = []
    for element in elements:
        path, _, text = element.partition("=")
        names = path.split("/")
        parts.append("".join(f"<{name}>" for name in names) + text + "".join(f"</{name}>" for name in names[::-1]))
    (device,) = parse(around.format("".join(parts)).encode()).devices
    return device


@pytest.mark.parametrize(
    ("element", "quantity", "value"),
    [
        ("utilization/gpu_util=04 %", "utilization.general", 0.04),
        ("utilization/gpu_util=  29 %\n", "utilization.general", 0.29),
        ("utilization/gpu_util=100%", "utilization.general", 1.0),
        ("fb_memory_usage/total=81559 MiB", "memory.total", 81559 * MIB),
        ("temperature/gpu_temp=0 C", "temperature.gpu", 0),
        ("temperature/gpu_temp=[ 27 C ]", "temperature.gpu", 27),
        ("power_readings/power_draw=8.93 W", "power", 8.93),
        ("clocks/sm_clock=1410 MHz", "frequency.sm", 1_410_000_000),
        ("performance_state=P15", "performance_state", 15),
        ("fan_speed=104 %", "fan.ratio", 1.04),
        ("pci/replay_counter=17", "errors.pcie_replay", 17),
        ("ecc_errors/aggregate/single_bit/total=5", "errors.corrected", 5),
        ("ecc_errors/aggregate/double_bit/total=6", "errors.uncorrected", 6),
        ("module_power_readings/power_draw=30.00 W", "power.module", 30.0),
        ("module_power_readings/instant_power_draw=31.00 W", "power.module", 31.0),
        ("ecc_errors/aggregate/dram_uncorrectable=4294967294", "errors.uncorrected", 2**32 - 2),
        ("gpu_memory_power_readings/instant_power_draw=9.5 W", "power.memory", 9.5),
        ("retired_pages/pending_blacklist=Yes", "retired.pending", True),
        ("clocks_event_reasons/clocks_event_reason_sw_power_cap=Not Active", "throttled.power_cap", False),
        ("gpu_recovery_action=None", "recovery.needed", False),
        ("gpu_recovery_action=Node Reboot", "recovery.needed", True),
        (
            "clocks_event_reasons_counters/clocks_event_reasons_counters_sw_power_cap=1500000 us",
            "throttle.power_cap",
            1.5,
        ),
    ],
)
def test_xml_value_is_parsed(element: str, quantity: str, value: object) -> None:
    device = _of(element)
    found = {**device.numbers, **device.flags}
    assert found[quantity] == value
    assert type(found[quantity]) is type(value)
    assert quantity not in device.refused


REFUSED = [
    "N/A",
    "[N/A]",
    "[Not Supported]",
    "Not Supported",
    "Unknown Error",
    "[Insufficient Permissions]",
    "Requested functionality has been deprecated",
    "GPU access blocked by the operating system",
    "None",
    "-1 %",
    "-0 %",
    "+5 %",
    "nan %",
    "inf %",
    "1e2 %",
    "0x10 %",
    "5,5 %",
    "5. %",
    ".5 %",
    "5",
    "5 C",
    "% 5",
    "5 % 5 %",
    "٣ %",
    "9" * 5000 + " %",
]


@pytest.mark.parametrize("text", REFUSED)
def test_text_that_is_no_percentage_is_refused(text: str) -> None:
    device = _of(f"utilization/gpu_util={text}", "temperature/gpu_temp=27 C")
    assert device.numbers == {"temperature.gpu": 27}
    assert device.refused["utilization.general"] == text.strip("[]")[:200]
    assert device.lost is None


@pytest.mark.parametrize(
    ("element", "quantity"),
    [
        ("utilization/memory_util=101 %", "utilization.memory"),
        ("utilization/encoder_util=4294967295 %", "utilization.encoder"),
        ("fan_speed=201 %", "fan.ratio"),
        ("fb_memory_usage/total=0 MiB", "memory.total"),
        ("fb_memory_usage/total=17592186044415 MiB", "memory.total"),
        ("temperature/gpu_temp=151 C", "temperature.gpu"),
        ("temperature/gpu_temp_max_threshold=0 C", "temperature.limit.gpu.high.critical"),
        ("power_readings/power_draw=4294967.29 W", "power"),
        ("gpu_power_readings/current_power_limit=0.00 W", "power.limit.enforced"),
        ("clocks/sm_clock=4294967295 MHz", "frequency.sm"),
        ("pci/replay_counter=4294967295", "errors.pcie_replay"),
        ("ecc_errors/aggregate/dram_correctable=18446744073709551615", "errors.corrected"),
        ("pci/replay_counter=1.5", "errors.pcie_replay"),
        ("performance_state=P16", "performance_state"),
        ("performance_state=Unknown", "performance_state"),
        ("gpu_recovery_action=Something new", "recovery.needed"),
        ("remapped_rows/remapped_row_failure=Perhaps", "remapped.failure"),
    ],
)
def test_impossible_xml_value_is_refused(element: str, quantity: str) -> None:
    device = _of(element)
    assert quantity not in {**device.numbers, **device.flags}
    assert device.refused[quantity]


@pytest.mark.parametrize(
    "name", ["tlimit", "max_tlimit_threshold", "slow_tlimit_threshold", "max_gpu_tlimit_threshold"]
)
def test_tlimit_is_not_read_as_a_temperature(name: str) -> None:
    for text in ("-8 C", "0 C", "59 C"):
        device = _of(f"temperature/gpu_temp_{name}={text}")
        assert (device.numbers, device.refused) == ({}, {})


def test_sram_error_sum_needs_all_its_parts() -> None:
    parity, secded = (f"ecc_errors/aggregate/sram_uncorrectable_{code}" for code in ("parity", "secded"))
    around = "<nvidia_smi_log><gpu>{}</gpu></nvidia_smi_log>"
    assert _of(f"{parity}=2", f"{secded}=3", around=around).numbers == {"sram.uncorrected": 5}
    assert _of(f"{parity}=2").numbers == {}
    half = _of(f"{parity}=2", f"{secded}=N/A")
    assert (half.numbers, half.refused) == ({}, {"sram.uncorrected": "N/A"})


def test_not_available_element_refuses_all_quantities_below_it() -> None:
    device = _of("remapped_rows=N/A", "ecc_errors=[Not Supported]", "pci=0", "gpu_power_readings=5.00 W")
    assert device.numbers == {}, "and is never a value"
    refused = device.refused
    assert refused["remapped.failure"] == refused["errors.row_remap"] == "N/A"
    assert refused["errors.corrected"] == refused["sram.uncorrected"] == "Not Supported"


def test_first_valid_spelling_of_power_is_used() -> None:
    new, old = "gpu_power_readings/average_power_draw", "power_readings/power_draw"
    both = _of(f"{new}=10.00 W", f"{old}=9.00 W")
    assert (both.numbers["power"], both.spelled["power"]) == (9.0, old)
    refused = _of(f"{new}=10.00 W", f"{old}=N/A")
    assert (refused.numbers["power"], refused.spelled["power"]) == (10.0, new)
    assert "power" not in refused.refused


@pytest.mark.parametrize("total", ["0 MiB", "N/A", "Not Supported", ""])
def test_used_memory_without_a_total_is_refused(total: str) -> None:
    device = _of(f"fb_memory_usage/total={total}", "fb_memory_usage/used=0 MiB", "fb_memory_usage/free=0 MiB")
    assert device.numbers == {}
    assert {"memory.used", "memory.free"} <= set(device.refused)


def test_used_memory_above_the_total_is_refused() -> None:
    device = _of("fb_memory_usage/total=100 MiB", "fb_memory_usage/used=101 MiB", "fb_memory_usage/free=100 MiB")
    assert device.numbers == {"memory.total": 100 * MIB, "memory.free": 100 * MIB}
    assert device.refused == {"memory.used": "it is more than the total"}


# -- Identity.


@pytest.mark.parametrize(
    ("said", "bdf"),
    [
        ("00000000:1A:00.0", "0000:1a:00.0"),
        ("0000:01:00.0", "0000:01:00.0"),
        ("00000001:00:1E.7", "0001:00:1e.7"),
        ("00010000:05:00.0", "10000:05:00.0"),
        ("N/A", None),
        ("1A:00.0", None),
        ("00000000:1G:00.0", None),
    ],
)
def test_pci_address_is_written_like_the_kernels(said: str, bdf: str | None) -> None:
    assert _of(f"pci/pci_bus_id={said}").bdf == bdf
    assert parse(f'<nvidia_smi_log><gpu id="{said}"></gpu></nvidia_smi_log>'.encode()).devices[0].bdf == bdf


@pytest.mark.parametrize(
    "text", ["N/A", "[N/A]", "[REDACTED]", "REDACTED", "None", "", "  ", "Unknown Error", "GPU is lost"]
)
def test_placeholder_text_of_a_fact_is_none(text: str) -> None:
    device = _of(*(f"{name}={text}" for name in ("product_name", "serial", "uuid", "vbios_version", "minor_number")))
    assert [device.name, device.serial, device.uuid, device.vbios, device.minor] == [None] * 5


@pytest.mark.parametrize("text", ["GPU-", "MIG-1234", "GPU-xyzw", "1234", "GPU-1234 ; rm", "GPU-" + "1" * 100])
def test_malformed_uuid_is_none(text: str) -> None:
    assert _of(f"uuid={text}").uuid is None


# -- MIG devices and processes.


def test_mig_devices_with_uuid_are_parsed() -> None:
    one = (
        "<mig_device><index>3</index><gpu_instance_id>5</gpu_instance_id><compute_instance_id>1</compute_instance_id>"
        "<uuid>MIG-5c89852c-d268-c3f3-1b07-005d5ae1dc3f</uuid></mig_device>"
    )
    broken = "<mig_device><index>N/A</index></mig_device>"
    device = _of(f"mig_devices={broken}{one}")
    assert device.instances == (Instance(3, 5, 1, "MIG-5c89852c-d268-c3f3-1b07-005d5ae1dc3f", {}, {}),)
    old = one.replace("MIG-5c89852c-d268-c3f3-1b07-005d5ae1dc3f", "MIG-GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f/5/1")
    (instance,) = _of(f"mig_devices={old}").instances
    assert instance.uuid == "MIG-GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f/5/1"


def test_mig_sram_errors_in_two_parts_are_summed() -> None:
    counts = "".join(
        f"<sram_uncorrectable_{code}>{count}</sram_uncorrectable_{code}>"
        for code, count in (("parity", 1), ("secded", 2))
    )
    one = f"<index>0</index><ecc_error_count><volatile_count>{counts}</volatile_count></ecc_error_count>"
    assert _of(f"mig_devices/mig_device={one}").instances[0].numbers == {"sram.uncorrected": 3}


def test_process_without_pid_is_left_out_and_without_memory_is_kept() -> None:
    said = "".join(
        f"<process_info><pid>{pid}</pid><type>{kind}</type><used_memory>{used}</used_memory></process_info>"
        for pid, kind, used in [("12", "C", "5 MiB"), ("N/A", "C", "5 MiB"), ("0", "C", "1 MiB"), ("13", "C+G", "N/A")]
    )
    assert _of(f"processes={said}").processes == (
        Process(12, "C", 5 * MIB, None, None),
        Process(13, "C+G", None, None, None),
    )


# -- Lost GPUs and truncated documents.


@pytest.mark.parametrize("reason", ["GPU is lost", "[GPU is lost]", "GPU requires reset"])
def test_lost_gpu_has_no_numbers(reason: str) -> None:
    process = "<process_info><pid>1</pid><used_memory>0 MiB</used_memory></process_info>"
    device = _of(
        "uuid=GPU-1234",
        "temperature/gpu_temp=0 C",
        f"utilization/gpu_util={reason}",
        f"processes={process}",
        "remapped_rows/remapped_row_failure=No",
    )
    assert device == Device(0, uuid="GPU-1234", lost=reason.strip("[]"))


def test_gpu_with_only_unknown_errors_is_lost() -> None:
    broken = _of("utilization/gpu_util=Unknown Error", "fan_speed=Unknown Error", "clocks/sm_clock=N/A")
    assert (broken.lost, broken.refused) == ("Unknown Error", {})
    partly = _of("utilization/gpu_util=Unknown Error", "fan_speed=30 %")
    assert (partly.lost, partly.numbers) == (None, {"fan.ratio": 0.3})


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_truncated_document_keeps_the_complete_gpus(path: Path) -> None:
    printed = path.read_bytes()
    whole = parse(printed)
    begin, end = printed.index(b"<nvidia_smi_log>"), printed.find(b"</nvidia_smi_log>")
    for cut in range(begin + len("<nvidia_smi_log>"), end if end > 0 else len(printed), 173):
        part = parse(printed[:cut])
        complete = printed[:cut].count(b"</gpu>")
        assert part.devices == whole.devices[:complete]
        assert part.problem is not None
        assert f"breaks off after {complete} of" in part.problem


# -- Malformed and hostile documents.


def test_last_of_several_documents_is_used() -> None:
    first, second = (FOLDER / name for name in ("v10-v100.xml", "v13-h200.xml"))
    assert parse(first.read_bytes() + second.read_bytes()) == parse(second.read_bytes())
    assert parse(b"warning\n" * 3 + second.read_bytes() + b"\nSegmentation fault\n") == parse(second.read_bytes())


@pytest.mark.parametrize(
    "name", [b"\xff\xfe\x00\x01", b"a & b < c > d", b"</x></gpu>", b"\x1b[31m", "köln".encode(), b""]
)
def test_any_process_name_is_parsed(name: bytes) -> None:
    printed = (FOLDER / "v13-h200.xml").read_bytes()
    assert b"./gpu_burn" in printed
    assert parse(printed.replace(b"./gpu_burn", name)) == parse(printed)


def test_malformed_clock_table_loses_nothing_else() -> None:
    printed = (FOLDER / "v12-l40s.xml").read_bytes()
    broken = printed.replace(b"<value>9001 MHz</value>", b"9001 MHz</value>")
    assert broken != printed
    assert parse(broken) == parse(printed)


def test_xml_comments_are_ignored() -> None:
    printed = (FOLDER / "v13-h200.xml").read_bytes()
    assert parse(printed.replace(b"<fan_speed>", b"<!-- fans & more -->\n<fan_speed>")) == parse(printed)


BOMB = b"""<?xml version="1.0"?>
<!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY n "1">%s]>
<nvidia_smi_log><gpu><pci><replay_counter>%s</replay_counter></pci></gpu></nvidia_smi_log>"""


@pytest.mark.parametrize("value", [b"&b;", b"&n;", b"&file;"])
def test_xml_entities_are_never_expanded(value: bytes) -> None:
    document = parse(BOMB % (b'<!ENTITY file SYSTEM "file:///etc/hostname">', value))
    assert document.devices == ()
    assert document.problem == "the output of nvidia-smi breaks off after 0 of some GPUs: undefined entity"


@pytest.mark.parametrize(
    "printed",
    [
        b"<nvidia_smi_log>" + b"<a>" * 100_000,
        b"<nvidia_smi_log>" + b"<a>" * 100_000 + b"</a>" * 100_000 + b"</nvidia_smi_log>",
        b"<nvidia_smi_log>" + b"<gpu>" * 100_000,
        b"<nvidia_smi_log>" + b"<a/>" * 1_000_000,
        b"<nvidia_smi_log><gpu>" + b"<process_name>" * 1_000_000,
        b"<nvidia_smi_log>" * 500_000,
    ],
    ids=["deep", "deep and closed", "deep devices", "many", "names without end", "beginnings"],
)
def test_oversized_document_is_given_up(printed: bytes) -> None:
    document = parse(printed)
    assert document.devices == ()
    assert document.problem is not None


# -- Arbitrary output.

ODD = st.sampled_from(
    [
        *REFUSED,
        "0",
        "0 MiB",
        "1 %",
        "GPU is lost",
        "<gpu>",
        "</gpu>",
        "<a/>",
        "&lt;",
        "&x;",
        "<![CDATA[",
        "-->",
        "\0",
        "é",
    ]
)
PIECES = [re.split(rb"(?<=>)([^<>\s][^<>]*)(?=</)", path.read_bytes()) for path in CAPTURES]
"""The documents in pieces: at odd indices the texts of elements."""

MEASURES = st.builds(
    "{}{}".format, st.integers(-5, 10**6), st.sampled_from(["", " %", " C", " W", " MHz", " MiB", " us"])
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A document with some texts replaced and some bytes replaced or removed."""
    pieces = list(draw(st.sampled_from(PIECES)))
    for _ in range(draw(st.integers(0, 4))):
        at = 2 * draw(st.integers(0, len(pieces) // 2 - 1)) + 1
        pieces[at] = draw(ODD | MEASURES | st.text(max_size=12)).encode(errors="replace")
    printed = b"".join(pieces)
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(printed)))
        printed = printed[:at] + draw(st.binary(max_size=4)) + printed[at + draw(st.integers(0, 300)) :]
    return printed


@PATIENT
@given(printed=mutated() | st.binary() | st.binary().map(lambda inside: b"<nvidia_smi_log>" + inside))
@example(printed=b"<nvidia_smi_log")
@example(printed=b"<nvidia_smi_log><gpu></gpu></nvidia_smi_log>")
def test_arbitrary_output_parses_to_values_in_range(printed: bytes) -> None:
    try:
        document = parse(printed)
    except ValueError:
        assert b"<nvidia_smi_log" not in printed
        return
    for device in document.devices:
        for quantity, value in device.numbers.items():
            assert math.isfinite(value)
            assert 0 <= value < 2**63
            if quantity.startswith("utilization."):
                assert value <= 1
            if not value:
                assert _spells_zero(printed, device.spelled[quantity]), quantity
        assert device.numbers.get("memory.used", 0) <= device.numbers.get("memory.total", 0)
        assert set(device.numbers) <= set(NUMBERS)
        assert set(device.flags) <= set(FLAGS)
        assert not (set(device.numbers) | set(device.flags)) & set(device.refused)
        assert device.bdf is None or re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", device.bdf)
        for instance in device.instances:
            assert all(0 <= value < 2**63 for value in instance.numbers.values())
        for process in device.processes:
            assert process.pid > 0
            assert process.memory is None or 0 <= process.memory < 2**63


def _spells_zero(printed: bytes, where: str) -> bool:
    """Whether each element of a spelling has a zero somewhere in the document."""
    text = printed.decode("utf-8", "replace")
    leaves = [path.rpartition("/")[2] for path in where.split(" + ")]
    return all(re.search(rf"<{leaf}[^>]*>[\s\[]*P?0+(\.0+)?[^<1-9]*</{leaf}\s*>", text) for leaf in leaves)


# -- Exit codes and failures of the tool.


class _Said:
    """A command with fixed output."""

    def __init__(self, code: int, stdout: bytes, stderr: bytes = b"") -> None:
        self._output = Output(code, stdout, stderr)

    def run(self, arguments: list[str], seconds: float) -> Output:
        assert (arguments, seconds) == (["-q", "-x"], 10.0)
        return self._output


def _smi(code: int, stdout: bytes, stderr: bytes = b"") -> Smi:
    return Smi(_Said(code, stdout, stderr))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "printed", "fix"),
    [
        (6, b"No devices were found\n", ""),
        (
            9,
            b"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
            b"NVIDIA driver is installed and running.\n\n",
            "modprobe nvidia",
        ),
        (12, b"NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.\n", "install NVIDIA's driver"),
    ],
)
def test_missing_driver_or_device_is_unavailable_with_remedy(code: int, printed: bytes, fix: str) -> None:
    with pytest.raises(Unavailable) as gone:
        _smi(code, printed).read()
    assert gone.value.reason == printed.decode().strip()[:200]
    assert gone.value.fix == fix


@pytest.mark.parametrize(
    ("code", "stdout", "stderr", "sentence"),
    [
        (18, b"Failed to initialize NVML: Driver/library version mismatch\n", b"", "Failed to initialize NVML"),
        (-11, b"", b"", "nvidia-smi says 'nothing' and ends with -11"),
        (1, b"\n\x00\x01\n", b"cannot open display\n", "nvidia-smi says 'cannot open display' and ends with 1"),
        (0, b"", b"", "nvidia-smi says 'nothing' and ends with 0"),
        (2, b"Invalid combination of input arguments\n" * 1000, b"", "Invalid combination .* ends with 2"),
    ],
)
def test_output_without_document_is_an_error_with_its_text(
    code: int, stdout: bytes, stderr: bytes, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        _smi(code, stdout, stderr).read()
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("code", [0, 15, -11, 255])
def test_document_is_parsed_at_any_exit_code(code: int) -> None:
    printed = (FOLDER / "v12-lost.xml").read_bytes()
    assert _smi(code, printed).read() == parse(printed)


@pytest.mark.skipif(sys.platform == "win32", reason="starts a tool as POSIX has it")
def test_crashing_nvidia_smi_keeps_what_it_printed(tmp_path: Path) -> None:
    path = tmp_path / "nvidia-smi"
    path.write_text(f'#!/bin/sh\n[ "$*" = "-q -x" ] || exit 2\ncat "{FOLDER / "v12-truncated.xml"}"\nkill -SEGV $$\n')
    path.chmod(0o755)
    document = Smi(Command(TOOL._replace(path=str(path)))).read()
    assert [device.bdf for device in document.devices] == ["0000:1a:00.0", "0000:1b:00.0"]
    assert document.problem == "the output of nvidia-smi breaks off after 2 of 4 GPUs: no element found"


def test_missing_nvidia_smi_is_unavailable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="nvidia-smi is not installed") as gone:
        Command(Tool(TOOL.name, folders=(str(tmp_path),), fix=TOOL.fix))
    assert gone.value.fix == "it comes with NVIDIA's driver"


# -- Output recorded on real GPUs by others, outside of this repository.

RECORDED: dict[str, dict[str, object]] = {
    "telegraf_gtx-1660-ti.xml": {
        "driver": "418.43",
        "uuid": "GPU-304a277d-3545-63b8-3a36-dfde3c992989",
        "bdf": "0000:43:00.0",
        "serial": None,
        "vbios": "90.16.25.00.4C",
        "utilization.general": 0.0,
        "utilization.memory": 0.01,
        "memory.total": 5912 * MIB,
        "memory.used": 0,
        "memory.reserved": None,
        "temperature.gpu": 40,
        "temperature.memory": None,
        "temperature.limit.gpu.high.critical": 96,
        "power": 8.93,
        "power.limit.enforced": 130.0,
        "power.limit.min": 70.0,
        "frequency.sm": 300_000_000,
        "frequency.limit.memory": 4_001_000_000,
        "performance_state": 8,
        "errors.corrected": None,
        "mig": None,
        "processes": [],
    },
    "telegraf_tesla-t4.xml": {
        "driver": "515.105.01",
        "bdf": "0000:00:1e.0",
        "minor": 0,
        "fan.ratio": None,
        "memory.total": 15360 * MIB,
        "memory.reserved": 388 * MIB,
        "memory.used": 1032 * MIB,
        "memory.free": 13939 * MIB,
        "temperature.limit.gpu.max": 85,
        "power": 26.78,
        "power.limit.default": 70.0,
        "frequency.memory": 5_000_000_000,
        "frequency.limit.memory": 5_001_000_000,
        "errors.corrected": 0,
        "errors.retired_page": 0,
        "retired.pending": False,
        "remapped.pending": None,
        "throttled.power_cap": False,
        "processes": [(675, "G", 22 * MIB), (5762, "C", 1005 * MIB)],
    },
    "telegraf_a10g.xml": {
        "driver": "515.105.01",
        "name": "NVIDIA A10G",
        "fan.ratio": 0.0,
        "performance_state": 8,
        "memory.total": 23028 * MIB,
        "memory.used": 22 * MIB,
        "temperature.gpu": 17,
        "power": 25.58,
        "power.limit.max": 300.0,
        "frequency.video": 555_000_000,
        "errors.retired_page": None,
        "errors.row_remap": 0,
        "remapped.failure": False,
        "sram.uncorrected": 0,
        "processes": [(725, "G", 22 * MIB)],
    },
    "netdata_a100-sxm4-mig.xml": {
        "driver": "510.47.03",
        "bdf": "0000:00:04.0",
        "mig": True,
        "utilization.general": None,
        "utilization.encoder": None,
        "memory.total": 40960 * MIB,
        "memory.reserved": 605 * MIB,
        "memory.used": 38 * MIB,
        "temperature.gpu": 36,
        "temperature.memory": 44,
        "temperature.limit.memory.max": 95,
        "power": 66.92,
        "power.limit.enforced": 400.0,
        "frequency.graphics": 1_410_000_000,
        "errors.uncorrected": 0,
        "errors.row_remap": None,
        "throttled.application_clocks": False,
        "instances": [(0, 1, 0, 19968 * MIB, 19 * MIB, 0), (1, 2, 0, 19968 * MIB, 19 * MIB, 0)],
        "processes": [],
    },
    "telegraf_rtx-3080-v12.xml": {
        "driver": "536.40",
        "serial": None,
        "minor": None,
        "addressing": None,
        "recovery": None,
        "reset.required": False,
        "utilization.memory": 0.37,
        "utilization.jpeg": 0.0,
        "memory.reserved": 173 * MIB,
        "memory.used": 1128 * MIB,
        "temperature.gpu": 31,
        "power": 22.78,
        "power.average": None,
        "power.module": None,
        "power.limit.enforced": 336.0,
        "power.limit.default": 320.0,
        "frequency.sm": 210_000_000,
        "processes": [
            (835, "G", 550 * MIB),
            (1481, "G", 18 * MIB),
            (2214, "G", 79 * MIB),
            (4044, "G", 541 * MIB),
            (42416, "G", 159 * MIB),
        ],
    },
    "telegraf_rtx-3080-v13.xml": {
        "driver": "595.58.03",
        "cuda": "13.2",
        "serial": None,
        "minor": 0,
        "bdf": "0000:0c:00.0",
        "addressing": "HMM",
        "recovery.needed": False,
        "utilization.general": 0.65,
        "utilization.memory": 0.09,
        "memory.used": 9184 * MIB,
        "power": 139.62,
        "power.average": 139.62,
        "power.instant": 142.33,
        "power.memory": None,
        "power.limit.enforced": 320.0,
        "power.limit.max": 336.0,
        "temperature.gpu": 27,
        "temperature.limit.gpu.high.degraded": 95,
        "frequency.memory": 9_251_000_000,
        "performance_state": 2,
        "throttle.power_cap": 0.0,
        "throttled.power_cap": False,
        "processes": [],
    },
}
"""By file, values of its first device, copied by hand; None: the value is absent."""


@pytest.mark.parametrize("path", samples(*(f"nvidia/{name}" for name in RECORDED)))
def test_recorded_nvidia_smi_output_has_the_expected_values(path: Path) -> None:
    document = parse(path.read_bytes())
    (device,) = document.devices
    assert (document.problem, device.lost) == (None, None)
    found: dict[str, object] = {
        **device.numbers,
        **device.flags,
        "driver": document.driver_version,
        "cuda": document.cuda_version,
        "processes": [(each.pid, each.type, each.memory) for each in device.processes],
        "instances": [
            (
                each.index,
                each.gpu_instance,
                each.compute_instance,
                each.numbers["memory.total"],
                each.numbers["memory.used"],
                each.numbers["sram.uncorrected"],
            )
            for each in device.instances
        ],
    }
    for fact in ("uuid", "name", "serial", "vbios", "bdf", "minor", "addressing", "recovery"):
        found[fact] = getattr(device, fact)
    expected = RECORDED[path.name]
    assert {key: found.get(key) for key in expected} == expected
