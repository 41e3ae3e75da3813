"""The settings of AWS Neuron's tool."""

from __future__ import annotations

from opentelemetry.instrumentation.hardware.settings.parsing import path, setting

SETTINGS = {
    "neuron_monitor": setting(
        path("neuron-monitor"),
        "auto",
        "AWS Neuron's tool; it runs as long as the program. auto: from PATH or /opt/aws/neuron/bin.",
    ),
    "neuron_monitor_config": setting(
        path("a configuration file of neuron-monitor"),
        "auto",
        "Configuration of neuron-monitor. auto: everything this package reports, at every sample interval.",
    ),
}
