"""AMD's tools that hang, crash, print without end or are missing: real programs, run by the real source."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.sources.playing import playing
from tests.sources.radeons import by_amd_smi, rocm
from tests.sources.reading import all_of, by_id, opened, series_of

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.sources.amd import tool as smi

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="amdgpu is a driver of Linux")


def tool(folder: Path, body: str) -> dict[str, Any]:
    """Settings with a rocm-smi that is a shell script."""
    path = folder / "rocm-smi"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return {"amdgpu": "off", "amd_smi": "off", "rocm_smi": str(path)}


def printing(folder: Path, document: object) -> str:
    """A command that prints a document."""
    (folder / "document").write_text(json.dumps(document))
    return f"cat {folder}/document"


def lines(tmp_path: Path, body: str, ticks: int = 1) -> list[list[str]]:
    """The export of an instrumented program at each tick, with the sources amd and host."""
    settings = {"sources": ["amd", "host"], **tool(tmp_path, body)}
    with playing(lambda name: Drivers(), settings) as stage:
        found = []
        for _ in range(ticks):
            found.append(stage.tick())
            stage.clock.now += 70.0
        return found


@pytest.mark.usefixtures("no_child_is_left")
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        pytest.param("exec sleep 1000", "timed out after 0.2 s", id="hangs"),
        pytest.param(
            'printf \'{"card0": {"GPU use (%%)": "4\'; kill -SEGV $$', "printed no JSON document", id="crashes"
        ),
        pytest.param("exec yes", "printed more than 4 MiB", id="floods"),
        pytest.param("exit 2", "exited with 2: it printed nothing", id="fails silently"),
        pytest.param("echo 'ERROR: no devices' >&2; exit 1", "exited with 1: ERROR: no devices", id="fails"),
        pytest.param("echo '{}'", "printed no JSON document", id="empty document"),
        pytest.param("echo 'Python trace'; kill -9 $$", "printed no JSON document", id="is killed"),
    ],
)
def test_failing_rocm_smi_costs_only_its_own_metrics(
    tmp_path: Path, body: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "sleep" in body:  # the others end by themselves
        monkeypatch.setattr(smi, "TIMEOUT", 0.2)
    (output,) = lines(tmp_path, body)
    assert not [line for line in output if line.startswith("hw.")]
    assert any(reason in line for line in output if line.startswith("# failed")), output
    assert any(line.startswith("system.cpu.time") for line in output), "the host is read as before"


def test_rocm_smi_that_fails_once_recovers(tmp_path: Path) -> None:
    good = printing(tmp_path, rocm("5.7", 0))
    body = f'touch "$0.$(ls "$0".* 2>/dev/null | wc -l)"; if [ -e "$0.1" ] && [ ! -e "$0.2" ]; then exit 3; fi; {good}'
    outputs = lines(tmp_path, body, ticks=3)
    powers = [[line for line in output if line.startswith("hw.power{")] for output in outputs]
    assert powers[0]
    assert not powers[1]
    assert any("# failed" in line for line in outputs[1])
    assert powers[2]


def test_rocm_smi_without_a_gpu_makes_the_source_absent(tmp_path: Path) -> None:
    (output,) = lines(tmp_path, 'echo \'WARNING: No AMD GPUs specified\'; echo \'{"system": {"Driver version": "6"}}\'')
    assert [line for line in output if line.startswith("# absent")] == [
        "# absent: amdgpu is switched off; amd-smi is switched off; rocm-smi lists no GPU"
    ]


def test_no_tool_is_run_without_an_amd_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path, f"touch {tmp_path}/ran")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="no AMD driver is loaded"), opened("amd"):
        pass
    assert not (tmp_path / "ran").exists()


def test_environment_of_rocm_smi_is_scrubbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setenv("SECRET", "secret")
    monkeypatch.setenv("ROCM_PATH", "/opt/rocm-6")
    settings = tool(tmp_path, f"env > {tmp_path}/env; {printing(tmp_path, rocm('6.1', 0))}")
    with opened("amd", **settings) as source:
        found = all_of(source)
    assert len(series_of(found, c.HW_GPU_INFO)) == 2
    environment = (tmp_path / "env").read_text()
    assert "ROCM_PATH=/opt/rocm-6" in environment
    assert "PYTHONPATH" not in environment
    assert "SECRET" not in environment


def test_energy_counter_of_mi100_is_not_used(tmp_path: Path) -> None:
    document = rocm("5.7", 0)
    document["card0"] |= {"GPU ID": "0x738c", "Card series": "AMD Instinct MI100"}
    (output,) = lines(tmp_path, printing(tmp_path, document))
    (energy,) = [line for line in output if line.startswith("hw.energy{")]
    assert energy.endswith(" 0.0 J counter"), "the integral of the power"
    del document["card0"]["Average Graphics Package Power (W)"]
    (output,) = lines(tmp_path, printing(tmp_path, document))
    assert not [line for line in output if line.startswith("hw.energy{")]
    assert [line for line in output if "this model counts in an unknown unit" in line], output


def test_rocm_smi_runs_once_per_reading(tmp_path: Path) -> None:
    settings = tool(tmp_path, f"echo ran >> {tmp_path}/runs; {printing(tmp_path, rocm('6.1', 0))}")
    with opened("amd", **settings) as source:
        all_of(source)
        assert (tmp_path / "runs").read_text().splitlines() == ["ran"]
        all_of(source)
        assert (tmp_path / "runs").read_text().splitlines() == ["ran", "ran"]
        assert source.readings()[0].apart >= 10


def test_amd_smi_without_static_output_still_gives_metrics(tmp_path: Path) -> None:
    printed = by_amd_smi(6)(0).tools["amd-smi"].prints["metric --json"]
    assert isinstance(printed, bytes)
    (tmp_path / "metric").write_bytes(printed)
    path = tmp_path / "amd-smi"
    path.write_text(f"#!/bin/sh\necho $1 >> {tmp_path}/runs; cat {tmp_path}/$1\n")
    path.chmod(0o755)
    with opened("amd", amdgpu="off", amd_smi=str(path)) as source:
        all_of(source)
        found = all_of(source)
    assert by_id(found, c.HW_POWER).keys() == {"gpu0", "gpu1"}
    assert (tmp_path / "runs").read_text().split() == ["metric", "static", "metric"]


INSTINCT = {"asic": {"market_name": "AMD Instinct MI300X", "device_id": "0x74a1"}}


def amd_smi(folder: Path, metric: list[dict[str, Any]], addresses: list[str]) -> dict[str, Any]:
    """Settings with an amd-smi that lists GPUs with these values and PCI addresses."""
    static = [{"gpu": number, "bus": {"bdf": bdf}, **INSTINCT} for number, bdf in enumerate(addresses)]
    for name, document in (("metric", metric), ("static", static)):
        (folder / name).write_text(json.dumps(document))
    path = folder / "amd-smi"
    path.write_text(f"#!/bin/sh\ncat {folder}/$1\n")
    path.chmod(0o755)
    return {"amdgpu": "off", "rocm_smi": "off", "amd_smi": str(path)}


def heated(folder: Path, gpus: dict[str, int]) -> dict[str, Any]:
    """The same, of GPUs by address with their temperatures."""
    metric = [{"gpu": n, "temperature": {"hotspot": celsius}} for n, celsius in enumerate(gpus.values())]
    return amd_smi(folder, metric, [*gpus])


def test_gpus_after_a_lost_one_keep_their_values_although_rocm_smi_renumbers_them(tmp_path: Path) -> None:
    cards = [
        {"PCI Bus": f"0000:{bus}:00.0", "Temperature (Sensor junction) (C)": celsius}
        for bus, celsius in (("2F", "41.0"), ("30", "52.0"), ("31", "63.0"))
    ]

    def listed(remaining: list[dict[str, str]]) -> object:
        return {f"card{number}": card for number, card in enumerate(remaining)}

    settings = tool(tmp_path, printing(tmp_path, listed(cards)))
    with opened("amd", **settings) as source:
        assert by_id(all_of(source), c.HW_TEMPERATURE) == {
            "0000:2f:00.0": 41.0,
            "0000:30:00.0": 52.0,
            "0000:31:00.0": 63.0,
        }
        printing(tmp_path, listed([cards[0], cards[2]]))
        assert by_id(all_of(source), c.HW_TEMPERATURE) == {"0000:2f:00.0": 41.0, "0000:31:00.0": 63.0}


def test_gpus_after_a_lost_one_keep_their_ids_although_amd_smi_fails_once(tmp_path: Path) -> None:
    gpus = {"0000:2f:00.0": 41, "0000:30:00.0": 52}
    with opened("amd", **heated(tmp_path, gpus)) as source:
        assert by_id(all_of(source), c.HW_TEMPERATURE) == gpus
        del gpus["0000:2f:00.0"]
        heated(tmp_path, gpus)
        (tmp_path / "static").write_text("ERROR: amdgpu is busy")
        with pytest.raises(ValueError, match="amd-smi"):
            by_id(all_of(source), c.HW_TEMPERATURE)
        heated(tmp_path, gpus)
        assert by_id(all_of(source), c.HW_TEMPERATURE) == gpus


def test_block_that_amd_smi_cannot_read_keeps_its_errors(tmp_path: Path) -> None:
    def listed(vcn: object) -> dict[str, Any]:
        blocks = {"GFX": {"correctable_count": 3}, "VCN": {"correctable_count": vcn}}
        return amd_smi(tmp_path, [{"gpu": 0, "ecc_blocks": blocks}], ["0000:2f:00.0"])

    totals = []
    with opened("amd", **listed(2)) as source:
        for vcn in (2, "N/A", 5):
            listed(vcn)
            (total,) = series_of(all_of(source), c.HW_ERRORS).values()
            totals.append(total)
    assert totals == [5, 5, 8]
