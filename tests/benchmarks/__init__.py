"""The overhead of the package compared with alternatives: ``python -m tests.benchmarks`` from the root."""
