"""Made-up OpenMetrics endpoints: the page of each scrape."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_UUID = "GPU-5c0ffee0-1111-2222-3333-444455556666"

_PARTS = ((7, "1g.10gb"), (2, "3g.40gb"))


def dcgm(scrape: int, parts: Sequence[tuple[int, str]] = _PARTS) -> str:
    """A page of dcgm-exporter: an A100 with MIG instances."""
    rows: tuple[tuple[str, str, str, Callable[[int], str]], ...] = (
        ("SM_CLOCK", "gauge", "SM clock frequency (in MHz).", lambda _: str(1290 + 15 * scrape)),
        ("GPU_TEMP", "gauge", "GPU temperature (in C).", lambda _: str(41 + scrape)),
        ("POWER_USAGE", "gauge", "Power draw (in W).", lambda _: f"{187.25 + scrape * 10:.6f}"),
        (
            "TOTAL_ENERGY_CONSUMPTION",
            "counter",
            "Total energy consumption since boot (in mJ).",
            lambda _: str(81230017 + scrape * 1900000),
        ),
        ("XID_ERRORS", "gauge", "Value of the last XID error encountered.", lambda _: "0"),
        (
            "GPU_UTIL",
            "gauge",
            "GPU utilization (in %).",
            lambda part: str(12 * (scrape + 1) * (1 if part == parts[0][0] else 2)),
        ),
    )
    lines = []
    for word, kind, text, value in rows:
        name = f"DCGM_FI_DEV_{word}"
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        for part, profile in parts:
            labels = {"gpu": "0", "UUID": _UUID, "pci_bus_id": "00000000:1B:00.0", "device": "nvidia0"}
            labels |= {"modelName": "NVIDIA A100-SXM4-80GB", "GPU_I_PROFILE": profile, "GPU_I_ID": str(part)}
            labels |= {"Hostname": "node-7", "DCGM_FI_DRIVER_VERSION": "550.90.07"}
            labels |= {"container": "train", "namespace": "", "pod": ""}
            pairs = ",".join(f'{label}="{text}"' for label, text in labels.items())
            lines.append(f"{name}{{{pairs}}} {value(part)}")
    return "\n".join([*lines, ""])


VLLM = r"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 3.0
# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="tiny"} 4711.0
# HELP vllm:prompt_tokens_created Number of prefill tokens processed.
# TYPE vllm:prompt_tokens_created gauge
vllm:prompt_tokens_created{engine="0",model_name="tiny"} 1.76e+09
# HELP vllm:e2e_request_latency_seconds Histogram of e2e request latency in seconds.
# TYPE vllm:e2e_request_latency_seconds histogram
vllm:e2e_request_latency_seconds_bucket{engine="0",le="0.3",model_name="tiny"} 5.0
vllm:e2e_request_latency_seconds_bucket{engine="0",le="+Inf",model_name="tiny"} 9.0
vllm:e2e_request_latency_seconds_count{engine="0",model_name="tiny"} 9.0
vllm:e2e_request_latency_seconds_sum{engine="0",model_name="tiny"} 12.5
# HELP go_gc_duration_seconds A summary.
# TYPE go_gc_duration_seconds summary
go_gc_duration_seconds{quantile="0.5"} 0.0001
go_gc_duration_seconds{quantile="1"} NaN
go_gc_duration_seconds_sum 0.5
go_gc_duration_seconds_count 42
no_type_at_all{path="C:\\temp\"x"} -7
"""

# Every type and special case of OpenMetrics 1.0.
ALL = r"""# HELP requests Requests that were \"seen\",\nall of them.
# TYPE requests counter
requests_total{code="200"} 17 # {trace_id="0af7651916cd43dd8448eb211c80319c"} 1 1763700000.5
requests_created{code="200"} 1763600000.25
requests_total{code="500"} 0
# TYPE build info
build_info{version="1.2.3",branch=""} 1
# TYPE mode stateset
mode{mode="idle"} 0
mode{mode="busy"} 1
# TYPE room_celsius gauge
# UNIT room_celsius celsius
# HELP room_celsius Temperature of the room.
room_celsius{rack="a\\b\"c"} 21.5
room_celsius{rack="broken"} NaN
room_celsius{rack="sun"} +Inf
# TYPE job_seconds histogram
# UNIT job_seconds seconds
job_seconds_bucket{le="1.0"} 2
job_seconds_bucket{le="+Inf"} 3 # {trace_id="4bf92f3577b34da6a3ce929d0e0e4736"} 4.5
job_seconds_count 3
job_seconds_sum 6.75
job_seconds_created 1763600000
# TYPE queue_bytes gaugehistogram
# UNIT queue_bytes bytes
queue_bytes_bucket{le="1024.0"} 4
queue_bytes_bucket{le="+Inf"} 6
queue_bytes_gcount 6
queue_bytes_gsum 9000
# TYPE rpc_seconds summary
# UNIT rpc_seconds seconds
rpc_seconds{quantile="0.99"} 0.25
rpc_seconds_count 12
rpc_seconds_sum 1.5
# TYPE "http.server.active requests" gauge
{"http.server.active requests","server.port"="80"} 5
# TYPE whatever unknown
whatever 1e3
# EOF
"""

_LATER = ALL.replace('"} 17', '"} 19')


def page(text: str, kind: str = PROMETHEUS, seconds: float = 0.0125) -> dict[str, Any]:
    return {"type": kind, "body": {"bytes": text}, "seconds": seconds}


def _error(kind: str, number: int | None, text: str) -> dict[str, Any]:
    return {"error": [kind, number, text]}


def _capture(machine: str, endpoints: Mapping[str, Any], answers: Sequence[dict[str, Any]]) -> str:
    header: dict[str, Any] = {"capture": "openmetrics", "nature": "made by hand", "machine": machine}
    header |= {"date": "2026-11-21", "package": "0.1.0"}
    if endpoints:
        header["settings"] = {"sample_interval": 10, "openmetrics": endpoints}
    lines: list[Any] = [header]
    for number, answer in enumerate(answers):
        lines += [{"tick": 10.0 * number}, ["http", "get", [], answer]]
    return "".join(f"{json.dumps(line)}\n" for line in ([*lines] if answers else [header, {"tick": 0.0}]))


CAPTURES: Mapping[str, str] = {
    "dcgm-mig": _capture(
        "dcgm-exporter on an A100 with two MIG instances, of which one is removed",
        {"dcgm": "http://node-7:9400/metrics"},
        [page(dcgm(0)), page(dcgm(1), seconds=0.011), page(dcgm(2, _PARTS[1:]), seconds=0.013)],
    ),
    "vllm": _capture(
        "vLLM with filters; it is down for one scrape",
        {
            "vllm": {
                "url": "http://localhost:8000/metrics",
                "filters": [r"^vllm\.vllm:(?!.*_created)", "no_type", "go_"],
            }
        },
        [page(VLLM), _error("DriverError", 503, "HTTP status 503"), page(VLLM.replace("4711", "4999"))],
    ),
    "openmetrics": _capture(
        "an endpoint with all types of OpenMetrics; one page is truncated, and one has an invalid line",
        {"own": "https://app.example/metrics?key=secret"},
        [
            page(ALL, OPENMETRICS),
            page(_LATER.replace("\n# TYPE whatever unknown\nwhatever 1e3", ""), OPENMETRICS),
            page(_LATER.removesuffix("# EOF\n"), OPENMETRICS),
            page(_LATER.replace("whatever 1e3", "whatever 1e3 oops"), OPENMETRICS),
        ],
    ),
    "away": _capture(
        "connection refused, then a timeout",
        {"own": "http://localhost:9999/metrics"},
        [_error("ConnectionRefusedError", 111, "Connection refused"), _error("TimeoutError", None, "timed out")],
    ),
    "none": _capture("no endpoint", {}, []),
}
