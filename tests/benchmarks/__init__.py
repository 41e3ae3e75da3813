"""The cost of the package beside that of its alternatives: ``python -m tests.benchmarks`` from the root."""
