"""The function form of methods, and functions of several Tensors."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn


@pytest.mark.parametrize("name", ["exp", "sqrt", "sin", "cos", "abs", "sum", "mean", "var", "flatten", "argmax"])
def test_function_and_method_agree(name, rng) -> None:
    x = mn.tensor(rng.uniform(0.1, 1, (3, 4)))
    np.testing.assert_array_equal(getattr(mn, name)(x).array, getattr(x, name)().array)


def test_functions_with_arguments(rng) -> None:
    x = mn.tensor(rng.standard_normal((3, 4)))
    np.testing.assert_array_equal(mn.transpose(x, 0, 1).array, x.array.T)
    np.testing.assert_array_equal(mn.permute(x, (1, 0)).array, x.array.T)
    np.testing.assert_array_equal(mn.reshape(x, (2, 6)).array, x.array.reshape(2, 6))
    np.testing.assert_array_equal(mn.clamp(x, 0, 1).array, x.array.clip(0, 1))
    np.testing.assert_array_equal(mn.gather(x, 0, [[0, 1]]).array, [[x.array[0, 0], x.array[1, 1]]])
    np.testing.assert_allclose(
        mn.matmul(x, x.T).array, x.array @ x.array.T, rtol=0, atol=1e-14
    )  # BLAS has its own order
    assert [p.shape for p in mn.split(x, 2)] == [(2, 4), (1, 4)]


def test_allclose() -> None:
    assert mn.allclose(mn.ones(2), np.ones(2))
    assert not mn.allclose(mn.ones(2), [1.0, 1.1])
    assert not mn.allclose(mn.tensor(float("nan")), 0.0)


def test_cat_promotes_integers_and_refuses_two_floats() -> None:
    assert mn.cat([mn.ones(2), mn.tensor([1, 2])]).dtype == mn.float32
    with pytest.raises(TypeError, match="cat: operands are float32 and float64"):
        mn.cat([mn.ones(2), mn.ones(2, dtype=mn.float64)])


def test_columns_are_stacked_as_numpy_stacks_them() -> None:
    parts = np.arange(3.0), np.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(mn.column_stack([mn.tensor(p) for p in parts]).numpy(), np.column_stack(parts))
    assert mn.column_stack([mn.tensor(1), mn.tensor(2)]).tolist() == [[1, 2]]
    with pytest.raises(ValueError, match=r"cat: tensor 1 is \(3, 1\), tensor 0 is \(2, 1\)"):
        mn.column_stack([mn.zeros(2), mn.zeros(3)])
