"""Spans as vLLM makes them: a child computes, and its parent makes the span of each request after the answer.

Usage: opentelemetry-instrument python -m tests.slow.frameworks.programs.after_the_fact
"""

import multiprocessing
import time
from multiprocessing.queues import Queue

from opentelemetry import trace

SECONDS = 0.5


def engine(questions: "Queue[int]", answers: "Queue[int]") -> None:
    """Answer each question after a while, until its parent ends."""
    while True:
        question = questions.get()
        time.sleep(SECONDS)
        answers.put(question)


if __name__ == "__main__":
    tracer = trace.get_tracer("vllm.llm_engine")
    context = multiprocessing.get_context("spawn")
    asked: "Queue[int]" = context.Queue()
    answered: "Queue[int]" = context.Queue()
    context.Process(target=engine, args=(asked, answered), daemon=True).start()
    asked.put(0)
    answered.get()  # it has started
    for burst in (4, 1):
        begins = {}
        for number in range(burst):
            begins[number] = time.time_ns()
            asked.put(number)
        for _ in range(burst):
            begin = begins[answered.get()]
            span = tracer.start_span("llm_request", start_time=begin, kind=trace.SpanKind.SERVER)
            span.set_attribute("gen_ai.usage.output_tokens", 40)
            span.end(time.time_ns())
