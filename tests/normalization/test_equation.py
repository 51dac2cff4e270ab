"""1/std and its slope against numbers worked out by hand and finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from minorm.normalization.equation import Equation


def test_rstd():
    var = np.array([0.0, 4.0])
    np.testing.assert_allclose(Equation(1.0).rstd(var), [1, 1 / np.sqrt(5)])
    np.testing.assert_allclose(Equation(1.0, guard=True).rstd(var), [0, 1 / 3])
    np.testing.assert_array_equal(Equation(0.0, guard=True).rstd(var), [0, 1 / 2])


def test_rstd_of_too_few_elements_is_0():
    var, count = np.zeros(3), np.array([0, 1, 2])
    for guard in (False, True):
        np.testing.assert_array_equal(Equation(1.0, True, guard).rstd(var + 1, count) > 0, count > 1)
    np.testing.assert_array_equal(Equation(1.0, centered=False).rstd(var, count), [0, 1, 1])


@pytest.mark.parametrize("equation", [Equation(0.3), Equation(0.3, guard=True)], ids=str)
def test_slope_is_what_the_derivative_of_rstd_leaves(equation):
    # d(rstd)/d(var) = -1/2 * rstd^3 * slope * (a factor that is 1 without the guard)
    var, h = np.array([0.5, 2.0, 9.0]), 1e-6
    numerical = (equation.rstd(var + h) - equation.rstd(var - h)) / (2 * h)
    np.testing.assert_allclose(numerical, -0.5 * equation.rstd(var) ** 3 * equation.slope(var), rtol=1e-8)


def test_slope_is_0_where_everything_is_equal():
    np.testing.assert_array_equal(Equation(1e-9, guard=True).slope(np.array([0.0, 0.0])), 0)
    assert Equation().slope(np.zeros(2)) == 1


def test_equations_compare_and_print():
    assert Equation() == Equation(1e-5, True, False)
    assert hash(Equation()) == hash(Equation(1e-5))
    assert str(Equation(1e-9, True, True)) == "y = (x - mean) / (std + eps) * s + b, eps=1e-09"
    assert str(Equation(1e-6, False)) == "y = (x) / sqrt(var + eps) * s + b, eps=1e-06"
