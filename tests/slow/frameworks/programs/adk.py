"""Spans of Google's Agent Development Kit, with a model of LiteLLM.

Usage: opentelemetry-instrument python -m tests.slow.frameworks.programs.adk
"""

import asyncio

from google.adk.agents import LlmAgent
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types


async def main() -> None:
    agent = LlmAgent(name="agent", model=LiteLlm(model="openai/stub"))
    runner = InMemoryRunner(agent=agent, app_name="program")
    question = types.Content(role="user", parts=[types.Part(text="2 + 2?")])
    for _ in range(3):
        session = await runner.session_service.create_session(app_name="program", user_id="user")
        async for _ in runner.run_async(user_id="user", session_id=session.id, new_message=question):
            pass


if __name__ == "__main__":
    asyncio.run(main())
