"""Losses: every mistake with labels, shapes, types and options, before anything is computed."""

from __future__ import annotations

import re

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F

LOGITS = mn.tensor(np.zeros((4, 3), np.float32), requires_grad=True)
LABELS = mn.tensor([0, 1, 2, 1])


def fails(error, message):
    return pytest.raises(error, match=re.escape(message))


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
@pytest.mark.parametrize("weighted", [False, True])
def test_labels_out_of_range(name, weighted):
    loss, weight = getattr(F, name), mn.ones(3) if weighted else None
    with fails(ValueError, f"{name}: target[2] is 3; expected a class from 0 to 2"):
        loss(LOGITS, mn.tensor([0, 1, 3, 5]), weight)
    with fails(ValueError, f"{name}: target[0] is -1; expected a class from 0 to 2"):
        loss(LOGITS, mn.tensor([-1, 1, 2, 1]), weight)
    with fails(ValueError, "or ignore_index=-1"):
        loss(LOGITS, mn.tensor([-1, 1, 2, -100]), weight, ignore_index=-1)
    with fails(ValueError, f"{name}: target[1, 2] is 9; expected a class from 0 to 2 (input (4, 3, 5) has 3 classes)"):
        target = np.zeros((4, 5), np.int64)
        target[1, 2] = 9
        loss(mn.zeros(4, 3, 5), mn.tensor(target), weight)


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_labels_of_another_shape_or_type(name):
    loss = getattr(F, name)
    with fails(
        ValueError, f"{name}: target has shape (3,), input has shape (4, 3); expected (4,), one class per example"
    ):
        loss(LOGITS, mn.tensor([0, 1, 2]))
    with fails(ValueError, f"{name}: target has shape (4, 1), input has shape (4, 3); expected (4,)"):
        loss(LOGITS, mn.tensor([[0], [1], [2], [1]]))
    with fails(ValueError, "for one-hot targets pass target.argmax(1), or probabilities in input's float type"):
        loss(LOGITS, mn.tensor(np.zeros((4, 3), np.int64)))
    with fails(TypeError, f"{name}: target is float32 of shape (4,); expected"):
        loss(LOGITS, mn.zeros(4))
    with fails(
        TypeError, f"{name}: target is bool of shape (4,); expected integer classes (int64 or int32) of shape (4,)"
    ):
        loss(LOGITS, LABELS > 0)
    with fails(TypeError, f"{name}: target is ndarray; expected a Tensor of integer classes (4,)"):
        loss(LOGITS, np.zeros(4, np.int64))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.uint64])
def test_every_integer_type_can_hold_labels(dtype):
    expected = F.cross_entropy(LOGITS, LABELS).item()
    assert F.cross_entropy(LOGITS, mn.tensor(LABELS.array.astype(dtype))).item() == expected
    assert F.nll_loss(F.log_softmax(LOGITS, 1), mn.tensor(LABELS.array.astype(dtype))).item() == pytest.approx(expected)


def test_probabilities_of_another_shape_or_type():
    with fails(
        ValueError, "cross_entropy: target is float32 of shape (4, 2); expected classes as integers of shape (4,)"
    ):
        F.cross_entropy(LOGITS, mn.zeros(4, 2))
    with fails(TypeError, "cross_entropy: target is float64, input is float32; expected one float type"):
        F.cross_entropy(LOGITS, mn.zeros(4, 3, dtype=mn.float64))


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_class_weights(name):
    loss = getattr(F, name)
    with fails(ValueError, f"{name}: weight has shape (2,); expected (3,), a factor for each of the 3 classes"):
        loss(LOGITS, LABELS, mn.ones(2))
    with fails(TypeError, f"{name}: weight is float64, input is float32; expected one float type"):
        loss(LOGITS, LABELS, mn.ones(3, dtype=mn.float64))
    with fails(ValueError, f"{name}: weight requires grad, but no gradient is computed for it; pass weight.detach()"):
        loss(LOGITS, LABELS, mn.ones(3, requires_grad=True))


@pytest.mark.parametrize(
    "name", ["cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "binary_cross_entropy_with_logits"]
)
def test_reduction_and_input_are_checked(name):
    loss = getattr(F, name)
    target = LABELS if name in ("cross_entropy", "nll_loss") else LOGITS.detach()
    with fails(ValueError, f"{name}: reduction is 'avg'; expected 'mean', 'sum' or 'none'"):
        loss(LOGITS, target, reduction="avg")
    with fails(TypeError, f"{name}: input is int64; expected a float type"):
        loss(LOGITS.detach().long(), target)
    with fails(TypeError, f"{name}: target is NoneType"):
        loss(LOGITS, None)


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "binary_cross_entropy_with_logits"])
def test_numbers_do_not_broadcast(name):
    loss = getattr(F, name)
    with fails(
        ValueError, f"{name}: target has shape (4,), input has shape (4, 1); expected equal shapes; reshape one"
    ):
        loss(mn.zeros(4, 1), mn.zeros(4))
    with fails(TypeError, f"{name}: target is int64; expected float32, the type of input; use target.to(input.dtype)"):
        loss(LOGITS, mn.zeros(4, 3, dtype=mn.int64))
    with fails(TypeError, f"{name}: target is float64, input is float32; expected one float type"):
        loss(LOGITS, mn.zeros(4, 3, dtype=mn.float64))


def test_other_options():
    with fails(ValueError, "cross_entropy: label_smoothing is 1.5; expected 0 <= label_smoothing <= 1"):
        F.cross_entropy(LOGITS, LABELS, label_smoothing=1.5)
    with fails(ValueError, "smooth_l1_loss: beta is -1; expected a number of at least 0"):
        F.smooth_l1_loss(LOGITS, LOGITS, beta=-1)
    name = "binary_cross_entropy_with_logits"
    with fails(
        ValueError, f"{name}: pos_weight has shape (4,); expected a shape that broadcasts to (4, 3), the shape of input"
    ):
        F.binary_cross_entropy_with_logits(LOGITS, LOGITS, pos_weight=mn.ones(4))
    with fails(ValueError, "cross_entropy: input has shape (); expected (N, C, ...) or (C)"):
        F.cross_entropy(mn.tensor(1.0), mn.tensor(0))
