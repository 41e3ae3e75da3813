"""Spans of logfire, with chat completions below them.

Usage: python -m tests.slow.frameworks.programs.logfire
       opentelemetry-instrument python -m tests.slow.frameworks.programs.logfire zero-code
"""

import sys

import logfire
from tests.slow.frameworks.programs.openai_chats import chat
from tests.slow.frameworks.programs.ours import instrument

if __name__ == "__main__":
    if "zero-code" not in sys.argv:
        instrument()
    logfire.configure(send_to_logfire=False, console=False, inspect_arguments=False)
    logfire.instrument_openai()
    for _ in range(3):
        with logfire.span("agent"):
            chat(2)
