"""Spans of OpenAI's Agents SDK by OpenInference, which makes them from those of the SDK: two agents and a stream."""

import asyncio

from agents import Agent, AsyncOpenAI, OpenAIChatCompletionsModel, Runner
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from tests.slow.frameworks.programs.ours import instrument


async def main() -> None:
    agent = Agent(name="agent", model=OpenAIChatCompletionsModel("stub", AsyncOpenAI()))
    await asyncio.gather(Runner.run(agent, "2 + 2?"), Runner.run(agent, "2 + 2?"))
    async for _ in Runner.run_streamed(agent, "2 + 2?").stream_events():
        pass


if __name__ == "__main__":
    instrument()
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    OpenAIAgentsInstrumentor().instrument(tracer_provider=provider)
    asyncio.run(main())
