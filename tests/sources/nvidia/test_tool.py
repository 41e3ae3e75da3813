"""nvidia-smi: every schema of its XML, malformed output, and failures of the tool.

The files in ``nvidia/smi`` are written by hand in the tool's format. Their expected output was checked by hand.
``pytest tests/sources/nvidia/test_tool.py --rewrite`` writes it again. Review the diff.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.samples import samples

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import Device, DeviceFailed
from opentelemetry.instrumentation.hardware.accelerators.fields import Field
from opentelemetry.instrumentation.hardware.accelerators.sleep import RuntimePower
from opentelemetry.instrumentation.hardware.drivers.child import Output
from opentelemetry.instrumentation.hardware.drivers.subprocess import Command, Tool
from opentelemetry.instrumentation.hardware.model import Point, Rate, Series, Unavailable
from opentelemetry.instrumentation.hardware.sources.nvidia import fields as f
from opentelemetry.instrumentation.hardware.sources.nvidia.jetson import Host, Jetson
from opentelemetry.instrumentation.hardware.sources.nvidia.tool import SmiGpu, SmiInstance
from opentelemetry.instrumentation.hardware.sources.nvidia.tool_output import TOOL, Document, parse, plausible, run

FOLDER = Path(__file__).parent / "smi"
CAPTURES = sorted(FOLDER.glob("*.xml"))
MIB = 1 << 20

FACTS = (c.HW_MODEL, c.HW_SERIAL_NUMBER, c.HW_FIRMWARE_VERSION, c.PCI_BDF, c.GPU_TYPE)
SPELLINGS = {**f.XML, **f.XML_REASONS}
HOST = Host(RuntimePower(None, ()), Jetson(None), lambda: 128 << 30)


def gpus_of(document: Document) -> list[SmiGpu]:
    """The GPUs of a document."""
    gpus = []
    for index, element in enumerate(document.gpus):
        gpu = SmiGpu(element.findtext("uuid") or f"gpu{index}", index, HOST)
        gpu.update(element, document.driver)
        gpus.append(gpu)
    return gpus


def name(series: Series) -> str:
    """A metric with the attributes that distinguish its series: ``temperature gpu``."""
    identity = (c.HW_ID, c.HW_NAME, c.HW_TYPE, c.HW_PARENT)
    words = [str(word) for key, word in series.attributes.items() if key not in identity]
    return " ".join([series.metric.name.removeprefix("hw.").removeprefix("gpu."), *words])


DERIVED = (
    *(c.HW_GPU_MEMORY_PEAK, c.HW_GPU_MEMORY_UTILIZATION, c.HW_POWER_PEAK, c.HW_POWER_UTILIZATION, c.HW_ENERGY),
    *(c.HW_TEMPERATURE_PEAK, c.HW_GPU_UTILIZATION_PEAK, c.HW_GPU_TIME),
)


def values(device: SmiGpu | SmiInstance) -> dict[str, object]:
    """What is read of a device, without what is derived from it; throttling now is a Rate."""
    points: list[Point] = [*device.read()]
    components = {"memory": " of memory", "module": " of module"}
    return {
        name(series) + components.get(str(series.attributes.get(c.HW_TYPE)), ""): value
        for series, value in points
        if series.metric not in DERIVED
    }


def reasons(device: Device) -> dict[str, str]:
    """Why something is not read, without what the tool does not report."""
    found = {name(key) if isinstance(key, Series) else key: reason for key, reason in device.unsupported.items()}
    return {key: reason for key, reason in found.items() if "does not report" not in reason}


# -- Every schema.


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_parsed_document_matches_its_expected_file(path: Path, rewrite: bool) -> None:
    found = "\n".join([*described(parse(path.read_bytes())), ""])
    beside = path.with_suffix(".expected")
    if rewrite:
        beside.write_text(found, encoding="utf-8")
    assert found.splitlines() == beside.read_text(encoding="utf-8").splitlines(), beside.name


def described(document: Document) -> Iterator[str]:
    yield f"driver {document.driver}"
    if document.problem:
        yield f"problem: {document.problem}"
    for gpu in gpus_of(document):
        yield f"\n{gpu.name}: {gpu.id}"
        yield from (f"  {fact}: {gpu.facts[fact]}" for fact in FACTS if fact in gpu.facts)
        try:
            found = values(gpu)
        except DeviceFailed as failed:
            yield f"  failed: {failed}"
            continue
        yield f"  state: {gpu.state}{', divided' * gpu.is_divided}"
        refused = reasons(gpu)
        where = {name(field.series): spelling for field, spelling in spelled(gpu).items()}
        yield from (f"  {key} = {value!r}    ({where.get(key, 'host')})" for key, value in found.items())
        yield from (f"  {key}: {reason}" for key, reason in refused.items())
        for part in gpu.parts.values():
            yield f"  {part.name}: {part.id}, {', '.join(part.aliases)}"
            yield from (f"    {key} = {value!r}" for key, value in values(part).items())
        for device in (gpu, *gpu.parts.values()):
            for pid, used in device.users.items():
                yield f"  process {pid} of {device.name}: {'memory unknown' if used is None else f'{used} By'}"


def has_value(gpu: SmiGpu, field: Field, spelling: str) -> bool:
    try:
        plausible(gpu.texts, field, [spelling])
    except ValueError:
        return False
    return True


def spelled(gpu: SmiGpu) -> dict[Field, str]:
    """By field, the element that its value is read from; that of throttling now only without a counter."""
    found: dict[Field, str] = {}
    for field, spellings in SPELLINGS.items():
        for spelling in spellings:
            if spelling in gpu.texts if field in f.XML_REASONS else has_value(gpu, field, spelling):
                found.setdefault(field, spelling)
    counted = {field.series for field in found if field in f.XML}
    return {field: at for field, at in found.items() if field in f.XML or field.series not in counted}


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_xml_document_says_that_it_is_written_by_hand(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    driver = re.search("<driver_version>([^< ]*)", text)
    assert driver is not None
    assert f"<!-- Written by hand, as driver {driver[1]} (schema {path.stem.partition('-')[0]}) prints it." in text


def test_every_field_is_in_some_xml_document() -> None:
    gpus = [gpu for path in CAPTURES for gpu in gpus_of(parse(path.read_bytes()))]
    assert {name(field.series) for gpu in gpus for field in spelled(gpu)} == {name(field.series) for field in SPELLINGS}


# Spellings that are tested below: documents that have them also have one that is preferred.
ELSEWHERE = {
    "ecc_errors/aggregate/double_bit/total",
    "ecc_errors/aggregate/single_bit/total",
}


def test_every_xml_spelling_is_in_some_document() -> None:
    gpus = [gpu for path in CAPTURES for gpu in gpus_of(parse(path.read_bytes()))]
    known = {spelling for spellings in f.XML.values() for spelling in spellings}
    assert known - {spelling for gpu in gpus for spelling in spelled(gpu).values()} == ELSEWHERE


# -- Single elements.


def _of(*elements: str, around: str = "<nvidia_smi_log><gpu>{}</gpu></nvidia_smi_log>") -> SmiGpu:
    """The GPU of a document with these elements, each written as ``a/b=text``."""
    parts = []
    for element in elements:
        path, _, text = element.partition("=")
        names = path.split("/")
        parts.append("".join(f"<{name}>" for name in names) + text + "".join(f"</{name}>" for name in names[::-1]))
    (gpu,) = gpus_of(parse(around.format("".join(parts)).encode()))
    return gpu


@pytest.mark.parametrize(
    ("element", "quantity", "value"),
    [
        ("utilization/gpu_util=04 %", "utilization general", 0.04),
        ("utilization/gpu_util=  29 %\n", "utilization general", 0.29),
        ("utilization/gpu_util=100%", "utilization general", 1.0),
        ("fb_memory_usage/total=81559 MiB", "memory.limit", 81559 * MIB),
        ("temperature/gpu_temp=0 C", "temperature gpu", 0),
        ("temperature/gpu_temp=[ 27 C ]", "temperature gpu", 27),
        ("power_readings/power_draw=8.93 W", "power", 8.93),
        ("ecc_errors/aggregate/sram_uncorrectable=3", "errors sram_uncorrected", 3),
        ("voltage/graphics_volt=881.250 mV", "voltage gpu", 0.88125),
        ("pci/pci_gpu_link_info/pcie_gen/current_link_gen=5", "pcie.generation", 5),
        ("pci/pci_gpu_link_info/link_widths/max_link_width=16x", "pcie.width.limit", 16),
        ("gpu_recovery_action=Drain and Reset", "recovery_action", 4),
        ("clocks/sm_clock=1410 MHz", "frequency sm", 1_410_000_000),
        ("performance_state=P15", "performance_state", 15),
        ("fan_speed=104 %", "fan.speed_ratio", 1.04),
        ("pci/replay_counter=17", "errors pcie_replay", 17),
        ("ecc_errors/aggregate/single_bit/total=5", "errors corrected", 5),
        ("ecc_errors/aggregate/double_bit/total=6", "errors uncorrected", 6),
        ("ecc_errors/aggregate/dram_uncorrectable=4294967294", "errors uncorrected", 2**32 - 2),
        ("clocks_event_reasons/clocks_event_reason_sw_power_cap=Not Active", "throttle.time power_cap", Rate(0)),
        (
            "clocks_event_reasons_counters/clocks_event_reasons_counters_sw_power_cap=1500000 us",
            "throttle.time power_cap",
            1.5,
        ),
    ],
)
def test_xml_value_is_parsed(element: str, quantity: str, value: object) -> None:
    gpu = _of(element)
    found = values(gpu)
    assert found == {quantity: value}
    assert type(found[quantity]) is type(value)
    assert quantity not in reasons(gpu)


@pytest.mark.parametrize(
    ("element", "state"),
    [
        ("retired_pages/pending_blacklist=Yes", "degraded"),
        ("retired_pages/pending_retirement=Yes", "degraded"),
        ("remapped_rows/remapped_row_pending=Yes", "degraded"),
        ("remapped_rows/remapped_row_failure=Yes", "degraded"),
        ("remapped_rows/remapped_row_failure=Perhaps", "ok"),
        ("remapped_banks/bank_remapper_pending=Yes", "degraded"),
        ("gpu_reset_status/reset_required=Yes", "degraded"),
        ("gpu_reset_status/reset_required=No", "ok"),
        ("gpu_recovery_action=None", "ok"),
        ("gpu_recovery_action=N/A", "ok"),
        ("gpu_recovery_action=Node Reboot", "degraded"),
        ("ecc_errors/channel_repair_pending=Yes", "degraded"),
        ("ecc_errors/tpc_repair_pending=Yes", "degraded"),
        ("ecc_errors/tpc_repair_pending=No", "ok"),
        ("ecc_errors/unrepairable_memory=Yes", "degraded"),
        ("ecc_errors/unrepairable_memory=N/A", "ok"),
        ("ecc_errors/aggregate/sram_threshold_exceeded=Yes", "degraded"),
    ],
)
def test_pending_repair_is_state_degraded(element: str, state: str) -> None:
    assert _of(element).state == state


def test_power_of_three_times_the_highest_limit_is_refused() -> None:
    readings = {"average_power_draw": 588.12, "instant_power_draw": 588.3, "max_power_limit": 95.0}
    gpu = _of(*(f"gpu_power_readings/{name}={watts} W" for name, watts in readings.items()))
    assert values(gpu) == {"power.limit max": 95.0}
    assert reasons(gpu)["power"] == "the driver reports 588.12 W, and 95 W as the most that it allows"


def test_instant_power_stands_in_for_the_mean() -> None:
    assert values(_of("gpu_power_readings/instant_power_draw=31.00 W")) == {"power": 31.0, "power.instant": 31.0}


def test_sram_errors_of_old_documents_are_a_difference() -> None:
    counts = {
        "single_bit/total": 9,
        "single_bit/device_memory": 7,
        "double_bit/total": 1,
        "double_bit/device_memory": 2,
    }
    gpu = _of(*(f"ecc_errors/aggregate/{name}={count}" for name, count in counts.items()))
    found = {"errors corrected": 7, "errors uncorrected": 2, "errors sram_corrected": 2}
    assert values(gpu) == found, "a difference below 0 is none"


@pytest.mark.parametrize(
    ("elements", "state"),
    [
        (["fabric/state=Completed", "fabric/status=Success", "fabric/health/summary=N/A"], "ok"),
        (["fabric/state=Completed", "fabric/status=Success", "fabric/health/summary=Healthy"], "ok"),
        (["fabric/state=Completed", "fabric/status=Success", "fabric/health/route_unhealthy=True"], "degraded"),
        (["fabric/state=Completed", "fabric/status=Success", "fabric/health/summary=Unhealthy"], "degraded"),
        (["fabric/state=In Progress", "fabric/status=N/A"], "degraded"),
        (["fabric/state=Completed", "fabric/status=Unknown Error"], "ok"),
        (["fabric/state=Completed", "fabric/status=Insufficient Resources"], "failed"),
        (["fabric/state=N/A", "fabric/status=N/A"], ""),
    ],
)
def test_state_of_the_fabric(elements: list[str], state: str) -> None:
    points = [*_of(*elements).identity_points()]
    found = [
        series.attributes[c.HW_STATE]
        for series, value in points
        if series.attributes.get(c.HW_TYPE) == "network" and value
    ]
    assert found == [state] * bool(state)


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
    "5 C",
    "% 5",
    "5 % 5 %",
    "٣ %",
    "9" * 5000 + " %",
]


@pytest.mark.parametrize("text", REFUSED)
def test_text_that_is_no_percentage_is_refused(text: str) -> None:
    gpu = _of(f"utilization/gpu_util={text}", "temperature/gpu_temp=27 C")
    assert values(gpu) == {"temperature gpu": 27}
    assert reasons(gpu) == {"utilization general": f"the driver reports {text.strip('[]')[:60]!r}"}


@pytest.mark.parametrize(
    ("element", "quantity"),
    [
        ("utilization/memory_util=101 %", "utilization memory"),
        ("utilization/encoder_util=4294967295 %", "utilization encoder"),
        ("fan_speed=201 %", "fan.speed_ratio"),
        ("fb_memory_usage/total=0 MiB", "memory.limit"),
        ("fb_memory_usage/total=17592186044415 MiB", "memory.limit"),
        ("temperature/gpu_temp=151 C", "temperature gpu"),
        ("temperature/gpu_temp_max_threshold=0 C", "temperature.limit gpu high.critical"),
        ("power_readings/power_draw=4294967.29 W", "power"),
        ("gpu_power_readings/current_power_limit=0.00 W", "power.limit enforced"),
        ("clocks/sm_clock=4294967295 MHz", "frequency sm"),
        ("pci/replay_counter=4294967295", "errors pcie_replay"),
        ("ecc_errors/aggregate/dram_correctable=18446744073709551615", "errors corrected"),
        ("pci/replay_counter=1.5", "errors pcie_replay"),
        ("performance_state=P16", "performance_state"),
        ("performance_state=Unknown", "performance_state"),
    ],
)
def test_impossible_xml_value_is_refused(element: str, quantity: str) -> None:
    gpu = _of(element)
    assert values(gpu) == {}
    assert [*reasons(gpu)] == [quantity]


@pytest.mark.parametrize(
    "name", ["tlimit", "max_tlimit_threshold", "slow_tlimit_threshold", "max_gpu_tlimit_threshold"]
)
def test_tlimit_is_not_read_as_a_temperature(name: str) -> None:
    for text in ("-8 C", "0 C", "59 C"):
        gpu = _of(f"temperature/gpu_temp_{name}={text}")
        assert (values(gpu), reasons(gpu)) == ({}, {})


def test_error_sum_needs_all_its_parts() -> None:
    corrected, uncorrected = (f"remapped_rows/remapped_row_{kind}" for kind in ("corr", "unc"))
    assert values(_of(f"{corrected}=2", f"{uncorrected}=3")) == {"errors row_remap": 5}
    assert values(_of(f"{corrected}=2")) == {}
    half = _of(f"{corrected}=2", f"{uncorrected}=N/A")
    assert (values(half), reasons(half)) == ({}, {"errors row_remap": "the driver reports 'N/A'"})


def test_not_available_element_refuses_all_quantities_below_it() -> None:
    gpu = _of("remapped_rows=N/A", "ecc_errors=[Not Supported]", "pci=0", "gpu_power_readings=5.00 W")
    assert values(gpu) == {}, "and is never a value"
    refused = reasons(gpu)
    assert refused["errors row_remap"] == "the driver reports 'N/A'"
    assert refused["errors corrected"] == "the driver reports 'Not Supported'"


def test_first_valid_spelling_of_power_is_used() -> None:
    new, old = "gpu_power_readings/average_power_draw", "power_readings/power_draw"
    assert values(_of(f"{new}=10.00 W", f"{old}=9.00 W")) == {"power": 9.0}
    refused = _of(f"{new}=10.00 W", f"{old}=N/A")
    assert values(refused) == {"power": 10.0}
    assert reasons(refused) == {}


@pytest.mark.parametrize("total", ["0 MiB", "N/A", "Not Supported", ""])
def test_used_memory_without_a_total_is_refused(total: str) -> None:
    gpu = _of(f"fb_memory_usage/total={total}", "fb_memory_usage/used=0 MiB", "processes=")
    assert values(gpu) == {}
    assert reasons(gpu)["memory.usage"] == "the total is missing"


def test_used_memory_above_the_total_is_refused() -> None:
    gpu = _of("fb_memory_usage/total=100 MiB", "fb_memory_usage/used=101 MiB")
    assert values(gpu) == {"memory.limit": 100 * MIB}
    assert reasons(gpu) == {"memory.usage": "the driver reports 105906176 of 104857600 bytes in use"}


def test_throttling_counter_of_the_first_document_is_not_replaced_by_the_flag() -> None:
    counter = "clocks_event_reasons_counters/clocks_event_reasons_counters_sw_power_cap"
    flag = "clocks_event_reasons/clocks_event_reason_sw_power_cap"

    def document(text: str) -> Document:
        folder, element = counter.split("/")
        other, below = flag.split("/")
        parts = f"<{folder}><{element}>{text}</{element}></{folder}><{other}><{below}>Active</{below}></{other}>"
        return parse(f"<nvidia_smi_log><gpu>{parts}</gpu></nvidia_smi_log>".encode())

    (gpu,) = gpus_of(document("1500000 us"))
    assert values(gpu) == {"throttle.time power_cap": 1.5}
    gpu.update(document("N/A").gpus[0], "")
    assert values(gpu) == {}
    (other,) = gpus_of(document("N/A"))
    assert values(other) == {"throttle.time power_cap": Rate(1)}
    other.update(document("1500000 us").gpus[0], "")
    assert values(other) == {"throttle.time power_cap": Rate(1)}


# -- Identity.


@pytest.mark.parametrize(
    ("text", "bdf"),
    [
        ("00000000:1A:00.0", "0000:1a:00.0"),
        ("0000:01:00.0", "0000:01:00.0"),
        ("00000001:00:1E.7", "0001:00:1e.7"),
        ("00010000:05:00.0", "10000:05:00.0"),
        ("N/A", ""),
        ("1A:00.0", ""),
        ("00000000:1G:00.0", ""),
    ],
)
def test_pci_address_is_written_like_the_kernels(text: str, bdf: str) -> None:
    assert _of(f"pci/pci_bus_id={text}").address == bdf
    (gpu,) = gpus_of(parse(f'<nvidia_smi_log><gpu id="{text}"></gpu></nvidia_smi_log>'.encode()))
    assert gpu.address == bdf


@pytest.mark.parametrize(
    "text", ["N/A", "[N/A]", "[REDACTED]", "REDACTED", "None", "", "  ", "Unknown Error", "GPU is lost"]
)
def test_placeholder_text_of_a_fact_is_left_out(text: str) -> None:
    gpu = _of(*(f"{name}={text}" for name in ("product_name", "serial", "uuid", "vbios_version")))
    assert gpu.facts == {c.HW_VENDOR: "NVIDIA", c.GPU_INDEX: 0, c.GPU_TYPE: "discrete"}


# -- MIG devices and processes.


def test_mig_devices_with_uuid_are_parsed() -> None:
    one = (
        "<mig_device><index>3</index><gpu_instance_id>5</gpu_instance_id><compute_instance_id>1</compute_instance_id>"
        "<uuid>MIG-5c89852c-d268-c3f3-1b07-005d5ae1dc3f</uuid></mig_device>"
    )
    broken = "<mig_device><index>N/A</index></mig_device>"
    gpu = _of("uuid=GPU-1", f"mig_devices={broken}{one}")
    ((slot, part),) = gpu.parts.items()
    assert (slot, part.id, part.aliases) == (3, "MIG-5c89852c-d268-c3f3-1b07-005d5ae1dc3f", ("MIG-GPU-1/5/1",))
    assert (gpu.is_divided, part.parent, part.facts[c.GPU_TYPE]) == (True, "GPU-1", "partition")
    old = one.replace("MIG-5c89852c-d268-c3f3-1b07-005d5ae1dc3f", "MIG-GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f/5/1")
    (part,) = _of(f"mig_devices={old}").parts.values()
    assert part.id == "MIG-GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f/5/1"


def test_process_without_pid_is_left_out_and_without_memory_is_kept() -> None:
    processes = "".join(
        f"<process_info><pid>{pid}</pid><type>{kind}</type><used_memory>{used}</used_memory></process_info>"
        for pid, kind, used in [("12", "C", "5 MiB"), ("N/A", "C", "5 MiB"), ("0", "C", "1 MiB"), ("13", "C+G", "N/A")]
    )
    assert _of(f"processes={processes}").users == {12: 5 * MIB, 13: None}


@pytest.mark.parametrize(("pid", "usage"), [("12", 5 * MIB), ("0", None), ("N/A", None)])
def test_shared_memory_is_unknown_if_a_process_has_no_pid(pid: str, usage: int | None) -> None:
    process = f"<process_info><pid>{pid}</pid><type>C</type><used_memory>5 MiB</used_memory></process_info>"
    gpu = _of("fb_memory_usage/total=N/A", "fb_memory_usage/used=N/A", f"processes={process}")
    assert values(gpu).get("memory.usage") == usage
    assert ("memory.usage" in reasons(gpu)) == (usage is None)


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
    with pytest.raises(DeviceFailed, match=re.escape(reason.strip("[]"))):
        values(device)
    assert (device.users, device.parts) == ({}, {})


def test_gpu_with_only_unknown_errors_is_lost() -> None:
    broken = _of("utilization/gpu_util=Unknown Error", "fan_speed=Unknown Error", "clocks/sm_clock=N/A")
    with pytest.raises(DeviceFailed, match="Unknown Error"):
        values(broken)
    assert values(_of("utilization/gpu_util=Unknown Error", "fan_speed=30 %")) == {"fan.speed_ratio": 0.3}


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_truncated_document_keeps_the_complete_gpus(path: Path) -> None:
    printed = path.read_bytes()
    whole = shown(parse(printed))
    begin, end = printed.index(b"<nvidia_smi_log>"), printed.find(b"</nvidia_smi_log>")
    for cut in range(begin + len("<nvidia_smi_log>"), end if end > 0 else len(printed), 173):
        part = parse(printed[:cut])
        complete = printed[:cut].count(b"</gpu>")
        assert shown(part)[1:] == whole[1 : complete + 1]
        assert f"ends after {complete} of" in part.problem


def shown(document: Document) -> list[str]:
    """A document in comparable form: its head, and each GPU."""
    return "\n".join(described(document._replace(problem=""))).split("\n\n")


# -- Malformed and hostile documents.


def test_last_of_several_documents_is_used() -> None:
    first, second = (FOLDER / name for name in ("v10-v100.xml", "v13-h200.xml"))
    assert shown(parse(first.read_bytes() + second.read_bytes())) == shown(parse(second.read_bytes()))
    assert shown(parse(b"warning\n" * 3 + second.read_bytes() + b"\nSegmentation fault\n")) == shown(
        parse(second.read_bytes())
    )


@pytest.mark.parametrize(
    "name", [b"\xff\xfe\x00\x01", b"a & b < c > d", b"</x></gpu>", b"\x1b[31m", "köln".encode(), b""]
)
def test_any_process_name_is_parsed(name: bytes) -> None:
    printed = (FOLDER / "v13-h200.xml").read_bytes()
    assert b"./gpu_burn" in printed
    assert shown(parse(printed.replace(b"./gpu_burn", name))) == shown(parse(printed))


def test_malformed_clock_table_loses_nothing_else() -> None:
    printed = (FOLDER / "v12-l40s.xml").read_bytes()
    broken = printed.replace(b"<value>9001 MHz</value>", b"9001 MHz</value>")
    assert broken != printed
    assert shown(parse(broken)) == shown(parse(printed))


def test_xml_comments_are_ignored() -> None:
    printed = (FOLDER / "v13-h200.xml").read_bytes()
    assert shown(parse(printed.replace(b"<fan_speed>", b"<!-- fans & more -->\n<fan_speed>"))) == shown(parse(printed))


BOMB = b"""<?xml version="1.0"?>
<!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY n "1">%s]>
<nvidia_smi_log><gpu><pci><replay_counter>%s</replay_counter></pci></gpu></nvidia_smi_log>"""


@pytest.mark.parametrize("value", [b"&b;", b"&n;", b"&file;"])
def test_xml_entities_are_never_expanded(value: bytes) -> None:
    document = parse(BOMB % (b'<!ENTITY file SYSTEM "file:///etc/hostname">', value))
    assert document.gpus == []
    assert document.problem.startswith("the output of nvidia-smi ends after 0 of some GPUs: undefined entity")


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
    assert document.gpus == []
    assert document.problem


# -- Exit codes and failures of the tool.


class _Said:
    """A command with fixed output."""

    def __init__(self, code: int, stdout: bytes, stderr: bytes = b"") -> None:
        self._output = Output(code, stdout, stderr)

    def run(self, arguments: list[str], seconds: float) -> Output:
        assert (arguments, seconds) == (["-q", "-x"], 10.0)
        return self._output


def _run(code: int, stdout: bytes, stderr: bytes = b"") -> Document:
    return run(_Said(code, stdout, stderr))  # type: ignore[arg-type]


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
        _run(code, printed)
    assert gone.value.reason == printed.decode().strip()[:200]
    assert gone.value.fix == fix


@pytest.mark.parametrize(
    ("code", "stdout", "stderr", "sentence"),
    [
        (18, b"Failed to initialize NVML: Driver/library version mismatch\n", b"", "Failed to initialize NVML"),
        (-11, b"", b"", "nvidia-smi prints 'nothing' and exits with -11"),
        (1, b"\n\x00\x01\n", b"cannot open display\n", "nvidia-smi prints 'cannot open display' and exits with 1"),
        (0, b"", b"", "nvidia-smi prints 'nothing' and exits with 0"),
        (2, b"Invalid combination of input arguments\n" * 1000, b"", "Invalid combination .* exits with 2"),
    ],
)
def test_output_without_document_is_an_error_with_its_text(
    code: int, stdout: bytes, stderr: bytes, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        _run(code, stdout, stderr)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("code", [0, 15, -11, 255])
def test_document_is_parsed_at_any_exit_code(code: int) -> None:
    printed = (FOLDER / "v12-lost.xml").read_bytes()
    assert shown(_run(code, printed)) == shown(parse(printed))


@pytest.mark.parametrize("code", [0, 9, -11, 139])
@pytest.mark.parametrize("end", ["<nvidia_smi_log>", "<gpu_temp>"])
def test_document_that_ends_before_the_first_gpu_is_complete_is_an_error(code: int, end: str) -> None:
    printed = (FOLDER / "v13-h200.xml").read_bytes()
    with pytest.raises(ValueError, match=f"ends after 0 of .* GPUs: .*; it exits with {code}"):
        _run(code, printed[: printed.index(end.encode()) + len(end)])


def test_document_without_a_gpu_is_an_error_unless_the_tool_succeeds() -> None:
    printed = b"<nvidia_smi_log><driver_version>550.54</driver_version></nvidia_smi_log>"
    assert _run(0, printed) == Document("550.54", [])
    with pytest.raises(ValueError, match="prints no GPU; it exits with 255"):
        _run(255, printed)


@pytest.mark.parametrize("name", ["v13-h200.xml", "v12-wsl.xml", "v12-truncated.xml"])
def test_byte_order_mark_changes_nothing(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert shown(parse(text.encode("utf-8-sig"))) == shown(parse(text.encode()))


@pytest.mark.skipif(sys.platform == "win32", reason="starts a tool as POSIX has it")
def test_crashing_nvidia_smi_keeps_what_it_printed(tmp_path: Path) -> None:
    path = tmp_path / "nvidia-smi"
    path.write_text(f'#!/bin/sh\n[ "$*" = "-q -x" ] || exit 2\ncat "{FOLDER / "v12-truncated.xml"}"\nkill -SEGV $$\n')
    path.chmod(0o755)
    document = run(Command(TOOL._replace(path=str(path))))
    assert [gpu.address for gpu in gpus_of(document)] == ["0000:1a:00.0", "0000:1b:00.0"]
    assert document.problem == "the output of nvidia-smi ends after 2 of 4 GPUs: no element found"


def test_missing_nvidia_smi_is_unavailable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="nvidia-smi is not installed") as gone:
        Command(Tool(TOOL.name, folders=(str(tmp_path),), fix=TOOL.fix))
    assert gone.value.fix == "it comes with NVIDIA's driver"


# -- Output recorded on real GPUs by others, outside of this repository.

# By file, values of its first device, copied by hand; None: the value is absent.
RECORDED: dict[str, dict[str, object]] = {
    "telegraf_gtx-1660-ti.xml": {
        "driver": "418.43",
        "uuid": "GPU-304a277d-3545-63b8-3a36-dfde3c992989",
        "bdf": "0000:43:00.0",
        "serial": None,
        "vbios": "90.16.25.00.4C",
        "utilization general": 0.0,
        "utilization memory": 0.01,
        "memory.limit": 5912 * MIB,
        "memory.usage": 0,
        "temperature gpu": 40,
        "temperature memory": None,
        "temperature.limit gpu high.critical": 96,
        "power": 8.93,
        "power.limit enforced": 130.0,
        "frequency sm": 300_000_000,
        "frequency.limit memory": 4_001_000_000,
        "performance_state": 8,
        "errors corrected": None,
        "processes": [],
    },
    "telegraf_tesla-t4.xml": {
        "driver": "515.105.01",
        "bdf": "0000:00:1e.0",
        "fan.speed_ratio": None,
        "memory.limit": 15360 * MIB,
        "memory.usage": 1032 * MIB,
        "temperature.limit gpu max": 85,
        "power": 26.78,
        "power.limit default": 70.0,
        "frequency memory": 5_000_000_000,
        "frequency.limit memory": 5_001_000_000,
        "errors corrected": 0,
        "errors retired_page": 0,
        "processes": [(675, 22 * MIB), (5762, 1005 * MIB)],
    },
    "telegraf_a10g.xml": {
        "driver": "515.105.01",
        "name": "NVIDIA A10G",
        "fan.speed_ratio": 0.0,
        "performance_state": 8,
        "memory.limit": 23028 * MIB,
        "memory.usage": 22 * MIB,
        "temperature gpu": 17,
        "power": 25.58,
        "power.limit max": 300.0,
        "frequency video": 555_000_000,
        "errors retired_page": None,
        "errors row_remap": 0,
        "processes": [(725, 22 * MIB)],
    },
    "netdata_a100-sxm4-mig.xml": {
        "driver": "510.47.03",
        "bdf": "0000:00:04.0",
        "utilization general": None,
        "utilization encoder": None,
        "memory.limit": 40960 * MIB,
        "memory.usage": 38 * MIB,
        "temperature gpu": 36,
        "temperature memory": 44,
        "temperature.limit memory max": 95,
        "power": 66.92,
        "power.limit enforced": 400.0,
        "frequency graphics": 1_410_000_000,
        "errors uncorrected": 0,
        "errors row_remap": None,
        "throttle.time application_clocks": Rate(0),
        "instances": [(0, (1, 0), 19968 * MIB, 19 * MIB), (1, (2, 0), 19968 * MIB, 19 * MIB)],
        "processes": [],
    },
    "telegraf_rtx-3080-v12.xml": {
        "driver": "536.40",
        "serial": None,
        "utilization memory": 0.37,
        "utilization jpeg": 0.0,
        "memory.usage": 1128 * MIB,
        "temperature gpu": 31,
        "power": 22.78,
        "power.limit enforced": 336.0,
        "power.limit default": 320.0,
        "frequency sm": 210_000_000,
        "processes": [
            (835, 550 * MIB),
            (1481, 18 * MIB),
            (2214, 79 * MIB),
            (4044, 541 * MIB),
            (42416, 159 * MIB),
        ],
    },
    "telegraf_rtx-3080-v13.xml": {
        "driver": "595.58.03",
        "serial": None,
        "bdf": "0000:0c:00.0",
        "utilization general": 0.65,
        "utilization memory": 0.09,
        "memory.usage": 9184 * MIB,
        "power": 139.62,
        "power.limit enforced": 320.0,
        "power.limit max": 336.0,
        "temperature gpu": 27,
        "temperature.limit gpu high.degraded": 95,
        "frequency memory": 9_251_000_000,
        "performance_state": 2,
        "throttle.time power_cap": 0.0,
        "processes": [],
    },
}


@pytest.mark.parametrize("path", samples(*(f"nvidia/{name}" for name in RECORDED)))
def test_recorded_nvidia_smi_output_has_the_expected_values(path: Path) -> None:
    document = parse(path.read_bytes())
    (gpu,) = gpus_of(document)
    assert document.problem == ""
    found: dict[str, object] = {
        **values(gpu),
        "driver": document.driver,
        "processes": [*gpu.users.items()],
        "instances": [
            (slot, part.ids, values(part)["memory.limit"], values(part)["memory.usage"])
            for slot, part in gpu.parts.items()
        ],
        "uuid": gpu.id,
        "bdf": gpu.address,
        "name": gpu.facts.get(c.HW_MODEL),
        "serial": gpu.facts.get(c.HW_SERIAL_NUMBER),
        "vbios": gpu.facts.get(c.HW_FIRMWARE_VERSION),
    }
    expected = RECORDED[path.name]
    assert {key: found.get(key) for key in expected} == expected
