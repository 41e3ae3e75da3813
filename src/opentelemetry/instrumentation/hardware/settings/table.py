"""The table of all settings. None means the default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from opentelemetry.instrumentation.hardware.catalog import DETAILS
from opentelemetry.instrumentation.hardware.catalog.presets import PRESETS
from opentelemetry.instrumentation.hardware.settings.endpoints import Endpoints, Words, endpoints, filters
from opentelemetry.instrumentation.hardware.settings.parsing import (
    Parser,
    absolute_path,
    address,
    choice,
    number,
    path,
    place,
    setting,
    simulation,
    span_rule,
    words,
)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Settings:
    """A row for each setting: how it is parsed, its default and its text for ``--help`` and the documentation."""

    sources: list[str] | None = setting(
        words("source names, such as host,process, or -filesystem to leave one out"),
        "auto",
        "Sources to read. auto: all sources available on this machine.",
    )
    sample_interval: float | None = setting(
        number("a number of seconds from 0 to 3600, such as 2 or 0.5", 0, 3600),
        "2",
        "Time between two reads of the sources. 0: read only when a collection is due.",
    )
    mode: str | None = setting(
        choice("process", "agent"),
        "process",
        "Where the sources are read. agent: in a child process, so that a driver that hangs or crashes cannot affect "
        "this one (Linux). It uses the same OTEL_* export settings, and also reports this process.",
    )
    exit_timeout: float | None = setting(
        number("a number of seconds from 0 to 60, such as 1 or 0.5", 0, 60),
        "1",
        "Maximum time that the exit of a program waits for the last export, if the program has an agent, or no metrics "
        "of its own. Otherwise, the SDK's timeouts apply.",
    )
    reporter: str | None = setting(
        choice("auto", "always", "never"),
        "auto",
        "Whether this process reports the host and its devices. auto: one process of each job does; ranks that see "
        "different devices each report theirs. always, never: regardless of the other processes of the job.",
    )
    preset: str | None = setting(
        choice(*PRESETS),
        "standard",
        f"Series to export. {'; '.join(f'{word}: {meaning}' for word, meaning in PRESETS.items())}. "
        "'otel-hardware metrics --preset' lists and counts them.",
    )
    include_metrics: list[str] | None = setting(
        words("metric names or patterns, such as system.cpu.load_average.*", str.lower),
        "none",
        "Metrics to report although the preset or the defaults leave them out; of a default metric, also its extra "
        "series. A condition selects series: hw.gpu.utilization{hw.gpu.task=fp16}.",
    )
    exclude_metrics: list[str] | None = setting(
        words("metric names or patterns, such as system.paging.*", str.lower),
        "none",
        "Metrics not to report, or series of a metric that are not exported: hw.gpu.utilization{hw.gpu.task=jpeg}. "
        "Takes precedence over INCLUDE_METRICS, DETAIL and PRESET.",
    )
    detail: list[str] | None = setting(
        words(", ".join(DETAILS), lambda word: word if word in DETAILS else None),
        "none",
        f"Groups of additional metrics. {'; '.join(f'{word}: {meaning}' for word, meaning in DETAILS.items())}.",
    )
    disk_paths: list[str] | None = setting(
        words("absolute paths, such as /,/data", absolute_path),
        "auto",
        "File systems to report, each named by a path on it. auto: permanent mounts of disks, not of network file "
        "systems such as NFS. While the server of a named one does not respond, no file system is reported.",
    )
    interfaces: list[str] | None = setting(
        words("interface names, such as eth0,bond0"),
        "auto",
        "Network interfaces to report. auto: those backed by a device, with bonds in place of their members.",
    )
    devices: list[str] | None = setting(
        words("indices, UUIDs and PCI addresses, such as 0,1 or GPU-8f6a", alone=("all", "visible", "process")),
        "all, or visible where a scheduler restricted them",
        "Accelerators to report. An index counts the devices of each vendor. visible: those that CUDA_VISIBLE_DEVICES, "
        "ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES, NEURON_RT_VISIBLE_CORES or the container make available to the "
        "program. process: those that the program and its children use. Apple chips, TPUs and devices of the source "
        "drm are always reported.",
    )
    openmetrics: Endpoints | None = setting(
        Parser(
            "a comma-separated list of name=http://host:port/metrics pairs, or the path of a JSON or YAML file",
            endpoints,
            secret=True,
        ),
        "none",
        "OpenMetrics and Prometheus endpoints to scrape at every collection.",
    )
    openmetrics_filters: Words | None = setting(
        Parser(
            "a comma-separated list of regular expressions, a JSON list of them, or a JSON mapping of each to "
            "{label: expression}",
            filters,
        ),
        "none",
        "Series of the endpoints to report. none: all.",
    )
    spans: str | None = setting(
        choice("on", "off"),
        "on",
        "Whether spans get energy, GPU time, peak memory and CPU time as attributes. Nothing is read for them before "
        "there is a TracerProvider.",
    )
    spans_min_duration: float | None = setting(
        number("a number of seconds from 0 to 3600, such as 1 or 0.05", 0, 3600),
        "0.1, and 0 for roots",
        "Spans shorter than this get no attributes.",
    )
    spans_filter: list[str] | None = setting(
        words("name:PATTERN, kind:PATTERN or scope:PATTERN, such as kind:server,-name:GET /health", span_rule),
        "none",
        "Spans that get attributes, by name, kind and instrumentation scope; - excludes them. none: all.",
    )
    spans_shares: str | None = setting(
        choice("off", "equal", "tokens"),
        "equal",
        "Whether spans get their own part of the energy, which can be added up. equal: spans that run at the same time "
        "have equal parts. tokens: in proportion to their gen_ai.usage tokens per second.",
    )
    simulate: Any = setting(
        Parser("a number of GPUs and a card, such as 8xH100, 4xA100:inference or T4:hot@7", simulation),
        "none",
        "GPUs to simulate in place of those of this machine, as in 8xH100:inference@7: a number of GPUs, a card (T4, "
        "A100, H100, H200, B200, RTX4090, MI300X, MI210), a scenario, and the seed of the noise. The scenarios are "
        "training, inference, idle, held, hot, brake, stuck, small-kernels, transfer, xid, lost, straggler, "
        "memory-leak, ecc and link, and with a simulated host one-core, quota, storage, neighbours and full-disk.",
    )
    simulate_speed: float | None = setting(
        number("a number from 0.1 to 600, such as 60", 0.1, 600),
        "1",
        "Simulated seconds per second.",
    )
    counter_origin: str | None = setting(
        choice("boot", "start"),
        "boot, or start where OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE is delta",
        "Start value of counters: the total since the machine or process started (boot), or zero when "
        "instrumentation starts (start).",
    )

    # AMD

    amdgpu: str | None = setting(
        choice("auto", "off"),
        "auto",
        "Whether AMD GPUs are read from the files of their driver. off: use AMD's tools instead.",
    )
    amd_smi: str | None = setting(path("amd-smi"), "auto", "The tool used if the files of AMD's driver cannot be read.")
    rocm_smi: str | None = setting(path("rocm-smi"), "auto", "The tool used if amd-smi is not available either.")

    # Apple

    apple_gpu_stats: str | None = setting(
        path("apple_gpu_stats"),
        "auto",
        "A tool from older W&B wheels, the first choice for Apple chips. auto: on a Mac, from PATH.",
    )
    macmon: str | None = setting(
        path("macmon"),
        "auto",
        "The second choice for Apple chips; it runs as long as the program. auto: on a Mac, from PATH or Homebrew's "
        "folders.",
    )
    ioreg: str | None = setting(
        path("ioreg"), "auto", "The last choice for Apple chips. auto: on a Mac, which includes it."
    )

    # Intel Gaudi

    hl_smi: str | None = setting(path("hl-smi"), "auto", "The tool that reads Intel Gaudi accelerators.")

    # Graphcore

    gcipuinfo: str | None = setting(
        path("the folder with Graphcore's Python module gcipuinfo"),
        "auto",
        "Graphcore's module, imported by a child process. auto: from Python's search path.",
    )

    # who uses a device

    pod_resources: str | None = setting(
        path("the kubelet's socket of PodResources"),
        "auto",
        "Which pod was given which device, for otel-hardware run. auto: "
        "/var/lib/kubelet/pod-resources/kubelet.sock, if it is there.",
    )
    job_files: str | None = setting(
        path("a folder"),
        "auto",
        "Folder with a file for each device that was given to jobs, named by its index or UUID, with the id of a job "
        "in each line, for otel-hardware run. auto: DCGM_HPC_JOB_MAPPING_DIR.",
    )

    # NVIDIA

    nvml: str | None = setting(
        path("libnvidia-ml.so.1"), "auto", "NVIDIA's management library. off: use nvidia-smi instead."
    )
    nvidia_smi: str | None = setting(path("nvidia-smi"), "auto", "The tool used if NVIDIA's library is not available.")

    # Google TPU

    tpu_runtime: list[str] | None = setting(
        words("host:port addresses, ports and Unix socket paths", address, alone=("auto", "off")),
        "auto",
        "Metric services of the programs that use a TPU. auto: localhost, at the ports in TPU_RUNTIME_METRICS_PORTS "
        "or at 8431.",
    )
    tpu_profiler: str | None = setting(
        place("a host:port address, port or Unix socket path", address),
        "auto",
        "Profiler of a TPU node. auto: the address in TPU_NAME, unless this host has TPUs.",
    )
    libtpu: str | None = setting(
        choice("on", "off"),
        "off",
        "Whether a child process reads link health, throttling and TensorCore utilization from libtpu's SDK. Requires "
        "libtpu in this Python environment and a TPU in this host.",
    )

    # AWS Neuron

    neuron_monitor: str | None = setting(
        path("neuron-monitor"),
        "auto",
        "AWS Neuron's tool; it runs as long as the program. auto: from PATH or /opt/aws/neuron/bin.",
    )
    neuron_monitor_config: str | None = setting(
        path("a configuration file of neuron-monitor"),
        "auto",
        "Configuration of neuron-monitor. auto: everything this package reports, at every sample interval.",
    )
