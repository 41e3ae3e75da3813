"""A service or a rank of a training, without code for hardware telemetry, until the end of stdin. Prints its rounds.

Usage: work.py serve, or work.py train SECONDS-OF-A-STEP
"""

import select
import sys
import time

from opentelemetry import trace

tracer = trace.get_tracer("work")


def serve() -> None:
    with tracer.start_as_current_span("POST /chat", attributes={"http.route": "/chat"}):
        time.sleep(0.15)
        with tracer.start_as_current_span("chat small", attributes={"gen_ai.request.model": "small"}):
            time.sleep(0.45)
    with tracer.start_as_current_span("POST /embed", attributes={"http.route": "/embed"}):
        time.sleep(0.3)


def train() -> None:
    with tracer.start_as_current_span("train.step"):
        time.sleep(float(sys.argv[2]))


rounds = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    serve() if sys.argv[1] == "serve" else train()
    rounds += 1
print(rounds)
