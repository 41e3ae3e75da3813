"""Apple chips: every format of each tool, implausible values, and tools that fail."""

from __future__ import annotations

import array
import json
import math
import os
import plistlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.children import PROGRAMS, run
from tests.samples import SAMPLES, needs_samples, samples
from tests.sources.macs import MACMONS, Mac, Running, agx, first_generation, plist, second_generation
from tests.sources.macs import accelerator as registered
from tests.sources.playing import Ahead
from tests.sources.reading import all_of, often, opened, value
from tests.stage import PATIENT
from tests.waiting import wait_for

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware import cli
from opentelemetry.instrumentation.hardware.accelerators.fields import QUANTITIES
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.drivers.streaming import StreamingCommand
from opentelemetry.instrumentation.hardware.drivers.subprocess import Command, Output
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.pipeline.runner import State
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import SourceContext
from opentelemetry.instrumentation.hardware.sources.apple import Apple, ioreg, macmon, stats
from opentelemetry.instrumentation.hardware.sources.apple.reading import Said
from opentelemetry.instrumentation.hardware.wandb.apple import Probe

if sys.platform != "win32":
    import fcntl
    import termios

GPU = {c.HW_ID: "gpu0", c.HW_NAME: "GPU 0"}
TYPED = {**GPU, c.HW_TYPE: "gpu"}
GENERAL = {**GPU, c.GPU_TASK: "general"}
LONG = 60.0

posix = pytest.mark.skipif(sys.platform == "win32", reason="starts a tool as POSIX has it")


# -- recorded output

RECORDED = {
    "apple_gpu_stats_v1_objc_legacy.json": (
        {
            "gpu0": {
                "utilization.general": 0.3,
                "memory.utilization": 0.12,
                "temperature.gpu": 42.5,
                "power": 7.3,
            }
        },
        {"utilization": 30.0, "allocated": 12.0, "temperature": 42.5, "watts": 7.3},
    ),
    "apple_gpu_stats_v2_swift_m1max.json": (
        {
            "gpu0": {
                "utilization.general": 0.29,
                "memory.used": 698499072,
                "temperature.gpu": (57.583431243896484 + 58.314537048339844 + 55.276527404785156 + 55.203269958496094)
                / 4,
                "errors.recovery": 0,
            },
            "host": {"host.power": 19.56780242919922},
        },
        {
            "utilization": 29.0,
            "allocated": 698499072 / 3188637696 * 100,
            "temperature": 56.594441413879395,
            "watts": 19.56780242919922,
        },
    ),
    "macmon_v0.6.1_pipe.json": (
        {
            "gpu0": {
                "utilization.scaled": 0.021497859,
                "frequency.graphics": 461_000_000,
                "temperature.gpu": 36.95167,
                "power": 0.017451683,
            },
            "gpu0/sram": {"power": 0.0009615385},
            "cpu": {"power": 0.20486385, "temperature.cpu": 43.73614},
            "ane": {"power": 0.0},
            "memory": {"power": 0.11635789},
            "host": {"host.power": 5.876533},
            "ecpu": {"speed": 1_181_000_000},
            "pcpu": {"speed": 1_974_000_000},
        },
        {"utilization": 2.1497859, "temperature": 36.95167, "watts": 0.017451683},
    ),
    "macmon_v0.8.2_pipe.json": (
        {
            "gpu0": {
                "utilization.general": 0.09,
                "utilization.scaled": 0.021497859,
                "frequency.graphics": 461_000_000,
                "temperature.gpu": 36.95167,
                "power": 0.017451683,
            },
            "gpu0/sram": {"power": 0.0009615385},
            "cpu": {"power": 0.20486385, "temperature.cpu": 43.73614},
            "ane": {"power": 0.0},
            "memory": {"power": 0.11635789},
            "host": {"host.power": 5.876533},
            "ecpu": {"speed": 1_100_000_000},
            "pcpu": {"speed": 1_800_000_000},
            "fan0": {"fan.speed": 999, "fan.ratio": 999 / 4900},
            "fan1": {"fan.speed": 1200, "fan.ratio": 1200 / 5200},
        },
        {"utilization": 2.1497859, "temperature": 36.95167, "watts": 0.017451683},
    ),
    "ioreg_IOAccelerator_M1Pro_macOS12.6.txt": (
        {"gpu0": {"utilization.general": 0.02, "memory.used": 340983808, "errors.recovery": 0}},
        {"utilization": 2.0, "allocated": 340983808 / 1214005248 * 100},
    ),
}
"""By file, its values, checked by hand."""


def _parse(name: str, text: bytes) -> Said:
    if name.startswith("ioreg"):
        return ioreg.parse(text)
    return stats.parse(text) if name.startswith("apple_gpu_stats") else macmon.parse(text)


@pytest.mark.parametrize("path", samples("apple/*"))
def test_recorded_tool_output_is_parsed(path: Path) -> None:
    text = path.read_bytes()
    parts, raw = RECORDED[path.name]
    said = _parse(path.name, _as_plist(text.decode()) if path.suffix == ".txt" else text)
    assert {part: dict(numbers) for part, numbers in said.parts.items()} == parts
    assert said.raw == pytest.approx(raw)


def _as_plist(text: str) -> bytes:
    """The output of ``ioreg -a`` made from that of ``ioreg``: the class, and the driver's statistics."""
    kind = re.search(r"<class (\w+),", text)
    rows = re.search(r'"PerformanceStatistics" = \{(.*)\}', text)
    assert kind is not None
    assert rows is not None
    numbers = {name: int(number) for name, number in re.findall(r'"([^"]+)"=(\d+)', rows[1])}
    return plistlib.dumps([{"IOObjectClass": kind[1], "PerformanceStatistics": numbers}])


@needs_samples
def test_every_recorded_apple_file_has_a_test() -> None:
    assert SAMPLES is not None
    assert {path.name for path in (SAMPLES / "apple").iterdir()} == set(RECORDED)


# -- plausibility


def _said(tool: str, **words: object) -> Mapping[str, Mapping[str, float]]:
    """The accepted values of a document that has only these keys."""
    try:
        return _parse(tool, json.dumps(words).encode()).parts
    except ValueError:
        return {}


@pytest.mark.parametrize(
    ("words", "gpu"),
    [
        ({"mem_used": 12.0, "utilization": 0.0}, {"memory.utilization": 0.12, "utilization.general": 0.0}),
        ({"mem_used": 0.0, "utilization": 0.0, "temperature": 0, "power": 0}, None),
        ({"mem_used": 0.0, "utilization": 7.0}, {"utilization.general": 0.07}),
        ({"temperature": 40.5, "utilization": 0}, {"temperature.gpu": 40.5, "utilization.general": 0.0}),
        ({"utilization": 101, "power": 3.5}, {"power": 3.5}),
        ({"utilization": True, "mem_used": "12", "temperature": 151, "power": -1}, None),
        ({"inUseSystemMemory": 0, "allocatedSystemMemory": 0, "utilization": 0, "recoveryCount": 0}, None),
        (
            {"inUseSystemMemory": 0, "allocatedSystemMemory": 9, "utilization": 0, "recoveryCount": 0},
            {"utilization.general": 0.0, "errors.recovery": 0},
        ),
        (
            {"inUseSystemMemory": 5, "m1Gpu1": 0, "m3Gpu8": 30.0, "m9Gpu1": 90.0},
            {"memory.used": 5, "temperature.gpu": 30.0},
        ),
        ({"inUseSystemMemory": 5.5, "gpuPower": 2}, {"power": 2}),
    ],
)
def test_apple_gpu_stats_values_that_were_not_measured_are_dropped(
    words: dict[str, object], gpu: dict[str, float] | None
) -> None:
    assert _said("apple_gpu_stats", **words) == ({"gpu0": gpu} if gpu else {})


SLOW = {"frequency.graphics": 338_000_000}


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ({"cpu_power": 0.0, "gpu_power": 0.0, "ane_power": 0.0, "sys_power": 0.0, "ram_power": 0.0}, {}),
        (
            {"cpu_power": 0.5, "gpu_power": 0.0, "ane_power": 0.0, "ram_power": 0.0},
            {"cpu": {"power": 0.5}, "gpu0": {"power": 0.0}, "ane": {"power": 0.0}},
        ),
        ({"cpu_power": 0.0, "gpu_power": 2.5}, {"gpu0": {"power": 2.5}}),
        ({"gpu_usage": [0, 0.0], "gpu_active_ratio": 0.0}, {}),
        ({"gpu_usage": [338, 0.0]}, {"gpu0": {"utilization.scaled": 0.0, **SLOW}}),
        ({"gpu_usage": [338, 0.5, 1], "pcpu_usage": 4}, {}),
        ({"gpu_freq_mhz": 338, "gpu_usage": [1, 1]}, {"gpu0": {"utilization.scaled": 1, **SLOW}}),
        ({"gpu_freq_mhz": 338, "gpu_active_ratio": 1.00001}, {"gpu0": {"utilization.general": 1.0, **SLOW}}),
        ({"gpu_active_ratio": 1.5, "gpu_freq_mhz": 1}, {"gpu0": {"frequency.graphics": 1_000_000}}),
        ({"temp": {"cpu_temp_avg": 0.0, "gpu_temp_avg": 150.5}}, {}),
        ({"fans": [{"rpm": 0, "max_rpm": 0}, {"rpm": 0, "max_rpm": 5}]}, {"fan1": {"fan.speed": 0, "fan.ratio": 0.0}}),
        ({"temp": [], "fans": [7], "soc": 3, "cpu_power": None}, {}),
    ],
)  # fmt: skip
def test_macmon_values_that_were_not_measured_are_dropped(
    words: dict[str, object], parts: dict[str, dict[str, float]]
) -> None:
    assert _said("macmon", **words) == parts


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(MACMONS["0.8.2"](2, 0), id="macmon"),
        pytest.param(second_generation(1), id="apple_gpu_stats"),
    ],
)
def test_nan_infinity_and_huge_integers_in_json_are_refused(words: dict[str, object]) -> None:
    parse = macmon.parse if "cpu_power" in words else stats.parse
    text = json.dumps(words)
    for number in ("NaN", "Infinity", "-Infinity"):
        broken = re.sub(r'("sys_power"|"systemPower"): [0-9.]+', rf"\1: {number}", text).encode()
        assert broken != text.encode()
        with pytest.raises(ValueError, match="which is no JSON"):
            parse(broken)
    huge = re.sub(r'("sys_power"|"systemPower"): [0-9.]+', r"\1: 1" + "0" * 400_000, text).encode()
    assert "host" not in parse(huge).parts
    assert parse(huge).parts["gpu0"]


@pytest.mark.parametrize(
    ("text", "error", "sentence"),
    [
        (b"{}", Unavailable, "apple_gpu_stats finds no GPU"),
        (b'{"vendor": "sppci_vendor_amd", "utilization": 3}', Unavailable, "a GPU of 'sppci_vendor_amd'"),
        (b"", ValueError, "it says nothing"),
        (b"Error serializing stats: too deep", ValueError, "it says 'Error serializing stats: too deep'"),
        (b'{"vendor": "Apple ", "uti', ValueError, "which is no JSON"),
        (b"[1, 2]", ValueError, "it says"),
        (b"{" * 100_000, ValueError, "which is no JSON"),
        (b'{"a":' * 100_000, ValueError, "which is no JSON"),
    ],
)
def test_invalid_apple_gpu_stats_output_raises_its_error(text: bytes, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=re.escape(sentence)):
        stats.parse(text)


BOMB = (
    b'<!DOCTYPE plist [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;">]>'
    b"<plist><array><string>&b;</string></array></plist>"
)


@pytest.mark.parametrize(
    ("text", "error", "sentence"),
    [
        (b" \n", Unavailable, "ioreg finds no GPU"),
        (plist(), Unavailable, "ioreg finds no GPU of Apple's, but nothing"),
        (plist(registered("IntelAccelerator", "x", {})), Unavailable, "but 'IntelAccelerator'"),
        (plist("<integer>3</integer>"), Unavailable, "but nothing"),
        (plist("<dict><key>IOClass</key><string>AGXAccelerator</string></dict>"), ValueError, "no Performance"),
        (plist(registered("AGXAcceleratorG13X", "x", {})), ValueError, "no number that can be true"),
        (b"usage: ioreg [-abfilrtx]", ValueError, "no property list"),
        (plist(registered("AGXAcceleratorG13X", "x", agx(1)))[:700], ValueError, "no property list"),
        (BOMB, ValueError, "no property list"),
        (b"bplist00\xd1\x01\x02", ValueError, "no property list"),
        (b"<plist>" + b"<array>" * 50_000, ValueError, "no property list"),
    ],
)  # fmt: skip
def test_invalid_ioreg_output_raises_its_error(text: bytes, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=re.escape(sentence)):
        ioreg.parse(text)


def test_ioreg_ignores_a_second_gpu_of_another_vendor() -> None:
    other = registered("AMDRadeonX6000_AMDNavi21GraphicsAccelerator", "AMD", {"Device Utilization %": 77})
    own = registered("AGXAcceleratorG13X", "Apple M1", {"Device Utilization %": 7})
    said = ioreg.parse(plist(other, own))
    assert (said.model, said.parts) == ("Apple M1", {"gpu0": {"utilization.general": 0.07}})


# -- random input

DOCUMENTS = [
    *(json.dumps(said).encode() for tick in range(3) for said in (first_generation(tick), second_generation(tick))),
    *(json.dumps(says(tick, 0)).encode() for says in MACMONS.values() for tick in range(3)),
    *(plist(registered("AGXAcceleratorG13X", "Apple M1", agx(tick))) for tick in range(3)),
]

ZERO = {
    "utilization.general": (b"utilization", b"gpu_active_ratio", b"Device Utilization %"),
    "utilization.scaled": (b"gpu_usage", b"gpu_scaled_ratio"),
    "power": (b"gpu_power", b"ane_power"),
    "errors.recovery": (b"recoveryCount",),
    "fan.speed": (b"rpm",),
    "fan.ratio": (b"rpm",),
}
"""The quantities that may be 0, and the keys that they are printed under."""


def _look(text: bytes) -> None:
    """Assert that each reader raises only its own errors and returns only plausible values."""
    for parse in (stats.parse, macmon.parse, ioreg.parse):
        try:
            said = parse(text)
        except (ValueError, Unavailable):
            continue
        numbers = [(part, *row) for part, row_of in said.parts.items() for row in row_of.items()]
        assert numbers, "what says nothing is an error"
        assert all(numbers_of for numbers_of in said.parts.values())
        for _, quantity, number in numbers:
            assert quantity in QUANTITIES
            assert type(number) in (int, float)
            assert math.isfinite(number)
            assert 0 <= number < 1 << 63
            assert number <= 2 or "utilization" not in quantity
            if number == 0:
                assert any(word in text for word in ZERO[quantity]), f"{quantity} was not spelled"
        assert all(0 <= number <= 5000 for number in said.raw.values())
        assert isinstance(said.model, str)
        assert said.model.isprintable()


@PATIENT
@given(st.binary(max_size=300))
@example(b"")
@example(b"\xff\xfe{")
def test_random_bytes_give_plausible_values_or_an_error(text: bytes) -> None:
    _look(text)


@st.composite
def _mutated(draw: st.DrawFn) -> bytes:
    """A document with a few pieces cut, doubled or exchanged."""
    text = draw(st.sampled_from(DOCUMENTS))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        end = min(len(text), at + draw(st.integers(0, 40)))
        piece = draw(
            st.one_of(
                st.sampled_from([b"", b"0", b"-", b"e9", b"null", b"{", b"<", text[at:end] * 2]), st.binary(max_size=6)
            )
        )
        text = text[:at] + piece + text[end:]
    return text


@PATIENT
@given(_mutated())
def test_mutated_documents_give_plausible_values_or_an_error(text: bytes) -> None:
    _look(text)


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False),
        st.text(max_size=8),
        st.just(0),
        st.just(0.0),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=6,
)
WORDS = sorted({name for text in DOCUMENTS if text[:1] == b"{" for name in json.loads(text)} | {"fans", "temp", "soc"})


@PATIENT
@given(st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=12))
@example({"gpu_freq_mhz": 1e-33})
def test_random_json_values_give_plausible_values_or_an_error(words: dict[str, object]) -> None:
    _look(json.dumps(words).encode())


@PATIENT
@given(
    st.dictionaries(
        st.sampled_from(sorted(agx(0))), st.one_of(st.integers(-(1 << 63), (1 << 64) - 1), st.floats(), st.text("ab"))
    )
)
def test_random_registry_values_give_plausible_values_or_an_error(numbers: dict[str, object]) -> None:
    _look(plistlib.dumps([{"IOObjectClass": "AGXAcceleratorG13X", "model": "x", "PerformanceStatistics": numbers}]))


# -- real children

TOOLS = ("apple_gpu_stats", "macmon", "ioreg")


@pytest.fixture
def tool(tmp_path: Path) -> Callable[..., str]:
    """Makes a stand-in for a tool that works or fails in some way; returns its path."""

    def make(name: str, how: str = "works") -> str:
        path = tmp_path / name
        line = f'{sys.executable} {PROGRAMS / "apple_tool.py"} {name} {how} "$@"'
        if (name, how) == ("ioreg", "works"):  # at once: doctor waits for three seconds
            said = subprocess.run(line, shell=True, env={"APPLE_POWER": ""}, stdout=subprocess.PIPE, check=True).stdout
            (tmp_path / "said").write_bytes(said)
            line = f"cat {tmp_path / 'said'}"
        version = "" if how == "hangs" else '[ "$1" = --version ] && exec echo macmon 0.8.2'
        path.write_text(f"#!/bin/sh\n{version}\nAPPLE_POWER={tmp_path}/power exec {line}\n")
        path.chmod(0o755)
        return str(path)

    return make


@pytest.fixture(autouse=True)
def timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short timeouts for tools that hang; for all others as long as a busy machine needs."""
    monkeypatch.setattr("opentelemetry.instrumentation.hardware.drivers.streaming._FIRST_LINE", LONG)
    run, read = Command.run, StreamingCommand.read

    def is_made(command: Command, how: str) -> bool:
        return f" {how} " in Path(command._path).read_text()

    def run_to_its_end(command: Command, arguments: Sequence[str], seconds: float) -> Output:
        return run(command, arguments, 0.1 if is_made(command, "hangs") else LONG)

    def listen(stream: StreamingCommand, seconds: float = 0.0) -> list[bytes]:
        return read(stream, 0.1 if is_made(stream._command, "silent") else LONG if seconds else 0.0)

    monkeypatch.setattr(Command, "run", run_to_its_end)
    monkeypatch.setattr(StreamingCommand, "read", listen)


@posix
def test_no_tool_is_run_on_other_systems_unless_named(
    tool: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in TOOLS:
        tool(name)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(Drivers, "command", None)
    monkeypatch.setattr(Drivers, "stream", None)
    if sys.platform == "darwin":
        pytest.skip("this is a Mac")
    with pytest.raises(Unavailable, match=r"^this is no Mac$"), opened("apple"):
        pass
    assert not Probe(Config(), os.getpid()).expected


@posix
def test_each_tool_can_be_named_by_its_path(tool: Callable[..., str]) -> None:
    with opened("apple", apple_gpu_stats=tool("apple_gpu_stats")) as source:
        said = all_of(source)
        assert value(said, c.HW_GPU_UTILIZATION, GENERAL) == 0.3
        assert value(said, c.HW_POWER, TYPED) == 7.5
        assert source.min_interval == 10.0
    with opened("apple", ioreg=tool("ioreg")) as source:
        said = all_of(source)
        assert value(said, c.HW_GPU_UTILIZATION, GENERAL) == 0.2
        assert value(said, c.HW_GPU_MEMORY_USAGE, GPU) == 300_000_000
        assert any("hw.power of the GPU" in sentence and "ioreg" in sentence for sentence in source.unsupported)
    with opened("apple", macmon=tool("macmon"), sample_interval="1") as source:
        said = all_of(source)
        assert value(said, c.HW_GPU_UTILIZATION, GENERAL) == 0.5
        assert value(said, c.HW_HOST_POWER, {c.HW_ID: "host", c.HW_NAME: "machine"}) == 11.0
        assert source.min_interval == 1.0
        wait_for(lambda: often(source), LONG, "another line")


@posix
def test_named_tools_are_tried_in_order_of_preference(tool: Callable[..., str]) -> None:
    named: dict[str, Any] = {name: tool(name) for name in TOOLS}
    with opened("apple", **named) as source:
        assert value(all_of(source), c.HW_POWER, TYPED) == 7.5
    with opened("apple", **{**named, "apple_gpu_stats": "off"}) as source:
        assert value(all_of(source), c.HW_POWER, TYPED) == 2.5


FAULTS = {
    ("apple_gpu_stats", "hangs"): "apple_gpu_stats timed out after 0.1 s",
    ("apple_gpu_stats", "dies"): "apple_gpu_stats: it says",
    ("apple_gpu_stats", "floods"): "apple_gpu_stats printed more than 16 MiB",
    ("apple_gpu_stats", "refuses"): "apple_gpu_stats: it says nothing",
    ("macmon", "hangs"): "macmon timed out after 0.1 s",
    ("macmon", "silent"): "macmon says nothing",
    ("macmon", "floods"): "macmon printed a line of more than 8 MiB",
    ("macmon", "refuses"): "macmon exited: no such sensor",
}


@posix
@pytest.mark.usefixtures("no_child_is_left")
@pytest.mark.parametrize(("name", "how"), FAULTS, ids=map(" ".join, FAULTS))
def test_failing_tool_falls_back_to_ioreg(tool: Callable[..., str], name: str, how: str) -> None:
    settings: dict[str, Any] = {name: tool(name, how), "ioreg": tool("ioreg")}
    with opened("apple", **settings) as source:
        said = all_of(source)
        assert value(said, c.HW_GPU_MEMORY_USAGE, GPU) == 300_000_000
        assert all(FAULTS[name, how] in sentence for sentence in source.unsupported if "is asked" in sentence)
        assert any(sentence.startswith(f"ioreg is asked: {FAULTS[name, how]}") for sentence in source.unsupported)


@posix
@pytest.mark.parametrize("how", ["hangs", "dies", "floods", "garbage"])
def test_failing_ioreg_raises_an_error_that_is_retried(tool: Callable[..., str], how: str) -> None:
    with pytest.raises(OSError, match="ioreg"), opened("apple", ioreg=tool("ioreg", how)):
        pass
    with opened("apple", ioreg=tool("ioreg")) as source:
        assert all_of(source)
        tool("ioreg", how)
        with pytest.raises((OSError, ValueError), match="ioreg"):
            list(source.read())


@posix
@pytest.mark.parametrize("name", ["apple_gpu_stats", "macmon"])
def test_garbage_before_the_document_is_skipped(tool: Callable[..., str], name: str) -> None:
    settings: dict[str, Any] = {name: tool(name, "garbage"), "sample_interval": "1"}
    with opened("apple", **settings) as source:
        assert value(all_of(source), c.HW_POWER, TYPED) in (7.5, 2.5)


def test_macmon_is_given_up_after_21_lines_of_garbage() -> None:
    line = json.dumps(MACMONS["0.6.1"](1, 0)).encode()
    drivers = Mac(macmon=Running("0.6.1", [*[b"garbage"] * 20, line]))
    with opened("apple", drivers, sample_interval=10) as source:
        assert all_of(source)
    drivers = Mac(macmon=Running("0.6.1", [*[b"garbage"] * 21, line]))
    with pytest.raises(OSError, match="macmon: it says 'garbage'"), opened("apple", drivers, sample_interval=10):
        pass


@posix
@pytest.mark.usefixtures("no_child_is_left")
def test_macmon_that_dies_within_a_line_is_restarted_after_a_pause(tool: Callable[..., str]) -> None:
    drivers = Ahead()
    site = SourceContext(
        Config.read({"macmon": tool("macmon", "dies"), "sample_interval": "1"}, {}), drivers, os.getpid()
    )
    source = Apple(site)
    source.open()
    assert value(dict(source.read()), c.HW_POWER, TYPED) == 2.5
    with pytest.raises(ChildProcessError, match="macmon exited"):
        wait_for(lambda: [*source.read()], LONG, "line")
    source.close()
    tool("macmon")

    pauses: list[str] = []

    def back() -> bool:
        try:
            source.open()
        except OSError as pausing:
            pauses.append(str(pausing))
            drivers.seconds += 2  # the pause is one second
            return False
        return True

    wait_for(back, LONG, "macmon again")
    assert all(re.fullmatch("macmon exited; retry in [01] s", sentence) for sentence in pauses)
    assert value(dict(source.read()), c.HW_POWER, TYPED) == 2.5
    source.close()


@posix
def test_old_lines_of_a_blocked_macmon_are_skipped(tool: Callable[..., str], tmp_path: Path) -> None:
    """An unread pipe fills up, and its content is old."""
    with opened("apple", macmon=tool("macmon", "eager"), sample_interval="1") as source:
        assert value(all_of(source), c.HW_POWER, TYPED) == 2.5
        stream = source.context.drivers.stream(macmon.TOOL.with_setting(source.context.config.macmon))
        child = stream._child
        assert child is not None
        wait_for(lambda: _waiting(child._stdout) > 60_000, LONG, "full pipe")
        stream._last_read -= 3600.0
        (tmp_path / "new").write_text("9.5")
        (tmp_path / "new").rename(tmp_path / "power")  # atomically
        assert value(often(source), c.HW_POWER, TYPED) == 9.5


def _waiting(descriptor: int) -> int:
    """Unread bytes of a pipe."""
    size = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, size)
    return size[0]


@posix
def test_failure_and_recovery_of_macmon_are_logged_once_each(
    tool: Callable[..., str], caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", "opentelemetry.instrumentation.hardware")
    monkeypatch.setattr("opentelemetry.instrumentation.hardware.pipeline.runner.RETRY_DELAYS", (0.1,))
    settings = {"sources": "apple", "macmon": tool("macmon", "dies"), "sample_interval": "1"}
    drivers = Ahead()
    session = Session(Config.read(settings, {}), drivers=lambda name: drivers, environ={})
    session.start()
    try:
        (runner,) = session.runners
        wait_for(lambda: runner.state is State.FAILED, LONG, "macmon's end")
        tool("macmon")
        drivers.seconds += 2  # until then macmon is not started again: the pause is one second
        wait_for(lambda: runner.state is State.UP, LONG, "macmon's return")
    finally:
        session.close()
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "Source apple: ChildProcessError: macmon exited; its numbers are missing until it recovers",
        "Source apple has recovered",
    ]
    wait_for(lambda: not [*_running(tmp_path)], LONG, "end of macmon")


# -- the commands


@posix
def test_snapshot_prints_macmon_values_and_leaves_no_process(tool: Callable[..., str], tmp_path: Path) -> None:
    line = ["otel-hardware", "snapshot", "--format", "json", "--sources", "apple", "--window", "0.1"]
    child = run([*line, "--macmon", tool("macmon"), "--sample-interval", "1"])
    assert child.returncode == 0, child.stderr
    rows = {
        (row["name"], row["attributes"].get("hw.id"), row["attributes"].get("hw.gpu.task")): row["value"]
        for row in json.loads(child.stdout)["metrics"]
    }
    assert rows["hw.power", "cpu", None] == 4.5
    assert rows["hw.gpu.utilization", "gpu0", "general"] == 0.5
    assert rows["hw.host.power", "host", None] == 11.0
    assert not [*_running(tmp_path)]


@posix
def test_doctor_names_the_apple_tool_and_its_missing_metrics(
    tool: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["doctor", "--format", "json", "--sources", "apple", "--ioreg", tool("ioreg")])
    said = capsys.readouterr().out
    findings = [finding for finding in json.loads(said)["findings"] if finding["part"] == "sources"]
    texts = " ".join(f"{finding['subject']}: {finding['text']}" for finding in findings)
    assert "Apple M1 Pro" in texts
    assert "ioreg does not say this here" in texts


def _running(folder: Path) -> Iterator[int]:
    """The running tools of this test; another process may run the same test."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            settings = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if os.fsencode(f"APPLE_POWER={folder}/power") in settings.split(b"\0"):
            yield int(pid)


@posix
def test_wandb_reading_is_that_of_apple_gpu_stats(tool: Callable[..., str]) -> None:
    probe = Probe(Config.read({"apple_gpu_stats": tool("apple_gpu_stats")}, {}), os.getpid())
    assert probe.expected
    reading = {"utilization": 30.0, "allocated": 12.5, "temperature": 42.5, "watts": 7.5}
    assert probe.read() == {0: reading}
    tool("apple_gpu_stats", "refuses")
    assert not probe.read()
    assert "it says nothing" in probe.error
    tool("apple_gpu_stats")
    assert probe.read() == {0: reading}
    assert probe.error == ""
    probe.close()


# -- W&B's keys


@posix
@pytest.mark.parametrize(
    ("name", "keys"),
    [
        (
            "apple_gpu_stats",
            {"gpu": 30.0, "memoryAllocated": 12.5, "temp": 42.5, "powerWatts": 7.5, "powerPercent": 45.4545},
        ),
        ("macmon", {"gpu": 25.0, "temp": 40.5, "powerWatts": 2.5, "powerPercent": 15.1515}),
        ("ioreg", {"gpu": 20.0, "memoryAllocated": 25.0}),
    ],
    ids=TOOLS,
)  # fmt: skip
def test_wandb_keys_of_apple_tools(
    tool: Callable[..., str], name: str, keys: dict[str, float], capsys: pytest.CaptureFixture[str]
) -> None:
    flag = f"--{name.replace('_', '-')}"
    line = ["snapshot", "--format", "wandb", "--sources", "apple", "--window", "0.1"]
    assert cli.main([*line, flag, tool(name), "--sample-interval", "1"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert {key: row[key] for key in row if key.startswith("gpu.")} == {f"gpu.0.{key}": keys[key] for key in keys}


def test_wandb_formulas_of_apple_gpu_stats_version_2() -> None:
    said = stats.parse(json.dumps(second_generation(1)).encode()).raw
    assert said == pytest.approx({"utilization": 64, "allocated": 30, "temperature": 61.75, "watts": 31})


@posix
def test_wandb_power_limit_constant_is_not_exported(tool: Callable[..., str]) -> None:
    with opened("apple", apple_gpu_stats=tool("apple_gpu_stats")) as source:
        rows = {series.metric for series in all_of(source)}
    assert c.HW_POWER in rows
    assert not rows & {c.HW_POWER_LIMIT, c.HW_POWER_UTILIZATION}
