"""A small language model in PyTorch, trained for some steps, without code for hardware telemetry.

Alone or with several ranks under torchrun, on GPUs if there are some.
"""

import os
import time

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from opentelemetry import trace

STEPS = int(os.environ.get("STEPS", "20"))
GPU = torch.cuda.is_available()
# Sizes of which a step takes some tenths of a second: shorter spans get no hardware attributes.
WIDTH, LAYERS, BATCH, LENGTH = (2048, 12, 32, 512) if GPU else (128, 2, 64, 64)
VOCABULARY = 512

tracer = trace.get_tracer("example.training")


class LanguageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, nhead=8, dim_feedforward=4 * WIDTH, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.embedding(tokens)))


def main() -> None:
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("RANK", "0"))
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if GPU else torch.device("cpu")
    model: nn.Module = LanguageModel().to(device)
    if ranks > 1:
        distributed.init_process_group("nccl" if GPU else "gloo")
        model = DistributedDataParallel(model, device_ids=[device] if GPU else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    began = time.monotonic()
    for step in range(STEPS):
        with tracer.start_as_current_span("train.step") as span:
            text = torch.randint(VOCABULARY, (BATCH, LENGTH + 1), device=device)
            with tracer.start_as_current_span("forward"):
                logits = model(text[:, :-1])
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
            with tracer.start_as_current_span("backward"):
                optimizer.zero_grad()
                loss.backward()  # with several ranks, it also averages the gradients over them
                optimizer.step()
                if GPU:
                    torch.cuda.synchronize()  # otherwise, the span would end before the work on the GPU
            span.set_attributes({"train.step.number": step, "train.tokens": BATCH * LENGTH, "train.loss": loss.item()})
    if rank == 0:
        tokens = ranks * STEPS * BATCH * LENGTH
        print(f"{STEPS} steps on {ranks} ranks, {tokens / (time.monotonic() - began):.0f} tokens/s")
    if ranks > 1:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
