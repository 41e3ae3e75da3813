"""Each alert fires, clears and ignores a near miss, in simulations of Prometheus (promtool) and VictoriaMetrics.

A case has series of three hosts: of "bad" the trouble begins after 30 minutes and ends after 90, "near" has a near miss
all the time, and "good" has none.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from tests.support.children import ROOT
from tests.tools import program, vmalert_tool

FOLDER = ROOT / "collector-config" / "alerts"
RULES = [FOLDER / "recording.yml", FOLDER / "alerts.yml"]

DEVICE = 'hw_id="g0", hw_name="GPU 0", hw_type="gpu"'
XID = f'hw_errors_total{{{DEVICE}, error_type="xid", hw_gpu_xid="79"}}'
THROTTLE = f"hw_gpu_throttle_time_seconds_total{{{DEVICE}, hw_gpu_throttle_reason="
BUSY = 'hw_gpu_utilization_ratio{hw_id="g0", hw_name="GPU 0", hw_gpu_task="general"}'
OTHERS = [f'hw_gpu_utilization_ratio{{hw_id="g{at}", hw_name="GPU {at}", hw_gpu_task="general"}}' for at in (1, 2)]
HOLDER = 'hw_holder_info{hw_id="g0", hw_name="GPU 0", hw_holder_state="used", slurm_job_id="42", user_name="ada"}'
STEPS = "traces_span_metrics_duration_seconds"
FULL = 'system_filesystem_utilization_ratio{system_filesystem_mountpoint="/", system_filesystem_state="used"}'
SPACE = 'system_filesystem_usage_bytes{system_filesystem_mountpoint="/", system_filesystem_state='
PRESSURE = 'system_pressure_linux_time_seconds_total{system_pressure_resource="io", system_pressure_kind="some"}'
UP = 'otel_hardware_source_up{otel_hardware_source="nvidia"}'


class Case(NamedTuple):
    """Values of series each minute, in promtool's notation, without trouble, with it, and at a near miss.

    Attributes:
        alert: The alert.
        series: Each with the values of a good host, of the bad one, and of the near miss.
        fires: Minutes within which it fires.
        clears: Minutes within which it ends.
    """

    alert: str
    series: dict[str, tuple[str, str, str]]
    fires: int = 20
    clears: int = 20


def constant(good: float, bad: float, near: float) -> tuple[str, str, str]:
    return f"{good}x150", f"{good}x29 {bad}x59 {good}x60", f"{near}x150"


def rising(good: float, bad: float, near: float) -> tuple[str, str, str]:
    """A counter by its increase in a minute."""
    return (
        f"0+{good}x150",
        f"0+{good}x29 {29 * good}+{bad}x59 {29 * good + 59 * bad}+{good}x60",
        f"0+{near}x150",
    )


GAUGES = {
    "AcceleratorFailed": (f'hw_status{{{DEVICE}, hw_state="failed"}}', (0, 1, 0)),
    "AcceleratorRecoveryNeeded": (f"hw_gpu_recovery_action{{{DEVICE}}}", (0, 2, 0)),
    "AcceleratorDegraded": (f'hw_status{{{DEVICE}, hw_state="degraded"}}', (0, 1, 0)),
    "HardwareSourceFailed": (UP, (1, 0, 1)),
    "HostFileSystemNearlyFull": (FULL, (0.5, 0.97, 0.94)),
}
COUNTERS = {
    "AcceleratorXid": (XID, (0, 0.2, 0)),
    "AcceleratorUncorrectedErrors": (f'hw_errors_total{{{DEVICE}, error_type="uncorrected"}}', (0, 0.2, 0)),
    "AcceleratorThermalThrottling": (f'{THROTTLE}"thermal_sw"}}', (0, 20, 5)),
    "AcceleratorPowerBrake": (f'{THROTTLE}"power_brake"}}', (0, 20, 5)),
    "AcceleratorPowerCapped": (f'{THROTTLE}"power_cap"}}', (0, 50, 25)),
    "HostPressure": (PRESSURE, (1, 30, 20)),
    "HostOutOfMemory": ("system_memory_linux_oom_kills_total", (0, 0.2, 0)),
}
CASES = [
    *(Case(alert, {series: constant(*values)}) for alert, (series, values) in GAUGES.items()),
    *(
        Case(alert, {series: rising(*values)}, fires=45 if alert == "AcceleratorPowerCapped" else 20)
        for alert, (series, values) in COUNTERS.items()
    ),
    Case(  # the near miss loses it for two minutes only: the restart of an agent
        "AcceleratorMissing",
        {
            f'hw_gpu_info{{hw_id="g{at}"}}': ("1x150", "1x29 _x59 1x60" if at else "1x150", "1x50 _ _ 1x98")
            for at in range(2)
        },
    ),
    Case(
        "HardwareTelemetryMissing",
        {UP: ("1x150", "1x29 stale _x58 1x60", "1x40 stale _ 1x108")},
        fires=10,
    ),
    Case(  # the near miss computes now and then; another one is not held
        "AcceleratorHeldIdle",
        {
            HOLDER: ("1x150", "1x150", "1x150"),
            BUSY: ("0.9x150", "0.9x29 0x59 0.9x60", "0 0 0 0 0 0 0 0 0 0.5 " * 15),
        },
    ),
    Case(  # a host on which all wait is not stuck
        "AcceleratorStuck",
        {
            BUSY: ("0.9x150", "1x29 0x59 1x60", "0x150"),
            **dict.fromkeys(OTHERS, ("0.9x150", "1x150", "0x150")),
        },
    ),
    Case(
        "AcceleratorLinkDegraded",
        {
            f"hw_gpu_pcie_width{{{DEVICE}}}": constant(16, 8, 16),
            f"hw_gpu_pcie_width_limit{{{DEVICE}}}": constant(16, 16, 16),
        },
    ),
    Case(
        "AcceleratorMemoryNearlyFull",
        {
            f"hw_gpu_memory_usage_bytes{{{DEVICE}}}": constant(40e9, 79e9, 77e9),
            f"hw_gpu_memory_limit_bytes{{{DEVICE}}}": constant(80e9, 80e9, 80e9),
        },
    ),
    Case(  # an ext4 that programs have filled, and one with 6 % left for them
        "HostFileSystemNearlyFull",
        {
            f'{SPACE}"used"}}': constant(100e6, 223_362_048, 210e6),
            f'{SPACE}"free"}}': constant(123e6, 103_424, 13.4e6),
            FULL: constant(0.415, 0.9265, 0.871),
        },
    ),
    Case("NetworkPortDown", {'hw_network_up{hw_id="ib0", hw_name="mlx5_0"}': ("1x150", "1x29 0x59 1x60", "0x150")}),
    Case(
        "TrainingStraggler",
        {
            f'{STEPS}_{part}{{span_name="training.step", training_job_id="HOST", dl_rank="{rank}"}}': (
                rising(60, 60, 60)
                if part == "count"
                else (rising(60, 120, 60 * 1.3) if rank == 0 else rising(60, 60, 60))
            )
            for rank in range(4)
            for part in ("sum", "count")
        },
        fires=30,
        clears=20,
    ),
]


@pytest.fixture(params=["promtool", "vmalert-tool"])
def tool(request: pytest.FixtureRequest) -> list[str | Path]:
    """The command of a tool that evaluates rules over made-up series."""
    if request.param == "promtool":
        return [program("promtool"), "test", "rules"]
    return [vmalert_tool(), "unittest", "-files"]


def check(tool: list[str | Path], folder: Path, tests: list[dict[str, object]], interval: str = "30s") -> None:
    if "unittest" in tool:
        tests = [{**each, "metricsql_expr_test": each["promql_expr_test"]} for each in tests]
        for each in tests:
            del each["promql_expr_test"]
    path = folder / "tests.yml"
    path.write_text(
        yaml.safe_dump({"rule_files": [str(each) for each in RULES], "evaluation_interval": interval, "tests": tests}),
        encoding="utf-8",
    )
    found = subprocess.run([*tool, path], capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def at_host(series: str, host: str) -> str:
    name, _, labels = series.replace("HOST", host).partition("{")
    return f'{name}{{host_name="{host}"' + (f", {labels}" if labels else "}")


def firing(minute: int, *expected: str) -> dict[str, object]:
    """That these alerts, and no others, fire in a minute."""
    return {
        "expr": 'count by (alertname, host_name, training_job_id) (ALERTS{alertstate="firing"}) > 0',
        "eval_time": f"{minute}m",
        "exp_samples": [{"labels": each, "value": 1} for each in expected],
    }


def label(case: Case, host: str) -> str:
    name = "training_job_id" if case.alert == "TrainingStraggler" else "host_name"
    return f'{{alertname="{case.alert}", {name}="{host}"}}'


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_alert_fires_clears_and_ignores_a_near_miss(case: Case, tool: list[str | Path], tmp_path: Path) -> None:
    hosts = {"good": 0, "bad": 1, "near": 2}
    rows = [
        {"series": at_host(series, host), "values": values[place]}
        for series, values in case.series.items()
        for host, place in hosts.items()
    ]
    checks = [
        firing(25),
        firing(30 + case.fires, label(case, "bad")),
        firing(88, label(case, "bad")),
        firing(90 + case.clears),
        firing(140),
    ]
    check(tool, tmp_path, [{"interval": "1m", "input_series": rows, "promql_expr_test": checks}])


def test_every_alert_has_a_case() -> None:
    alerts = [rule["alert"] for group in yaml.safe_load(RULES[1].read_text())["groups"] for rule in group["rules"]]
    assert sorted(alerts) == sorted({case.alert for case in CASES})
    assert len(alerts) >= 15


def test_first_xid_of_a_number_is_seen_and_what_a_new_host_has_counted_is_not(
    tool: list[str | Path], tmp_path: Path
) -> None:
    thirteen = f'hw_errors_total{{host_name="HOST", {DEVICE}, error_type="xid", hw_gpu_xid="13"}}'
    other = f'hw_errors_total{{host_name="HOST", {DEVICE}, error_type="corrected"}}'
    rows = [
        {"series": thirteen.replace("HOST", "known"), "values": "_x29 1x60"},
        {"series": other.replace("HOST", "known"), "values": "0x90"},
        {"series": thirteen.replace("HOST", "new"), "values": "_x29 1x60"},
        {"series": other.replace("HOST", "new"), "values": "_x29 7x60"},
        {"series": 'system_memory_linux_oom_kills_total{host_name="new"}', "values": "_x29 7x60"},
    ]
    xid = '{alertname="AcceleratorXid", host_name="known"}'
    check(
        tool,
        tmp_path,
        [{"interval": "1m", "input_series": rows, "promql_expr_test": [firing(25), firing(32, xid), firing(45)]}],
    )


def test_restart_and_rollout_fire_nothing(tool: list[str | Path], tmp_path: Path) -> None:
    """For two minutes the agent is away; then it has another version, and its counters go on or begin anew."""
    rows = []
    for host in ("a", "b"):
        for at in range(2):
            device = f'host_name="{host}", hw_id="g{at}", hw_name="GPU {at}", hw_type="gpu"'
            for version, when in (("1", "{}x40 stale"), ("2", "_x42 {}x100")):
                more = f'{device}, service_version="{version}"'
                flat = {
                    f"hw_gpu_info{{{more}}}": "1",
                    f'hw_status{{{more}, hw_state="failed"}}': "0",
                    f'hw_gpu_utilization_ratio{{{more}, hw_gpu_task="general"}}': "0.95",
                    f'hw_errors_total{{{more}, error_type="uncorrected"}}': "3",
                    f'hw_errors_total{{{more}, error_type="xid", hw_gpu_xid="79"}}': "0",
                    f"hw_gpu_nvlink_up{{{more}}}": "18",
                    f'hw_holder_info{{{more}, hw_holder_state="used", slurm_job_id="1"}}': "1",
                    f'otel_hardware_source_up{{host_name="{host}", service_version="{version}", at="{at}"}}': "1",
                }
                rows += [{"series": series, "values": when.format(value)} for series, value in flat.items()]
                start = "0+1x40 stale" if version == "1" else "_x42 41+1x100"
                energy, throttle = f"hw_energy_joules_total{{{more}}}", f"hw_gpu_throttle_time_seconds_total{{{more}"
                rows.append({"series": energy, "values": start})
                rows.append({"series": f'{throttle}, hw_gpu_throttle_reason="thermal_sw"}}', "values": start})
    check(
        tool,
        tmp_path,
        [
            {
                "interval": "1m",
                "input_series": rows,
                "promql_expr_test": [firing(minute) for minute in (30, 41, 42, 43, 45, 50, 60, 100)],
            }
        ],
    )


def test_job_has_the_energy_of_its_devices(tool: list[str | Path], tmp_path: Path) -> None:
    rows = [
        {
            "series": f'hw_energy_joules_total{{host_name="a", hw_id="g{at}", hw_type="gpu"}}',
            "values": f"0+{6000 * (at + 1)}x60",
        }
        for at in range(3)
    ] + [
        {
            "series": f'hw_holder_info{{host_name="a", hw_id="g{at}", hw_holder_state="used", slurm_job_id="{job}"}}',
            "values": "1x60",
        }
        for at, job in ((0, 7), (1, 7), (2, 8))
    ]
    spent = {
        "expr": "sum by (slurm_job_id) (sum_over_time(job:energy_joules[29m30s]))",
        "eval_time": "50m",
        "exp_samples": [
            {"labels": '{slurm_job_id="7"}', "value": 30 * 18000.0},
            {"labels": '{slurm_job_id="8"}', "value": 30 * 18000.0},
        ],
    }
    check(tool, tmp_path, [{"interval": "1m", "input_series": rows, "promql_expr_test": [spent]}], "1m")


# The last times of a mini-batch by worker in two jobs of Alibaba's platform, normalized: of job 1, whose workers differ
# by little, and of job 4, half of whose workers are slow all the time. Alibaba Group, CC BY 4.0,
# https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2020/mini-batch-time
MINI_BATCHES = {
    "job_1": (487, 484, 473, 424, 438, 454, 435, 447, 429, 433),
    "job_4": (274, 57, 57, 71, 56, 970, 680, 241, 247, 57),
}


def test_stragglers_of_published_trainings_are_found(tool: list[str | Path], tmp_path: Path) -> None:
    rows = [
        {
            "series": f'{STEPS}_{part}{{span_name="training.step", training_job_id="{job}", dl_rank="{rank}"}}',
            "values": f"0+{60 * (time if part == 'sum' else 1)}x40",
        }
        for job, times in MINI_BATCHES.items()
        for rank, time in enumerate(times)
        for part in ("sum", "count")
    ]
    fired = {
        "expr": 'count by (training_job_id, dl_rank) (ALERTS{alertstate="firing"})',
        "eval_time": "30m",
        "exp_samples": [
            {"labels": f'{{training_job_id="job_4", dl_rank="{rank}"}}', "value": 1} for rank in (0, 5, 6, 7, 8)
        ],
    }
    check(tool, tmp_path, [{"interval": "1m", "input_series": rows, "promql_expr_test": [fired]}])
