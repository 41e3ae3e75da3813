"""Spans of Langfuse: an agent and a generator, with chat completions of its own openai client below them."""

from collections.abc import Iterator

from langfuse import get_client, observe
from langfuse.openai import OpenAI
from tests.slow.frameworks.programs.openai_chats import QUESTION
from tests.slow.frameworks.programs.ours import instrument


@observe()  # type: ignore[untyped-decorator]
def agent() -> None:
    OpenAI().chat.completions.create(model="stub", messages=QUESTION)


@observe()  # type: ignore[untyped-decorator]
def streamed() -> Iterator[object]:
    yield from OpenAI().chat.completions.create(model="stub", messages=QUESTION, stream=True)


if __name__ == "__main__":
    instrument()
    client = get_client()
    for _ in range(2):
        agent()
        for _ in streamed():
            pass
    client.shutdown()
