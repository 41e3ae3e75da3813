"""Endpoints in the commands, and their W&B keys."""

from __future__ import annotations

import json
import os

from tests.sources.pages import dcgm
from tests.support.commands import otel_hardware
from tests.support.wandb import watched
from tests.support.web import Web, page

PAGE = """# TYPE util gauge
util{gpu="1"} 5
util{gpu="0"} 7.25
# TYPE work_total counter
work_total 3
# TYPE latency histogram
latency_count 2
latency_sum 1
untyped 4
"""


def test_wandb_keys_number_series_in_order_of_appearance() -> None:
    with Web(page(PAGE)) as web, watched("openmetrics", os.getpid(), openmetrics={"own": web.url}) as watching:
        assert watching.row() == {
            "openmetrics.own.util.0": 5.0,
            "openmetrics.own.util.1": 7.25,
            "openmetrics.own.work_total.0": 3.0,
        }
        web.answer = page('# TYPE util gauge\nutil{gpu="2"} 1\nutil{gpu="0"} 2\n')
        assert watching.row() == {"openmetrics.own.util.2": 1.0, "openmetrics.own.util.1": 2.0}


def test_wandb_keys_of_a_failing_endpoint_are_absent() -> None:
    with Web(page(PAGE)) as web, Web(page("", status=500)) as down:
        endpoints = {"down": down.url, "own": web.url}
        with watched("openmetrics", os.getpid(), openmetrics=endpoints) as watching:
            assert {key.split(".")[1] for key in watching.row()} == {"own"}
            down.answer = page(PAGE)
            assert {key.split(".")[1] for key in watching.row()} == {"own", "down"}


def test_snapshot_table_shows_distinguishing_labels() -> None:
    with Web(page(dcgm(0))) as web:
        line = ["snapshot", "--window", "0.1", "--sources", "openmetrics"]
        answer = otel_hardware(*line, "--openmetrics", f"own={web.url}")
    assert answer.status == 0, answer.err
    lines = [line.split() for line in answer.out.splitlines()]
    at = lines.index(["DCGM_FI_DEV_GPU_UTIL", "1g.10gb", "7", "12"])
    assert lines[at + 1] == ["3g.40gb", "2", "24"]


def test_doctor_lists_endpoints_without_secrets() -> None:
    with Web(page(PAGE)) as web:
        line = ["doctor", "--format", "json", "--sources", "openmetrics"]
        url = f"{web.url}?token=s3cret"
        answer = otel_hardware(*line, "--openmetrics", f"own={url},down=http://127.0.0.1:1/m")
    found = {each["subject"]: each for each in json.loads(answer.out)["findings"] if each["part"] == "sources"}
    assert found["openmetrics:own"]["state"] == "ok"
    assert (found["openmetrics:down"]["state"], found["openmetrics:down"]["text"]) == (
        "wrong",
        "http://127.0.0.1:1/m: Connection refused",
    )
    assert "s3cret" not in answer.out + answer.err


def test_recording_has_the_page_and_no_secret() -> None:
    with Web(page(PAGE)) as web:
        line = ["record", "openmetrics", "--ticks", "1"]
        answer = otel_hardware(*line, "--openmetrics", f"own={web.url}?token=s3cret")
    assert answer.status == 0, answer.err
    header, _, call = map(json.loads, answer.out.splitlines())
    assert header["settings"]["openmetrics"] == {"own": {"url": web.url}}
    assert call[3]["body"]["bytes"] == PAGE
    assert "s3cret" not in answer.out + answer.err


def test_snapshot_exports_scraped_metrics_as_otlp_json() -> None:
    with Web(page(dcgm(0))) as web:
        line = ["snapshot", "--format", "otlp-json", "--window", "0.1", "--sources", "openmetrics"]
        answer = otel_hardware(*line, "--openmetrics", f"own={web.url}")
    assert answer.status == 0, answer.err
    (resource,) = json.loads(answer.out)["resourceMetrics"]
    names = {metric["name"] for scope in resource["scopeMetrics"] for metric in scope["metrics"]}
    assert {"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "openmetrics.up"} <= names
