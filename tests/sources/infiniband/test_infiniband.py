"""Ports of InfiniBand adapters, over made-up files; hanging adapters are in test_faults."""

from __future__ import annotations

import os
from errno import EIO

import pytest
from tests.sources.machines import infiniband
from tests.sources.reading import Portable, all_of, opened, series_of
from tests.sources.tree import Fabricated, Tree
from tests.support import children

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Series, Unavailable, Value

DEAD = OSError(EIO, os.strerror(EIO))


def _ports(found: dict[Series, Value]) -> set[object]:
    return {series.attributes[c.HW_ID] for series in found}


def test_infiniband_is_unavailable_outside_linux() -> None:
    with pytest.raises(Unavailable, match="not Linux"):
        opened("infiniband", Portable()).__enter__()


def test_unreadable_port_loses_its_metrics_and_all_ports_are_an_error() -> None:
    tree = Tree(infiniband(0))
    with opened("infiniband", Fabricated(tree)) as source:
        whole = all_of(source)
        assert _ports(whole) == {"mlx5_0/1", "mlx5_1/1"}
        assert source.unsupported == []
        tree.files |= {name: DEAD for name in tree.files if "mlx5_1" in name}
        assert _ports(all_of(source)) == {"mlx5_0/1"}
        assert source.unsupported == ["mlx5_1/1: none of its files can be read"]
        tree.files |= {name: DEAD for name in tree.files if "mlx5_0" in name}
        with pytest.raises(OSError, match="no port can be read"):
            all_of(source)
        tree.files.clear()
        with pytest.raises(OSError, match="no port can be read"):
            all_of(source)
        tree.files |= infiniband(0)
        assert all_of(source) == whole
        assert source.unsupported == []


def test_adapter_of_another_kind_has_its_bytes_among_its_own_counters() -> None:
    """EFA has no counters of the InfiniBand standard, and those of an old iWARP adapter are texts."""
    port = "/sys/class/infiniband/rdmap0s6/ports/1/"
    files = {"state": "4: ACTIVE\n", "hw_counters/tx_bytes": "7004\n", "hw_counters/rx_bytes": "9001\n"}
    for standard in ({}, {"counters/port_xmit_data": "N/A (no PMA)\n"}):
        tree = Tree({port + name: text for name, text in {**files, **standard}.items()})
        with opened("infiniband", Fabricated(tree)) as source:
            found = series_of(all_of(source), c.HW_NETWORK_IO)
        assert {series.attributes[c.NETWORK_DIRECTION]: count for series, count in found.items()} == {
            "transmit": 7004,
            "receive": 9001,
        }


@pytest.mark.parametrize("text", ["", "\n", "N/A\n", "-1\n", "0x10\n", "3 4\n", "²\n", "9" * 5000])
def test_invalid_counter_text_is_absent(text: str) -> None:
    tree = Tree(infiniband(0))
    with opened("infiniband", Fabricated(tree)) as source:
        whole = all_of(source)
        port = "/sys/class/infiniband/mlx5_0/ports/1/counters/"
        tree.files |= {port + "symbol_error": text, port + "port_rcv_data": text}
        lost = {(str(series.metric.name), *series.attributes.values()) for series in whole.keys() - all_of(source)}
    assert lost == {
        ("hw.errors", "mlx5_0/1", "mlx5_0/1", "network", "symbol"),
        ("hw.network.io", "mlx5_0/1", "mlx5_0/1", "receive"),
    }


@pytest.mark.whole
def test_snapshot_finds_adapters_in_sysfs() -> None:
    found = children.scene("machines/rdma_machine", "otel-hardware", "snapshot", "--window", "0.1", "--format", "json")
    points = {
        tuple(sorted(point["attributes"].items())): point["value"]
        for point in found["metrics"]
        if point["name"] in ("hw.network.io", "hw.network.up")
    }
    first, second = ({"hw.id": f"mlx5_{number}/1", "hw.name": f"mlx5_{number}/1"} for number in (0, 1))
    assert points == {
        tuple(sorted(attributes.items())): number
        for attributes, number in (
            (first, 1),
            (second, 0),
            ({**first, "network.io.direction": "transmit"}, 3_600_000_000),
            ({**first, "network.io.direction": "receive"}, 4_400_000_000),
        )
    }
