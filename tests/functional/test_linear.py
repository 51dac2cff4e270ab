"""F.linear: what it refuses."""

from __future__ import annotations

import re

import pytest

import minorm as mn
import minorm.functional as F


def fails(error, message):
    return pytest.raises(error, match=re.escape(message))


def test_mistakes():
    x, w = mn.ones(4, 3), mn.ones(2, 3)
    with fails(ValueError, "linear: x has 5 features in its last axis, weight takes 3; expected x.shape[-1] == "):
        F.linear(mn.ones(4, 5), w)
    with fails(
        ValueError,
        "x.shape is (4, 3, 2, 2), weight.shape is (2, 3); to join all axes after the first, pass x.flatten(1)",
    ):
        F.linear(mn.ones(4, 3, 2, 2), w)
    with fails(ValueError, "linear: x has no features in its last axis"):
        F.linear(mn.tensor(1.0), w)
    with fails(ValueError, "linear: weight has shape (3,); expected 2 dimensions (out, in)"):
        F.linear(x, mn.ones(3))
    with fails(ValueError, "linear: bias has shape (3,); expected (2,), one number for each output"):
        F.linear(x, w, mn.ones(3))
    with fails(
        TypeError, "linear: weight is float64, x is float32; expected one float type; convert one, for example "
    ):
        F.linear(x, w.double())
    with fails(TypeError, "linear: weight is NoneType; expected a Tensor"):
        F.linear(x, None)
