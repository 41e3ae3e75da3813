"""neuron-monitor as a real child: faults, configuration, periods and W&B's keys."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.sources.npus import HOST, TRN1, npu_host, open_trainium, report, reports_of, runtime
from tests.sources.playing import Ahead, beside_the_host
from tests.sources.reading import all_of, often, opened, series_of, value
from tests.support.children import PROGRAMS, lives, run
from tests.support.waiting import wait_for
from tests.support.wandb import row

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.drivers.streaming import period_for
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.sources.trainium.report import parse
from opentelemetry.instrumentation.hardware.sources.trainium.tool import configuration, configured_period

pytestmark = pytest.mark.usefixtures("no_child_is_left")
linux = pytest.mark.skipif(sys.platform != "linux", reason="the Neuron driver is for Linux")

LONG = 60.0


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long timeouts for the first line of a child, for busy machines."""
    monkeypatch.setattr("opentelemetry.instrumentation.hardware.sources.trainium.driver._FIRST_REPORT", LONG)
    monkeypatch.setattr("opentelemetry.instrumentation.hardware.drivers.streaming._FIRST_LINE", LONG)


class Tool:
    """A substitute for neuron-monitor in a folder."""

    def __init__(self, folder: Path, *reports: Mapping[str, Any], **how: object) -> None:
        self.folder = folder
        path = folder / "neuron-monitor"
        path.write_text(f'#!/bin/sh\nexec {sys.executable} {PROGRAMS / "tools/neuron_monitor.py"} {folder} "$@"\n')
        path.chmod(0o755)
        (folder / "reports").write_text("".join(json.dumps(each) + "\n" for each in reports))
        (folder / "how").write_text(json.dumps({"faster": 50, **how}))
        self.settings: dict[str, Any] = {"neuron_monitor": str(path), "sample_interval": 1}

    @property
    def runs(self) -> list[dict[str, Any]]:
        path = self.folder / "runs"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def own(tick: int, cores: tuple[int, ...] = (0, 1)) -> Mapping[str, Any]:
    return report([runtime(os.getpid(), cores, tick)], 1, tick, TRN1)


def shares(source: Any) -> set[float]:
    return {number for number in series_of(often(source), c.HW_NPU_UTILIZATION).values() if isinstance(number, float)}


@linux
def test_neuron_monitor_runs_while_the_source_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "SECRET", "NEURON_RT_LOG_LEVEL", "AWS_NEURON_VISIBLE_DEVICES", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "/nowhere")
    tool = Tool(tmp_path, own(1), own(2))
    with opened("trainium", **tool.settings) as source:
        points = all_of(source)
        assert series_of(points, c.HW_NPU_UTILIZATION)
        assert value(points, c.AWS_NEURON_RUNTIME_CPU_UTILIZATION, {c.CPU_MODE: "user"}) == 0.1925
        wait_for(lambda: 0.935 in shares(source), LONG, "second report")
        (run,) = tool.runs
    wait_for(lambda: not lives(run["pid"]), LONG, "end of the tool")
    configuration_ = run["configuration"]
    assert configuration_["period"] == "1s"
    types = [each["type"] for each in configuration_["neuron_runtimes"][0]["metrics"]]
    assert types == ["neuroncore_counters", "memory_used", "execution_stats", "neuron_runtime_vcpu_usage"]
    assert configuration_["system_metrics"] == [{"type": "neuron_hw_counters"}]
    assert {"NEURON_RT_LOG_LEVEL", "AWS_NEURON_VISIBLE_DEVICES"} <= {*run["named"]}
    assert not {"PYTHONPATH", "SECRET", "AWS_SECRET_ACCESS_KEY"} & {*run["named"]}


@pytest.mark.whole
@linux
def test_neuron_monitor_is_found_in_opt_aws(tmp_path: Path) -> None:
    script = f"""
import os, subprocess
from {parse.__module__.rpartition(".")[0]}.tool import TOOL
subprocess.run(["mount", "-t", "tmpfs", "none", "/opt"], check=True)
os.makedirs("/opt/aws/neuron/bin")
open("/opt/aws/neuron/bin/neuron-monitor", "w").close()
os.chmod("/opt/aws/neuron/bin/neuron-monitor", 0o755)
print(TOOL.find())
"""
    done = run(["unshare", "-rm", sys.executable, "-c", script], {"PATH": "/usr/bin:/bin"}, cwd=tmp_path)
    if "not permitted" in done.stderr:
        pytest.skip(f"no namespaces of our own: {done.stderr.strip()[-100:]}")
    assert done.stdout.strip() == "/opt/aws/neuron/bin/neuron-monitor", done.stderr


@linux
def test_neuron_monitor_config_of_the_user_is_passed_unchanged(tmp_path: Path) -> None:
    tool = Tool(tmp_path, own(1))
    (tmp_path / "own.json").write_text('{"period": "7s", "mine": true}')
    with opened("trainium", neuron_monitor_config=str(tmp_path / "own.json"), **tool.settings) as source:
        all_of(source)
        assert tool.runs[0]["configuration"] == {"period": "7s", "mine": True}


@linux
def test_missing_config_of_the_user_is_an_error_of_the_tool(tmp_path: Path) -> None:
    tool = Tool(tmp_path, own(1))
    with opened("trainium", neuron_monitor_config=str(tmp_path / "missing.json"), **tool.settings) as source:
        assert all_of(source) == {}
        (error,) = source.errors
    assert error.startswith("neuron-monitor exited: FileNotFoundError")


@linux
@pytest.mark.parametrize(
    ("how", "reason"),
    [
        pytest.param({"exit_after": 1}, "neuron-monitor exited: nrt_init failed", id="exits"),
        pytest.param({"silent_after": 1}, "printed nothing for 3 periods", id="falls silent"),
    ],
)
def test_failing_neuron_monitor_costs_only_its_own_metrics_and_is_restarted(
    tmp_path: Path, how: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opentelemetry.instrumentation.hardware.sources.trainium.driver._FIRST_REPORT", 0.2)
    tool, drivers = Tool(tmp_path, own(1), **how), Ahead()
    with beside_the_host("trainium", drivers, tool.settings) as stage:
        lines_: list[str] = []

        def reported() -> bool:
            return any(line.startswith("hw.npu.util") for line in stage.tick())

        def failed() -> bool:
            lines_[:] = [*stage.tick(), *stage.remarks()]
            return any("# failed" in line and reason in line for line in lines_)

        if "silent_after" in how:
            wait_for(reported, LONG, "start of the tool")
            drivers.seconds += LONG + 1  # until when another report is waited for
        wait_for(failed, LONG, f"{reason}; there was {lines_[:3]}")
        assert any(line.startswith("system.cpu.time") for line in lines_), "the host is still reported"
        assert not [line for line in lines_ if line.startswith("hw.npu.util")]
        first = tool.runs[0]["pid"]
        wait_for(lambda: not lives(first), LONG, "end of the tool")
        (tmp_path / "how").write_text('{"faster": 50}')
        drivers.seconds += 2  # the pause before the second run is one second
        wait_for(reported, LONG, "another run")
        assert 2 <= len(tool.runs) <= 4


@linux
def test_silent_neuron_monitor_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opentelemetry.instrumentation.hardware.sources.trainium.driver._FIRST_REPORT", 0.2)
    with opened("trainium", **Tool(tmp_path, own(1), silent_after=0).settings) as source:
        assert all_of(source) == {}
        assert source.errors == ["neuron-monitor has not reported yet"]


@linux
def test_neuron_monitor_with_other_output_makes_the_source_fail(tmp_path: Path) -> None:
    tool = Tool(tmp_path, {"hello": "world"})
    with beside_the_host("trainium", Drivers(), tool.settings) as stage:
        stage.tick()
        assert any("# failed" in line and "not a report" in line for line in stage.remarks())


def test_neuron_monitor_is_not_run_without_a_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Tool(tmp_path, own(1))
    monkeypatch.setenv("PATH", str(tmp_path))
    drivers = npu_host({**HOST, "/dev/null": ""}, reports_of())
    with pytest.raises(Unavailable, match="no Neuron driver is loaded"):
        open_trainium(drivers)
    assert drivers.tree.asked == []
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("interval", "period"), [(0, 30.0), (0.5, 1.0), (2, 2.0), (2.5, 3.0), (3600, 60.0)])
def test_report_period_is_the_sample_interval_in_whole_seconds(interval: float, period: float) -> None:
    assert period_for(interval) == period
    assert json.loads(configuration(period, True))["period"] == f"{period:.0f}s"


@pytest.mark.parametrize(
    ("config", "period"),
    [
        (b'{"period": "7s"}', 7),
        (b'{"period": "500ms"}', 0.5),
        (b'{"period": "1m"}', 60),
        (b'{"period": "1m30s"}', 90),
        (b'{"period": "1m 30s"}', 5),
        (b'{"period": "30"}', 5),
        (b'{"period": "0s"}', 0.1),
        (b'{"period": 3}', 5),
        (b"", 5),
        (b"[]", 5),
    ],
)
def test_report_period_of_the_users_configuration_is_parsed(config: bytes, period: float) -> None:
    assert configured_period(config) == period


@linux
def test_wandb_keys_are_of_the_runtime_of_the_process(tmp_path: Path) -> None:
    tool = Tool(tmp_path, own(1, (4, 5)))
    keys = row("trainium", os.getpid(), **tool.settings)
    used = {key: value for key, value in keys.items() if key.endswith("neuroncore_utilization")}
    assert used == {"trn.4.neuroncore_utilization": 40.0625, "trn.5.neuroncore_utilization": 20.0312}
    assert keys["trn.host_total_memory_usage"] == 610_705_409
    assert keys["trn.neuron_device_total_memory_usage"] == 2 * 102_265_561
    assert keys["trn.host_total_memory_usage.dma_buffers"] == 1_048_576
    assert keys["trn.host_memory_usage.dma_buffers"] == 1_048_576
    assert keys["trn.4.neuroncore_memory_usage.tensors"] == 943_608
    assert len(keys) == 2 + 2 * 4 + 2 * (1 + 5)
