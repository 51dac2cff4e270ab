"""Reductions against NumPy and PyTorch over every set of axes, gradients against finite differences."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import minorm as mn
from minorm.devices import dtypes
from minorm.ops import reduction
from minorm.testing import gradcheck

AXES = [None, *range(-1, 3), *itertools.combinations(range(3), 2), (0, 1, 2), ()]


@pytest.mark.parametrize("dim", AXES)
@pytest.mark.parametrize("keepdim", [False, True])
def test_sum_mean_amax_amin(dim, keepdim, rng) -> None:
    x = rng.standard_normal((2, 3, 4))
    t = mn.tensor(x)
    for ours, theirs in ((t.sum, x.sum), (t.mean, x.mean), (t.amax, x.max), (t.amin, x.min)):
        axis = None if dim == () else dim  # no axis is every axis, as in PyTorch
        np.testing.assert_allclose(ours(dim, keepdim).array, theirs(axis=axis, keepdims=keepdim), rtol=1e-13)


@pytest.mark.parametrize("name", ["sum", "mean", "amax", "amin", "var", "std"])
@pytest.mark.parametrize("dim", [None, 1, (0, 2)])
def test_gradients(name, dim, rng) -> None:
    gradcheck(lambda x: getattr(x, name)(dim), rng.standard_normal((2, 3, 4)))
    gradcheck(lambda x: getattr(x, name)(dim, keepdim=True), rng.standard_normal((2, 3, 4)))


def test_var_divides_by_n_minus_1_unless_told() -> None:
    x = mn.tensor([1.0, 2.0, 4.0])
    assert x.var().item() == pytest.approx(np.var([1, 2, 4], ddof=1))
    assert x.var(unbiased=False).item() == pytest.approx(np.var([1, 2, 4]))


def test_max_with_dim_gives_values_and_indices(rng) -> None:
    x = rng.standard_normal((3, 5))
    values, indices = mn.tensor(x).max(1)
    np.testing.assert_array_equal(values.array, x.max(1))
    np.testing.assert_array_equal(indices.array, x.argmax(1))
    assert mn.tensor(x).min(0, keepdim=True).indices.shape == (1, 5)
    gradcheck(lambda t: t.max(1).values, x)


def test_equal_maxima_share_the_gradient_as_in_torch() -> None:
    torch = pytest.importorskip("torch")
    data = [[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]]
    ours, theirs = mn.tensor(data, requires_grad=True), torch.tensor(data, requires_grad=True)
    ours.amax(1).sum().backward()
    theirs.amax(1).sum().backward()
    np.testing.assert_array_equal(ours.grad.array, theirs.grad.numpy())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_floats_are_summed_in_float32(dtype) -> None:
    assert float(mn.ones(10_000, dtype=dtype).sum().array) == pytest.approx(10_000, rel=2**-8)
    assert float(mn.ones(70_000, dtype=dtype).mean().array) == 1.0


def test_integers_sum_to_int64() -> None:
    assert mn.tensor([1, 2, 3]).sum().dtype == mn.int64
    assert mn.tensor([True, True]).sum().item() == 2


def test_errors_name_dim_and_shape() -> None:
    with pytest.raises(IndexError, match=r"sum: dim=3 is out of range for shape \(2, 3\)"):
        mn.zeros(2, 3).sum(3)
    with pytest.raises(ValueError, match=r"mean: dim=\(0, -2\) names an axis twice"):
        mn.zeros(2, 3).mean((0, -2))
    with pytest.raises(
        ValueError, match=r"amax: x has no elements along a reduced axis, .*; shape is \(0, 3\); expected .* every axis"
    ):
        mn.zeros(0, 3).amax()
    with pytest.raises(ValueError, match=r"argmax: x has no elements along a reduced axis, .* along axes \(0,\)"):
        mn.zeros(0, 3).argmax(0)


def test_an_extreme_of_no_rows_is_empty() -> None:
    x = mn.zeros(0, 10, requires_grad=True)
    assert x.argmax(1).shape == x.argmin(1).shape == (0,)
    assert x.argmax(1).dtype == mn.int64
    assert x.amax(1, keepdim=True).shape == (0, 1)
    values, indices = x.max(1)
    assert values.shape == indices.shape == (0,)
    values.sum().backward()
    assert x.grad.shape == (0, 10)


def test_a_nan_takes_the_gradient_of_the_largest_of_all() -> None:
    x = mn.tensor([1.0, np.nan, 3.0, np.nan], requires_grad=True)
    x.max().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [0, 0.5, 0, 0.5])
    x.grad = None
    x.amin(0).backward()
    assert np.isnan(x.grad.numpy()).all()


@pytest.mark.parametrize("name", ["var", "std"])
def test_equal_elements_have_no_gradient(name) -> None:
    x = mn.full((3, 4), 2.5, requires_grad=True)
    getattr(x, name)(1).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.zeros((3, 4)))


def test_the_mean_of_nothing_is_nan_without_a_warning() -> None:
    assert np.isnan(mn.zeros(0).mean().item())


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 2), (0, 1, 2), ()])
@pytest.mark.parametrize("keepdims", [True, False])
def test_prod_also_with_zeros(rng, axes, keepdims):
    x = rng.uniform(0.5, 2, (2, 3, 4))
    x[0, 1], x[1, 1, 2], x[1, 2, 2:] = 0, 0, 0

    def product(x):
        return reduction.Prod.apply(x, axes=axes, keepdims=keepdims)

    np.testing.assert_allclose(product(mn.Tensor(x)).array, x.prod(axes, keepdims=keepdims))
    gradcheck(product, x)


@pytest.mark.parametrize("axes", [(0,), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("keepdims", [True, False])
def test_log_sum_exp(rng, axes, keepdims):
    x = rng.normal(0, 2, (2, 3, 4))

    def function(x):
        return reduction.LogSumExp.apply(x, axes=axes, keepdims=keepdims)

    np.testing.assert_allclose(function(mn.Tensor(x)).array, np.log(np.exp(x).sum(axes, keepdims=keepdims)))
    np.testing.assert_allclose(function(mn.Tensor(x + 5000)).array, 5000 + function(mn.Tensor(x)).array)
    gradcheck(function, x)


def test_log_sum_exp_of_nothing_and_of_infinities():
    x = np.array([[-np.inf, -np.inf], [np.inf, 0]])
    y = reduction.LogSumExp.apply(mn.Tensor(x), axes=(1,), keepdims=False)
    assert y.tolist() == [-np.inf, np.inf]
    empty = reduction.LogSumExp.apply(mn.Tensor(np.zeros((2, 0))), axes=(1,), keepdims=False)
    assert empty.tolist() == [-np.inf, -np.inf]


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 2])
def test_cumulative_sums(rng, axis, exclusive, reverse):
    x = rng.normal(size=(2, 3, 4))

    def function(x):
        return reduction.CumSum.apply(x, axis=axis, exclusive=exclusive, reverse=reverse)

    ordered = np.flip(x, axis) if reverse else x
    want = np.cumsum(ordered, axis) - (ordered if exclusive else 0)
    np.testing.assert_allclose(function(mn.Tensor(x)).array, np.flip(want, axis) if reverse else want, atol=1e-12)
    gradcheck(function, x)


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16, mn.float64, mn.uint8])
def test_the_best_places_and_of_equals_the_first(rng, largest, dtype):
    x = rng.integers(0, 4, (5, 9)).astype(dtype)
    places = reduction.TopPlaces.apply(mn.Tensor(x), count=4, axis=1, largest=largest)
    for row, found in zip(x.astype(int), places.array, strict=True):
        assert found.tolist() == sorted(range(9), key=lambda i: (-row[i] if largest else row[i], i))[:4]


@pytest.mark.parametrize("name", ["amax", "amin"])
def test_extremes_of_short_rows(name, rng):
    """Column after column gives what NumPy finds, NaN too, also of 16 bits and of rows that lie apart."""
    for dtype, n in itertools.product((dtypes.float32, dtypes.bfloat16, dtypes.int64), (1, 2, 6, 16, 17)):
        x = (rng.standard_normal((7, 2 * n)) * 9).astype(dtype)[:, ::2]
        if dtype != dtypes.int64:
            x[3, n // 2] = np.nan
        found = getattr(mn.from_numpy(x), name)(-1)
        wanted = getattr(np, name[1:])(x, -1)
        assert found.array.dtype == wanted.dtype
        np.testing.assert_array_equal(found.array.astype(np.float64), wanted.astype(np.float64))
