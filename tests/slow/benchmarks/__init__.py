"""The overhead of the package compared with alternatives: ``python -m tests.slow.benchmarks`` from the root."""
