"""gradcheck must catch wrong gradients, or every gradient test is worth nothing."""

from __future__ import annotations

import numpy as np
import pytest

from minorm.autograd import Function
from minorm.testing import gradcheck


class Cube(Function):
    factor = 3.0

    def forward(self, x):
        self.x = x
        return x**3

    def backward(self, dy):
        return dy * self.factor * self.x**2


class WrongCube(Cube):
    factor = 3.0001


class Forgotten(Cube):
    def backward(self, dy):
        return None


def test_a_right_gradient_passes(rng) -> None:
    assert gradcheck(Cube.apply, rng.standard_normal(5)) < 1e-8


@pytest.mark.parametrize("wrong", [WrongCube, Forgotten])
def test_a_wrong_gradient_is_shown(wrong, rng) -> None:
    with pytest.raises(
        AssertionError, match=r"gradcheck: output 0, input 0 at \(\d,\): backward says .* finite differences say"
    ):
        gradcheck(wrong.apply, rng.standard_normal(5) + 2)


def test_a_nan_is_an_error() -> None:
    with pytest.raises(AssertionError), np.errstate(invalid="ignore"):
        gradcheck(lambda x: x.log(), np.array([-1.0]))


def test_float32_is_refused() -> None:
    with pytest.raises(TypeError, match="gradcheck: input 0 is float32; expected float64"):
        gradcheck(Cube.apply, np.ones(2, np.float32))
