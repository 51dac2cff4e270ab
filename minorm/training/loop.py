"""The training loop: forward, loss, backward, step, for every batch. The rest of this package stands around it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

from minorm.autograd import no_grad
from minorm.data import DataLoader
from minorm.nn import Module
from minorm.tensor import Tensor


def train_epoch(
    model: Module,
    loader: DataLoader,
    loss_function: Callable[[Tensor, Tensor], Tensor],
    optimizer: Any,
    scheduler: Any = None,
    after_step: Callable[[Score], None] | None = None,
) -> Score:
    """One pass over the training data; the learning rate's schedule moves on after every batch.

    The model may be on a GPU; batches are brought there.

    after_step  called after every batch with the score so far: to show progress, to record
    Raises NonFiniteLoss as soon as a loss is NaN or infinite, before it reaches the parameters.
    """
    model.train()
    score = Score()
    for images, labels in _batches(model, loader):
        logits = model(images)
        loss = loss_function(logits, labels)
        score.add(loss, logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        if after_step is not None:
            after_step(score)
    return score


def evaluate(model: Module, loader: DataLoader, loss_function: Callable[[Tensor, Tensor], Tensor]) -> Score:
    """Loss and accuracy in evaluation mode; the model is left in the mode it was in."""
    before, score = model.training, Score()
    model.eval()
    with no_grad():
        for images, labels in _batches(model, loader):
            logits = model(images)
            score.add(loss_function(logits, labels), logits, labels)
    model.train(before)
    return score


def predict(model: Module, images: Tensor) -> Tensor:
    """The model's output in evaluation mode, without a graph; the model is left in the mode it was in."""
    before = model.training
    model.eval()
    with no_grad():
        result: Tensor = model(images.to(_device(model)))
    model.train(before)
    return result


def _batches(model: Module, loader: DataLoader) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches of the loader, which are on the CPU, where the model is."""
    device = _device(model)
    for images, labels in loader:
        yield images.to(device), labels.to(device)


def _device(model: Module) -> str:
    return next((p.device for p in model.parameters()), "cpu")


class NonFiniteLoss(ArithmeticError):
    """A loss became NaN or infinite; nothing useful can follow."""


class Score:
    """The mean loss and the accuracy over the images seen so far, and how fast they came."""

    def __init__(self) -> None:
        self.images = 0
        self.correct = 0
        self.last_loss = math.nan  # of the newest batch alone
        self.seconds = 0.0  # from the start to the newest batch
        self._sum_of_losses = 0.0
        self._start = time.perf_counter()

    def add(self, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Count one batch, given its mean loss."""
        self.last_loss = loss.item()
        if not math.isfinite(self.last_loss):
            raise NonFiniteLoss(f"the loss is {self.last_loss} after {self.images:,} images of this epoch; "
                                "a lower learning rate is the usual cure")  # fmt: skip
        self.seconds = time.perf_counter() - self._start
        count = labels.shape[0]
        self.images += count
        self.correct += int((logits.detach().argmax(1) == labels).sum().item())
        self._sum_of_losses += self.last_loss * count

    @property
    def loss(self) -> float:
        """The mean over the images."""
        return self._sum_of_losses / max(1, self.images)

    @property
    def accuracy(self) -> float:
        """The share of images whose largest logit is the right one."""
        return self.correct / max(1, self.images)

    @property
    def images_per_second(self) -> float:
        """Whatever the loop did between two batches included."""
        return self.images / max(1e-9, self.seconds)
