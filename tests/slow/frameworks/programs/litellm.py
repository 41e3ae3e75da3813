"""Spans of LiteLLM, which makes them after the fact in threads of its own, from a callback.

Usage: opentelemetry-instrument python -m tests.slow.frameworks.programs.litellm
"""

import litellm
from tests.slow.frameworks.programs.openai_chats import QUESTION

if __name__ == "__main__":
    litellm.callbacks = ["otel"]
    for _ in range(2):
        litellm.completion("openai/stub", QUESTION)
        for _ in litellm.completion("openai/stub", QUESTION, stream=True):
            pass
