"""What we cost, beside what others cost: ``python -m tests.benchmarks`` from the root of the repository."""
