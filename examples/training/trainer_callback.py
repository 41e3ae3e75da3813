"""A callback for the Trainer of Hugging Face: a span for each training, for each epoch in it and each optimizer step.

    with SpanCallback() as spans:
        Trainer(model, arguments, train_dataset=data, callbacks=[spans]).train()

The Trainer does not tell its callbacks of an exception: the end of the block ends the spans that are still open.
"""

import random
from contextlib import AbstractContextManager
from typing import Any

from transformers import TrainerCallback

from opentelemetry import trace

tracer = trace.get_tracer("example.trainer")


class SpanCallback(TrainerCallback):
    def __init__(self) -> None:
        self.spans: list[AbstractContextManager[trace.Span]] = []  # the open ones: training, epoch, step

    def begin(self, level: int, name: str, attributes: dict[str, int] | None = None) -> None:
        self.end(level)  # what an exception in an earlier training left open
        state = random.getstate()
        random.seed()  # OpenTelemetry makes IDs with it: with the seed of the Trainer, each run and rank has the same
        self.spans.append(tracer.start_as_current_span(name, attributes=attributes))
        self.spans[-1].__enter__()
        random.setstate(state)

    def end(self, level: int, *error: Any) -> None:
        while len(self.spans) > level:
            self.spans.pop().__exit__(*error or (None, None, None))

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.begin(0, "train")

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.begin(1, "train.epoch", {"train.epoch.number": round(state.epoch or 0)})

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.begin(2, "train.step", {"train.step.number": state.global_step})

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.end(2)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.end(1)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.end(0)

    def __enter__(self) -> "SpanCallback":
        return self

    def __exit__(self, *error: object) -> None:
        self.end(0, *error)
