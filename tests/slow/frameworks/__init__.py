"""Real frameworks with and without this package, and the spans that arrive: `python -m tests.slow.frameworks`."""
