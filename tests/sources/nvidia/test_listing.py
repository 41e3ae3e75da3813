"""The NVIDIA source without NVML: a real child prints XML documents as nvidia-smi does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.samples import samples
from tests.sources.reading import often, opened, value
from tests.sources.tree import Fabricated, Tree

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.fields import QUANTITIES
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.model import Rate, Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import Source, SourceContext
from opentelemetry.instrumentation.hardware.sources.nvidia import Nvidia
from opentelemetry.instrumentation.hardware.sources.nvidia.listing import PACE
from opentelemetry.instrumentation.hardware.sources.nvidia.smi import parse

SMI = Path(__file__).parent / "smi"
DOCUMENTS = [pytest.param(path, id=path.stem) for path in sorted(SMI.glob("*.xml"))]
TEXT = (SMI / "v12-l40s.xml").read_text()
PROCESS = """<process_info><gpu_instance_id>N/A</gpu_instance_id><compute_instance_id>N/A</compute_instance_id>
<pid>{pid}</pid><type>C</type><process_name>python</process_name><used_memory>{used} MiB</used_memory></process_info>"""


class Machine:
    """A tool named nvidia-smi and the document that it prints."""

    def __init__(self, folder: Path) -> None:
        self.tool = folder / "nvidia-smi"
        self._page = folder / "page.xml"
        self._runs = folder / "runs"
        self.tool.write_text(f"#!/bin/sh\necho run >> {self._runs}\ncat {self._page}\n")
        self.tool.chmod(0o755)
        self.says(0)

    def prints(self, page: bytes) -> None:
        """Let the tool print this document."""
        self._page.write_bytes(page)

    def says(self, used: int) -> None:
        """Let the tool print that this process uses so many MiB of the first GPU."""
        begin, _, rest = TEXT.partition("<processes>")
        process = PROCESS.format(pid=os.getpid(), used=used)
        self._page.write_text(f"{begin}<processes>{process}</processes>{rest.partition('</processes>')[2]}")

    def runs(self) -> int:
        return len(self._runs.read_text().splitlines()) if self._runs.exists() else 0

    def open(self, is_reporter: bool) -> Source:
        config = Config.read({"nvml": "off", "nvidia_smi": str(self.tool)}, {})
        source = Nvidia(SourceContext(config, Drivers(), os.getpid(), is_reporter, {}))
        source.open()
        return source


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_nvidia_smi_runs_once_per_reading(machine: Machine) -> None:
    machine.says(100)
    source = machine.open(is_reporter=True)
    assert source.min_interval == PACE
    found = often(source)
    assert machine.runs() == 1
    (gpu,) = {series.attributes[c.HW_ID] for series in found if series.metric is c.HW_GPU_INFO}
    used = {series: number for series, number in source.read_slow() if series.metric is c.PROCESS_GPU_MEMORY_USAGE}
    assert machine.runs() == 1, "who uses the GPUs stands in the same document"
    assert value(used, c.PROCESS_GPU_MEMORY_USAGE, {c.HW_ID: gpu}) == 100 << 20
    often(source)
    assert machine.runs() == 2
    source.close()


def test_rows_that_nvidia_smi_lacks_are_missing(machine: Machine) -> None:
    source = machine.open(is_reporter=True)
    rows = {series.metric.name for series in often(source)}
    list(source.read_slow())
    (sentence,) = (each for each in source.unsupported if each.endswith(": nvidia-smi does not say it"))
    for words in ("hw.gpu.io (pcie transmit", "hw.gpu.sm.occupancy", "xid", "process.gpu.utilization"):
        assert words in sentence
    assert not {"hw.gpu.io", "hw.gpu.sm.occupancy"} & rows
    assert "hw.power" in rows
    assert "hw.power" not in sentence
    assert "throttle" not in sentence, "reasons that hold are said in one form or another"
    source.close()


@pytest.mark.parametrize("path", [*DOCUMENTS, *samples("nvidia/*.xml")])
def test_every_number_of_an_xml_document_is_a_point_of_its_device(machine: Machine, path: Path) -> None:
    machine.prints(path.read_bytes())
    source = machine.open(is_reporter=True)
    found = often(source)
    source.close()
    expected: dict[tuple[str, str, frozenset[tuple[str, object]]], object] = {}
    for device in parse(path.read_bytes()).devices:
        whole = device.uuid or f"gpu{device.index}"
        parts = [
            (each.uuid or f"{whole}/{each.gpu_instance}/{each.compute_instance}", each.numbers)
            for each in device.instances
        ]
        for id, numbers in [(whole, device.numbers), *parts]:  # noqa: A001
            for quantity in QUANTITIES.keys() & numbers.keys():
                metric, attributes = QUANTITIES[quantity][0]
                said = f"{id}/fan0" if quantity == "fan.ratio" else id
                expected[metric.name, said, frozenset(attributes.items())] = numbers[quantity]
    told = {
        (
            series.metric.name,
            str(series.attributes[c.HW_ID]),
            frozenset((key, word) for key, word in series.attributes.items() if key not in WHOSE),
        ): number
        for series, number in found.items()
        if series.metric not in FOLLOWING and not isinstance(number, Rate)
    }
    assert told == expected
    assert expected


WHOSE = (c.HW_ID, c.HW_NAME, c.HW_TYPE, c.HW_PARENT)
FOLLOWING = (
    *(
        c.HW_GPU_INFO,
        c.HW_STATUS,
        c.HW_GPU_MEMORY_PEAK,
        c.HW_GPU_MEMORY_UTILIZATION,
        c.HW_POWER_PEAK,
    ),
    *(c.HW_POWER_UTILIZATION, c.HW_TEMPERATURE_PEAK, c.HW_GPU_UTILIZATION_PEAK),
)
"""Rows that are computed from others, or without a number."""


def test_job_member_runs_nvidia_smi_itself_and_reports_only_its_memory(machine: Machine) -> None:
    machine.says(100)
    source = machine.open(is_reporter=False)
    for used in (100, 250):
        machine.says(used)
        assert often(source) == {}
        points = list(source.read_slow())
        assert {series.metric for series, _ in points} == {c.PROCESS_GPU_MEMORY_USAGE}
        assert [value for _, value in points] == [used << 20]
    assert machine.runs() == 2
    source.close()


def test_nvml_off_and_nvidia_smi_off_is_unavailable() -> None:
    drivers = Fabricated(Tree({"/proc/driver/nvidia/version": "NVRM"}))
    with pytest.raises(Unavailable, match="both switched off"), opened("nvidia", drivers, nvml="off", nvidia_smi="off"):
        pass
