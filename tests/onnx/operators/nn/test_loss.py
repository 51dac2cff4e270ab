from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F

RNG = np.random.default_rng(8)
X = mn.tensor(RNG.normal(size=(4, 5, 3)).astype(np.float32))
Y = mn.tensor(RNG.random((4, 5, 3)).astype(np.float32))
T = mn.tensor(RNG.integers(0, 5, (4, 3)))
T.array[1, 0] = -100
W = mn.tensor(RNG.random(5).astype(np.float32))


@pytest.mark.parametrize("opset", [7, 9, 11, 12, 13, 18, 26, 28])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(
    ("loss", "target"),
    [
        (lambda x, t, r: F.cross_entropy(x, t, reduction=r), T),
        (lambda x, t, r: F.cross_entropy(x, t, W, reduction=r, ignore_index=-100), T),
        (lambda x, t, r: F.cross_entropy(x, t, W, reduction=r, label_smoothing=0.2), T),
        (lambda x, t, r: F.cross_entropy(x, t, W, reduction=r, label_smoothing=0.2), Y),
        (lambda x, t, r: F.cross_entropy(x, t, reduction=r), Y),
        (lambda x, t, r: F.nll_loss(F.log_softmax(x, 1), t, W, reduction=r), T),
        (lambda x, t, r: F.mse_loss(x, t, reduction=r), Y),
        (lambda x, t, r: F.l1_loss(x, t, reduction=r), Y),
        (lambda x, t, r: F.smooth_l1_loss(x, t, reduction=r, beta=0.3), Y),
        (lambda x, t, r: F.smooth_l1_loss(x, t, reduction=r, beta=0), Y),
        (lambda x, t, r: F.binary_cross_entropy(x.sigmoid(), t.sigmoid(), reduction=r), Y),
        (lambda x, t, r: F.binary_cross_entropy((x > 0).float(), t.sigmoid(), reduction=r), Y),
        (lambda x, t, r: F.binary_cross_entropy_with_logits(x, t, reduction=r), Y),
        (lambda x, t, r: F.binary_cross_entropy_with_logits(x, t, W[:3], reduction=r, pos_weight=W[3]), Y),
    ],
)
def test_losses(proved: Any, loss: Callable[..., Any], target: mn.Tensor, reduction: str, opset: int) -> None:
    proved(lambda x, t: loss(x, t, reduction), X, target, opset=opset)


def test_a_single_example(proved: Any, opset: int) -> None:
    t = mn.tensor(2)
    proved(lambda x: F.cross_entropy(x, t), mn.tensor([0.3, 1.0, -2.0]), opset=opset, dynamic_axes={}, batches=())


def test_the_operators_of_opset_12_are_used(proved: Any, operators: Any) -> None:
    assert operators(proved(F.cross_entropy, X, T, opset=12)) == ["SoftmaxCrossEntropyLoss"]
    assert operators(proved(F.nll_loss, X, T, opset=22)) == ["NegativeLogLikelihoodLoss"]
