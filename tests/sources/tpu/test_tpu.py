"""The TPU source over real gRPC servers."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.sources.reading import all_of, by_id, often, opened, series_of
from tests.sources.tpu.test_pages import LIGHT, LINE
from tests.sources.tpus import HERE, Bus, Cloudless, bus, busy_answers, open_source, python, tpu_host
from tests.sources.tree import Fabricated
from tests.support.children import command, run
from tests.support.waiting import wait_for
from tests.tools.daemon import free_addresses
from tests.tools.tpu import Code, FakeTpu, busy, deadline, distribution, doubles, metric_of, pb, queues, serving

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.drivers import DriverError, rpc
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import Source
from opentelemetry.instrumentation.hardware.sources.tpu import Tpu, fields

GIB = 1 << 30


@pytest.mark.parametrize("local", [False, True], ids=["insecure", "local credentials"])
def test_runtime_is_read_with_either_credentials(local: bool) -> None:
    with serving(busy(), local=local) as tpu, open_source(tpu.address) as source:
        assert by_id(all_of(source), c.HW_NPU_MEMORY_USAGE) == {"tpu0": 4 * GIB, "tpu1": 0}


def test_unknown_runtime_metric_is_missing_and_requested_again_after_a_pause() -> None:
    tpu = FakeTpu({fields.DUTY_CYCLE: doubles({0: 5.0}), fields.MEMORY_USED: Code.UNIMPLEMENTED})
    with serving(tpu), open_source(tpu.address) as source:
        all_of(source)
        first = len(tpu.requests)
        all_of(source)
        assert tpu.requests[first:] == [(fields.DUTY_CYCLE, False)]
        assert by_id(all_of(source), c.HW_NPU_UTILIZATION) == {"tpu0": 0.05}
        assert not source.errors
        assert any("hw.npu.memory.usage" in sentence for sentence in source.unsupported), source.unsupported
        tpu.metrics |= {fields.MEMORY_USED: doubles({0: 1024.0}), fields.MEMORY_TOTAL: doubles({0: 4096.0})}
        for _ in range(40):
            often(source)
        assert by_id(all_of(source), c.HW_NPU_MEMORY_USAGE) == {"tpu0": 1024}
        assert not any("hw.npu.memory.usage" in sentence for sentence in source.unsupported), source.unsupported


def test_several_runtimes_are_called_without_aggregation_and_a_device_counts_once() -> None:
    with serving(busy(8)) as one, serving(busy(9)) as two, open_source(one.address, two.address) as source:
        assert by_id(all_of(source), c.HW_NPU_UTILIZATION, {c.NPU_TASK: "general"}) == {
            "tpu8": 0.75,
            "tpu9": 0.0,
            "tpu10": 0.0,
        }
        assert {alone for _, alone in one.requests + two.requests} == {True}
        counts = {value for series, value in all_of(source).items() if series.metric is c.GOOGLE_TPU_TRANSFER_COUNT}
        assert counts == {40}, "the counts of both runtimes are added"


def test_runtime_on_a_unix_socket_is_read(tmp_path: Path) -> None:
    place = str(tmp_path / "tpu.sock")
    with serving(busy(), f"unix:{place}"), open_source(place) as source:
        assert by_id(all_of(source), c.HW_NPU_MEMORY_USAGE) == {"tpu0": 4 * GIB, "tpu1": 0}


def test_runtime_that_starts_later_is_read_with_its_own_metrics() -> None:
    (place,) = free_addresses(1)
    with open_source(place) as source:
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
    with (
        serving(busy()) as healthy,
        serving(busy(2)) as hanging,
        open_source(healthy.address, hanging.address) as source,
    ):
        assert set(by_id(all_of(source), c.HW_NPU_MEMORY_USAGE)) == {"tpu0", "tpu1", "tpu2", "tpu3"}
        before = counts(source)
        hanging.answering.clear()

        def others_are_read() -> bool:
            found = all_of(source)
            used = {*by_id(found, c.HW_NPU_MEMORY_USAGE)}
            transferred = [*series_of(found, c.GOOGLE_TPU_TRANSFER_COUNT).values()]
            assert transferred in ([], before), "the counter does not fall"
            return used == {"tpu0", "tpu1"} and transferred == before

        with deadline(0.5):
            wait_for(others_are_read, 30, "reading without the runtime that hangs")
        assert source.errors == [f"the TPU runtime at {hanging.address}: timed out after 0.5 s"]
        hanging.answering.set()
        everything = {"tpu0", "tpu1", "tpu2", "tpu3"}
        wait_for(lambda: {*by_id(all_of(source), c.HW_NPU_MEMORY_USAGE)} == everything, 30, "reading of both runtimes")
        assert source.errors == []
        assert counts(source) == before, "nothing is counted twice"


def counts(source: Source) -> list[Any]:
    return [value for series, value in all_of(source).items() if series.metric is c.GOOGLE_TPU_TRANSFER_COUNT]


def test_transfer_count_continues_after_a_runtime_restart() -> None:
    with serving(busy()) as one, serving(busy(2)) as two, open_source(one.address, two.address) as source:
        assert counts(source) == [40]
        two.metrics[fields.TRANSFERS["dcn"]] = [distribution([0, 3, 0], 15.0, buffer_size="8MB+")]
        assert counts(source) == [43]
        two.metrics[fields.TRANSFERS["dcn"]] = [distribution([0, 4, 0], 15.0, buffer_size="8MB+")]
        assert counts(source) == [44]


def test_transfers_of_the_next_program_are_all_counted() -> None:
    (place,) = free_addresses(1)
    with open_source(place) as source:
        for transfers, expected in ((3, 3), (5, 8)):
            answers = [distribution([0, transfers, 0], 15.0, buffer_size="8MB+")]
            with serving(FakeTpu({fields.TRANSFERS["dcn"]: answers}), place):
                wait_for(lambda: counts(source), 30, "reading of the program")
                assert counts(source) == [expected]
            wait_for(lambda: not counts(source), 30, "end of the program")


def test_queue_sizes_of_a_core_are_added_over_runtimes() -> None:
    with serving(busy()) as one, serving(busy()) as two, open_source(one.address, two.address) as source:
        one.metrics[fields.QUEUE_SIZE] = [
            *queues({0: 3, 1: 0}),
            *queues({0: 4}, old=True),
            *queues({0: -1, 1: 1 << 40}),
        ]
        assert by_id(all_of(source), c.GOOGLE_TPU_HLO_QUEUE_SIZE) == {"tpu0": 10, "tpu1": 0}


def test_implausible_duty_cycle_is_missing_until_it_is_plausible() -> None:
    with serving(busy()) as tpu, open_source(tpu.address) as source:
        for percent, doubted in ((25.0, False), (250.0, True), (25.0, False)):
            tpu.metrics[fields.DUTY_CYCLE] = doubles({0: percent, 1: 0.0})
            assert len(by_id(all_of(source), c.HW_NPU_UTILIZATION, {c.NPU_TASK: "general"})) == 2 - doubted
            assert any("not plausible" in sentence for sentence in source.unsupported) is doubted
            assert [*by_id(all_of(source), c.HW_NPU_MEMORY_USAGE)] == ["tpu0", "tpu1"], (
                "the names of devices do not change"
            )


@pytest.mark.parametrize(("device", "expected"), [("006f", ["tpu0", "tpu1"]), ("0027", ["tpucore0", "tpucore1"])])
def test_device_names_follow_the_chip_on_the_pci_bus(device: str, expected: list[str]) -> None:
    with serving(busy()) as tpu, opened("tpu", Bus(device), tpu_runtime=[tpu.address]) as source:
        for duty in ({0: 75.0, 1: 0.0}, {0: 75.0}, {}):
            tpu.metrics[fields.DUTY_CYCLE] = doubles(duty)
            assert [*by_id(all_of(source), c.HW_NPU_MEMORY_USAGE)] == expected


def test_implausible_device_number_is_dropped() -> None:
    with serving(busy()) as tpu, open_source(tpu.address) as source:
        tpu.metrics[fields.DUTY_CYCLE] = doubles({-1: 10.0, 0: 20.0, 1 << 30: 30.0})
        assert by_id(all_of(source), c.HW_NPU_UTILIZATION, {c.NPU_TASK: "general"}) == {"tpu0": 0.2}


def test_buffer_sizes_beyond_the_limit_share_a_series() -> None:
    sizes = [distribution([0, 1, 0], 15.0, buffer_size=f"{size}KB") for size in range(100)]
    tpu = FakeTpu({fields.TRANSFERS["dcn"]: [*sizes, distribution([0, 1, 0], 15.0, buffer_size="\u202e")]})
    with serving(tpu), open_source(tpu.address) as source:
        for _ in range(2):
            found = counts(source)
            assert sum(found) == 101
            assert len(found) <= 65


def test_transfer_time_never_falls_when_the_mean_is_rounded() -> None:
    tpu = FakeTpu({fields.DUTY_CYCLE: doubles({0: 1.0})})
    with serving(tpu), open_source(tpu.address) as source:
        found = []
        for events, mean in ((3, 15.0), (4, 11.0), (5, 11.0)):
            tpu.metrics[fields.TRANSFERS["dcn"]] = [distribution([0, events, 0], mean, buffer_size="8MB+")]
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
    with serving(tpu), open_source(tpu.address) as source:
        assert all_of(source) == {}
        all_of(source)
        assert len(source.errors) == 1
        assert tpu.address in source.errors[0]
        tpu.metrics[fields.DUTY_CYCLE] = doubles({0: 50.0})
        for _ in range(40):
            if by_id(all_of(source), c.HW_NPU_UTILIZATION) == {"tpu0": 0.5}:
                break
        assert source.errors == []


def test_failing_runtime_is_retried_with_backoff() -> None:
    tpu = FakeTpu({fields.DUTY_CYCLE: Code.INTERNAL})
    with serving(tpu), open_source(tpu.address) as source:
        for _ in range(40):
            often(source)
        assert len([name for name, _ in tpu.requests if name == fields.DUTY_CYCLE]) == 6, (
            "at readings 1, 2, 4, 8, 16 and 32"
        )
        assert len(source.errors) == 1, "reported in every reading"


def test_silent_server_at_the_runtime_port_gives_no_points() -> None:
    with socket.socket() as listening, open_source(f"localhost:{port_of(listening)}") as source:
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
    with serving(FakeTpu({fields.DUTY_CYCLE: [metric_of(3, gauge)]})) as tpu, open_source(tpu.address) as source:
        found = by_id(all_of(source), c.HW_NPU_UTILIZATION)
        assert found == ({} if expected is None else {"tpu3": expected})
        assert expected is not None or any(
            "hw.npu.utilization (general)" in sentence for sentence in source.unsupported
        )


def test_profiler_is_called_for_100_ms_every_10_s() -> None:
    with serving(FakeTpu(page=LIGHT)) as tpu, open_source("off", tpu_profiler=tpu.address) as source:
        assert source.readings()[0].apart == 10.0
        assert by_id(all_of(source), c.HW_NPU_UTILIZATION, {c.NPU_TASK: "matrix"}) == {"tpu": 0.4225}
        assert tpu.requests == [(100, 2)]
        (info,) = series_of(all_of(source), c.HW_NPU_INFO)
        assert info.attributes[c.HW_MODEL] == "TPU v3"


def test_profiler_page_without_utilization_is_reported() -> None:
    with serving(FakeTpu(page="TPU type: TPU v3\n")) as tpu, open_source("off", tpu_profiler=tpu.address) as source:
        assert by_id(all_of(source), c.HW_NPU_UTILIZATION) == {}
        assert source.unsupported == [
            f"hw.npu.utilization (matrix): the profiler at {tpu.address} does not report it; is the TPU in use?"
        ]


@pytest.mark.parametrize(
    "page", [b"\xff\xff", Code.INTERNAL, "x" * (2 * rpc.MAX_MESSAGE)], ids=["garbage", "error", "huge"]
)
def test_failing_profiler_raises_for_a_retry(page: Any) -> None:
    with (
        serving(FakeTpu(page=page)) as tpu,
        open_source("off", tpu_profiler=tpu.address) as source,
        pytest.raises(DriverError),
    ):
        all_of(source)


def test_libtpu_sdk_is_imported_in_a_child_process_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "libtpu" / "sdk"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "tpumonitoring.py").write_text(
        f"VALUES = {LINE!r}\n"
        "class Answer:\n"
        "    def __init__(self, values): self.values = values\n"
        "    def data(self): return self.values\n"
        "def get_metric(name):\n"
        "    if name not in VALUES: raise RuntimeError(name)\n"
        "    return Answer(VALUES[name])\n"
    )
    python(tmp_path, monkeypatch, f'shift; PYTHONPATH={tmp_path} exec {sys.executable} "$@"')
    with opened("tpu", Bus(), libtpu="on", tpu_runtime="off") as source:
        wait_for(lambda: series_of(often(source), c.GOOGLE_TPU_THROTTLE_SCORE), 30, "change of what is read")
        found = all_of(source)
        assert by_id(all_of(source), c.GOOGLE_TPU_THROTTLE_SCORE) == {"tpu0": 0, "tpu1": 10}
        assert by_id(all_of(source), c.HW_NPU_UTILIZATION, {c.NPU_TASK: "tensorcore"}) == {"tpu0": 0.125, "tpu1": 0.0}
        links = series_of(found, c.GOOGLE_TPU_LINK_HEALTH)
        assert {series.attributes[c.TPU_LINK]: value for series, value in links.items()} == {"tray1.chip3.ici0.int": 0}
        assert "libtpu" not in sys.modules


def test_libtpu_sdk_indices_map_to_the_devices_of_this_host() -> None:
    values = {"tensorcore_util": ["1.0", "2.0", "3.0", "4.0"], "tpu_throttle_score": ["0-0", "1-1", "2-2", "3-3"]}
    for devices in ([0, 1, 2, 3], [8, 9, 12, 13]):
        drivers = tpu_host(bus("005e", 4), {HERE: busy_answers(devices, 1)}, [json.dumps(values).encode()])
        with opened("tpu", drivers, libtpu="on") as source:
            names = [f"tpu{device}" for device in devices]
            assert by_id(all_of(source), c.GOOGLE_TPU_THROTTLE_SCORE) == dict(zip(names, range(4)))
            shares = by_id(all_of(source), c.HW_NPU_UTILIZATION, {c.NPU_TASK: "tensorcore"})
            assert shares == dict(zip(names, (0.01, 0.02, 0.03, 0.04)))


def test_missing_libtpu_is_reported_and_leaves_no_child() -> None:
    with opened("tpu", Bus(), libtpu="on", tpu_runtime="off") as source:
        wait_for(
            lambda: all_of(source) and any("cannot be imported" in each for each in source.unsupported),
            30,
            "change",
        )
        assert [often(source) for _ in range(3)] == [{}, {}, {}]
        lines = [child.cmdline() for child in psutil.Process().children(recursive=True)]
        assert not [line for line in lines if any("tpumonitoring" in word for word in line)]


def test_libtpu_sdk_is_not_started_without_a_tpu_on_the_pci_bus() -> None:
    with serving(busy()) as tpu, open_source(tpu.address, libtpu="on") as source:
        all_of(source)
        assert "libtpu's SDK is not started: there is no TPU on the PCI bus" in source.unsupported
    with pytest.raises(Unavailable), opened("tpu", Cloudless(), libtpu="on"):
        pass


def test_runtime_address_works_without_a_linux_kernel() -> None:
    with serving(busy()) as tpu, opened("tpu", Fabricated(None), tpu_runtime=[tpu.address]) as source:
        assert by_id(all_of(source), c.HW_NPU_MEMORY_LIMIT)


def test_missing_grpcio_is_unavailable_with_a_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "_PACKAGE", None)
    assert Tpu.prepare(Config.read({"tpu_runtime": "localhost:8431"}, {})), "open() reports it"
    with pytest.raises(Unavailable) as gone, opened("tpu", Cloudless(), tpu_runtime="localhost:8431"):
        pass
    assert (gone.value.reason, gone.value.fix) == ("the package grpcio is not installed", "pip install grpcio")


def test_reading_threads_import_nothing() -> None:
    with serving(busy()) as tpu:
        done = run(command("machines/tpu_present"), {"OTEL_PYTHON_HARDWARE_TPU_RUNTIME": tpu.address})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"values": [0.0, 0.75], "imported": []}
