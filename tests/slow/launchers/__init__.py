"""Real launchers under ``opentelemetry-instrument``, into a real Collector: `python -m tests.slow.launchers`."""
