"""Spans of Pydantic AI through logfire, which is configured before this package starts: two agents at a time."""

import asyncio

import logfire
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from tests.slow.frameworks.programs.ours import instrument


async def main() -> None:
    agent = Agent(OpenAIChatModel("stub"), name="agent")
    await asyncio.gather(agent.run("2 + 2?"), agent.run("2 + 2?"))
    async with agent.run_stream("2 + 2?") as streamed:
        async for _ in streamed.stream_text():
            pass


if __name__ == "__main__":
    logfire.configure(send_to_logfire=False, console=False)
    logfire.instrument_pydantic_ai()
    instrument()
    asyncio.run(main())
