"""A callback for the Trainer of Lightning: a span for each training, for each epoch in it and each optimizer step.

    Trainer(callbacks=[SpanCallback()]).fit(model, data)

With `accumulate_grad_batches`, a step has several batches. Validation is part of the epoch, not of a step.
"""

import random
from contextlib import AbstractContextManager
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from opentelemetry import trace

tracer = trace.get_tracer("example.lightning")


class SpanCallback(Callback):
    def __init__(self) -> None:
        self.spans: list[AbstractContextManager[trace.Span]] = []  # the open ones: training, epoch, step
        self.step = 0

    def begin(self, level: int, name: str, attributes: dict[str, int] | None = None) -> None:
        self.end(level)
        state = random.getstate()
        random.seed()  # OpenTelemetry makes IDs with it: after seed_everything(1), each run and rank has the same
        self.spans.append(tracer.start_as_current_span(name, attributes=attributes))
        self.spans[-1].__enter__()
        random.setstate(state)

    def end(self, level: int, *error: Any) -> None:
        while len(self.spans) > level:
            self.spans.pop().__exit__(*error or (None, None, None))

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.begin(0, "train")

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.begin(1, "train.epoch", {"train.epoch.number": trainer.current_epoch})

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *batch: Any) -> None:
        if len(self.spans) == 2:  # otherwise the step has had batches before
            self.step = trainer.global_step
            self.begin(2, "train.step", {"train.step.number": self.step})

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *batch: Any) -> None:
        if trainer.global_step > self.step:
            self.end(2)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.end(1)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.end(0)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self.end(0, type(exception), exception, exception.__traceback__)
