"""Spans of OpenLIT: chat completions, with and without a span around them."""

import os

import openlit
from tests.slow.frameworks.programs.openai_chats import chat
from tests.slow.frameworks.programs.ours import instrument

if __name__ == "__main__":
    instrument()
    openlit.init(otlp_endpoint=os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"], application_name="frameworks")
    with openlit.start_trace("agent"):
        chat(2)
    chat(3)
