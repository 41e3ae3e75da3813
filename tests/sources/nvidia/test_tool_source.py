"""The NVIDIA source without NVML: a real child prints XML documents as nvidia-smi does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.sources.playing import playing
from tests.sources.reading import often, opened, value
from tests.sources.tree import Fabricated, Tree

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import Source, SourceContext
from opentelemetry.instrumentation.hardware.sources.nvidia import Nvidia
from opentelemetry.instrumentation.hardware.sources.nvidia.tool import MIN_INTERVAL

SMI = Path(__file__).parent / "smi"
TEXT = (SMI / "v12-l40s.xml").read_text()
PROCESS = """<process_info><gpu_instance_id>N/A</gpu_instance_id><compute_instance_id>N/A</compute_instance_id>
<pid>{pid}</pid><type>C</type><process_name>python</process_name><used_memory>{used} MiB</used_memory></process_info>"""


class Machine:
    """A tool named nvidia-smi and the document that it prints."""

    def __init__(self, folder: Path) -> None:
        self.tool = folder / "nvidia-smi"
        self._page = folder / "page.xml"
        self._runs = folder / "runs"
        self.crash = folder / "crash"
        self.tool.write_text(
            f"#!/bin/sh\necho run >> {self._runs}\ncat {self._page}\n[ ! -e {self.crash} ] || kill -SEGV $$\n"
        )
        self.tool.chmod(0o755)
        self.print_usage(0)

    def print_document(self, page: bytes) -> None:
        """Let the tool print this document."""
        self._page.write_bytes(page)

    def print_usage(self, used: int) -> None:
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
    machine.print_usage(100)
    source = machine.open(is_reporter=True)
    assert source.readings()[0].apart == MIN_INTERVAL
    found = often(source)
    assert machine.runs() == 1
    (gpu,) = {series.attributes[c.HW_ID] for series in found if series.metric is c.HW_POWER}
    used = {series: number for series, number in source.read_slow() if series.metric is c.PROCESS_GPU_MEMORY_USAGE}
    assert machine.runs() == 1, "the same document has the processes"
    assert value(used, c.PROCESS_GPU_MEMORY_USAGE, {c.HW_ID: gpu}) == 100 << 20
    often(source)
    assert machine.runs() == 2
    source.close()


def test_job_member_runs_nvidia_smi_itself_and_reports_only_its_memory(machine: Machine) -> None:
    machine.print_usage(100)
    source = machine.open(is_reporter=False)
    for used in (100, 250):
        machine.print_usage(used)
        assert often(source) == {}
        points = list(source.read_slow())
        assert {series.metric for series, _ in points} == {c.PROCESS_GPU_MEMORY_USAGE}
        assert [value for _, value in points] == [used << 20]
    assert machine.runs() == 2
    source.close()


@pytest.mark.parametrize("printed", ["", TEXT[: TEXT.index("<gpu_temp>")]], ids=["nothing", "half a GPU"])
@pytest.mark.parametrize("at_first", [True, False], ids=["at first", "later"])
def test_source_is_down_while_nvidia_smi_crashes(machine: Machine, printed: str, at_first: bool) -> None:
    settings = {"sources": ["nvidia"], "nvml": "off", "nvidia_smi": str(machine.tool)}
    with playing(lambda source: Drivers(), settings) as stage:

        def is_up() -> bool:
            stage.clock.now += 60
            (line,) = [line for line in stage.tick() if line.startswith("otel_hardware.source.up{")]
            return " 1 " in line

        assert at_first or is_up()
        machine.print_document(printed.encode())
        machine.crash.touch()
        assert not is_up()
        assert not any(line.startswith("hw.power{") for line in stage.collect())
        assert [remark for remark in stage.remarks() if "exits with -11" in remark]
        machine.print_usage(100)
        machine.crash.unlink()
        assert is_up()
        assert any(line.startswith("hw.power{") for line in stage.collect())


def test_source_is_down_but_exports_the_gpus_that_nvidia_smi_printed_before_it_crashed(machine: Machine) -> None:
    machine.print_document((SMI / "v12-truncated.xml").read_bytes())
    machine.crash.touch()
    settings = {"sources": ["nvidia"], "nvml": "off", "nvidia_smi": str(machine.tool)}
    with playing(lambda source: Drivers(), settings) as stage:
        found = stage.tick()
        assert len([line for line in found if line.startswith("hw.power{")]) == 2
        assert any(line.startswith("otel_hardware.source.up{") and " 0 " in line for line in found)
        assert any("the output of nvidia-smi ends after 2 of 4 GPUs" in remark for remark in stage.remarks())


def test_nvml_off_and_nvidia_smi_off_is_unavailable() -> None:
    drivers = Fabricated(Tree({"/proc/driver/nvidia/version": "NVRM"}))
    with (
        pytest.raises(Unavailable, match="NVML is switched off"),
        opened("nvidia", drivers, nvml="off", nvidia_smi="off"),
    ):
        pass


@pytest.mark.parametrize(
    "path",
    [
        *Nvidia.signs,
        "/proc/driver/nvidia/params",
        "/dev/dxg",
        "/sys/module/nvgpu",
        "/usr/lib/wsl/lib/libnvidia-ml.so.1",
    ],
)
def test_each_sign_of_a_driver_is_enough_to_try_it(path: str) -> None:
    config = Config.read({}, {})
    assert Nvidia.is_expected(config, {}, Tree({path: ""}))
    assert not Nvidia.is_expected(config, {}, Tree({"/dev/nvidia0": ""}))
