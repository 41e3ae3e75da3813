"""Spans by Arize Phoenix's `register()`, of an agent that calls a model by the openai library.

Usage: python -m tests.slow.frameworks.programs.phoenix global|own
"""

import os
import sys

from openinference.instrumentation.openai import OpenAIInstrumentor
from phoenix.otel import register
from tests.slow.frameworks.programs.openai_chats import chat
from tests.slow.frameworks.programs.ours import instrument

if __name__ == "__main__":
    instrument()
    provider = register(
        endpoint=os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] + "/v1/traces",
        protocol="http/protobuf",
        set_global_tracer_provider=sys.argv[1] == "global",
        verbose=False,
    )
    OpenAIInstrumentor().instrument(tracer_provider=provider)
    tracer = provider.get_tracer(__name__)
    for _ in range(3):
        with tracer.start_as_current_span("agent"):
            chat(2)
