"""Trains a tiny model on random numbers with the Trainer of Lightning and the callback of the example."""

from __future__ import annotations

import importlib
import logging
import sys
import warnings
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from tests.programs.spans.trainings import ACCUMULATED, BATCHES, EPOCHS, EXAMPLES, STOP, Failure, Forwards, report
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(EXAMPLES))
SpanCallback = importlib.import_module("lightning_callback").SpanCallback


class Model(LightningModule):  # type: ignore[misc]
    """A linear regression, which counts its batches."""

    def __init__(self, fails: bool = False) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
        self.forwards = Forwards(fails)

    def training_step(self, batch: list[torch.Tensor], number: int) -> torch.Tensor:
        self.forwards.next()
        return self.layer(batch[0]).square().mean()

    def validation_step(self, batch: list[torch.Tensor], number: int) -> None:
        self.layer(batch[0])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Stop(Callback):  # type: ignore[misc]
    """Stops the training early, as a callback for early stopping does."""

    def on_train_batch_end(self, trainer: Trainer, *others: Any) -> None:
        trainer.should_stop = trainer.global_step == STOP


def main() -> None:
    warnings.simplefilter("ignore")
    logging.getLogger("lightning").setLevel(logging.ERROR)
    data = DataLoader(TensorDataset(torch.rand(2 * BATCHES, 8)), batch_size=2)
    left = SpanCallback()

    def fit(callback: Any, *others: Any, fails: bool = False) -> None:
        seed_everything(1, verbose=False)
        trainer = Trainer(
            accelerator="cpu",
            devices=1,
            max_epochs=EPOCHS,
            accumulate_grad_batches=ACCUMULATED,
            callbacks=[callback, *others],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(Model(fails), data, data)

    def twice() -> None:
        try:
            fit(left, fails=True)
        except Failure:
            fit(left)

    report(
        {
            "whole": lambda: fit(SpanCallback()),
            "stopped": lambda: fit(SpanCallback(), Stop()),
            "failed": lambda: fit(SpanCallback(), fails=True),
            "again": twice,
        }
    )


main()
