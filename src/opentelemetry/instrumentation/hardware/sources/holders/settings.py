"""The settings of what schedulers say about devices."""

from __future__ import annotations

from opentelemetry.instrumentation.hardware.settings.parsing import path, setting

SETTINGS = {
    "pod_resources": setting(
        path("the kubelet's socket of PodResources"),
        "auto",
        "Which pod was given which device, for otel-hardware run. auto: "
        "/var/lib/kubelet/pod-resources/kubelet.sock, if it is there.",
    ),
    "job_files": setting(
        path("a folder"),
        "auto",
        "Folder with a file for each device that was given to jobs, named by its index or UUID, with the id of a job "
        "in each line, for otel-hardware run. auto: DCGM_HPC_JOB_MAPPING_DIR.",
    ),
}
