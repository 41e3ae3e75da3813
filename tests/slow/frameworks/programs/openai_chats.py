"""Chat completions of the openai library, whose spans its instrumentation makes.

Usage: opentelemetry-instrument python -m tests.slow.frameworks.programs.openai_chats
"""

from openai import OpenAI

QUESTION = [{"role": "user", "content": "2 + 2?"}]


def chat(times: int) -> None:
    """Ask a model so many times. Its server and its key are in the environment."""
    client = OpenAI()
    for _ in range(times):
        client.chat.completions.create(model="stub", messages=QUESTION)


if __name__ == "__main__":
    chat(4)
