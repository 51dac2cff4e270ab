"""Score: the mean loss of all samples so far, and the share of right predictions if targets are classes."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.diagnosis.finite import NonFiniteLoss
from minorm.support.documented import documented
from minorm.tensor import combining
from minorm.tensor.tensor import Tensor


@documented({}, parts="how many ranks share each batch; until `pool` the samples are those of this rank")
class Score:
    """The score of one pass over the data: accuracy = right / counted, the loss and the speed.

    Predictions are counted if targets are classes. These are integers of shape (N, d1, ...) for logits of shape (N, C,
    d1, ...): one target for each sample, or for each pixel of a mask. A target that is `ignore_index` or none of the C
    classes does not count.

    Example:
        >>> score = mn.training.Score()
        >>> score.add(mn.tensor(0.5), mn.tensor([[0.0, 1.0], [1.0, 0.0]]), mn.tensor([1, 1]))
        >>> score.accuracy, score.loss
        (0.5, 0.5)
    """

    def __init__(self, parts: int = 1) -> None:
        self.parts = parts
        self.images = 0
        self.correct = 0
        self.counted = 0  # predictions that count, right or wrong: one for each label or pixel
        self.last_loss = math.nan  # of the newest batch
        self.seconds = 0.0  # from the start to the newest batch
        self._sum_of_losses = 0.0
        self._summed = False
        self._divisor = 0.0  # the sum of the batches' divisors: samples, or the weights of targets
        self._start = time.perf_counter()

    def add(
        self,
        loss: Tensor,
        logits: Any,
        labels: Tensor,
        ignore_index: int | None = None,
        *,
        divisor: float | None = None,
        summed: bool = False,
    ) -> None:
        """Add one batch to the score. Raises NonFiniteLoss if its loss is NaN or infinite.

        divisor  the divisor of the mean loss; None is the number of samples. If it is 0, the loss is ignored
        summed   True if the loss is a sum instead of a mean: the losses of all batches are added up
        """
        self.count(loss, labels, judged(logits, labels, ignore_index), divisor=divisor, summed=summed)

    def count(
        self, loss: Tensor, labels: Tensor, judged: Tensor | None, *, divisor: float | None = None, summed: bool = False
    ) -> None:
        """Add one batch like `add`. `judged` has two numbers: how many predictions are right, and how many count."""
        count = labels.shape[0] if labels.ndim else 1
        self._summed = summed
        share = 0.0 if summed else count if divisor is None else divisor
        if share or summed:
            self.last_loss = loss.item()
            if not math.isfinite(self.last_loss):
                raise NonFiniteLoss(f"the loss is {self.last_loss} after {self.images:,} images of this epoch")
            self._sum_of_losses += self.last_loss * share if share else self.last_loss / self.parts
        self.seconds = time.perf_counter() - self._start
        self.images += count
        self._divisor += share
        if judged is not None:
            right, counted = judged.tolist()
            self.correct += right
            self.counted += counted

    def pool(self, group: Any) -> None:
        """Add up the counts of all ranks of a distributed run. Each rank sends one message."""
        mine = np.array([self.images, self.correct, self.counted, self._sum_of_losses, self._divisor, self._summed])
        images, correct, counted, *rest = group.all_reduce(mine, label="the score").tolist()
        self._sum_of_losses, self._divisor, self._summed = rest[0], rest[1], bool(rest[2])
        self.images, self.correct, self.counted, self.parts = int(images), int(correct), int(counted), 1

    @property
    def loss(self) -> float:
        """The mean loss over all targets that count. If the loss is a sum, it is the sum over all batches."""
        return self._sum_of_losses / (1 if self._summed else self._divisor or max(1, self.images))

    @property
    def nothing_counts(self) -> bool:
        """Whether there were images, but no target that counted."""
        return bool(self.images) and not self._divisor and not self._summed

    @property
    def accuracy(self) -> float | None:
        """The share of predictions whose largest logit belongs to the right class; None if targets are not classes."""
        if self.images and not self.counted:
            return None
        return self.correct / max(1, self.counted)

    @property
    def images_per_second(self) -> float:
        """The images per second. The time includes everything that the loop does between batches."""
        return self.images * self.parts / max(1e-9, self.seconds)

    def __repr__(self) -> str:
        said = [f"{self.images:,} images", f"loss={self.loss:.6g}"]
        if self.accuracy is not None:
            said.append(f"accuracy={self.accuracy:.4f}")
        return f"Score({', '.join(said)}, {self.images_per_second:,.0f} images/s)"


def judged(logits: Any, labels: Tensor, ignore_index: int | None) -> Tensor | None:
    """Return (right, counted) as a Tensor on the logits' device; return None if targets are not classes.

    The host does not wait for this Tensor.
    """
    if not _are_classes(logits, labels):
        return None
    classes = logits.shape[1]
    counts = (labels >= 0) & (labels < classes)
    if ignore_index is not None and 0 <= ignore_index < classes:
        counts = counts & (labels != ignore_index)
    right = (logits.detach().argmax(1) == labels) & counts
    return combining.stack([right.sum(), counts.sum()])


def _are_classes(logits: Any, labels: Tensor) -> bool:
    """Return True if `logits` have a shape (N, C, d1, ...) and `labels` are integers of shape (N, d1, ...)."""
    if not isinstance(logits, Tensor) or logits.ndim < 2 or logits.numel() == 0 or labels.dtype == dtypes.bool:
        return False
    return not dtypes.is_float(labels.dtype) and labels.shape == logits.shape[:1] + logits.shape[2:]
