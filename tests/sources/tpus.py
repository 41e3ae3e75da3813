"""Simulated TPU machines: the PCI bus, and the answers of runtimes, profilers and the SDK."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from tests.sources.machines import GIB, SPARSE, Story
from tests.sources.reading import opened
from tests.sources.tree import Fabricated, Speaking, Tree

from opentelemetry.instrumentation.hardware.drivers import DriverError, Drivers
from opentelemetry.instrumentation.hardware.sources import Source
from opentelemetry.instrumentation.hardware.sources.tpu import fields

HERE = "localhost:8431"
REFUSED = DriverError(14, "Connection refused")
UNKNOWN = DriverError(5, "metric is not known")


class FakeServices:
    """gRPC services: their answers by address. An exception is raised."""

    def __init__(self, servers: Mapping[str, Any]) -> None:
        self.servers = servers

    def metric(self, address: str, name: str, skip_node_aggregation: bool) -> list[dict[str, Any]]:
        assert skip_node_aggregation == (len(self.servers) > 1)
        metrics = self.servers[address]
        answer = metrics if isinstance(metrics, Exception) else metrics.get(name, UNKNOWN)
        if isinstance(answer, Exception):
            raise answer
        return cast("list[dict[str, Any]]", answer)

    def monitor(self, address: str, milliseconds: int, level: int) -> str:
        assert (milliseconds, level) == (100, 2)
        page = self.servers[address]
        if isinstance(page, Exception):
            raise page
        return cast(str, page)


class SdkChild(Speaking):
    """The child process of libtpu's SDK."""

    def open(self, arguments: list[str], period: float, document: str = "") -> None:
        assert arguments[:2] == ["-I", "-c"]


def tpu_host(
    files: dict[str, Any], servers: Mapping[str, Any], lines: list[bytes] | Exception | None = None
) -> Fabricated:
    """A machine with TPUs: its files, the answers of services by address, and the lines of libtpu's SDK."""
    tools, libraries = {"libtpu": SdkChild(lines or [])}, {"tpu": FakeServices(servers)}
    return Fabricated(Tree(files), tools=tools, libraries=libraries)


# -- answers


def bus(device: str, chips: int, subsystem: str = "", functions: int = 1) -> dict[str, Any]:
    """A PCI bus with TPU chips, a graphics card and another device of Google."""
    files: dict[str, Any] = {}
    others = {"0000:00:03.0": ("1013", "1000", ""), "0000:00:04.0": ("1ae0", "0042", "0058")}
    ours = {
        f"0000:00:{5 + chip:02x}.{function}": ("1ae0", device, subsystem)
        for chip in range(chips)
        for function in range(functions)
    }
    for bdf, (vendor, number, sub) in (others | ours).items():
        for name, value in (("vendor", vendor), ("device", number), ("subsystem_device", sub or "0000")):
            files[f"/sys/bus/pci/devices/{bdf}/{name}"] = f"0x{value}\n"
    return files


def sample(labels: Mapping[str, Any], value: float | None = None, distribution: Any = None) -> dict[str, Any]:
    return {"labels": dict(labels), "value": value, "distribution": distribution}


def gauges(values: Mapping[int, float]) -> list[dict[str, Any]]:
    """Gauges, by device."""
    return [sample({"device-id": device}, value) for device, value in values.items()]


def latency(count: int, mean: float, **labels: str | int) -> dict[str, Any]:
    """A cumulative distribution of microseconds."""
    third = count // 3
    buckets = [0, third, third, count - 2 * third]
    distribution = {"count": count, "mean": mean, "buckets": buckets, "bounds": [100.0, 200.0, 400.0]}
    return sample(labels, None, distribution)


def busy_answers(devices: list[int], tick: int, chips: list[int] | None = None, hbm: int = 16) -> dict[str, Any]:
    """A runtime at work, with every metric."""
    chips = chips or devices
    executed = 1000 + 250 * tick
    sizes = {"collective": "input_size", "compute": "buffer_size"}
    transfers = {
        name: [
            latency(400 * (place + 1) + 40 * tick, 180.5 + 7 * place, **{sizes.get(kind, "buffer-size"): "8MB+"}),
            latency(90 * (place + 1) + 9 * tick, 61.25, **{sizes.get(kind, "buffer-size"): "1MB+"}),
        ]
        for place, (kind, name) in enumerate(fields.TRANSFERS.items())
    }
    return {
        fields.DUTY_CYCLE: gauges({chip: 71.5 + 2.5 * tick - place for place, chip in enumerate(chips)}),
        fields.MEMORY_TOTAL: gauges(dict.fromkeys(devices, hbm * GIB)),
        fields.MEMORY_USED: gauges({device: (5 + tick) * GIB + place * 4096 for place, device in enumerate(devices)}),
        fields.MEMORY_BANDWIDTH: gauges({device: 33.0 + tick + place for place, device in enumerate(devices)}),
        fields.QUEUE_SIZE: [
            sample({"device_ordinal": str(device), "core_type": "tensorcore"}, 2 + tick + place)
            for place, device in enumerate(devices)
        ],
        fields.IDLE_DURATION: gauges({device: 0.25 * place for place, device in enumerate(devices)}),
        fields.EXECUTION: [
            latency(executed + place, 150.5, device_ordinal=str(device), core_type="tensorcore")
            for place, device in enumerate(devices)
        ],
        **transfers,
    }


PAGE = """\
Timestamp: 09:14:0{tick}
TPU type: TPU v2
Number of TPU cores: 8 (Replica count = 8, num cores per replica = 1)
TPU idle time (lower is better): {idle}%
Utilization of TPU Matrix Units (higher is better): {matrix}%
Step time: 88.1ms (avg), 87.0ms (min), 90.4ms (max)
Infeed percentage: 0.000% (avg), 0.000% (min), 0.000% (max)
"""


def _v5e(tick: int) -> Fabricated:
    return tpu_host(bus("0063", 4), {HERE: busy_answers([0, 1, 2, 3], tick)})


def _v3(tick: int) -> Fabricated:
    """An older runtime, which numbers devices; the two cores of a chip share one duty cycle."""
    answers = busy_answers([0, 1, 2, 3, 4, 5, 6, 7], tick, [0, 1, 2, 3])
    return tpu_host(
        bus("0027", 4, "004f"),
        {HERE: {name: answers[name] for name in (fields.DUTY_CYCLE, fields.MEMORY_TOTAL, fields.MEMORY_USED)}},
    )


def _v4(tick: int) -> Fabricated:
    """The second host of a slice; device numbers run over the whole slice."""
    return tpu_host(bus("005e", 4), {HERE: busy_answers([8, 9, 12, 13], tick, hbm=32)})


def _two_programs(tick: int) -> Fabricated:
    """One PCI function per core, and one process per chip; one of them hangs at first."""
    servers: dict[str, Any] = {
        "localhost:8431": busy_answers([0, 1], tick, hbm=96),
        "localhost:8432": DriverError(4, "timed out after 0.5 s") if tick == 0 else busy_answers([2, 3], tick, hbm=96),
    }
    return tpu_host(bus("0076", 2, functions=2), servers)


def _starting_and_ending(tick: int) -> Fabricated:
    """A TPU that is idle, then used by a program, then idle again."""
    answers: Any = busy_answers([0], tick) if tick == 1 else REFUSED
    return tpu_host(bus("006f", 1), {HERE: answers})


def _implausible(tick: int) -> Fabricated:
    """Implausible and incomplete answers."""
    answers = {
        fields.DUTY_CYCLE: gauges({0: 101.0, 1: -1.0, 2: 50.0}),
        fields.MEMORY_TOTAL: gauges({0: 16 * GIB, 1: 0, 2: 16 * GIB}),
        fields.MEMORY_USED: gauges({0: 17 * GIB, 1: GIB, 2: GIB}),
        fields.MEMORY_BANDWIDTH: [
            sample({}, 5.0),
            sample({"device-id": "x"}, 6.0),
            sample({"device-id": 2}),
            *gauges({2: 4.0}),
        ],
        fields.QUEUE_SIZE: [
            sample({"device_ordinal": 2, "core_type": "Tensor Core!"}, 3),
            sample({"core_type": "tensorcore"}, 1),
        ],
        fields.IDLE_DURATION: gauges({2: -0.5}),
        fields.EXECUTION: [latency(0, 0.0, device_ordinal=2), sample({"device_ordinal": 2})],
        fields.TRANSFERS["dcn"]: [latency(10, 5.0, buffer_size="<script>"), latency(-1, 5.0, buffer_size="8MB+")],
    }
    return tpu_host(bus("0063", 4), {HERE: answers})


def _node(tick: int) -> Fabricated:
    page = PAGE.format(tick=tick, idle=36.9 - tick, matrix=10.1 + 3 * tick)
    return tpu_host({}, {"10.0.0.2:8466": page if tick < 2 else REFUSED})


def _driver(tick: int) -> Fabricated:
    line = json.dumps(
        {
            "tensorcore_util": [f"{20.5 + tick:.2f}", "0.00"],
            "ici_link_health": ["tray1.chip0.ici0.int: 0", f"tray1.chip0.ici1.int: {7 + tick}"],
            "tpu_throttle_score": ["0-0", f"1-{tick}"],
        }
    ).encode()
    return tpu_host(bus("006f", 2), {HERE: REFUSED}, [line] if tick < 2 else ChildProcessError("libtpu exited"))


def _none(tick: int) -> Fabricated:
    return tpu_host({**bus("0042", 0)}, {})


def _story(name: str, machine: str, at: Any, **settings: Any) -> Story:
    return Story("tpu", name, machine, at, settings={**SPARSE, **settings})


TPUS = (
    _story("v5e", "TPU VM v5litepod-4", _v5e),
    _story("v3", "TPU VM v3-8, older runtime", _v3),
    _story("v4-second-host", "TPU VM v4-16, the second of two hosts", _v4),
    _story("7x-processes", "TPU VM with 2 TPU7x chips and two programs", _two_programs, tpu_runtime="8431,8432"),
    _story("v6e-coming-and-going", "TPU VM v6e-1", _starting_and_ending),
    _story("implausible-values", "TPU VM v5litepod-4 with implausible and missing values", _implausible),
    _story("node", "a machine that uses a TPU node v2-8", _node, tpu_profiler="10.0.0.2:8466"),
    _story("driver", "TPU VM with 2 TPU v6e chips and libtpu", _driver, libtpu="on"),
    _story("none", "a machine with another device of Google", _none),
)


# -- sources


class Cloudless(Drivers):
    """The drivers of this machine, without a TPU on its PCI bus."""

    def files(self) -> Any:
        return Tree({})


class Bus(Drivers):
    """The drivers of this machine, with two TPU chips on its PCI bus."""

    def __init__(self, device: str = "006f") -> None:
        super().__init__()
        self._device = device

    def files(self) -> Any:
        return Tree(bus(self._device, 2, "004f"))


@contextmanager
def open_source(*places: str, **settings: Any) -> Iterator[Source]:
    """The source with these runtime addresses, on a machine without a TPU on its PCI bus."""
    with opened("tpu", Cloudless(), tpu_runtime=list(places), **settings) as source:
        yield source


def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Replace the interpreter of child processes by a shell script."""
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))
