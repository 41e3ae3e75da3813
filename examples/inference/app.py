"""A text generator behind FastAPI, without code for hardware telemetry.

As a program it serves, sends itself some requests, and ends. `uvicorn app:app` only serves.
"""

import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from json import load
from math import tanh
from typing import Any
from urllib.request import ProxyHandler, build_opener

import uvicorn
from fastapi import FastAPI

from opentelemetry import trace

try:
    import torch
except ImportError:  # then the model is plain Python
    torch = None

LETTERS = " abcdefghijklmnopqrstuvwxyz"


class Model:
    """A recurrent network with random weights: its text makes no sense, but its work is real."""

    def __init__(self) -> None:
        on_gpu = torch is not None and torch.cuda.is_available()
        self.size, self.layers = (16384, 32) if on_gpu else (192, 1)
        self.device = "cuda" if on_gpu else "cpu"
        self.weights: Any
        if torch is None:
            self.weights = [[random.gauss(0, 0.1) for _ in range(self.size)] for _ in range(self.size)]
        else:
            self.weights = torch.randn(self.size, self.size, device=self.device) * 0.1

    def generate(self, tokens: int) -> str:
        state: Any = [random.random() for _ in range(self.size)]
        if torch is not None:
            state = torch.tensor(state, device=self.device)
        text = ""
        for _ in range(tokens):
            for _ in range(self.layers):
                if torch is not None:
                    state = torch.tanh(self.weights @ state)
                else:
                    state = [tanh(sum(map(float.__mul__, row, state))) for row in self.weights]
            text += LETTERS[int((float(state[0]) + 1) / 2 * (len(LETTERS) - 1))]
        return text


model = Model()
app = FastAPI()


@app.post("/generate")
def generate(max_tokens: int) -> dict[str, Any]:
    text = model.generate(max_tokens)
    # The number of tokens turns the joules of the request into joules per token.
    trace.get_current_span().set_attribute("gen_ai.usage.output_tokens", len(text))
    return {"tokens": len(text), "text": text}


def main() -> None:
    port = int(os.environ.get("PORT", "8000"))
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning"))
    serving = threading.Thread(target=server.run)
    serving.start()
    while not server.started and serving.is_alive():
        time.sleep(0.05)

    opener = build_opener(ProxyHandler({}))

    def request(tokens: int) -> int:
        with opener.open(f"http://127.0.0.1:{port}/generate?max_tokens={tokens}", data=b"") as response:
            return int(load(response)["tokens"])

    # First one after the other, then two at a time.
    sizes = [int(word) for word in os.environ.get("MAX_TOKENS", "100,200,400").split(",")]
    with ThreadPoolExecutor(2) as pool:
        total = sum(map(request, sizes)) + sum(pool.map(request, sizes))
    print(f"{2 * len(sizes)} requests, {total} tokens")
    server.should_exit = True
    serving.join()


if __name__ == "__main__":
    main()
