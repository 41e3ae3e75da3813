"""The TPU source over real gRPC servers; PCI devices, environment variables, profiler pages and SDK lines it parses."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.children import command, run
from tests.samples import samples
from tests.sources.reading import all_of, often, opened, series_of
from tests.sources.tpus import HERE, Cloud, bus, working
from tests.sources.tree import Fabricated, Tree
from tests.stage import PATIENT
from tests.tools.daemon import free_addresses
from tests.tools.tpu import (
    Code,
    FakeTpu,
    deadline,
    distribution,
    doubles,
    integers,
    of,
    pb,
    queues,
    serving,
)
from tests.waiting import wait_for

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.drivers import DriverError, Drivers
from opentelemetry.instrumentation.hardware.model import Metric, Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import Source
from opentelemetry.instrumentation.hardware.sources.tpu import (
    Tpu,
    addresses,
    fields,
    messages,
    profiler,
    rpc,
    sdk,
)
from opentelemetry.instrumentation.hardware.sources.tpu.fields import Chip
from opentelemetry.instrumentation.hardware.sources.tpu.presence import Presence, pci_chips

GIB = 1 << 30


def busy(first: int = 0) -> FakeTpu:
    """A runtime with two busy devices."""
    one, two = first, first + 1
    return FakeTpu(
        {
            fields.DUTY_CYCLE: doubles({one: 75.0, two: 0.0}),
            fields.MEMORY_TOTAL: integers({one: 16 * GIB, two: 16 * GIB}),
            fields.MEMORY_USED: integers({one: 4 * GIB, two: 0}),
            fields.MEMORY_BANDWIDTH: doubles({one: 12.5, two: 0.0}),
            fields.QUEUE_SIZE: queues({one: 3, two: 0}),
            fields.IDLE_DURATION: doubles({one: 0.0, two: 7.5}),
            fields.EXECUTION: [distribution([0, 600, 400, 0], 21.5, device_ordinal=str(one), core_type="tensorcore")],
            fields.TRANSFERS["dcn"]: [
                distribution([0, 10, 0], 15.0, buffer_size="8MB+"),
                distribution([0, 5, 5], 25.0, buffer_size="8MB+"),
            ],
        }
    )


def by_id(source: Source, metric: Metric, **attributes: str) -> dict[str, Any]:
    """The values of a metric in one reading, by hw.id."""
    wanted = {name.replace("_", "."): value for name, value in attributes.items()}
    return {
        str(series.attributes[c.HW_ID]): value
        for series, value in series_of(all_of(source), metric).items()
        if wanted.items() <= series.attributes.items()
    }


@contextmanager
def asked(*places: str, **settings: Any) -> Iterator[Source]:
    """The source with these runtime addresses, on a machine without a TPU on its PCI bus."""
    with opened("tpu", Cloudless(), tpu_runtime=list(places), **settings) as source:
        yield source


class Cloudless(Drivers):
    """The drivers of this machine, without a TPU on its PCI bus."""

    def files(self) -> Any:
        return Tree({"/proc/bus/pci/devices": ""})


# -- metric service


@pytest.mark.parametrize("local", [False, True], ids=["insecure", "local credentials"])
def test_runtime_metrics_are_exported_with_units_and_names(local: bool) -> None:
    with serving(busy(), local=local) as tpu, asked(tpu.address) as source:
        found = {
            (series.metric.name, *sorted(series.attributes.items())): value for series, value in all_of(source).items()
        }
    zero, one = ((c.HW_ID, f"tpu{n}") for n in (0, 1))
    names = {zero: (c.HW_NAME, "TPU 0"), one: (c.HW_NAME, "TPU 1")}
    expected: dict[tuple[Any, ...], Any] = {}
    for device, duty, used, band, size, idle in ((zero, 0.75, 4 * GIB, 0.125, 3, 0.0), (one, 0.0, 0, 0.0, 0, 7.5)):
        who = (device, names[device])
        expected |= {
            ("hw.npu.utilization", *who, (c.NPU_TASK, "general")): duty,
            ("hw.npu.utilization", *who, (c.NPU_TASK, "hbm")): band,
            ("hw.npu.memory.usage", *who): used,
            ("hw.npu.memory.limit", *who): 16 * GIB,
            ("hw.npu.memory.utilization", *who): used / 16 / GIB,
            ("google.tpu.hlo.queue.size", (c.TPU_CORE_TYPE, "tensorcore"), *who): size,
            ("google.tpu.idle.duration", *who): idle,
            ("hw.npu.info", *who, (c.HW_VENDOR, "Google")): 1,
        }
    who = (zero, names[zero])
    sizes = ((c.TPU_BUFFER_SIZE, "8MB+"), (c.TPU_TRANSFER_KIND, "dcn"))
    expected |= {
        ("google.tpu.hlo.execution.count", *who): 1000,
        ("google.tpu.hlo.execution.time", *who): 0.0215,
        ("google.tpu.transfer.count", *sizes): 20,
        ("google.tpu.transfer.time", *sizes): 0.0004,
    }
    assert found == expected


def test_unknown_runtime_metric_is_missing_and_not_requested_again() -> None:
    tpu = FakeTpu({fields.DUTY_CYCLE: doubles({0: 5.0}), fields.MEMORY_USED: Code.UNIMPLEMENTED})
    with serving(tpu), asked(tpu.address) as source:
        all_of(source)
        first = len(tpu.asked)
        all_of(source)
        assert tpu.asked[first:] == [(fields.DUTY_CYCLE, False)]
        assert by_id(source, c.HW_NPU_UTILIZATION) == {"tpu0": 0.05}
        assert not source.errors
        assert any("hw.npu.memory.usage" in sentence for sentence in source.unsupported), source.unsupported


def test_several_runtimes_are_asked_without_aggregation_and_a_device_counts_once() -> None:
    with serving(busy(8)) as one, serving(busy(9)) as two, asked(one.address, two.address) as source:
        assert by_id(source, c.HW_NPU_UTILIZATION, hw_npu_task="general") == {
            "tpu8": 0.75,
            "tpu9": 0.0,
            "tpu10": 0.0,
        }
        assert {alone for _, alone in one.asked + two.asked} == {True}
        counts = {value for series, value in all_of(source).items() if series.metric is c.GOOGLE_TPU_TRANSFER_COUNT}
        assert counts == {40}, "the counts of both runtimes are added"


def test_runtime_on_a_unix_socket_is_read(tmp_path: Path) -> None:
    place = str(tmp_path / "tpu.sock")
    with serving(busy(), f"unix:{place}"), asked(place) as source:
        assert by_id(source, c.HW_NPU_MEMORY_USAGE) == {"tpu0": 4 * GIB, "tpu1": 0}


def test_runtime_that_starts_later_is_read_with_its_own_metrics() -> None:
    (place,) = free_addresses(1)
    with asked(place) as source:
        assert all_of(source) == {}
        assert source.errors == []
        assert [sentence for sentence in source.unsupported if "which is normal while none runs" in sentence]
        for knows in (
            {fields.DUTY_CYCLE: doubles({0: 50.0})},
            {fields.DUTY_CYCLE: doubles({0: 25.0}), fields.IDLE_DURATION: doubles({0: 1.0})},
        ):
            with serving(FakeTpu(dict(knows)), place):
                wait_for(
                    lambda: c.HW_NPU_UTILIZATION in {series.metric for series in often(source)},
                    30,
                    "change of what is read",
                )
                found = {series.metric for series in all_of(source)}
                assert (c.GOOGLE_TPU_IDLE_DURATION in found) == (fields.IDLE_DURATION in knows)
                assert not [sentence for sentence in source.unsupported if "which is normal" in sentence]
            wait_for(lambda: not often(source), 30, "change of what is read")


def test_runtime_that_hangs_loses_its_own_points_and_recovers() -> None:
    with serving(busy()) as well, serving(busy(2)) as ill, asked(well.address, ill.address) as source:
        assert set(by_id(source, c.HW_NPU_MEMORY_USAGE)) == {"tpu0", "tpu1", "tpu2", "tpu3"}
        before = counts(source)
        ill.answering.clear()

        def others_are_read() -> bool:
            found = all_of(source)
            used = {series.attributes[c.HW_ID] for series in series_of(found, c.HW_NPU_MEMORY_USAGE)}
            transferred = [*series_of(found, c.GOOGLE_TPU_TRANSFER_COUNT).values()]
            assert transferred in ([], before), "the counter does not fall"
            return used == {"tpu0", "tpu1"} and transferred == before

        with deadline(0.5):
            wait_for(others_are_read, 30, "reading without the runtime that hangs")
        assert source.errors == [f"the TPU runtime at {ill.address}: no answer within 0.5 s"]
        ill.answering.set()
        everything = {"tpu0", "tpu1", "tpu2", "tpu3"}
        wait_for(lambda: {*by_id(source, c.HW_NPU_MEMORY_USAGE)} == everything, 30, "reading of both runtimes")
        assert source.errors == []
        assert counts(source) == before, "nothing is counted twice"


def counts(source: Source) -> list[Any]:
    return [value for series, value in all_of(source).items() if series.metric is c.GOOGLE_TPU_TRANSFER_COUNT]


def test_transfer_count_goes_on_after_a_runtime_restart() -> None:
    with serving(busy()) as one, serving(busy(2)) as two, asked(one.address, two.address) as source:
        assert counts(source) == [40]
        two.said[fields.TRANSFERS["dcn"]] = [distribution([0, 3, 0], 15.0, buffer_size="8MB+")]
        assert counts(source) == [43]
        two.said[fields.TRANSFERS["dcn"]] = [distribution([0, 4, 0], 15.0, buffer_size="8MB+")]
        assert counts(source) == [44]


def test_queue_sizes_of_a_core_are_added_over_runtimes() -> None:
    with serving(busy()) as one, serving(busy()) as two, asked(one.address, two.address) as source:
        one.said[fields.QUEUE_SIZE] = [*queues({0: 3, 1: 0}), *queues({0: 4}, old=True), *queues({0: -1, 1: 1 << 40})]
        assert by_id(source, c.GOOGLE_TPU_HLO_QUEUE_SIZE) == {"tpu0": 10, "tpu1": 0}


def test_implausible_duty_cycle_is_missing_until_it_is_plausible() -> None:
    with serving(busy()) as tpu, asked(tpu.address) as source:
        for percent, doubted in ((25.0, False), (250.0, True), (25.0, False)):
            tpu.said[fields.DUTY_CYCLE] = doubles({0: percent, 1: 0.0})
            assert len(by_id(source, c.HW_NPU_UTILIZATION, hw_npu_task="general")) == 2 - doubted
            assert any("not plausible" in sentence for sentence in source.unsupported) is doubted
            assert [*by_id(source, c.HW_NPU_MEMORY_USAGE)] == ["tpu0", "tpu1"], "the names of devices do not change"


@pytest.mark.parametrize(("device", "expected"), [("006f", ["tpu0", "tpu1"]), ("0027", ["tpucore0", "tpucore1"])])
def test_device_names_follow_the_chip_on_the_pci_bus(device: str, expected: list[str]) -> None:
    with serving(busy()) as tpu, opened("tpu", Bus(device), tpu_runtime=[tpu.address]) as source:
        for duty in ({0: 75.0, 1: 0.0}, {0: 75.0}, {}):
            tpu.said[fields.DUTY_CYCLE] = doubles(duty)
            assert [*by_id(source, c.HW_NPU_MEMORY_USAGE)] == expected


def test_implausible_device_number_is_dropped() -> None:
    with serving(busy()) as tpu, asked(tpu.address) as source:
        tpu.said[fields.DUTY_CYCLE] = doubles({-1: 10.0, 0: 20.0, 1 << 30: 30.0})
        assert by_id(source, c.HW_NPU_UTILIZATION, hw_npu_task="general") == {"tpu0": 0.2}


def test_buffer_sizes_beyond_the_limit_share_a_series() -> None:
    sizes = [distribution([0, 1, 0], 15.0, buffer_size=f"{size}KB") for size in range(100)]
    tpu = FakeTpu({fields.TRANSFERS["dcn"]: [*sizes, distribution([0, 1, 0], 15.0, buffer_size="\u202e")]})
    with serving(tpu), asked(tpu.address) as source:
        for _ in range(2):
            found = counts(source)
            assert sum(found) == 101
            assert len(found) <= 65


def test_transfer_time_never_falls_when_the_mean_is_rounded() -> None:
    tpu = FakeTpu({fields.DUTY_CYCLE: doubles({0: 1.0})})
    with serving(tpu), asked(tpu.address) as source:
        found = []
        for events, mean in ((3, 15.0), (4, 11.0), (5, 11.0)):
            tpu.said[fields.TRANSFERS["dcn"]] = [distribution([0, events, 0], mean, buffer_size="8MB+")]
            (seconds,) = series_of(all_of(source), c.GOOGLE_TPU_TRANSFER_TIME).values()
            assert isinstance(seconds, float)
            found.append(round(seconds * 1e6))
        assert found == [45, 45, 56]


HUGE = pb.MetricResponse(
    metric=pb.TPUMetric(name="x", description="y" * (2 * rpc.MAX_MESSAGE), metrics=doubles({0: 1.0}))
).SerializeToString()
WHOLE = pb.MetricResponse(metric=pb.TPUMetric(name="x", metrics=doubles({0: 50.0}))).SerializeToString()


@pytest.mark.parametrize(
    "answer",
    [b"\xff" * 40, WHOLE[:-3], HUGE, Code.INTERNAL, Code.PERMISSION_DENIED, doubles(dict.fromkeys(range(2000), 1.0))],
    ids=["garbage", "truncated", "2 MiB", "internal", "denied", "too many"],
)
def test_invalid_runtime_response_is_reported_and_the_next_one_is_read(answer: Any) -> None:
    tpu = FakeTpu({fields.DUTY_CYCLE: answer})
    with serving(tpu), asked(tpu.address) as source:
        assert all_of(source) == {}
        all_of(source)
        assert len(source.errors) == 1
        assert tpu.address in source.errors[0]
        tpu.said[fields.DUTY_CYCLE] = doubles({0: 50.0})
        for _ in range(40):
            if by_id(source, c.HW_NPU_UTILIZATION) == {"tpu0": 0.5}:
                break
        assert source.errors == []


def test_failing_runtime_is_retried_with_backoff() -> None:
    tpu = FakeTpu({fields.DUTY_CYCLE: Code.INTERNAL})
    with serving(tpu), asked(tpu.address) as source:
        for _ in range(40):
            often(source)
        assert len([name for name, _ in tpu.asked if name == fields.DUTY_CYCLE]) == 6, (
            "at readings 1, 2, 4, 8, 16 and 32"
        )
        assert len(source.errors) == 1, "reported in every reading"


def test_silent_server_at_the_runtime_port_gives_no_points() -> None:
    with socket.socket() as listening, asked(f"localhost:{port_of(listening)}") as source:
        assert often(source) == {}, "it accepts connections and sends nothing"
        assert source.errors or source.unsupported


def port_of(listening: socket.socket) -> int:
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    port: int = listening.getsockname()[1]
    return port


@pytest.mark.parametrize(
    ("gauge", "expected"),
    [
        (pb.Gauge(as_double=50.0), 0.5),
        (pb.Gauge(as_int=50), 0.5),
        (pb.Gauge(as_string="50.0"), 0.5),
        (pb.Gauge(as_double=0.0), 0.0),
        (pb.Gauge(as_int=0), 0.0),
        (pb.Gauge(), None),
        (pb.Gauge(as_bool=True), None),
        (pb.Gauge(as_string="N/A"), None),
        (pb.Gauge(as_double=float("nan")), None),
        (pb.Gauge(as_double=float("inf")), None),
        (pb.Gauge(as_double=-1.0), None),
        (pb.Gauge(as_int=-(1 << 63)), None),
        (pb.Gauge(as_double=100.5), None),
    ],
    ids=str,
)
def test_gauge_of_any_type_is_read_and_implausible_ones_are_missing(gauge: Any, expected: float | None) -> None:
    with serving(FakeTpu({fields.DUTY_CYCLE: [of(3, gauge)]})) as tpu, asked(tpu.address) as source:
        found = by_id(source, c.HW_NPU_UTILIZATION)
        assert found == ({} if expected is None else {"tpu3": expected})
        assert expected is not None or any(
            "hw.npu.utilization (general)" in sentence for sentence in source.unsupported
        )


def test_runtime_request_ignores_proxy_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with serving(busy()) as tpu, asked(tpu.address.replace("localhost", "127.0.0.1")) as source:
        assert by_id(source, c.HW_NPU_MEMORY_LIMIT)


# -- protobuf

ATTRIBUTES = st.one_of(
    st.integers(0, 1 << 20).map(lambda n: pb.Attribute(key="device-id", value=pb.AttrValue(int_attr=n))),
    st.text(max_size=8).map(lambda text: pb.Attribute(key="name", value=pb.AttrValue(string_attr=text))),
)
GAUGES = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(lambda n: pb.Gauge(as_double=n)),
    st.integers(-(1 << 63), (1 << 63) - 1).map(lambda n: pb.Gauge(as_int=n)),
)


@PATIENT
@given(st.lists(st.tuples(ATTRIBUTES, GAUGES), max_size=20))
def test_gauges_decode_as_protobuf_encodes_them(pairs: list[tuple[Any, Any]]) -> None:
    sent = pb.TPUMetric(name="n", metrics=[pb.Metric(attribute=key, gauge=gauge) for key, gauge in pairs])
    found = messages.samples(pb.MetricResponse(metric=sent).SerializeToString())
    for series, (attribute, gauge) in zip(found, pairs, strict=True):
        assert series.value == getattr(gauge, str(gauge.WhichOneof("value")))
        assert series.labels == {attribute.key: getattr(attribute.value, str(attribute.value.WhichOneof("attr")))}


@PATIENT
@given(st.lists(st.integers(0, 1 << 40), min_size=3, max_size=60), st.floats(0, 1e12))
def test_distributions_decode_as_protobuf_encodes_them(buckets: list[int], mean: float) -> None:
    sent = pb.TPUMetric(name="n", metrics=[distribution(buckets, mean, 3.0, 1.5, buffer_size="1MB+")])
    (series,) = messages.samples(pb.MetricResponse(metric=sent).SerializeToString())
    said = series.distribution
    assert said is not None
    assert (said["count"], said["mean"], said["buckets"]) == (sum(buckets), mean, buckets)
    assert said["bounds"] == [3.0 * 1.5**place for place in range(len(buckets) - 1)]
    assert series.labels == {"buffer-size": "1MB+"}


@PATIENT
@given(st.one_of(st.binary(max_size=300), st.integers(0, len(WHOLE)).map(lambda end: WHOLE[:end])))
def test_invalid_protobuf_raises_value_error_only(data: bytes) -> None:
    try:
        found = messages.samples(data)
    except ValueError:
        return
    assert all(series.value is None or abs(series.value) < float("inf") for series in found)


@pytest.mark.parametrize("alone", [False, True])
def test_metric_request_parses_with_protobuf(alone: bool) -> None:
    request = pb.MetricRequest.FromString(messages.metric_request("n" * 200, alone))
    assert (request.metric_name, request.skip_node_aggregation) == ("n" * 200, alone)


# -- PCI bus


@pytest.mark.parametrize(
    ("device", "subsystem", "chip"),
    [
        ("0027", "004e", Chip("TPU v2", True)),
        ("0027", "004f", Chip("TPU v3", True)),
        ("005e", "", Chip("TPU v4")),
        ("0063", "", Chip("TPU v5e")),
        ("0062", "", Chip("TPU v5p")),
        ("006f", "", Chip("TPU v6e")),
        ("0076", "", Chip("TPU7x")),
        ("0027", "0001", None),
        ("0042", "004e", None),
    ],
)
def test_chip_model_by_pci_device_and_subsystem(device: str, subsystem: str, chip: Any) -> None:
    found = pci_chips(Tree(bus(device, 3, subsystem, functions=2)))
    assert [each.kind for each in found] == ([chip] * 3 if chip else [])
    if chip:
        assert found[0].bdf == "0000:00:05.0"


def test_pci_devices_are_read_only_when_the_kernel_lists_a_google_device() -> None:
    files = bus("0063", 4)
    without = Tree({**files, "/proc/bus/pci/devices": "0018\t10131000\t0\n0020\t8086100e\t0\n"})
    assert pci_chips(without) == []
    assert without.asked == ["/proc/bus/pci/devices"]
    del files["/proc/bus/pci/devices"]
    assert len(pci_chips(Tree(files))) == 4, "some containers lack /proc/bus/pci/devices"
    assert pci_chips(Tree({})) == []


def test_absent_tpu_imports_no_tpu_module() -> None:
    done = run(command("tpu_absent"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"state": "absent", "imported": []}


def test_reading_threads_import_nothing() -> None:
    with serving(busy()) as tpu:
        done = run(command("tpu_present"), {"OTEL_PYTHON_HARDWARE_TPU_RUNTIME": tpu.address})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"values": [0.0, 0.75], "imported": []}


# -- environment variables


@pytest.mark.parametrize(
    ("setting", "environ", "expected"),
    [
        (None, {}, ("localhost:8431",)),
        (["auto"], {"TPU_RUNTIME_METRICS_PORTS": "8431, 8432,"}, ("localhost:8431", "localhost:8432")),
        (None, {"TPU_RUNTIME_METRICS_PORTS": "none"}, ("localhost:8431",)),
        (None, {"TPU_RUNTIME_METRICS_ADDRESS": "/run/tpu.sock"}, ("unix:/run/tpu.sock",)),
        (None, {"TPU_RUNTIME_METRICS_ADDRESS": "unix:///run/tpu.sock"}, ("unix:///run/tpu.sock",)),
        (None, {"TPU_RUNTIME_METRICS_ADDRESS": "10.0.0.3:9000"}, ("10.0.0.3:9000",)),
        (
            None,
            {"TPU_RUNTIME_METRICS_ADDRESS": "0.0.0.0", "TPU_RUNTIME_METRICS_PORTS": "9000"},
            ("localhost:9000",),
        ),
        (["off"], {"TPU_RUNTIME_METRICS_PORTS": "8431"}, ()),
        (["h:1", "h:1", "/s"], {"TPU_RUNTIME_METRICS_PORTS": "8431"}, ("h:1", "unix:/s")),
    ],
)
def test_runtime_addresses_from_setting_and_environment(
    setting: Any, environ: dict[str, str], expected: tuple[str, ...]
) -> None:
    assert addresses.runtime(setting, environ) == expected


@pytest.mark.parametrize(
    ("setting", "environ", "expected"),
    [
        (None, {}, ""),
        (None, {"TPU_NAME": "grpc://10.0.0.2:8470"}, "10.0.0.2:8466"),
        (None, {"TPU_NAME": "10.0.0.2"}, "10.0.0.2:8466"),
        (None, {"TPU_NAME": "[fd00::2]:8470"}, "[fd00::2]:8466"),
        (None, {"TPU_NAME": "fd00::2"}, "[fd00::2]:8466"),
        (None, {"TPU_NAME": "10.0.0.2:9999"}, "10.0.0.2:9999"),
        (None, {"TPU_NAME": "local"}, ""),
        (None, {"TPU_NAME": "my-tpu"}, "my-tpu"),
        (
            None,
            {"KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS": "grpc://10.0.0.7:8470,grpc://10.0.0.8:8470", "TPU_NAME": "x"},
            "10.0.0.7:8466",
        ),
        ("off", {"TPU_NAME": "10.0.0.2"}, ""),
        ("localhost:9012", {"TPU_NAME": "10.0.0.2"}, "localhost:9012"),
    ],
)
def test_profiler_address_from_setting_and_environment(
    setting: str | None, environ: dict[str, str], expected: str
) -> None:
    assert addresses.profiler(setting, environ) == expected


def test_local_tpu_ignores_tpu_name_unless_the_profiler_is_set() -> None:
    environ = {"TPU_NAME": "10.0.0.2"}
    for files, settings, expected in (
        (bus("0063", 4), {}, ""),
        (bus("0063", 4), {"tpu_profiler": "10.0.0.2:9012"}, "10.0.0.2:9012"),
        (bus("0063", 0), {}, "10.0.0.2:8466"),
    ):
        assert Presence(Config.read(settings, {}), environ, Tree(files)).profiler == expected


def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Replace the interpreter of child processes by a shell script."""
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("""echo '[{"ipAddress": "10.1.2.3", "port": "8470"}, {"ipAddress": "10.1.2.4"}]'""", "10.1.2.3:8466"),
        ("""echo '[{"ipAddress": "fd00::3"}]'""", "[fd00::3]:8466"),
        ("echo '[]'", OSError),
        ("echo '{}'", OSError),
        ("echo nothing", OSError),
        ("echo 'no credentials' >&2; exit 1", OSError),
        ("echo 'not installed' >&2; exit 1", Unavailable),
    ],
)
def test_tpu_name_is_resolved_in_a_child_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, expected: Any
) -> None:
    python(tmp_path, monkeypatch, script)
    if isinstance(expected, str):
        assert addresses.resolved(Drivers(), "my-tpu", {}) == expected
    else:
        with pytest.raises(expected, match="my-tpu"):
            addresses.resolved(Drivers(), "my-tpu", {})


def test_resolver_child_gets_zone_and_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "cloud_tpu_client.py"
    package.write_text(
        "class Client:\n"
        "    def __init__(self, tpu, zone=None, project=None):\n"
        "        assert (tpu, zone, project) == ('my-tpu', 'us-central1-b', None), (tpu, zone, project)\n"
        "    def network_endpoints(self):\n"
        "        return [{'ipAddress': '10.1.2.3', 'port': '8470'}]\n"
    )
    python(tmp_path, monkeypatch, f'shift; PYTHONPATH={tmp_path} exec {sys.executable} "$@"')
    environ = {"CLOUDSDK_COMPUTE_ZONE": "us-central1-b"}
    assert addresses.resolved(Drivers(), "my-tpu", environ) == "10.1.2.3:8466"


def test_missing_cloud_tpu_client_is_unavailable_with_a_fix() -> None:
    with pytest.raises(Unavailable) as gone:
        addresses.resolved(Drivers(), "my-tpu", {})
    assert "TPU_NAME=my-tpu is a name" in gone.value.reason
    assert "pip install cloud-tpu-client" in gone.value.fix


# -- profiler

LIGHT = """\
Timestamp: 11:22:33
TPU type: TPU v3
Utilization of TPU Matrix Units (higher is better): 42.25%
"""


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (LIGHT, profiler.Page("TPU v3", None, 42.25)),
        (LIGHT + "TPU idle time (lower is better): 5.5%\n", profiler.Page("TPU v3", 5.5, 42.25)),
        ("Utilization of TPU Matrix Units (higher is better): 0.000%", profiler.Page(None, None, 0.0)),
        ("Utilization of TPU Matrix Units (higher is better): 142.0%", profiler.Page()),
        ("Utilization of TPU Matrix Units (higher is better): -1.0%", profiler.Page()),
        ("Utilization of TPU Matrix Units (higher is better): nan%", profiler.Page()),
        ("Utilization of TPU Matrix Units (higher is better):", profiler.Page()),
        ("", profiler.Page()),
    ],
)
def test_profiler_page_of_both_levels_is_parsed(page: str, expected: profiler.Page) -> None:
    assert profiler.parse(page) == expected


@PATIENT
@given(st.text())
def test_invalid_profiler_page_never_raises(page: str) -> None:
    for text in (page, f"TPU idle time: {page}%", f"Utilization of TPU Matrix Units (x): {page}"):
        said = profiler.parse(text)
        assert all(each is None or 0 <= each <= 100 for each in (said.idle, said.matrix))


def test_profiler_is_asked_for_100_ms_every_10_s() -> None:
    with serving(FakeTpu(page=LIGHT)) as tpu, asked("off", tpu_profiler=tpu.address) as source:
        assert source.min_interval == 10.0
        assert by_id(source, c.HW_NPU_UTILIZATION, hw_npu_task="matrix") == {"tpu": 0.4225}
        assert tpu.asked == [(100, 2)]
        (info,) = series_of(all_of(source), c.HW_NPU_INFO)
        assert info.attributes[c.HW_MODEL] == "TPU v3"


@pytest.mark.parametrize(
    "page", [b"\xff\xff", Code.INTERNAL, "x" * (2 * rpc.MAX_MESSAGE)], ids=["garbage", "error", "huge"]
)
def test_failing_profiler_raises_for_a_retry(page: Any) -> None:
    with (
        serving(FakeTpu(page=page)) as tpu,
        asked("off", tpu_profiler=tpu.address) as source,
        pytest.raises(DriverError),
    ):
        all_of(source)


@pytest.mark.parametrize("path", samples("tpu/tpu_profiler_client_monitor_level2.txt"))
def test_recorded_profiler_page_is_parsed(path: Path) -> None:
    page = path.read_text()
    assert profiler.parse(page) == profiler.Page("TPU v2", 36.9, 10.1)


# -- libtpu SDK

LINE = {
    "tensorcore_util": ["12.50", "0.00"],
    "ici_link_health": ["tray1.chip3.ici0.int: 0"],
    "tpu_throttle_score": ["0-0", "1-10"],
}


def test_libtpu_sdk_line_is_parsed() -> None:
    assert sdk.parse(json.dumps(LINE).encode()) == ((12.5, 0.0), {"tray1.chip3.ici0.int": 0}, {0: 0, 1: 10})
    odd = {
        "tensorcore_util": ["nan", "101", "", 5],
        "ici_link_health": ["a: 11", "b", ": 1", "Größe: 1"],
        "tpu_throttle_score": ["0-11", "x-1", "1"],
    }
    assert sdk.parse(json.dumps(odd).encode()) == ((None, None, None), {}, {})


SAID = st.none() | st.floats() | st.text(max_size=9)


@PATIENT
@given(
    st.one_of(
        st.binary(max_size=60),
        st.lists(SAID | st.lists(SAID, max_size=2), max_size=3).map(
            lambda x: json.dumps({"tensorcore_util": x, "ici_link_health": x}).encode()
        ),
        SAID.map(lambda x: json.dumps({"tensorcore_util": x, "tpu_throttle_score": x}).encode()),
    )
)
def test_invalid_libtpu_sdk_line_raises_value_error_only(line: bytes) -> None:
    try:
        said = sdk.parse(line)
    except ValueError:
        return
    assert all(each is None or 0 <= each <= 100 for each in said.tensorcore)


class Bus(Drivers):
    """The drivers of this machine, with two TPU chips on its PCI bus."""

    def __init__(self, device: str = "006f") -> None:
        super().__init__()
        self._device = device

    def files(self) -> Any:
        return Tree(bus(self._device, 2, "004f"))


def test_libtpu_sdk_is_imported_in_a_child_process_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "libtpu" / "sdk"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "tpumonitoring.py").write_text(
        f"SAID = {LINE!r}\n"
        "class Answer:\n"
        "    def __init__(self, said): self.said = said\n"
        "    def data(self): return self.said\n"
        "def get_metric(name):\n"
        "    if name not in SAID: raise RuntimeError(name)\n"
        "    return Answer(SAID[name])\n"
    )
    python(tmp_path, monkeypatch, f'shift; PYTHONPATH={tmp_path} exec {sys.executable} "$@"')
    with opened("tpu", Bus(), libtpu="on", tpu_runtime="off") as source:
        wait_for(lambda: series_of(often(source), c.GOOGLE_TPU_THROTTLE_SCORE), 30, "change of what is read")
        found = all_of(source)
        assert by_id(source, c.GOOGLE_TPU_THROTTLE_SCORE) == {"tpu0": 0, "tpu1": 10}
        assert by_id(source, c.HW_NPU_UTILIZATION, hw_npu_task="tensorcore") == {"tpu0": 0.125, "tpu1": 0.0}
        links = series_of(found, c.GOOGLE_TPU_LINK_HEALTH)
        assert {series.attributes[c.TPU_LINK]: value for series, value in links.items()} == {"tray1.chip3.ici0.int": 0}
        assert "libtpu" not in sys.modules


def test_libtpu_sdk_indices_map_to_the_devices_of_this_host() -> None:
    said = {"tensorcore_util": ["1.0", "2.0", "3.0", "4.0"], "tpu_throttle_score": ["0-0", "1-1", "2-2", "3-3"]}
    for devices in ([0, 1, 2, 3], [8, 9, 12, 13]):
        drivers = Cloud(bus("005e", 4), {HERE: working(devices, 1)}, [json.dumps(said).encode()])
        with opened("tpu", drivers, libtpu="on") as source:
            names = [f"tpu{device}" for device in devices]
            assert by_id(source, c.GOOGLE_TPU_THROTTLE_SCORE) == dict(zip(names, range(4)))
            shares = by_id(source, c.HW_NPU_UTILIZATION, hw_npu_task="tensorcore")
            assert shares == dict(zip(names, (0.01, 0.02, 0.03, 0.04)))


def test_missing_libtpu_is_reported_and_leaves_no_child() -> None:
    with opened("tpu", Bus(), libtpu="on", tpu_runtime="off") as source:
        wait_for(
            lambda: often(source) == {} and any("cannot be imported" in each for each in source.unsupported),
            30,
            "change",
        )
        assert [often(source) for _ in range(3)] == [{}, {}, {}]
        lines = [child.cmdline() for child in psutil.Process().children(recursive=True)]
        assert not [line for line in lines if any("tpumonitoring" in word for word in line)]


def test_libtpu_sdk_is_not_started_without_a_tpu_on_the_pci_bus() -> None:
    with serving(busy()) as tpu, asked(tpu.address, libtpu="on") as source:
        all_of(source)
        assert "libtpu's SDK is not started: there is no TPU on the PCI bus" in source.unsupported
    with pytest.raises(Unavailable), opened("tpu", Cloudless(), libtpu="on"):
        pass


def test_runtime_address_works_without_a_linux_kernel() -> None:
    with serving(busy()) as tpu, opened("tpu", Fabricated(None), tpu_runtime=[tpu.address]) as source:
        assert by_id(source, c.HW_NPU_MEMORY_LIMIT)


@pytest.mark.parametrize("missing", ["h2", "google.protobuf"])
def test_missing_package_is_unavailable_with_a_fix(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    for name in ("messages", "rpc"):
        monkeypatch.delitem(sys.modules, f"opentelemetry.instrumentation.hardware.sources.tpu.{name}", raising=False)
        monkeypatch.delattr(f"opentelemetry.instrumentation.hardware.sources.tpu.{name}", raising=False)
    for name in [name for name in sys.modules if name.startswith(missing)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    assert Tpu.prepare(Config.read({"tpu_runtime": "localhost:8431"}, {})), "open() reports it"
    with pytest.raises(Unavailable) as gone, opened("tpu", Cloudless(), tpu_runtime="localhost:8431"):
        pass
    assert missing in gone.value.reason
    assert gone.value.fix == "pip install 'opentelemetry-instrumentation-hardware[tpu]'"
