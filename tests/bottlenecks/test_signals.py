"""The signals of points as sources make them."""

from __future__ import annotations

import pytest

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.bottlenecks.signals import CRITICAL_XIDS, Signals, signals
from opentelemetry.instrumentation.hardware.model import Point, Series, Values

DEVICE = {c.HW_ID: "GPU-1", c.HW_NAME: "GPU 0", c.HW_TYPE: "gpu"}


def of(*points: Point, rates: dict[Series, float] | None = None) -> Signals:
    """The signals of one GPU with these points."""
    info = c.HW_GPU_INFO(1, {c.HW_ID: "GPU-1", c.HW_NAME: "GPU 0", c.HW_MODEL: "H100"})
    values: Values = {}
    for series, value in (info, *points):
        assert isinstance(value, (int, float))
        values.setdefault(series.metric, []).append((value, series.attributes))
    return signals(values, rates or {})["GPU-1"]


@pytest.mark.parametrize("number", ["48", "79", "31", "other"])
def test_xids_that_need_a_repair_are_counted_and_others_are_not(number: str) -> None:
    xid = Series(c.HW_ERRORS, {**DEVICE, c.ERROR_TYPE: "xid", c.GPU_XID: number})
    critical = Series(c.HW_ERRORS, {**DEVICE, c.ERROR_TYPE: "xid", c.GPU_XID: "95"})
    found = of(xid(3), critical(0), rates={xid: 0.5})
    assert found["xids"] == (0.5 if number in CRITICAL_XIDS else 0.0)


def test_cpus_are_a_mean_with_and_without_a_series_for_each() -> None:
    one = [c.SYSTEM_CPU_UTILIZATION(0.6, {c.CPU_MODE: "user"}), c.SYSTEM_CPU_UTILIZATION(0.1, {c.CPU_MODE: "iowait"})]
    each = [
        c.SYSTEM_CPU_UTILIZATION(share, {c.CPU_NUMBER: cpu, c.CPU_MODE: mode})
        for cpu, shares in enumerate(({"user": 1.0, "iowait": 0.0}, {"user": 0.2, "iowait": 0.2}))
        for mode, share in shares.items()
    ]
    for points in (one, each):
        found = of(*points)
        assert found["host_busy"] == pytest.approx(0.6)
        assert found["iowait"] == pytest.approx(0.1)


def test_what_no_source_reports_is_absent() -> None:
    assert not {"busy", "io_stall", "quota", "program", "xids", "nvlinks"} & of().keys()


def test_affinity_limits_the_cpus_of_the_program() -> None:
    machine = [c.SYSTEM_CPU_LOGICAL_COUNT(64), c.CONTAINER_CPU_LIMIT(32.0)]
    tree = [c.PROCESS_TREE_COUNT(9), c.PROCESS_TREE_CPU_UTILIZATION(0.5)]
    signals = of(*machine, *tree, c.PROCESS_CPU_LIMIT(8))
    assert (signals["cpus"], signals["program_cpus"], signals["program"]) == (8, 4.0, 0.5)
    assert of(*machine, *tree)["cpus"] == 32.0


def test_pcie_is_the_share_of_its_busier_direction() -> None:
    """Each direction has the bandwidth of the link: 64 GB/s for 16 lanes of 32 GT/s."""
    gpu = {c.HW_ID: "GPU-1", c.HW_NAME: "GPU 0"}
    link = [c.HW_GPU_PCIE_WIDTH(16, gpu), c.HW_GPU_PCIE_GENERATION(5, gpu)]
    sent, received = (
        Series(c.HW_GPU_IO, {**gpu, c.GPU_LINK: "pcie", c.NETWORK_DIRECTION: direction})
        for direction in ("transmit", "receive")
    )
    found = of(*link, sent(0), received(0), rates={sent: 50e9, received: 60e9})
    assert found["pcie"] == pytest.approx(60 / 64)
    assert "pcie" not in of(*link)
