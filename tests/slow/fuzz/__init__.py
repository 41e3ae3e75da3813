"""Coverage-guided fuzzing of all parsers: ``python -m tests.slow.fuzz [TARGET...]``; see ``docs/dev/fuzzing.md``."""
