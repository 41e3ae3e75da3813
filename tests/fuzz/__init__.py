"""Coverage-guided fuzzing of all parsers: ``python -m tests.fuzz [TARGET...]``, described in ``docs/fuzzing.md``."""
