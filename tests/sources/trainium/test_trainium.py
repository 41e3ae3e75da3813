"""The trainium source without a driver and without its tool."""

from __future__ import annotations

import os

import pytest
from tests.sources.npus import HOST, npu_host, old_files, open_trainium, program, reports_of
from tests.sources.reading import Portable, all_of, series_of

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Unavailable


def test_neuron_monitor_off_still_reads_sysfs() -> None:
    drivers = npu_host(HOST | old_files(1, 2, 1) | program(), reports_of())
    source = open_trainium(drivers, settings={"neuron_monitor": "off"})
    assert series_of(all_of(source), c.AWS_NEURON_NEURONCORE_MEMORY_USAGE)
    assert any("neuron-monitor is switched off" in sentence for sentence in source.unsupported)
    with pytest.raises(Unavailable, match="switched off"):
        open_trainium(npu_host(HOST | {"/dev/neuron0": ""}, reports_of()), settings={"neuron_monitor": "off"})


def test_neuron_devices_are_unavailable_outside_linux() -> None:
    with pytest.raises(Unavailable, match="only supported on Linux"):
        open_trainium(Portable(), pid=os.getpid(), settings={"neuron_monitor": "/opt/neuron-monitor"})
