"""Trains a tiny GPT-2 on random tokens with the Trainer of Hugging Face and the callback of the example."""

from __future__ import annotations

import importlib
import sys
from tempfile import TemporaryDirectory
from typing import Any

import torch
from tests.programs.spans.trainings import ACCUMULATED, BATCHES, EPOCHS, EXAMPLES, STOP, Failure, Forwards, report
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

sys.path.insert(0, str(EXAMPLES))
SpanCallback = importlib.import_module("trainer_callback").SpanCallback


class Model(GPT2LMHeadModel):  # type: ignore[misc]
    """Counts its batches."""

    def __init__(self, fails: bool = False) -> None:
        super().__init__(
            GPT2Config(n_layer=1, n_head=2, n_embd=32, vocab_size=64, n_positions=16, bos_token_id=0, eos_token_id=0)
        )
        self.forwards = Forwards(fails)

    def forward(self, *arguments: Any, **options: Any) -> Any:
        self.forwards.next()
        return super().forward(*arguments, **options)


class Stop(TrainerCallback):  # type: ignore[misc]
    """Stops the training early, as a callback for early stopping does."""

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        control.should_training_stop = state.global_step == STOP


def main() -> None:
    data = [{"input_ids": tokens, "labels": tokens} for tokens in torch.randint(64, (2 * BATCHES, 16))]
    left = SpanCallback()  # without a block: the next training ends what the error left open

    def fit(callback: Any, *others: Any, fails: bool = False) -> None:
        with TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                folder,
                per_device_train_batch_size=2,
                gradient_accumulation_steps=ACCUMULATED,
                num_train_epochs=EPOCHS,
                remove_unused_columns=False,  # the model does not name its arguments
                use_cpu=True,
                report_to=[],
                save_strategy="no",
                logging_strategy="no",
                disable_tqdm=True,
            )
            Trainer(Model(fails), arguments, train_dataset=data, callbacks=[callback, *others]).train()

    def block(*others: Any, fails: bool = False) -> None:
        with SpanCallback() as spans:
            fit(spans, *others, fails=fails)

    def twice() -> None:
        try:
            fit(left, fails=True)
        except Failure:
            fit(left)

    report(
        {
            "whole": block,
            "stopped": lambda: block(Stop()),
            "failed": lambda: block(fails=True),
            "again": twice,
        }
    )


main()
