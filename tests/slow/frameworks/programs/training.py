"""A training loop of PyTorch on the CPU, with a span around it and one around each step.

Usage: opentelemetry-instrument python -m tests.slow.frameworks.programs.training
"""

import time

import torch

from opentelemetry import trace

SECONDS = 0.5  # the least duration of a step

if __name__ == "__main__":
    tracer = trace.get_tracer(__name__)
    torch.set_num_threads(1)
    model = torch.nn.Linear(256, 256)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with tracer.start_as_current_span("train"):
        for _ in range(6):
            with tracer.start_as_current_span("train.step"):
                end = time.monotonic() + SECONDS
                while time.monotonic() < end:
                    optimizer.zero_grad()
                    model(torch.randn(64, 256)).square().mean().backward()
                    optimizer.step()
