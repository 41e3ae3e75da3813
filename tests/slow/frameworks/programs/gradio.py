"""A Gradio application, and two requests of its API."""

import json
import time
import urllib.request

import gradio

from opentelemetry import trace


def answer(text: str) -> str:
    with trace.get_tracer(__name__).start_as_current_span("model"):
        time.sleep(0.8)
    return text.upper()


if __name__ == "__main__":
    demo = gradio.Interface(answer, "text", "text", api_name="answer")
    _, url, _ = demo.launch(server_name="127.0.0.1", prevent_thread_lock=True)
    for word in ("four", "five"):
        body = json.dumps({"data": [word]}).encode()
        request = urllib.request.Request(f"{url}gradio_api/call/answer", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as response:
            event = json.load(response)["event_id"]
        with urllib.request.urlopen(f"{url}gradio_api/call/answer/{event}") as response:
            assert word.upper().encode() in response.read()
    demo.close()
