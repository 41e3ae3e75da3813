"""Programs in faulty surroundings, with and without this package: `python -m tests.slow.matrix`."""
