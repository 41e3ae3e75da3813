"""The resource detector, through the SDK: in this process, in a forked child and in the agent."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import psutil
import pytest
from opentelemetry.sdk.resources import Resource, ResourceDetector
from tests.support import children
from tests.support.sink import Sink
from tests.support.waiting import wait_for

from opentelemetry.instrumentation.hardware.catalog import RESOURCE_ATTRIBUTES

DETECT = {"OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": "hardware_job"}
TASK = {"SLURM_JOB_ID": "42", "SLURM_STEP_ID": "0", "SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NODEID": "1"}
TASK |= {"SLURM_STEP_NUM_TASKS": "4"}


def detected(monkeypatch: pytest.MonkeyPatch, environ: Mapping[str, str]) -> Mapping[str, Any]:
    for name, value in (DETECT | dict(environ)).items():
        monkeypatch.setenv(name, value)
    return dict(Resource.create().attributes)


def created(attributes: Mapping[str, Any]) -> float:
    """Return ``process.creation.time`` in Unix seconds."""
    text = attributes["process.creation.time"]
    assert text.endswith("Z")
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def test_host_and_process_are_those_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    found = detected(monkeypatch, {})
    assert found["host.name"] == socket.gethostname()
    assert found["process.pid"] == os.getpid()
    # The kernel has both times in its own steps: seconds since 1970 at boot, hundredths of a second since then.
    assert created(found) == pytest.approx(psutil.Process().create_time(), abs=1.5)
    assert found["service.instance.id"]


@pytest.mark.parametrize(("value", "expected"), [("", None), ("none", None), ("8xV100", None), ("2xT4:hot@7", True)])
def test_gpus_are_simulated_if_the_setting_says_so(
    monkeypatch: pytest.MonkeyPatch, value: str, expected: bool | None
) -> None:
    found = detected(monkeypatch, {"OTEL_PYTHON_HARDWARE_SIMULATE": value})
    assert found.get("otel_hardware.simulated") is expected


@pytest.mark.parametrize(
    ("environ", "job"),
    [
        ({}, {}),
        (
            TASK,
            {
                "slurm.job.id": "42",
                "training_job.id": "42",
                "training_job.system": "slurm",
                "dl.rank": 3,
                "dl.local_rank": 1,
                "dl.world_size": 4,
                "dl.node_rank": 1,
            },
        ),
        (
            {"RAY_JOB_ID": "01000000", "RAY_RAYLET_PID": "77"},
            {"ray.job_id": "01000000", "training_job.id": "01000000", "training_job.system": "ray"},
        ),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, {"dl.rank": 0, "dl.world_size": 2}),
    ],
    ids=["none", "slurm", "ray", "pmi"],
)
def test_job_has_the_names_of_others(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], job: dict[str, Any]
) -> None:
    found = detected(monkeypatch, environ)
    assert {name: value for name, value in found.items() if name.startswith(("slurm", "ray", "training", "dl."))} == job
    assert job.keys() <= {*RESOURCE_ATTRIBUTES, "slurm.job.id"}


def test_slurm_job_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {"JOB_NAME": "pretrain", "JOB_PARTITION": "h100", "JOB_ACCOUNT": "nlp", "JOB_USER": "ada"}
    found = detected(monkeypatch, {**TASK, **{f"SLURM_{name}": value for name, value in facts.items()}})
    names = ("slurm.job.name", "slurm.partition", "slurm.account", "slurm.user")
    assert [found[name] for name in names] == [*facts.values()]
    assert {*names} <= RESOURCE_ATTRIBUTES.keys()


def test_attributes_of_the_user_win(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"OTEL_RESOURCE_ATTRIBUTES": "host.name=desk,dl.rank=7,service.instance.id=mine"}
    found = detected(monkeypatch, TASK | given)
    assert (found["host.name"], found["dl.rank"], found["service.instance.id"]) == ("desk", "7", "mine")


@pytest.mark.skipif(
    not hasattr(ResourceDetector, "is_process_dependent"),
    reason="SDKs before 1.44 do not detect again",
)
def test_forked_child_has_a_resource_of_its_own() -> None:
    given = {"OTEL_RESOURCE_ATTRIBUTES": "host.name=desk"}
    outcome = children.succeed(children.command("processes/forked_resource"), DETECT | TASK | given)
    parent, child = (json.loads(line) for line in outcome.stdout.splitlines())
    assert child["process.pid"] == child["pid"] != parent["process.pid"] == parent["pid"]
    assert created(child) >= created(parent)
    assert child["service.instance.id"] != parent["service.instance.id"]
    same = {"host.name": "desk", "slurm.job.id": "42", "dl.rank": 3}
    assert {name: child[name] for name in same} == {name: parent[name] for name in same} == same


def test_agent_describes_the_program_and_not_itself() -> None:
    with Sink() as sink:
        program = ["sh", "-c", "echo $$; read line"]
        line = ["otel-hardware", "run", "--interval", "0.2", "--", *program]
        with children.started(line, sink.environment() | TASK) as agent:
            pid = int(agent.stdout.readline())
            wait_for(lambda: sink.resources, children.PATIENCE, "first export")
            (resource,) = sink.resources
            assert resource["process.pid"] == pid
            assert created(resource) == pytest.approx(psutil.Process(pid).create_time(), abs=1.5)
            assert (resource["slurm.job.id"], resource["dl.rank"]) == ("42", 3)
            assert (*children.end_of(agent), agent.returncode) == ("", "", 1)
